"""Where a program lies: its code, constants and arena, and its tables for the sizes of calls.

For sizes not seen before the plan is replayed and the table rewritten; nothing is compiled. Tables
for the sizes that came last are kept.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.device import Buffer, BufferOptions
from arenite.device.cpu import use_small_pages
from arenite.dtype import uint8
from arenite.ir.dim import evaluate, found_in
from arenite.ir.outline import Outline
from arenite.memory import MemoryPlan, ValueId
from arenite.runtime.arrays import Results, address_of
from arenite.runtime.assemble import Assembly
from arenite.runtime.compiled import Compiled
from arenite.runtime.constants import constants_of
from arenite.runtime.file_guard import MappedFiles
from arenite.runtime.later import LaterMapping
from arenite.runtime.loader import load_code
from arenite.runtime.native import BoundTable
from arenite.runtime.places import Places
from arenite.runtime.quick import QuickCall
from arenite.runtime.resize import Resizer
from arenite.runtime.skeleton import FIRST_IO
from arenite.runtime.table import aligned_empty, relocated

Array = NDArray[Any]

#: Bindings of variables whose tables are kept.
MAX_BOUND = 16


@dataclass(slots=True)
class Binding:
    """The program for one set of sizes."""

    sizes: dict[str, int]
    plan: MemoryPlan
    places: Places
    table: BoundTable
    bind: tuple[int, int]
    words: memoryview  # the registers, one word each
    results: list[tuple[Results, int, tuple[int, ...]]]  # with register and shape
    quick: QuickCall | None = None  # once it has been called


class Binder:
    """Binds one program to memory, once, and to sizes, again and again."""

    def __init__(self, outline: Outline, compiled: Compiled) -> None:
        self.compiled = compiled
        self.plan = compiled.plan
        self._variables = outline.vars
        frame, values = compiled.frame, compiled.values
        outside = frame.numbers("input", "output", "constant")
        self.io: dict[ValueId, int] = {number: k for k, number in enumerate(outside)}
        self.assembly = Assembly(compiled.launches, frame.skeleton, frame.wait_book())
        self._resizer = Resizer(
            frame, compiled.plan, LaterMapping(cache(lambda: compiled.pointers))
        )
        self.constants, files = constants_of(outline, compiled)
        self.files = MappedFiles(files)
        self._constant_registers = [FIRST_IO + self.io[number] for number in self.constants]
        #: New arrays for the outputs, by number of the value.
        self.results = {
            number: Results(values[number].dtype)
            for number in compiled.outputs
            if values[number].kind == "output"
        }
        self._code = load_code(compiled.image) if compiled.image else None
        if self._code is not None:
            # Of one that nobody closed, when it is collected; not while the process ends.
            weakref.finalize(self, self._code.close).atexit = False
        self.state_numbers = frame.numbers("state")
        self.arena: Buffer | None = None
        self.bound: OrderedDict[tuple[int, ...], Binding] = OrderedDict()
        #: How often the program was bound to sizes.
        self.n_binds = 0

    def obtain(self, sizes: dict[str, int]) -> Binding:
        """The program for these sizes, as it was kept or bound anew."""
        key = tuple(sizes[var.name] for var in self._variables)
        found = self.bound.get(key)
        if found is not None:
            self.bound.move_to_end(key)
            return found
        self.bound[key] = binding = self._bind(sizes)
        if len(self.bound) > MAX_BOUND:
            self.bound.popitem(last=False)
        return binding

    def _bind(self, sizes: dict[str, int]) -> Binding:
        plan = self.plan
        self.n_binds += 1
        if self._variables:
            plan = self._resizer.plan_for(sizes)
        places = self.places(plan)
        bound = self.bound_to(self.assembly, places, sizes)
        results = [
            (fresh, FIRST_IO + self.io[number], self.room_for(number, plan, sizes))
            for number, fresh in self.results.items()
        ]
        bind = (0, self.assembly.n_bind)
        return Binding(sizes, plan, places, bound, bind, bound.registers.data, results)

    def bound_to(self, assembly: Assembly, places: Places, sizes: Mapping[str, int]) -> BoundTable:
        """The table of an assembly over the arena and the constants; inputs are still missing."""
        table = assembly.table(places)
        if self._code is not None:
            table = relocated(table, self._code.base, self._code.nbytes)
        registers = aligned_empty(table.n_registers, np.int64)
        assembly.fill(registers, places, self.arena_base(), sizes)
        registers[self._constant_registers] = self._constant_addresses
        return BoundTable(table, registers)

    def room_for(self, number: int, plan: MemoryPlan, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a new result; flat, where its sizes are found while running."""
        value = self.compiled.values[number]
        if any(map(found_in, value.shape)):
            return (plan.slots[value.name].nbytes * 8 // value.dtype.bits,)
        return tuple(evaluate(dim, sizes) for dim in value.shape)

    @cached_property
    def _constant_addresses(self) -> list[int]:
        return [address_of(array) for array in self.constants.values()]

    def places(self, plan: MemoryPlan) -> Places:
        """Where a plan has every value, by number."""
        return self._resizer.places(plan)

    def arena_base(self) -> int:
        """The address of the arena, which is there from now on."""
        if self.arena is None:
            # States are zero at first. Of a long context much may never be used.
            options = BufferOptions(alignment=64, zeroed=bool(self.state_numbers))
            shape = (self.plan.peak_nbytes,)
            self.arena = Buffer.allocate(device.get("cpu"), uint8, shape, options)
            state = self.plan.regions.get("state")
            if state is not None:
                use_small_pages(self.arena.raw_ptr + state.base, state.nbytes)
        return self.arena.raw_ptr

    def state_bytes(self, number: int) -> NDArray[np.uint8]:
        """Those of a state, in the arena; every plan has them in the same place."""
        self.arena_base()
        assert self.arena is not None
        slot = self._resizer.slot(number)
        return self.arena.as_array_mut(uint8)[slot.offset : slot.offset + slot.nbytes]

    def close(self) -> None:
        """Give every byte back to the system."""
        self.bound.clear()
        self.arena = None
        for results in self.results.values():
            results.clear()
        device.get("cpu").trim()
        if self._code is not None:
            self._code.close()
            self._code = None
