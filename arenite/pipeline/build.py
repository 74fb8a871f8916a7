"""A Graph becomes a Compiled program: kernels, code, values, steps and the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from arenite import passes
from arenite.backends.cpu import passes as cpu
from arenite.backends.cpu.build import build_all, nameless_texts
from arenite.backends.cpu.compiling.kept_kernels import linked_kernels
from arenite.backends.cpu.compiling.link import CodeImage
from arenite.backends.cpu.compiling.pool import OnCompiled, host_target
from arenite.backends.cpu.lowering import lower
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.errors import CompileFailed, DoesNotFit
from arenite.ir.dim import Dim, Var, bounds, product
from arenite.ir.graph import Graph
from arenite.ir.ops.define import OPS
from arenite.memory import MemoryPlan
from arenite.memory.plan import MEMORY
from arenite.pipeline.choices import all_choices
from arenite.pipeline.load import load_kernels
from arenite.pipeline.planning import planned
from arenite.pipeline.program import refuse_cut
from arenite.pipeline.steps import Lowered, LoweredLaunch, lowered
from arenite.program.assemble import LaunchSpec
from arenite.program.cached_kernel import CachedKernel, ModuleText, Program
from arenite.program.compiled import Compiled
from arenite.program.skeleton import shared_of
from arenite.schedule import Kernel, fuse

#: Stands for the name of a kernel where that does not count.
_NAMELESS = "this_kernel"

#: What a core does in a nanosecond, for estimates alone.
OPERATIONS_A_NS = 16
PRODUCT_OPERATIONS_A_NS = 64
MAP_COST_A_NS = 32
NBYTES_A_NS = 16


@dataclass(frozen=True, slots=True)
class Draft:
    """A program with its plan, before any code is made."""

    built: dict[int, Built]
    sizes: dict[str, Var]
    program: Lowered
    plan: MemoryPlan


def draft(
    graph: Graph, memory: int | None = None, made_for: str = MEMORY, winograd: bool = True
) -> Draft:
    """Everything of a program but its code; `memory` is the most bytes it may take in all,
    `made_for` what its plan is made for, `winograd` whether convolutions may be done so."""
    refuse_cut(graph, "planned; arenite.compile plans its segments, one after the other")
    refusal: DoesNotFit | None = None
    for simplified, choices in _ways(graph, memory, winograd):
        try:
            return _drafted(graph, simplified, choices, memory, made_for)
        except DoesNotFit as problem:
            refusal = problem
    assert refusal is not None
    raise refusal


def _ways(
    graph: Graph, memory: int | None, winograd: bool
) -> Iterator[tuple[Graph, Mapping[str, str]]]:
    """The quickest first; where memory is short, those that take less: what tuning has chosen may
    need more scratch than the usual, Winograd larger weights, and panels memory beside that of a
    file."""
    choices = all_choices()
    is_faster = winograd and host_target().has_fma  # else there are no register tiles
    neutral, _ = passes.run(graph, passes.NEUTRAL)
    quickest, *others = (cpu.PASSES, cpu.WITHOUT_WINOGRAD, cpu.IN_PLACE)[0 if is_faster else 1 :]
    simplified, _ = passes.run(neutral, quickest)
    yield simplified, choices
    if memory is None:
        return
    if choices:
        yield simplified, {}
    for way in others:
        other, _ = passes.run(neutral, way)
        if other.results != simplified.results:
            simplified = other
            yield simplified, {}


def _drafted(
    graph: Graph,
    simplified: Graph,
    choices: Mapping[str, str],
    memory: int | None,
    made_for: str,
) -> Draft:
    host = host_target()
    schedule = fuse(simplified)
    built = build_all(schedule.kernels, host, choices)
    scratch = {number: one.scratch for number, one in built.items()}
    sizes = {var.symbol: var for var in (*graph.vars, *graph.found)}
    given: list[Dim] = [size for one in built.values() for size in _sizes(one, sizes)]
    program = lowered(graph, schedule, scratch, load_kernels(schedule, built), given)
    specs = [_launch(launch, built[launch.kernel.number], 0, sizes) for launch in program.launches]
    plan = planned(program, shared_of(specs), memory, made_for)
    plan.verify()
    return Draft(built, sizes, program, plan)


def build(
    graph: Graph,
    memory: int | None = None,
    made_for: str = MEMORY,
    winograd: bool = True,
    on_progress: OnCompiled | None = None,
) -> Compiled:
    """Compile; `memory` is the most bytes it may take in all, `made_for` what its plan is made for,
    `winograd` whether convolutions may be done so. `on_progress(done, total)` hears how many
    kernels are compiled."""
    host = host_target()
    drafted = draft(graph, memory, made_for, winograd)
    built, sizes, program = drafted.built, drafted.sizes, drafted.program
    # Layers repeat: kernels that read the same, but for the name, are compiled once.
    texts = nameless_texts(built, _NAMELESS)
    distinct = {text: built[n].loops for n, text in texts.items()}
    functions: dict[str, tuple[str, str]] = {}
    code = _linked(distinct, functions, host, on_progress) if distinct else None
    entries = {} if code is None else code.entries
    packed = {name: ModuleText.of(module) for name, module in functions.values()}

    def ready(launch: LoweredLaunch) -> tuple[LaunchSpec, CachedKernel]:
        number = launch.kernel.number
        one, text = built[number], texts[number]
        name = functions[text][0]
        spec = _launch(launch, one, entries[name], sizes)
        code = text.replace(_NAMELESS, launch.kernel.name)
        return spec, _cached(launch.kernel, one, spec, name, packed[name], code)

    at_load = [ready(launch) for launch in program.load]
    in_runs = [ready(launch) for launch in program.launches]
    return Compiled(
        image=b"" if code is None else code.image,
        load_kernels=tuple(kernel for _, kernel in at_load),
        load=tuple(spec for spec, _ in at_load),
        kernels=tuple(kernel for _, kernel in in_runs),
        launches=tuple(spec for spec, _ in in_runs),
        values=tuple(program.values),
        outputs=tuple(program.outputs),
        constants=tuple(program.constants),
        plan=drafted.plan,
        steps=tuple(program.steps),
        cells=tuple(program.cells),
        found=program.found,
        late=program.late,
        hosts=tuple(program.hosts),
    )


def _function(loops: ir.LoopKernel, host: Target) -> tuple[str, str]:
    """The name of a kernel's function, which follows from its code and so is the same in every
    program; and the module it is in, with nothing else."""
    module = lower.lower(replace(loops, name=_NAMELESS), host)
    name = f"kernel_{hashlib.sha256(module.encode()).hexdigest()[:24]}"
    return name, module.replace(f"@{_NAMELESS}", f"@{name}")


def _linked(
    distinct: Mapping[str, ir.LoopKernel],
    functions: dict[str, tuple[str, str]],
    host: Target,
    on_progress: OnCompiled | None,
) -> CodeImage:
    """The code of all kernels, whose functions are made on the way: the first are compiled while
    others are still written. A failure names kernels as people know them."""
    n_twins = n_told = 0  # other loops, the same function

    def tell(n_done: int) -> None:
        nonlocal n_told
        if on_progress is not None and n_done > n_told:
            n_told = n_done
            on_progress(n_done, len(distinct))

    def modules() -> Iterator[str]:
        nonlocal n_twins
        names: set[str] = set()
        # The longest first, so that it is not the one all others wait for at the end.
        for text, loops in sorted(distinct.items(), key=lambda item: -len(item[0])):
            name, module = functions[text] = _function(loops, host)
            if name in names:
                n_twins += 1
            else:
                names.add(name)
                yield module

    if on_progress is not None:
        on_progress(0, len(distinct))
    try:
        image = linked_kernels(modules(), host, lambda done, _: tell(done + n_twins))
    except CompileFailed as failure:
        named = {functions[text][0]: distinct[text].name for text in functions}
        known = [f"{name} is {kernel}" for name, kernel in named.items() if name in str(failure)]
        raise type(failure)("; ".join([str(failure), *known])) from None
    tell(len(distinct))
    return image


def _sizes(built: Built, variables: Mapping[str, Var]) -> tuple[Dim, ...]:
    """What a kernel is given beside arrays: sizes, and how many tiles there are."""
    return (*(variables[name] for name in built.loops.sizes), built.tiles)


def _launch(
    launch: LoweredLaunch, built: Built, entry: int, sizes: Mapping[str, Var]
) -> LaunchSpec:
    return LaunchSpec(
        launch.kernel.name,
        entry,
        (*launch.reads, *launch.writes, *launch.scratch),
        launch.reads,
        (*launch.writes, *launch.scratch),
        _sizes(built, sizes)[:-1],
        built.tiles,
        estimated_ns(launch.kernel, lambda dim: bounds(dim)[1]),
    )


def estimated_ns(kernel: Kernel, size_of: Callable[[Dim], int]) -> int:
    """What a launch is estimated to take."""
    is_product = any(OPS[stage.node.op].is_contraction for stage in kernel.stages)
    a_ns = PRODUCT_OPERATIONS_A_NS if is_product else OPERATIONS_A_NS
    return max(
        size_of(kernel.operations) // a_ns,
        size_of(product(kernel.space)) * kernel.map_cost // MAP_COST_A_NS,
        size_of(kernel.reads_nbytes + kernel.writes_nbytes) // NBYTES_A_NS,
    )


def _cached(
    kernel: Kernel, built: Built, launch: LaunchSpec, function: str, module: ModuleText, code: str
) -> CachedKernel:
    return CachedKernel(
        program=Program(function, launch.entry),
        device="cpu",
        code=code,
        entry_point=kernel.name,
        var_names=tuple(var.name for var in launch.sizes if isinstance(var, Var)),
        globals=tuple(int(value) for value in launch.arrays),
        outs=tuple(int(value) for value in launch.writes[: len(kernel.outputs)]),
        ins=tuple(
            int(value)
            for value, array in zip(launch.arrays, built.loops.arrays, strict=True)
            if array.role != "out"  # results and scratch that are read back are read
        ),
        host_parallel_safe=True,
        global_size=(built.tiles, 1, 1),
        local_size=None,
        module=module,
        reads_nbytes=kernel.reads_nbytes,
        writes_nbytes=kernel.writes_nbytes,
        arithmetic=kernel.arithmetic,
        border=kernel.border,
        origins=kernel.origins,
    )
