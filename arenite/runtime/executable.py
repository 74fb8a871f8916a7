"""Executable: a compiled model, ready to be called. Plan, arena, one native entry.

Calling it binds the inputs in place (or copies what does not fit), enters native code once and
returns new arrays. Sizes that are variables are read off the inputs' shapes; for sizes not seen
before the plan is replayed and the table rewritten, nothing is compiled.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.device import Buffer, BufferOptions
from arenite.dtype import DType, uint8
from arenite.errors import (
    AreniteError,
    BoundsError,
    IndexOutOfRange,
    InvalidArgument,
    RunCancelled,
    RunFailed,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.ir.dim import Dim, Var, check_binding, evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node, typed
from arenite.memory import MemoryPlan, Replay, ValueId
from arenite.runtime import forks
from arenite.runtime.assemble import Assembly, Place
from arenite.runtime.closing import Closing
from arenite.runtime.compiled import Compiled, constants_of
from arenite.runtime.kernel import CachedKernel
from arenite.runtime.loader import load_code
from arenite.runtime.native import BoundTable, Outcome, OutcomeKind
from arenite.runtime.profile import Profile
from arenite.runtime.stamps import Stamps
from arenite.runtime.table import aligned_empty, relocated

if TYPE_CHECKING:
    from arenite.passes import Record
    from arenite.schedule import Schedule

Array = NDArray[Any]

#: Bindings of variables whose tables are kept.
MAX_BOUND = 16
#: Arrays from this size on are handed out from the allocator's pool, and go back to it.
POOLED_FROM_NBYTES = 64 * 1024
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
    output_shapes: list[tuple[int, ...]]


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
            compiled.launches, self._io, compiled.steps, compiled.cells, compiled.pointers
        )
        self._constants = self._find_constants()
        self._code = load_code(compiled.image) if compiled.image else None
        if self._code is not None:
            # Of one that nobody closed, when it is collected; not while the process ends.
            weakref.finalize(self, self._code.close).atexit = False
        self._planned = [value for value in self._values if value.kind != "pointer"]
        self._distinct_nbytes = list(dict.fromkeys(value.nbytes for value in self._planned))
        self._replay: Replay | None = None
        self._bound: OrderedDict[tuple[int, ...], _Binding] = OrderedDict()
        self._arena: Buffer | None = None
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._is_closed = False
        forks.watch(self)
        self._is_short = self._assembly.cost_ns < KEEP_GIL_BELOW_NS
        self._variables = graph.vars
        # What a call checks of every input, looked up once.
        self._wanted = [
            (node.dtype.to_numpy(), None if _is_open(node) else node.shape) for node in graph.inputs
        ]
        self._is_open = any(shape is None for _, shape in self._wanted)

    def _find_constants(self) -> dict[int, Array]:
        """Arrays of the constants by number of their value: the graph's own, or the program's."""
        of_graph = constants_of(self.graph)
        return {
            number: _constant_array(of_graph[value.source])
            if value.source >= 0
            else self.compiled.constants[-1 - value.source]
            for number, value in enumerate(self._values)
            if value.kind == "constant"
        }

    @property
    def plan(self) -> MemoryPlan:
        """Where every value lives, with sizes at their largest."""
        return self.compiled.plan

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        return self.compiled.kernels

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
            self._check_usable()
            arrays = self._fitting(arrays)
            binding = self._binding_for(arrays)
            results, held = self._prepare(binding, arrays)
            outcome = binding.table.run(
                threads=self.threads, bind=binding.bind, keep_gil=self._is_short
            )
            del held
            self._check_outcome(outcome)
        return _written_to(out, results)

    def _prepare(self, binding: _Binding, arrays: list[Array]) -> tuple[list[Array], list[Array]]:
        """Put the addresses of inputs and new outputs into their registers."""
        registers = binding.table.registers
        first = self._assembly.layout.io
        for k, io in self._input_io.items():
            registers[first + io] = _address(arrays[k])
        made: dict[int, Array] = {}
        for number, shape in zip(self.compiled.outputs, binding.output_shapes, strict=True):
            value = self._values[number]
            if number not in made and value.kind == "output":
                made[number] = _new_array(shape, value.dtype)
                registers[first + self._io[number]] = _address(made[number])
        results = []
        for number in self.compiled.outputs:
            value = self._values[number]
            if value.kind == "input":
                results.append(arrays[value.source].copy())
            elif value.kind == "constant":
                results.append(self._constants[number].copy())
            else:
                results.append(made[number])
        return results, arrays

    def _fitting(self, arrays: list[Array]) -> list[Array]:
        """The arrays as native code can read them in place; what does not fit raises."""
        if len(arrays) != len(self._wanted):
            raise InvalidArgument(f"{len(self._wanted)} inputs are needed, not {len(arrays)}")
        fitting = []
        for k, (array, (dtype, shape)) in enumerate(zip(arrays, self._wanted, strict=True)):
            if array.dtype != dtype or (shape is not None and array.shape != shape):
                _explain(array, self.graph.inputs[k])
            if shape is None and array.ndim != self.graph.inputs[k].ndim:
                _explain(array, self.graph.inputs[k])
            fitting.append(array if array.flags.c_contiguous else array.copy())
        return fitting

    def cancel(self) -> None:
        """End the run in progress, from another thread."""
        for binding in list(self._bound.values()):
            binding.table.cancel()

    # Binding.

    def _binding_for(self, arrays: list[Array]) -> _Binding:
        sizes = _sizes(self.graph.inputs, arrays, self._variables) if self._is_open else {}
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
        if self._variables:
            if self._replay is None:
                self._replay = Replay(self.plan)
            plan = self._replay.resize(self._nbytes_of(sizes))
        places = self._places(plan)
        base = self._arena_base()
        table = self._assembly.table(places)
        code = self._code
        if code is not None:
            table = relocated(table, code.base, code.nbytes)
        registers = aligned_empty(table.n_registers, np.int64)
        self._assembly.fill(registers, places, base, sizes)
        first = self._assembly.layout.io
        for number, array in self._constants.items():
            registers[first + self._io[number]] = _address(array)
        shapes = [
            tuple(evaluate(dim, sizes) for dim in self._values[number].shape)
            for number in self.compiled.outputs
        ]
        bound = BoundTable(table, registers)
        return _Binding(sizes, plan, places, bound, (0, self._assembly.n_bind), shapes)

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
        return self._arena.raw_ptr

    # What it shows.

    def verify(self) -> None:
        """Check the plan and prove the order on final addresses; RaceFound or InvalidPlan."""
        self.plan.verify()
        self._assembly.verify(self._places(self.plan))
        for binding in self._bound.values():
            binding.plan.verify()
            self._assembly.verify(binding.places)

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        with self._lock:
            self._check_usable()
            fitting = self._fitting([np.asarray(array) for array in arrays])
            binding = self._binding_for(fitting)
            _, held = self._prepare(binding, fitting)
            stamps = Stamps(self.threads)
            outcome = binding.table.run(threads=self.threads, bind=binding.bind, stamps=stamps)
            del held
            self._check_outcome(outcome)
            return Profile.of(stamps, self.kernels, binding.sizes, self._assembly.launch_at)

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch on memory of its own; UndeclaredAccess names a kernel that touches
        bytes it does not declare. Slow, and for programs without loops and branches."""
        from arenite.runtime.checked import BoundProgram, run_checked

        with self._lock:
            self._check_usable()
            fitting = self._fitting([np.asarray(array) for array in arrays])
            binding = self._binding_for(fitting)
            given = {
                number: fitting[value.source]
                for number, value in enumerate(self._values)
                if value.kind == "input"
            }
            program = BoundProgram(
                self.compiled,
                self._assembly,
                binding.table.table,
                binding.bind,
                binding.places,
                binding.sizes,
            )
            return run_checked(program, given | self._constants, self._check_outcome)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.threads} threads"
        return (
            f"<Executable: {len(self.kernels)} kernels, {self.plan.peak_nbytes} bytes of arena, "
            f"{state}>"
        )

    # Ending.

    def reset(self) -> None:
        """Make a failed Executable usable again."""
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

    def _check_outcome(self, outcome: Outcome) -> None:
        """Raise what a run that did not come to its end raises; a failed one leaves its mark."""
        if outcome.kind is OutcomeKind.CANCELLED:
            raise RunCancelled("the run was cancelled; the Executable can be called again")
        if outcome.kind is OutcomeKind.ERROR:
            error = self._error(outcome.site, outcome.code)
            self._failure = str(error)
            raise error

    def _error(self, site: int | None, code: int | None) -> AreniteError:
        """What a failed launch raises: the kernel, and the lines it comes from."""
        number = None if site is None else self._assembly.launch_at.get(site)
        if number is None:
            return RunFailed(f"a run failed at {site} with code {code}")
        kernel = self.kernels[number]
        name, lines = kernel.entry_point, ", ".join(map(str, kernel.origins[:3]))
        where = f", which comes from {lines}" if lines else ""
        if code == IndexOutOfRange.code:
            return IndexOutOfRange(
                f"an index is outside its axis, in kernel {name}{where}; correct the indices, then "
                "reset() the Executable"
            )
        return RunFailed(f"kernel {name}{where}, failed with code {code}")

    def forget_after_fork(self) -> None:
        """In a forked process: a run in progress is another process's now."""
        if self._lock.locked():
            self._failure = "it was running when the process forked"
        self._lock = threading.Lock()


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _new_array(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array for the caller to keep; a large one from the pool, whose pages are warm."""
    if dtype.nbytes(shape) < POOLED_FROM_NBYTES:
        return np.empty(shape, dtype.to_numpy())
    return Buffer.allocate(device.get("cpu"), dtype, shape).as_array_mut()


def _constant_array(node: Node) -> Array:
    array = node.attr("data").array if node.op == "constant" else node.attr("source").array()
    return _in_order(array)


def _in_order(array: Array) -> Array:
    """The array in C order, copied where it is not (NumPy's own function adds an axis to none)."""
    return array if array.flags.c_contiguous else array.copy()


def _is_open(node: Node) -> bool:
    return not all(isinstance(size, int) for size in node.shape)


def _explain(array: Array, node: Node) -> NoReturn:
    """Say what is wrong with an array for an input."""
    name = node.attr("name")
    if array.dtype != node.dtype.to_numpy():
        raise TypeMismatch(f"input {name!r} is {node.dtype}, the array given {array.dtype}")
    raise ShapeMismatch(
        f"input {name!r} is {typed(node.shape, node.dtype)}, the array given has shape "
        f"{array.shape}"
    )


def _sizes(
    inputs: tuple[Node, ...], arrays: list[Array], wanted: tuple[Var, ...]
) -> dict[str, int]:
    """The values of all variables, read off the shapes; every other size is checked."""
    sizes: dict[str, int] = {}
    for node, array in zip(inputs, arrays, strict=True):
        for dim, size in zip(node.shape, array.shape, strict=True):
            if isinstance(dim, Var) and dim.name not in sizes:
                sizes[dim.name] = check_binding(dim, size)
    missing = [var.name for var in wanted if var.name not in sizes]
    if missing:
        raise BoundsError(f"no input has {missing[0]!r} as a size by itself, so it is not known")
    for node, array in zip(inputs, arrays, strict=True):
        if any(
            _value(dim, sizes) != size for dim, size in zip(node.shape, array.shape, strict=True)
        ):
            _explain(array, node)
    return sizes


def _value(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)


def _written_to(out: Sequence[Array] | None, results: list[Array]) -> list[Array]:
    if out is None:
        return results
    if len(out) != len(results):
        raise InvalidArgument(f"{len(results)} outputs do not go into {len(out)} arrays")
    for target, result in zip(out, results, strict=True):
        if target.shape != result.shape or target.dtype != result.dtype:
            raise ShapeMismatch(
                f"an output of {result.dtype}{result.shape} does not go into an array of "
                f"{target.dtype}{target.shape}"
            )
        target[...] = result
    return list(out)
