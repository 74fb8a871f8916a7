"""Executable: a compiled model, ready to be called. Plan, arena, one native entry.

Calling it binds the inputs in place (or copies what does not fit), enters native code once and
returns new arrays. Sizes that are variables are read off the inputs' shapes; for sizes not seen
before the plan is replayed and the table rewritten, nothing is compiled.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.device import Buffer, BufferOptions
from arenite.dtype import uint8
from arenite.errors import (
    AreniteError,
    IndexOutOfRange,
    InvalidArgument,
    RunCancelled,
    RunFailed,
)
from arenite.ir.dim import evaluate, found_in
from arenite.ir.graph import Graph
from arenite.ir.ops.element import packed, unpacked
from arenite.memory import MemoryPlan, Replay, ValueId
from arenite.runtime import forks
from arenite.runtime.arguments import Arguments, constant_array, write_to
from arenite.runtime.arrays import Results, address_of
from arenite.runtime.assemble import Assembly, LaunchSpec, Place
from arenite.runtime.closing import Closing
from arenite.runtime.compiled import Compiled, constants_of
from arenite.runtime.hosts import HostCalls
from arenite.runtime.kernel import CachedKernel
from arenite.runtime.loader import load_code
from arenite.runtime.native import BoundTable, Outcome, OutcomeKind
from arenite.runtime.profile import Profile
from arenite.runtime.stamps import Stamps
from arenite.runtime.state import HeldState, States
from arenite.runtime.table import LaunchTable, aligned_empty, relocated
from arenite.runtime.table_check import check_table

if TYPE_CHECKING:
    from arenite.passes import Record
    from arenite.schedule import Schedule

Array = NDArray[Any]

#: Bindings of variables whose tables are kept.
MAX_BOUND = 16
#: Bytes of constants that are read, while a program is loaded, before their pages are given back.
LOAD_NBYTES = 16 * 2**20
#: Estimated work below which a run keeps the GIL: giving it up would cost more.
KEEP_GIL_BELOW_NS = 50_000


@dataclass(slots=True)
class _Binding:
    """The program for one set of sizes."""

    sizes: dict[str, int]
    plan: MemoryPlan
    places: dict[ValueId, Place]
    table: BoundTable
    bind: tuple[int, int]
    words: memoryview  # the registers, one word each
    results: list[tuple[Results, int, tuple[int, ...]]]  # with register and shape


class Executable(Closing):
    """Call it with arrays, in the order of the graph's inputs."""

    def __init__(self, graph: Graph, compiled: Compiled, threads: int | None = None) -> None:
        self.graph = graph
        self.compiled = compiled
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self.threads < 1:
            raise InvalidArgument(f"a run needs at least one thread, not {threads}")
        self._values = compiled.values
        kinds = ("input", "output", "constant")
        outside = [k for k, value in enumerate(self._values) if value.kind in kinds]
        self._io: dict[ValueId, int] = {number: k for k, number in enumerate(outside)}
        self._input_io = {
            value.source: self._io[number]
            for number, value in enumerate(self._values)
            if value.kind == "input"
        }
        self._assembly = Assembly(
            compiled.launches,
            self._io,
            compiled.steps,
            compiled.cells,
            compiled.pointers,
            compiled.late,
            compiled.plan.made_for,
        )
        self._constants = self._find_constants()
        self._hosts = HostCalls(graph, compiled, self._assembly.layout.cells)
        first = self._assembly.layout.io
        self._input_registers = [(k, first + io) for k, io in self._input_io.items()]
        self._results = {
            number: Results(self._values[number].dtype)
            for number in compiled.outputs
            if self._values[number].kind == "output"
        }
        self._returned = self._find_returned()
        self._returns_new = self._returned == [("output", k) for k in range(len(self._results))]
        self._code = load_code(compiled.image) if compiled.image else None
        if self._code is not None:
            # Of one that nobody closed, when it is collected; not while the process ends.
            weakref.finalize(self, self._code.close).atexit = False
        #: What is resized with the variables; sizes found while running stay at their largest.
        self._planned = [
            value
            for value in self._values
            if value.kind != "pointer" and not found_in(value.nbytes)
        ]
        self._distinct_nbytes = list(dict.fromkeys(value.nbytes for value in self._planned))
        self._replay: Replay | None = None
        self._bound: OrderedDict[tuple[int, ...], _Binding] = OrderedDict()
        self._arena: Buffer | None = None
        self._lock = threading.Lock()
        self._state_numbers = [k for k, value in enumerate(self._values) if value.kind == "state"]
        #: How often the program was bound to sizes.
        self.n_binds = 0
        self._failure: str | None = None
        self._is_closed = False
        #: What computing the packed values took, once they are there.
        self.load_ns: int | None = None
        forks.watch(self)
        self._is_short = self._assembly.cost_ns < KEEP_GIL_BELOW_NS
        self._variables = graph.vars
        self._arguments = Arguments(graph.inputs, self._variables)
        self._has_narrow_inputs = any(node.dtype.bits < 8 for node in graph.inputs)
        self._has_narrow_outputs = any(
            self._values[number].dtype.bits < 8 for number in compiled.outputs
        )

    def _find_constants(self) -> dict[int, Array]:
        """Arrays of the constants by number of their value: the graph's own, or the program's."""
        of_graph = constants_of(self.graph)
        return {
            number: constant_array(of_graph[value.source])
            if value.source >= 0
            else self.compiled.constants[-1 - value.source]
            for number, value in enumerate(self._values)
            if value.kind == "constant"
        }

    def _find_returned(self) -> list[tuple[str, int]]:
        """What each output of the graph is: the n-th new array, or a copy of an input or constant
        that is handed through."""
        new = {number: k for k, number in enumerate(self._results)}
        found = []
        for number in self.compiled.outputs:
            value = self._values[number]
            places = {"output": new.get(number, 0), "input": value.source, "constant": number}
            found.append((value.kind, places[value.kind]))
        return found

    @property
    def plan(self) -> MemoryPlan:
        """Where every value lives, with sizes at their largest."""
        return self.compiled.plan

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        return self.compiled.kernels

    @property
    def load_kernels(self) -> tuple[CachedKernel, ...]:
        """Those that read constants alone: they run once, before the first run."""
        return self.compiled.load_kernels

    @cached_property
    def passes(self) -> tuple[Record, ...]:
        """The graph after each pass, made anew when asked for: running needs none of it."""
        from arenite.passes import PASSES, run

        return run(self.graph, PASSES)[1]

    @cached_property
    def schedule(self) -> Schedule:
        """The fused kernels with the reason for each border, made anew when asked for."""
        from arenite.schedule import fuse

        return fuse(self.passes[-1].graph)

    # Calling.

    def __call__(self, *arrays: Any, out: Sequence[Array] | None = None) -> list[Array]:
        """Run; the outputs as new arrays, or written into `out`."""
        return self._run([np.asarray(array) for array in arrays], out)

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Run with inputs by name."""
        names = [node.attr("name") for node in self.graph.inputs]
        if set(names) != set(inputs):
            raise InvalidArgument(f"inputs {names} are needed, {list(inputs)} were given")
        return self._run([np.asarray(inputs[name]) for name in names], None)

    def _run(self, arrays: list[Array], out: Sequence[Array] | None) -> list[Array]:
        with self._lock:
            if self._is_closed or self._failure is not None:
                self._check_usable()
            arrays = self._arguments.fitting(arrays)
            binding = self._binding_for(arrays)
            if self._has_narrow_inputs:
                arrays = self._packed(arrays)
            results = self._prepare(binding, arrays)
            outcome = binding.table.run(self.threads, binding.bind, self._is_short)
            if outcome.kind is OutcomeKind.SEGMENT:
                outcome = self._go_on(binding, outcome)
            if outcome.kind is not OutcomeKind.END:
                self._check_outcome(outcome)
            if self._has_narrow_outputs:
                results = self._unpacked(binding, results)
            if self.compiled.found:
                results = self._cut_down(binding, results)
        return results if out is None else write_to(out, results)

    def _prepare(self, binding: _Binding, arrays: list[Array]) -> list[Array]:
        """Put the addresses of inputs and new outputs into their registers."""
        words = binding.words
        for k, register in self._input_registers:
            words[register] = address_of(arrays[k])
        made: list[Array] = []
        for fresh, register, shape in binding.results:
            array = fresh.new(shape)
            words[register] = address_of(array)
            made.append(array)
        if self._returns_new:
            return made
        return [
            made[k]
            if kind == "output"
            else arrays[k].copy()
            if kind == "input"
            else self._constants[k].copy()
            for kind, k in self._returned
        ]

    def _packed(self, arrays: list[Array]) -> list[Array]:
        """The arrays as memory has them: elements narrower than a byte side by side."""
        return [
            packed(array, node.dtype) if node.dtype.bits < 8 else array
            for node, array in zip(self.graph.inputs, arrays, strict=True)
        ]

    def _unpacked(self, binding: _Binding, results: list[Array]) -> list[Array]:
        """The results one element a byte, where they are narrower."""
        made = []
        for number, array in zip(self.compiled.outputs, results, strict=True):
            dtype = self._values[number].dtype
            if dtype.bits < 8:
                array = unpacked(array, dtype, self._room_for(number, binding.plan, binding.sizes))
            made.append(array)
        return made

    def _go_on(self, binding: _Binding, outcome: Outcome, stamps: Stamps | None = None) -> Outcome:
        """From segment to segment: what the host computes, then native code again."""
        while outcome.kind is OutcomeKind.SEGMENT:
            assert outcome.tick is not None
            number = int(binding.table.table.entries[outcome.tick]["a"])
            try:
                self._hosts.call(number, binding.words, self._all_sizes(binding))
            except BaseException:
                binding.table.reset()
                raise
            outcome = binding.table.run(
                self.threads, binding.bind, keep_gil=self._is_short, stamps=stamps
            )
        return outcome

    def _cut_down(self, binding: _Binding, results: list[Array]) -> list[Array]:
        """Results whose size was found while running, which were made as large as they may get."""
        sizes = self._all_sizes(binding)
        cut = []
        for number, array in zip(self.compiled.outputs, results, strict=True):
            dims = self._values[number].shape
            if any(map(found_in, dims)):
                shape = tuple(evaluate(dim, sizes) for dim in dims)
                whole = array.reshape(-1)
                array = whole[: math.prod(shape)].reshape(shape)
                if 2 * array.size < whole.size:
                    array = array.copy()  # so that the rest is given back
            cut.append(array)
        return cut

    def _all_sizes(self, binding: _Binding) -> dict[str, int]:
        """Those that were found in the last run too."""
        first = self._assembly.layout.cells
        found = {name: binding.words[first + cell] for name, cell in self.compiled.found.items()}
        return binding.sizes | found

    def cancel(self) -> None:
        """End the run in progress, from another thread."""
        for binding in list(self._bound.values()):
            binding.table.cancel()

    # Binding.

    def _binding_for(self, arrays: list[Array]) -> _Binding:
        if not self._arguments.is_open and self._bound:
            return next(iter(self._bound.values()))
        sizes = self._arguments.sizes(arrays) if self._arguments.is_open else {}
        key = tuple(sizes[var.name] for var in self._variables)
        found = self._bound.get(key)
        if found is not None:
            self._bound.move_to_end(key)
            return found
        binding = self._bind(sizes)
        self._bound[key] = binding
        if len(self._bound) > MAX_BOUND:
            self._bound.popitem(last=False)
        return binding

    def _bind(self, sizes: dict[str, int]) -> _Binding:
        plan = self.plan
        self.n_binds += 1
        if self._variables:
            if self._replay is None:
                self._replay = Replay(self.plan)
            plan = self._replay.resize(self._nbytes_of(sizes))
        self._load()
        places = self._places(plan)
        bound = self._bound_to(self._assembly, places, sizes)
        first = self._assembly.layout.io
        results = [
            (
                fresh,
                first + self._io[number],
                self._room_for(number, plan, sizes),
            )
            for number, fresh in self._results.items()
        ]
        bind = (0, self._assembly.n_bind)
        return _Binding(sizes, plan, places, bound, bind, bound.registers.data, results)

    def _bound_to(
        self, assembly: Assembly, places: Mapping[ValueId, Place], sizes: Mapping[str, int]
    ) -> BoundTable:
        """The table of an assembly over the arena and the constants; inputs are still missing."""
        table = assembly.table(places)
        if self._code is not None:
            table = relocated(table, self._code.base, self._code.nbytes)
        registers = aligned_empty(table.n_registers, np.int64)
        assembly.fill(registers, places, self._arena_base(), sizes)
        for number, array in self._constants.items():
            registers[assembly.layout.io + self._io[number]] = address_of(array)
        return BoundTable(table, registers)

    def _load(self) -> None:
        """Compute what is computed once; it stays in the packed region of the arena."""
        if self.load_ns is not None:
            return
        began = time.perf_counter_ns()
        for first, last in self._load_parts():
            assembly = Assembly(self.compiled.load[first:last], self._io)
            bound = self._bound_to(assembly, self._places(self.plan), {})
            outcome = bound.run(self.threads, (0, assembly.n_bind))
            self._check_outcome(outcome, assembly, self.load_kernels[first:last])
            self._drop_pages(assembly.launches)
        self.load_ns = time.perf_counter_ns() - began

    def _load_parts(self) -> list[tuple[int, int]]:
        """Launches of the load, from one to another, that read so much that it pays to give it back
        before more is read."""
        parts, first, nbytes = [], 0, 0
        for k, launch in enumerate(self.compiled.load):
            nbytes += sum(self._constants[n].nbytes for n in launch.reads if n in self._constants)
            if nbytes >= LOAD_NBYTES or k == len(self.compiled.load) - 1:
                parts.append((first, k + 1))
                first, nbytes = k + 1, 0
        return parts

    def _drop_pages(self, launches: Sequence[LaunchSpec]) -> None:
        """Give back the memory of mapped constants that these launches have read. What runs read of
        them, rows of an embedding perhaps, comes from the file again."""
        of_graph = constants_of(self.graph)
        done = {number for launch in launches for number in launch.reads}
        for number, value in enumerate(self._values):
            if number in done and value.kind == "constant" and value.source >= 0:
                node = of_graph[value.source]
                if node.op == "buffer":
                    node.attr("source").drop_pages()

    def _room_for(self, number: int, plan: MemoryPlan, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a new result; flat, where its sizes are found while running."""
        value = self._values[number]
        if any(map(found_in, value.shape)):
            return (plan.slots[value.name].nbytes * 8 // value.dtype.bits,)
        return tuple(evaluate(dim, sizes) for dim in value.shape)

    def _nbytes_of(self, sizes: dict[str, int]) -> dict[ValueId, int]:
        """Bytes of every value by name; values of one size are many, so each is worked out once."""
        known = {nbytes: evaluate(nbytes, sizes) for nbytes in self._distinct_nbytes}
        return {value.name: known[value.nbytes] for value in self._planned}

    def _places(self, plan: MemoryPlan) -> dict[ValueId, Place]:
        places: dict[ValueId, Place] = {}
        for number, value in enumerate(self._values):
            if value.kind == "pointer":
                places[number] = Place(0, None, targets=value.targets)
                continue
            slot, io = plan.slots[value.name], self._io.get(number)
            places[number] = Place(slot.nbytes, slot.offset if io is None else None, io)
        return places

    def _arena_base(self) -> int:
        if self._arena is None:
            options = BufferOptions(alignment=64)
            shape = (self.plan.peak_nbytes,)
            self._arena = Buffer.allocate(device.get("cpu"), uint8, shape, options)
            for number in self._state_numbers:
                self._state_bytes(number)[...] = 0
        return self._arena.raw_ptr

    # State.

    @property
    def state(self) -> States:
        """What lives from run to run, by name."""
        return States([self._held(number) for number in self._state_numbers])

    def reset_state(self) -> None:
        """Make all states zero, as they were before the first run."""
        for one in self.state.values():
            one.clear()

    def _held(self, number: int) -> HeldState:
        @contextmanager
        def opened() -> Iterator[NDArray[np.uint8]]:
            with self._lock:
                self._check_open()
                yield self._state_bytes(number)

        return HeldState(self.graph.states[self._values[number].source], opened)

    def _state_bytes(self, number: int) -> NDArray[np.uint8]:
        """Those of a state, in the arena; every plan has them in the same place."""
        self._arena_base()
        assert self._arena is not None
        slot = self.plan.slots[self._values[number].name]
        return self._arena.as_array_mut(uint8)[slot.offset : slot.offset + slot.nbytes]

    # What it shows.

    def verify(self) -> None:
        """Check the plan and prove the order on final addresses, and with branches and loops that
        every byte read is of the value meant; RaceFound or InvalidPlan."""
        self.plan.verify()
        places = self._places(self.plan)
        Assembly(self.compiled.load, self._io).verify(places)
        largest = {var.name: var.high for var in self._variables}
        self._verify_table(self._assembly.table(places), places, largest)
        for binding in list(self._bound.values()):  # calls in other threads may add one
            binding.plan.verify()
            self._verify_table(binding.table.table, binding.places, binding.sizes)

    def _verify_table(
        self, table: LaunchTable, places: Mapping[ValueId, Place], sizes: Mapping[str, int]
    ) -> None:
        self._assembly.verify(places, table)
        if self._assembly.is_straight and not self._state_numbers:
            return
        from arenite.runtime.dataflow import check_dataflow, given_values

        check_table(table)
        given = given_values(self.compiled, self.graph.states)
        load = frozenset(kernel.entry_point for kernel in self.load_kernels)
        hosts = self.compiled.hosts
        check_dataflow(self.schedule, self._assembly, table, places, sizes, given, load, hosts)

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        with self._lock:
            self._check_usable()
            fitting = self._arguments.fitting([np.asarray(array) for array in arrays])
            binding = self._binding_for(fitting)
            fitting = self._packed(fitting)
            held = self._prepare(binding, fitting)
            stamps = Stamps(self.threads)
            outcome = binding.table.run(threads=self.threads, bind=binding.bind, stamps=stamps)
            outcome = self._go_on(binding, outcome, stamps)
            del held
            self._check_outcome(outcome)
            sizes = self._all_sizes(binding)
            return Profile.of(stamps, self.kernels, sizes, self._assembly.launch_at)

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch on memory of its own; UndeclaredAccess names a kernel that touches
        bytes it does not declare. States are read, and stay as they are. Slow: for tests and for
        debugging."""
        from arenite.runtime.checked import BoundPart, BoundProgram, run_checked

        with self._lock:
            self._check_usable()
            fitting = self._arguments.fitting([np.asarray(array) for array in arrays])
            binding = self._binding_for(fitting)
            fitting = self._packed(fitting)
            given = {
                number: fitting[value.source]
                for number, value in enumerate(self._values)
                if value.kind == "input"
            }
            given |= {number: self._state_bytes(number) for number in self._state_numbers}
            load = Assembly(self.compiled.load, self._io)
            parts = [
                BoundPart(
                    self.load_kernels,
                    load,
                    self._bound_to(load, binding.places, binding.sizes).table,
                    {},
                    self._hosts,
                    lambda outcome: self._check_outcome(outcome, load, self.load_kernels),
                ),
                BoundPart(
                    self.kernels,
                    self._assembly,
                    binding.table.table,
                    self.compiled.found,
                    self._hosts,
                    self._check_outcome,
                ),
            ]
            program = BoundProgram(
                self._values, self.compiled.outputs, parts, binding.places, binding.sizes
            )
            return run_checked(program, given | self._constants)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.threads} threads"
        return (
            f"<Executable: {len(self.kernels)} kernels, {self.plan.peak_nbytes} bytes of arena, "
            f"{state}>"
        )

    # Ending.

    def reset(self) -> None:
        """Make a failed Executable usable again; states stay as the failed run left them."""
        with self._lock:
            self._check_open()
            self._failure = None
            self._bound.clear()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        with self._lock:
            self._is_closed = True
            self._bound.clear()
            self._arena = None
            for results in self._results.values():
                results.clear()
            device.get("cpu").trim()
            if self._code is not None:
                self._code.close()
                self._code = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise RunFailed("this Executable was closed; compile again to get another")

    def _check_usable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise RunFailed(f"this Executable cannot run before reset(): {self._failure}")

    def _check_outcome(
        self,
        outcome: Outcome,
        assembly: Assembly | None = None,
        kernels: Sequence[CachedKernel] | None = None,
    ) -> None:
        """Raise what a run that did not come to its end raises; a failed one leaves its mark."""
        if outcome.kind is OutcomeKind.CANCELLED:
            raise RunCancelled(
                f"the run was cancelled; the Executable can be called again{self._about_state()}"
            )
        if outcome.kind is OutcomeKind.ERROR:
            launch_at = (assembly or self._assembly).launch_at
            number = None if outcome.site is None else launch_at.get(outcome.site)
            kernel = None if number is None else (kernels or self.kernels)[number]
            error = _error(kernel, outcome, self._about_state())
            self._failure = str(error)
            raise error

    def _about_state(self) -> str:
        """What to know about states after a run that did not come to its end."""
        if not self._state_numbers:
            return ""
        return "; its states may be half written: reset_state() or load() them"

    def forget_after_fork(self) -> None:
        """In a forked process: a run in progress is another process's now."""
        if self._lock.locked():
            self._failure = "it was running when the process forked"
        self._lock = threading.Lock()


def _error(kernel: CachedKernel | None, outcome: Outcome, about_state: str) -> AreniteError:
    """What a failed launch raises: the kernel, and the lines it comes from."""
    if kernel is None:
        return RunFailed(f"a run failed at {outcome.site} with code {outcome.code}{about_state}")
    name, lines = kernel.entry_point, ", ".join(map(str, kernel.origins[:3]))
    where = f", which comes from {lines}" if lines else ""
    if outcome.code == IndexOutOfRange.code:
        return IndexOutOfRange(
            f"an index is outside its axis, in kernel {name}{where}; correct the indices, then "
            f"reset() the Executable{about_state}"
        )
    return RunFailed(f"kernel {name}{where}, failed with code {outcome.code}{about_state}")
