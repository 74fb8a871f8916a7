"""Launches without a plan, on memory of the caller; and one kernel launched by itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from arenite import locks
from arenite.backends.cpu.compiling.loader import LoadedCode, load_code
from arenite.backends.cpu.driver.native import BoundTable, OutcomeKind
from arenite.backends.cpu.execution.failure import error_of
from arenite.device import Buffer
from arenite.program.assemble import Assembly
from arenite.program.cached_kernel import CachedKernel
from arenite.program.launch import Launch
from arenite.program.places import Places
from arenite.program.skeleton import FIRST_IO
from arenite.program.table import aligned_empty, relocated

#: Images of code that stay loaded.
MAX_LOADED = 4

_lock = locks.reentrant()
_loaded: OrderedDict[bytes, LoadedCode] = OrderedDict()


def launch(kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> None:
    """Run all tiles of a kernel; raises what it reports."""
    order = {value: k for k, value in enumerate(kernel.launch.arrays)}
    alone = kernel.launch._replace(
        arrays=tuple(range(len(order))),
        reads=tuple(order[value] for value in kernel.launch.reads),
        writes=tuple(order[value] for value in kernel.launch.writes),
    )
    arrays = [(buffer.raw_ptr, buffer.nbytes) for buffer in buffers]
    with _lock:
        table, bind = bound_alone([alone], _code_of(kernel.program.image), arrays, sizes)
        outcome = table.run(1, bind)
    if outcome.kind is not OutcomeKind.END:
        raise error_of(kernel, outcome, "")


def bound_alone(
    launches: Sequence[Launch],
    code: LoadedCode,
    arrays: Sequence[tuple[int, int]],
    sizes: Mapping[str, int],
) -> tuple[BoundTable, tuple[int, int]]:
    """A table of launches whose values are numbers of these arrays (address, bytes), and the
    instructions to bind it with."""
    addresses, nbytes = [at for at, _ in arrays], [size for _, size in arrays]
    assembly = Assembly.straight(launches, {k: k for k in range(len(arrays))})
    places = Places.outside(nbytes)
    table = relocated(assembly.table(places), code.base, code.nbytes)
    registers = aligned_empty(table.n_registers, np.int64)
    assembly.fill(registers, places, 0, sizes)
    registers[FIRST_IO : FIRST_IO + len(arrays)] = addresses
    return BoundTable(table, registers), (0, assembly.n_bind)


def _code_of(image: bytes) -> LoadedCode:
    """The code of a program in memory, as it was loaded for a launch before."""
    found = _loaded.get(image)
    if found is None:
        found = _loaded[image] = load_code(image)
        if len(_loaded) > MAX_LOADED:
            _loaded.popitem(last=False)[1].close()
    else:
        _loaded.move_to_end(image)
    return found
