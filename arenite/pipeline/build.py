"""A Graph becomes a Compiled program: kernels, code, values, steps and the plan."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from arenite import passes
from arenite.codegen.kernel_choices import build_each
from arenite.codegen.kernels.built import Built
from arenite.errors import DoesNotFit
from arenite.ir import Dim, Graph, Var
from arenite.memory import MemoryPlan
from arenite.memory.plan import CONCURRENCY
from arenite.passes import Pass
from arenite.pipeline.choices import all_choices
from arenite.pipeline.load import load_kernels
from arenite.pipeline.planning import planned
from arenite.pipeline.program import refuse_cut
from arenite.pipeline.steps import Lowered, lowered
from arenite.program.backend import Backend, Code, KernelCode, OnCompiled, backend_of
from arenite.program.cached_kernel import CachedKernel, KernelArray, Program
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.options import USUAL, Options
from arenite.program.skeleton import shared_of
from arenite.program.value_spec import ValueSpec
from arenite.schedule import Kernel, fuse

#: Of values.
Numbers: TypeAlias = tuple[int, ...]
#: Passes, what they make of a graph, and how its kernels are to be cut.
_Way: TypeAlias = tuple[tuple[Pass, ...], Graph, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A program with its plan, before any code is made; `passes` are those its graph went
    through."""

    passes: tuple[Pass, ...]
    built: dict[int, Built]
    program: Lowered
    plan: MemoryPlan


def plan_program(graph: Graph, options: Options = USUAL) -> PlannedProgram:
    """Everything of a program but its code."""
    return _Building(graph, options).planned


class _Building:
    """A program whose kernels are built as they are asked for. Under a budget none is told before
    it is known that the program fits."""

    def __init__(self, graph: Graph, options: Options) -> None:
        refuse_cut(graph, "planned; arenite.compile plans its segments, one after the other")
        self._steps = _in_steps(graph, options)
        self._tells = options.memory is None
        self._planned: PlannedProgram | None = None

    def __iter__(self) -> Iterator[Built]:
        if self._tells:
            self._planned = yield from self._steps

    @property
    def planned(self) -> PlannedProgram:
        while self._planned is None:
            try:
                next(self._steps)
            except StopIteration as end:
                self._planned = end.value
        return self._planned

    def by_number(self) -> Mapping[int, Built]:
        return self.planned.built


#: Kernels as they are built, and what comes of them.
_Steps: TypeAlias = Generator[Built, None, PlannedProgram]


def _in_steps(graph: Graph, options: Options) -> _Steps:
    refusal: DoesNotFit | None = None
    for way, simplified, choices in _ways(graph, options):
        try:
            return (yield from _planned(graph, way, simplified, choices, options))
        except DoesNotFit as problem:
            refusal = problem
    assert refusal is not None
    raise refusal


def _ways(graph: Graph, options: Options) -> Iterator[_Way]:
    """The quickest first; where memory is short, those that take less: what tuning has chosen may
    need more scratch than the usual, and some passes memory for packed weights."""
    choices = all_choices()
    quickest, *others = backend_of(options.device).ways(options)
    neutral, _ = passes.run(graph, passes.NEUTRAL)
    simplified, _ = passes.run(neutral, quickest)
    yield quickest, simplified, choices
    if options.memory is None:
        return
    if choices:
        yield quickest, simplified, {}
    tried = {simplified.results}
    for way in others:
        simplified, _ = passes.run(neutral, way)
        if simplified.results not in tried:
            tried.add(simplified.results)
            yield way, simplified, {}


