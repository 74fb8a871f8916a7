"""Trial: one kernel alone in a program, cut in several ways, to compare what they take and give.

In: a kernel and the values of its sizes. Out: seconds of a launch and the bytes it writes, for each
choice. Operands are made up; of a kernel in a larger program there are several sets of them, taken
in turn, so that they come from as far as they do there and not from the first cache.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.build import build as build_kernel
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.loader import LoadedCode, load_code
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.cost import estimated_ns
from arenite.backends.cpu.driver.native import BoundTable, OutcomeKind
from arenite.backends.cpu.execution.arrays import address_of
from arenite.backends.cpu.launch import bound_alone
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.target import Target
from arenite.codegen.kernels.built import Built
from arenite.dtype import DType, Kind
from arenite.errors import RunFailed
from arenite.ir.dim import Dim, Var, bounds, evaluate
from arenite.program.closing import Closing
from arenite.program.launch import Launch
from arenite.program.table import aligned_empty
from arenite.schedule import Kernel

#: Work of one run of a program, at least, and at the most where that is more than one launch.
RUN_NS = 50_000
MOST_RUN_NS = 2_000_000
MOST_LAUNCHES = 64
#: Bytes of operands that are no floats: whatever they are part of is then a plain number.
_LEAST_BYTE, _MOST_BYTE = 0x30, 0x3F

Bytes = NDArray[np.uint8]
Bindings = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Program:
    """A choice in memory, ready to run."""

    table: BoundTable
    bind: tuple[int, int]
    scratch: tuple[Bytes, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """Memory for one set of sizes: operands, several times, and results; and how many launches a
    run has."""

    bindings: Bindings
    sets: list[list[Bytes]]
    outputs: list[Bytes]
    n_launches: int


class Trial(Closing):
    """Programs by choice; `variables` are those of the kernel by symbol, `bindings` values of them
    by name, once for each case; `program_nbytes` is what a run of the whole program reads."""

    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        variables: Mapping[str, Var],
        bindings: Sequence[Bindings],
        program_nbytes: int,
    ) -> None:
        self.kernel = kernel
        self._target, self._variables = target, variables
        #: What decides whether a launch is shared, as in a program.
        self._cost_ns = estimated_ns(kernel, lambda dim: bounds(dim)[1])
        operands = _Operands()
        self._cases = [self._case(one, program_nbytes, operands) for one in bindings]
        self._programs: dict[tuple[str, int], _Program] = {}
        self._codes: list[LoadedCode] = []

    def add(self, choices: Sequence[str]) -> None:
        """Compile the kernel in these ways, where it is not yet."""
        new = [choice for choice in choices if (choice, 0) not in self._programs]
        if not new:
            return
        built = [build_kernel(self.kernel, self._target, choice) for choice in new]
        named = [replace(one.loops, name=f"choice{k}") for k, one in enumerate(built)]
        objects = compile_modules([lower(loops, self._target) for loops in named], self._target)
        image = link_objects(objects)
        code = load_code(image.image)
        self._codes.append(code)
        for choice, one, loops in zip(new, built, named, strict=True):
            for k, case in enumerate(self._cases):
                program = self._program(one, case, image.entries[loops.name], code)
                self._programs[choice, k] = program

    def seconds(self, choice: str, case: int, threads: int) -> float:
        """What a launch takes, in one run of the program; alone, what others do does not count."""
        clock = time.thread_time if threads == 1 else time.perf_counter
        began = clock()
        self._run(choice, case, threads)
        return max(clock() - began, 1e-9) / self._cases[case].n_launches

    def result(self, choice: str, case: int, threads: int) -> bytes:
        """The bytes that a run leaves behind; what it does not write is the same always."""
        outputs = self._cases[case].outputs
        for output in outputs:
            output[...] = 0
        self._run(choice, case, threads)
        return b"".join(output.tobytes() for output in outputs)

    def close(self) -> None:
        self._programs.clear()
        for code in self._codes:
            code.close()
        self._codes.clear()

    def _run(self, choice: str, case: int, threads: int) -> None:
        program = self._programs[choice, case]
        outcome = program.table.run(threads, program.bind)
        if outcome.kind is not OutcomeKind.END:
            raise RunFailed(f"kernel {self.kernel.name}, cut as {choice!r}, ended with {outcome}")

    def _case(self, bindings: Bindings, program_nbytes: int, operands: _Operands) -> _Case:
        def size_of(dim: Dim) -> int:
            return evaluate(dim, bindings)

        kernel = self.kernel
        sizes = [size_of(node.nbytes) for node in kernel.inputs]
        n_sets = min(program_nbytes, 2 * self._target.l3_nbytes) // max(1, sum(sizes))
        launch_ns = max(1, estimated_ns(kernel, size_of))
        n_sets = max(1, min(MOST_LAUNCHES, MOST_RUN_NS // launch_ns, n_sets))
        return _Case(
            bindings,
            [
                [
                    operands.get(node.dtype, sizes[k], k, number)
                    for k, node in enumerate(kernel.inputs)
                ]
                for number in range(n_sets)
            ],
            [aligned_empty(size_of(node.nbytes), np.uint8) for node in kernel.outputs],
            max(n_sets, min(MOST_LAUNCHES, RUN_NS // launch_ns)),
        )

    def _program(self, built: Built, case: _Case, entry: int, code: LoadedCode) -> _Program:
        scratch = tuple(
            aligned_empty(evaluate(one.nbytes, case.bindings), np.uint8) for one in built.scratch
        )
        arrays = [*(one for operands in case.sets for one in operands), *case.outputs, *scratch]
        n_inputs = len(self.kernel.inputs)
        written = tuple(range(n_inputs * len(case.sets), len(arrays)))
        launches = []
        for k in range(case.n_launches):
            first = k % len(case.sets) * n_inputs
            read = tuple(range(first, first + n_inputs))
            launches.append(
                Launch(
                    self.kernel.name,
                    entry,
                    (*read, *written),
                    read,
                    written,
                    tuple(self._variables[name] for name in built.loops.sizes),
                    built.tiles,
                    self._cost_ns,
                )
            )
        memory = [(address_of(array), array.nbytes) for array in arrays]
        return _Program(*bound_alone(launches, code, memory, case.bindings), scratch)


class _Operands:
    """Numbers as a model may have them: floats around zero, indices that are always inside. Cases
    share those that are of one size."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], Bytes] = {}
        self._numbers = np.random.default_rng(0)

    def get(self, dtype: DType, nbytes: int, k: int, number: int) -> Bytes:
        """Operand k of a set."""
        key = (nbytes, k, number)
        if key not in self._made:
            self._made[key] = self._new(dtype, nbytes)
        return self._made[key]

    def _new(self, dtype: DType, nbytes: int) -> Bytes:
        array = aligned_empty(nbytes, np.uint8)
        if dtype.kind is Kind.FLOAT and dtype.has_numpy and dtype.bits >= 16:
            floats = array.view(dtype.to_numpy())
            drawn = self._numbers.standard_normal(floats.shape, np.float32)
            floats[...] = drawn.astype(floats.dtype)
        elif (dtype.kind is Kind.SIGNED and dtype.bits >= 32) or dtype.kind is Kind.BOOL:
            array[...] = 0
        else:
            array[...] = self._numbers.integers(_LEAST_BYTE, _MOST_BYTE + 1, nbytes, np.uint8)
        return array
