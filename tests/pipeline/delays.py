"""Random delays inside launches, so that what is not ordered goes wrong.

`DelayedTable` stands for BoundTable: every launch goes through one native function that spins for a
while and then calls the kernel. How long follows from a seed, the launch and its first tile, so
that a run can be had again. Which kernel a launch has is looked up by the place of its window.
Where nothing keeps waits, the first call of a run is the last to go on: it looks for another thread
to begin one, however long the system takes to let it, and spins for the longest delay then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.driver import native
from arenite.backends.cpu.driver.ir_text import Module, Value
from arenite.backends.cpu.driver.layout import Team
from arenite.backends.cpu.driver.native import BoundTable, Outcome
from arenite.backends.cpu.target import X86_64
from arenite.program.table import LaunchTable, Op, aligned_copy, aligned_empty

#: The longest delay, in steps of the spinning, each some nanoseconds.
MAX_STEPS = 20_000

#: Looks at what other threads do, after which the first call of a run goes on alone: seconds.
MAX_LOOKS = 1 << 31

#: What the native function looks at: registers, kernels by register, seed, the longest delay,
#: whether the first call is held up; what it counts, calls of a run; and where it writes.
_control: NDArray[np.int64] = aligned_empty(8, np.int64)
_REGISTERS, _KERNELS, _SEED, _MAX_STEPS, _HOLDS, _CALLS, _SINK = range(7)


def address(array: NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def _module() -> str:
    module = Module()
    f = module.function(
        "delayed", "void", exported=True, window="ptr", first="i64", last="i64", worker="ptr"
    )
    control = f.convert("inttoptr", Value("i64", str(address(_control))), "ptr")
    place = f.convert("ptrtoint", f["window"], "i64")
    index = f.lshr(f.sub(place, f.load("i64", control, 8 * _REGISTERS)), 3)
    mixed = f.add(f.load("i64", control, 8 * _SEED), f.mul(index, 0x2545F4914F6CDD1D))
    mixed = f.mul(f.add(mixed, f.mul(f["first"], 0x5851F42D4C957F2D)), 0x369DEA0F31A53F85)
    chance = f.lshr(mixed, 40)
    # Three of four calls begin at once; the others wait, up to the longest delay.
    max_steps = f.load("i64", control, 8 * _MAX_STEPS)
    steps = f.op("i64", f"urem i64 {f.lshr(chance, 2).text}, {max_steps.text}")
    before = f.exchange("add", control, 8 * _CALLS, Value("i64", "1"))
    is_held = f.and_(f.load("i64", control, 8 * _HOLDS), f.select(f.eq(before, 0), 1, 0))
    with f.if_(f.eq(is_held, 1)), f.count(0, Value("i64", str(MAX_LOOKS))):
        begun = f.load("i64", control, 8 * _CALLS, "acquire")
        with f.if_(f.lt(1, begun)):
            f.break_()
    steps = f.select(f.eq(is_held, 1), max_steps, steps)
    waits = f.or_(f.eq(f.and_(chance, 3), 0), f.eq(is_held, 1))
    state = f.variable("i64", mixed)
    with f.count(0, f.select(waits, steps, 0)):
        state.set(f.add(f.mul(state.get(), 6364136223846793005), 1442695040888963407))
    f.store(state.get(), control, 8 * _SINK)
    kernels = f.load("ptr", control, 8 * _KERNELS)
    kernel = f.load("ptr", f.at(kernels, f.shl(index, 3)))
    f.call("void", kernel, f["window"], f["first"], f["last"], f["worker"])
    return module.text()


@cache
def _delayed() -> int:
    """The address of the native function."""
    image = link_objects(compile_modules([_module()], X86_64))
    return load_code(image.image, permanent=True).address(image.entries["delayed"])


@contextmanager
def workers_that_join() -> Iterator[None]:
    """New workers, none of which is asked to rest because another program has its CPU: the caller
    would do all work alone, in order, whether or not anything waits. It looks at what they do an
    hour after it has begun to sleep."""
    team = native.team()
    first_look = ctypes.c_int64.from_address(team.address + Team.FIRST_LOOK)
    before, first_look.value = first_look.value, 3600
    try:
        assert native.stop_team()
        yield
    finally:
        first_look.value = before


class DelayedTable(BoundTable):
    """A table whose launches start late, by chance; one of them runs at a time."""

    seed = 0
    max_steps = MAX_STEPS
    keeps_waits = True

    def __init__(self, table: LaunchTable, registers: NDArray[np.int64]) -> None:
        entries = aligned_copy(table.entries)
        self._kernels: NDArray[np.int64] = aligned_empty(table.n_registers, np.int64)
        for entry in entries[entries["op"] == Op.LAUNCH]:
            self._kernels[int(entry["args"])] = int(entry["fn"])
        entries["fn"][entries["op"] == Op.LAUNCH] = _delayed()
        if not self.keeps_waits:
            entries["wait_count"] = 0
        super().__init__(table._replace(entries=entries), registers)

    def run(self, *args: Any, **options: Any) -> Outcome:
        _control[_REGISTERS] = address(self.registers)
        _control[_KERNELS] = address(self._kernels)
        _control[_SEED] = DelayedTable.seed
        _control[_MAX_STEPS] = DelayedTable.max_steps
        _control[_HOLDS] = not self.keeps_waits
        _control[_CALLS] = 0
        return super().run(*args, **options)
