"""Where a program lies: its code, constants and arena, and its tables for the sizes of calls.

For sizes not seen before the plan is replayed and the table rewritten; nothing is compiled. Tables
for the sizes that came last are kept.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.device import Buffer, BufferOptions
from arenite.device.cpu import use_small_pages
from arenite.dtype import uint8
from arenite.ir.dim import evaluate, found_in
from arenite.ir.outline import Outline
from arenite.memory import MemoryPlan, Replay, ValueId
from arenite.runtime.arrays import Results, address_of
from arenite.runtime.assemble import Assembly, Place
from arenite.runtime.compiled import Compiled
from arenite.runtime.loader import load_code
from arenite.runtime.native import BoundTable
from arenite.runtime.table import aligned_empty, relocated

Array = NDArray[Any]

#: Bindings of variables whose tables are kept.
MAX_BOUND = 16


@dataclass(slots=True)
class Binding:
    """The program for one set of sizes."""

    sizes: dict[str, int]
    plan: MemoryPlan
    places: dict[ValueId, Place]
    table: BoundTable
    bind: tuple[int, int]
    words: memoryview  # the registers, one word each
    results: list[tuple[Results, int, tuple[int, ...]]]  # with register and shape


class Binder:
    """Binds one program to memory, once, and to sizes, again and again."""

    def __init__(self, outline: Outline, compiled: Compiled) -> None:
        self.compiled = compiled
        self.plan = compiled.plan
        self._variables = outline.vars
        values = compiled.values
        kinds = ("input", "output", "constant")
        outside = [k for k, value in enumerate(values) if value.kind in kinds]
        self.io: dict[ValueId, int] = {number: k for k, number in enumerate(outside)}
        self.assembly = Assembly(
            compiled.launches,
            self.io,
            compiled.steps,
            compiled.cells,
            compiled.pointers,
            compiled.late,
            compiled.plan.made_for,
        )
        self.constants = _constants(outline, compiled)
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
        #: What is resized with the variables; sizes found while running stay at their largest.
        self._planned = [
            value for value in values if value.kind != "pointer" and not found_in(value.nbytes)
        ]
        self._distinct_nbytes = list(dict.fromkeys(value.nbytes for value in self._planned))
        self._replay: Replay | None = None
        self.state_numbers = [k for k, value in enumerate(values) if value.kind == "state"]
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
            if self._replay is None:
                self._replay = Replay(self.plan)
            plan = self._replay.resize(self._nbytes_of(sizes))
        places = self.places(plan)
        bound = self.bound_to(self.assembly, places, sizes)
        first = self.assembly.layout.io
        results = [
            (fresh, first + self.io[number], self.room_for(number, plan, sizes))
            for number, fresh in self.results.items()
        ]
        bind = (0, self.assembly.n_bind)
        return Binding(sizes, plan, places, bound, bind, bound.registers.data, results)

    def bound_to(
        self, assembly: Assembly, places: Mapping[ValueId, Place], sizes: Mapping[str, int]
    ) -> BoundTable:
        """The table of an assembly over the arena and the constants; inputs are still missing."""
        table = assembly.table(places)
        if self._code is not None:
            table = relocated(table, self._code.base, self._code.nbytes)
        registers = aligned_empty(table.n_registers, np.int64)
        assembly.fill(registers, places, self.arena_base(), sizes)
        for number, array in self.constants.items():
            registers[assembly.layout.io + self.io[number]] = address_of(array)
        return BoundTable(table, registers)

    def room_for(self, number: int, plan: MemoryPlan, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a new result; flat, where its sizes are found while running."""
        value = self.compiled.values[number]
        if any(map(found_in, value.shape)):
            return (plan.slots[value.name].nbytes * 8 // value.dtype.bits,)
        return tuple(evaluate(dim, sizes) for dim in value.shape)

    def _nbytes_of(self, sizes: dict[str, int]) -> dict[ValueId, int]:
        """Bytes of every value by name; values of one size are many, so each is worked out once."""
        known = {nbytes: evaluate(nbytes, sizes) for nbytes in self._distinct_nbytes}
        return {value.name: known[value.nbytes] for value in self._planned}

    def places(self, plan: MemoryPlan) -> dict[ValueId, Place]:
        """Where a plan has every value, by number."""
        places: dict[ValueId, Place] = {}
        for number, value in enumerate(self.compiled.values):
            if value.kind == "pointer":
                places[number] = Place(0, None, targets=value.targets)
                continue
            slot, io = plan.slots[value.name], self.io.get(number)
            places[number] = Place(slot.nbytes, slot.offset if io is None else None, io)
        return places

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
        slot = self.plan.slots[self.compiled.values[number].name]
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


def _constants(outline: Outline, compiled: Compiled) -> dict[int, Array]:
    """Arrays of the constants by number of their value: the graph's own, or the program's."""
    return {
        number: outline.constants[value.source].held()
        if value.source >= 0
        else compiled.constants[-1 - value.source]
        for number, value in enumerate(compiled.values)
        if value.kind == "constant"
    }
