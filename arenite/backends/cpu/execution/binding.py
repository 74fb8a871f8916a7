"""Where a program lies: its code, constants and arena, and its tables for the sizes of calls.

For sizes not seen before the plan is replayed and the table rewritten, or with fixed places the
registers alone; nothing is compiled. Tables for the sizes that came last are kept.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite import device
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.driver.file_guard import MappedFiles
from arenite.backends.cpu.driver.native import BoundTable
from arenite.backends.cpu.execution.arrays import Results, address_of
from arenite.backends.cpu.execution.quick import QuickCall
from arenite.device.cpu import drop_pages_at, use_small_pages
from arenite.device.disk import DiskAllocator
from arenite.ir.data import BufferSource, held_copies
from arenite.ir.dim import evaluate, found_in
from arenite.ir.interface import GraphInterface
from arenite.memory import Arena, MemoryPlan, ValueId
from arenite.program.assemble import Assembly
from arenite.program.compiled import Compiled
from arenite.program.lazy_sequence import LazyMapping
from arenite.program.places import Numbers, Places, Resizer
from arenite.program.skeleton import FIRST_IO
from arenite.program.table import LaunchTable, aligned_empty, relocated
from arenite.program.value_spec import copy_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"

#: What the system maps around a byte that is touched, at the least. To read a few bytes of a mapped
#: file it maps 64 KiB, and megabytes of one that it keeps in large pages: the scales of a model's
#: layers, some KiB each, would bring in all the weights between them. They are read into memory of
#: their own, past the mapping.
TOUCHED_NBYTES = 2**16
#: Bindings of variables whose tables are kept.
MAX_BOUND = 16
#: Bytes of an arena that is made at once for the largest sizes; a larger one grows with the sizes
#: that come.
AT_ONCE_NBYTES = 64 * 2**20
#: Bytes that are copied at a time when it grows; the pages they came from are given back.
MOVED_NBYTES = 4 * 2**20


class Binding:
    """The program for one set of sizes."""

    __slots__ = ("bind", "places", "plan", "quick", "results", "sizes", "table", "words")

    def __init__(
        self,
        sizes: dict[str, int],
        plan: MemoryPlan,
        places: Places,
        table: BoundTable,
        bind: tuple[int, int],
        words: memoryview,
        results: list[tuple[Results, int, tuple[int, ...]]],
    ) -> None:
        self.sizes, self.plan, self.places = sizes, plan, places
        self.table, self.bind = table, bind
        self.words = words  # the registers, one word each
        self.results = results  # with register and shape
        self.quick: QuickCall | None = None  # once it has been called


class Binder:
    """Binds one program to memory, once, and to sizes, again and again."""

    def __init__(self, interface: GraphInterface, compiled: Compiled) -> None:
        self.compiled = compiled
        self.plan = compiled.plan
        self._is_fixed = compiled.options.fixed_places
        self._variables = interface.vars
        frame, values = compiled.frame, compiled.values
        outside = frame.numbers("input", "output", "constant")
        self.io: dict[ValueId, int] = {number: k for k, number in enumerate(outside)}
        self.assembly = Assembly(compiled.launches, frame.skeleton, frame.wait_book())
        self._resizer = Resizer(frame, compiled.plan, LazyMapping(cache(lambda: compiled.pointers)))
        self.constants, files = constants_of(interface, compiled)
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
        #: How many copies of every state there are, and which of them runs work on.
        self.n_state_sets = self._resizer.n_state_slots() // max(len(self.state_numbers), 1) or 1
        self.state_set = 0
        self.arena: Arena | None = None
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
            if not self._is_fixed:
                plan = self._resizer.plan_for(sizes)
            self._make_room(plan)
        if self._is_fixed:
            places, table = self._fixed
        else:
            places = self.places(plan)
            table = self._table(self.assembly, places)
        bound = self._with_registers(table, self.assembly, places, sizes)
        results = [
            (fresh, FIRST_IO + self.io[number], self.room_for(number, plan, sizes))
            for number, fresh in self.results.items()
        ]
        bind = (0, self.assembly.n_bind)
        return Binding(sizes, plan, places, bound, bind, bound.registers.data, results)

    def bound_to(self, assembly: Assembly, places: Places, sizes: Mapping[str, int]) -> BoundTable:
        """The table of an assembly over the arena and the constants; inputs are still missing."""
        return self._with_registers(self._table(assembly, places), assembly, places, sizes)

    @cached_property
    def _fixed(self) -> tuple[Places, LaunchTable]:
        """Where values lie for all sizes, and the table that goes with that."""
        places = self.places(self.plan)
        return places, self._table(self.assembly, places)

    def _table(self, assembly: Assembly, places: Places) -> LaunchTable:
        table = assembly.table(places)
        if self._code is not None:
            table = relocated(table, self._code.base, self._code.nbytes)
        return table

    def _with_registers(
        self, table: LaunchTable, assembly: Assembly, places: Places, sizes: Mapping[str, int]
    ) -> BoundTable:
        registers = aligned_empty(table.n_registers, np.int64)
        assembly.fill(registers, places, self.arena_base(), sizes)
        registers[self._constant_registers] = self._constant_addresses
        if self.state_set:
            self._point_to_states(registers)
        return BoundTable(table, registers)

    def use_state_set(self, number: int) -> None:
        """From now on runs work on this copy of every state."""
        if number != self.state_set:
            self.state_set = number
            for binding in self.bound.values():
                self._point_to_states(binding.table.registers)

    def _point_to_states(self, registers: NDArray[np.int64]) -> None:
        slots, states = self._state_registers
        registers[slots] = self._state_offsets[self.state_set, states] + self.arena_base()

    @cached_property
    def _state_registers(self) -> tuple[Numbers, Numbers]:
        """Registers with the address of a state, and which of the states it is."""
        values = self.assembly.skeleton.arena_values
        slots = np.flatnonzero(np.isin(values, self.state_numbers))
        states = np.searchsorted(self.state_numbers, values[slots])
        return self.assembly.skeleton.arena_slots[slots], states

    @cached_property
    def _state_offsets(self) -> Numbers:
        """In the arena, a row for each set; every plan has states in the same place."""
        names = [self.compiled.values[number].name for number in self.state_numbers]
        sets = range(self.n_state_sets)
        return np.array(
            [[self._resizer.offset_of(copy_name(name, k)) for name in names] for k in sets],
            np.int64,
        )

    def room_for(self, number: int, plan: MemoryPlan, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a new result; flat, where its sizes are found while running."""
        value = self.compiled.values[number]
        if any(map(found_in, value.shape)):
            return (plan.slots[value.name].nbytes * 8 // value.dtype.bits,)
        return tuple(evaluate(dim, sizes) for dim in value.shape)

    @cached_property
    def _constant_addresses(self) -> list[int]:
        return [address_of(array) for array in self.constants.values()]

    def places(self, plan: MemoryPlan, state_set: int = 0) -> Places:
        """Where a plan has every value, by number, in runs on a set of states."""
        places = self._resizer.places(plan)
        if state_set:
            places.offset[self.state_numbers] = self._state_offsets[state_set]
        return places

    @cached_property
    def load_plan(self) -> MemoryPlan:
        """The plan by which the load step runs: that of the least sizes, where the arena grows."""
        is_whole = self._is_fixed or self.plan.peak_nbytes <= AT_ONCE_NBYTES
        if not self._variables or is_whole:
            return self.plan
        return self._resizer.plan_for({var.name: var.low for var in self._variables})

    def arena_base(self) -> int:
        """The address of the arena, which is there from now on."""
        if self.arena is None:
            self._make_room(self.load_plan)
        assert self.arena is not None
        return self.arena.buffer.raw_ptr

    def _make_room(self, plan: MemoryPlan) -> None:
        """Have an arena that is large enough for a plan; a new one has what the old one kept."""
        old, needed = self.arena, plan.peak_nbytes
        have = 0 if old is None else old.nbytes
        if old is not None and needed <= have:
            return
        most = self.plan.peak_nbytes
        nbytes = most if most <= AT_ONCE_NBYTES else min(most, max(needed, 2 * have))
        # States are zero at first. Of a long context much may never be used.
        is_zeroed = bool(self.state_numbers)
        self.arena = Arena.from_plan("cpu", plan, nbytes - needed, zeroed=is_zeroed)
        state = plan.regions.get("state")
        if state is not None:
            use_small_pages(self.arena.buffer.raw_ptr + state.base, state.nbytes)
        if old is not None:
            self._move(old, self.arena)

    def _move(self, old: Arena, new: Arena) -> None:
        """Packed values and states go along, a part at a time; tables have addresses of old. All
        pages of old go back to the system: the allocator may keep it for others."""
        kept = (old.plan.regions.get(name) for name in ("packed", "state"))
        end = max((one.base + one.nbytes for one in kept if one is not None), default=0)
        source, target = old.buffer.as_host_bytes(), new.buffer.as_host_bytes_mut()
        for start in range(0, end, MOVED_NBYTES):
            stop = min(start + MOVED_NBYTES, end)
            target[start:stop] = source[start:stop]
            drop_pages_at(old.buffer.raw_ptr + start, stop - start)
        drop_pages_at(old.buffer.raw_ptr + end, old.nbytes - end)
        self.bound.clear()

    def state_bytes(self, number: int) -> NDArray[np.uint8]:
        """Those of a state in the set that is used, in the arena."""
        self.arena_base()
        assert self.arena is not None
        name = copy_name(self.compiled.values[number].name, self.state_set)
        return self.arena.view(name).as_array_mut()

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


def constants_of(
    interface: GraphInterface, compiled: Compiled
) -> tuple[dict[int, Array], list[DiskAllocator]]:
    """Arrays of the constants by number of their value, the graph's own or the program's, and the
    files that they lie in."""
    frame = compiled.frame
    read_once = set(frame.given_back.tolist())  # the load step gives their pages back
    files: dict[DiskAllocator, None] = {}
    found: dict[int, Array] = {}
    copied: dict[int, BufferSource] = {}
    for number in frame.numbers("constant"):
        source = int(frame.sources[number])
        if source < 0:
            found[number] = compiled.constants[-1 - source]
            continue
        constant = interface.constants[source]
        if isinstance(constant, BufferSource) and constant.file is not None:
            files[constant.file] = None
            if constant.nbytes < TOUCHED_NBYTES and number not in read_once:
                copied[number] = constant
                continue
        found[number] = constant.held()
    found |= zip(copied, held_copies([*copied.values()]), strict=True)
    return found, list(files)
