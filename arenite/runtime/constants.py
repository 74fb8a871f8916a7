"""Constants as kernels read them: where they lie, but for small ones of a mapped file.

To read a few bytes of a mapped file the system maps what lies around them: 64 KiB, and megabytes of
a file that it keeps in large pages. The scales of a model's layers, some KiB each, would bring in
all the weights between them. They are copied, and the pages they came from given back.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from arenite.device.buffer import Buffer
from arenite.device.disk import DiskAllocator
from arenite.ir.data import BufferSource, ConstantData
from arenite.ir.outline import Outline
from arenite.runtime.compiled import Compiled

Array = NDArray[Any]

#: What the system maps around a byte that is touched, at the least.
TOUCHED_NBYTES = 2**16


def constants_of(outline: Outline, compiled: Compiled) -> dict[int, Array]:
    """Arrays of the constants by number of their value: the graph's own, or the program's."""
    frame = compiled.frame
    read_once = set(frame.given_back.tolist())  # the load step gives their pages back
    files: set[DiskAllocator] = set()
    found: dict[int, Array] = {}
    for number in frame.numbers("constant"):
        source = int(frame.sources[number])
        if source < 0:
            found[number] = compiled.constants[-1 - source]
            continue
        constant = outline.constants[source]
        found[number] = array = constant.held()
        file = _file_of(constant)
        if file is not None and array.nbytes < TOUCHED_NBYTES and number not in read_once:
            found[number] = array.copy()
            files.add(file)
    for file in files:
        whole = file.file()
        file.drop_pages(whole.raw_ptr, whole.nbytes)
    return found


def _file_of(constant: ConstantData | BufferSource) -> DiskAllocator | None:
    storage = constant.storage if isinstance(constant, BufferSource) else None
    allocator = storage.allocator if isinstance(storage, Buffer) else None
    return allocator if isinstance(allocator, DiskAllocator) else None
