"""Constants as kernels read them: where they lie, but for small ones of a mapped file.

To read a few bytes of a mapped file the system maps what lies around them: 64 KiB, and megabytes of
a file that it keeps in large pages. The scales of a model's layers, some KiB each, would bring in
all the weights between them. They are read into memory of their own, past the mapping.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.device.buffer import Buffer
from arenite.device.disk import DiskAllocator
from arenite.ir.data import BufferSource
from arenite.ir.outline import Outline
from arenite.program.compiled import Compiled

Array = NDArray[Any]

#: What the system maps around a byte that is touched, at the least.
TOUCHED_NBYTES = 2**16


def constants_of(
    outline: Outline, compiled: Compiled
) -> tuple[dict[int, Array], list[DiskAllocator]]:
    """Arrays of the constants by number of their value, the graph's own or the program's, and the
    files that they lie in."""
    frame = compiled.frame
    read_once = set(frame.given_back.tolist())  # the load step gives their pages back
    files: dict[DiskAllocator, None] = {}
    found: dict[int, Array] = {}
    for number in frame.numbers("constant"):
        source = int(frame.sources[number])
        if source < 0:
            found[number] = compiled.constants[-1 - source]
            continue
        constant = outline.constants[source]
        found[number] = array = constant.held()
        storage = constant.storage if isinstance(constant, BufferSource) else None
        if isinstance(storage, Buffer) and isinstance(storage.allocator, DiskAllocator):
            files[storage.allocator] = None
            if array.nbytes < TOUCHED_NBYTES and number not in read_once:
                found[number] = np.empty_like(array)
                storage.copyout(found[number])
    return found, list(files)