def _planned(
    graph: Graph,
    way: tuple[Pass, ...],
    simplified: Graph,
    choices: Mapping[str, str],
    options: Options,
) -> _Steps:
    backend = backend_of(options.device)
    schedule = fuse(simplified)
    built: dict[int, Built] = {}
    for number, one in build_each(schedule.kernels, backend.builder(options), choices):
        built[number] = one
        yield one
    at_load = load_kernels(schedule, built)
    built = backend.shared(built, at_load)
    scratch = {number: one.scratch for number, one in built.items()}
    sizes = {var.symbol: var for var in (*graph.vars, *graph.found)}
    given: list[Dim] = [size for one in built.values() for size in _sizes(one, sizes)]

    def record(kernel: Kernel, reads: Numbers, writes: Numbers, scratch: Numbers) -> Launch:
        one = built[kernel.number]
        return Launch(
            kernel.name,
            0,
            (*reads, *writes, *scratch),
            reads,
            (*writes, *scratch),
            _sizes(one, sizes)[:-1],
            one.tiles,
            backend.estimated_ns(kernel),
        )

    program = lowered(graph, schedule, scratch, record, at_load, given)
    plan = _plan(program, options, backend)
    return PlannedProgram(way, built, program, plan)


def _plan(program: Lowered, options: Options, backend: Backend) -> MemoryPlan:
    """Where a back end joins launches, for concurrency, if there is memory for that."""
    if backend.joins_launches:
        every = [True] * len(program.launches)
        with suppress(DoesNotFit):
            wide = options._replace(plan=CONCURRENCY)
            return planned(program, every, wide, backend)
    return planned(program, shared_of(program.launches), options, backend)


def build(
    graph: Graph, options: Options = USUAL, on_progress: OnCompiled | None = None
) -> Compiled:
    """Compile; `on_progress(done, total)` hears how many kernels are compiled."""
    backend = backend_of(options.device)
    building = _Building(graph, options)
    code = backend.compile(building, on_progress)
    planned = building.planned
    built, program = planned.built, planned.program

    def ready(launch: Launch, kernel: Kernel) -> CachedKernel:
        part = code.kernels[kernel.number]
        values = [program.values[int(value)] for value in launch.arrays]
        bound = launch._replace(entry=part.entry)
        return _cached(bound, kernel, built[kernel.number], part, code, values, options.device)

    at_load = [ready(*one) for one in zip(program.load, program.load_kernels, strict=True)]
    in_runs = [ready(*one) for one in zip(program.launches, program.kernels, strict=True)]
    return Compiled(
        options=options,
        passes=tuple(one.name for one in (*passes.NEUTRAL, *planned.passes)),
        image=code.image,
        load_kernels=tuple(at_load),
        load=tuple(kernel.launch for kernel in at_load),
        kernels=tuple(in_runs),
        launches=tuple(kernel.launch for kernel in in_runs),
        values=tuple(program.values),
        outputs=tuple(program.outputs),
        constants=tuple(program.book.constants),
        plan=planned.plan,
        steps=tuple(program.steps),
        cells=tuple(program.book.cells),
        found=program.book.found,
        late=program.late,
        hosts=tuple(program.hosts),
    )


def _sizes(built: Built, variables: Mapping[str, Var]) -> tuple[Dim, ...]:
    """What a kernel is given beside arrays: sizes, and how many tiles there are."""
    given: dict[str, Dim] = {**variables, **dict(built.numbers)}
    return (*(given[name] for name in built.loops.sizes), built.tiles)


def _cached(
    launch: Launch,
    kernel: Kernel,
    built: Built,
    part: KernelCode,
    code: Code,
    values: Sequence[ValueSpec],
    device: str,
) -> CachedKernel:
    arrays = built.loops.arrays
    return CachedKernel(
        launch=launch,
        program=Program(part.function, launch.entry, code.image),
        device=device,
        code=part.text,
        outs=tuple(map(int, launch.writes[: len(kernel.outputs)])),
        ins=tuple(
            int(value)
            for value, array in zip(launch.arrays, arrays, strict=True)
            if array.role != "out"  # results and scratch that are read back are read
        ),
        arrays=tuple(
            KernelArray(array.role, value.dtype, value.nbytes)
            for array, value in zip(arrays, values, strict=True)
        ),
        global_size=part.global_size,
        local_size=part.local_size,
        host_parallel_safe=part.host_parallel_safe,
        module=part.module,
        reads_nbytes=kernel.reads_nbytes,
        writes_nbytes=kernel.writes_nbytes,
        arithmetic=kernel.arithmetic,
        border=kernel.border,
        origins=kernel.origins,
    )
