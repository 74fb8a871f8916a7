"""The one place that knows the whole order: a Graph becomes an Executable.

passes -> schedule -> loops -> LLVM -> code        what is done, once
lifetimes -> plan -> launches -> table             where and in which order it is done
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from arenite import passes
from arenite.codegen import loop_ir as ir
from arenite.codegen import lower, target
from arenite.codegen.kernels import Built, build
from arenite.codegen.llvm import compiler_identity
from arenite.codegen.printer import kernel_text
from arenite.errors import DamagedCache
from arenite.ir.dim import Var, bounds
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.memory import Lifetime, Value
from arenite.memory import plan as plan_memory
from arenite.runtime import cache
from arenite.runtime.assemble import LaunchSpec
from arenite.runtime.compile_pool import compile_modules, host_target
from arenite.runtime.compiled import Compiled, ValueSpec
from arenite.runtime.executable import Executable, constants_of
from arenite.runtime.kernel import CachedKernel, ModuleText, Program
from arenite.runtime.link import link_objects
from arenite.schedule import Kernel, Schedule, fuse, is_in_memory

log = logging.getLogger("arenite.pipeline")

#: Modules handed to the compiling processes: enough to keep two busy, few enough to be cheap.
KERNELS_A_MODULE = 16

#: What a core does in a nanosecond, for estimates alone.
OPERATIONS_A_NS = 16
NBYTES_A_NS = 16


def compile_graph(
    graph: Graph, *, threads: int | None = None, memory: int | None = None
) -> Executable:
    """An Executable for this machine: from the cache, where it has been compiled before.

    `memory` is the most bytes the arena may have.
    """
    key = cache.key_of(
        "model",
        graph.digest(),
        str(memory),
        _sources(),
        compiler_identity(),
        target.host_identity(),
    )
    store = cache.default()
    built: list[Compiled] = []

    def build_sections() -> dict[str, bytes]:
        built.append(compile_anew(graph, memory))
        return built[0].sections()

    sections = store.obtain(key, build_sections)
    if built:
        return Executable(graph, built[0], threads)
    try:
        program = Compiled.from_sections(sections)
    except DamagedCache as damage:
        log.info("a damaged program is compiled anew: %s", damage)
        store.drop(key)
        program = compile_anew(graph, memory)
    return Executable(graph, program, threads)


def compile_anew(graph: Graph, memory: int | None = None) -> Compiled:
    """Compile without looking at the cache."""
    host = host_target()
    simplified, _ = passes.run(graph, passes.PASSES)
    schedule = fuse(simplified)
    built = [build(kernel, host) for kernel in schedule.kernels]
    # Layers repeat: kernels that read the same, but for the name, are compiled once.
    texts = [kernel_text(replace(one.loops, name="kernel")) for one in built]
    distinct: dict[str, ir.LoopKernel] = {}
    for text, one in zip(texts, built, strict=True):
        distinct.setdefault(text, one.loops)
    functions = list(distinct.values())
    modules = [
        lower.lower(functions[k : k + KERNELS_A_MODULE], host)
        for k in range(0, len(functions), KERNELS_A_MODULE)
    ]
    numbers, values, constants = _values(graph, schedule)
    scratch = _add_scratch(schedule, built, values)
    plan = plan_memory(_lifetimes(schedule, numbers, scratch, values), memory)
    code = link_objects(compile_modules(modules, host)) if modules else None
    entries = {} if code is None else code.entries
    launches = [
        _launch(kernel, one, entries[distinct[text].name], numbers, own, graph.vars)
        for kernel, one, text, own in zip(schedule.kernels, built, texts, scratch, strict=True)
    ]
    packed = [ModuleText.of(module) for module in modules]
    module_of = {text: packed[k // KERNELS_A_MODULE] for k, text in enumerate(distinct)}
    kernels = [
        _cached(kernel, one, launch, distinct[text].name, module_of[text])
        for kernel, one, launch, text in zip(schedule.kernels, built, launches, texts, strict=True)
    ]
    return Compiled(
        image=b"" if code is None else code.image,
        kernels=tuple(kernels),
        launches=tuple(launches),
        values=tuple(values),
        outputs=tuple(numbers[node] for node in schedule.outputs),
        constants=constants,
        plan=plan,
    )


@lru_cache(maxsize=1)
def _sources() -> bytes:
    """What decides the code that is generated: our own sources, hashed by content."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in ("ir", "passes", "schedule", "codegen", "memory", "runtime"):
        for file in sorted((here / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.digest()


def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
    """The values of nodes that depend on no input."""
    if not nodes:
        return []
    with compile_graph(Graph.of(nodes)) as program:
        return program.run({})


def _values(
    graph: Graph, schedule: Schedule
) -> tuple[dict[Node, int], list[ValueSpec], tuple[NDArray[Any], ...]]:
    """Every value in memory, numbered; and the constants that were made while compiling."""
    numbers: dict[Node, int] = {}
    specs: list[ValueSpec] = []
    names: set[str] = set()
    made: list[NDArray[Any]] = []
    of_graph = {node: k for k, node in enumerate(constants_of(graph))}

    def add(node: Node, kind: str, name: str, source: int = 0) -> None:
        if node in numbers:
            return
        if is_in_memory(node) and kind != "input":
            kind, name = "constant", f"constant{len(specs)}"
            if node in of_graph:
                source = of_graph[node]
            else:
                made.append(node.attr("data").array)
                source = -len(made)
        while name in names:
            name += "_"
        names.add(name)
        numbers[node] = len(specs)
        specs.append(ValueSpec(kind, name, node.shape, node.dtype, node.nbytes, source))

    for k, node in enumerate(graph.inputs):
        add(node, "input", node.attr("name"), k)
    for k, node in enumerate(schedule.outputs):
        add(node, "output", f"out{k}")
    for kernel in schedule.kernels:
        for node in kernel.inputs:
            add(node, "work", "")
        for k, node in enumerate(kernel.outputs):
            add(node, "work", f"{kernel.name}.{k}")
    return numbers, specs, tuple(made)


def _add_scratch(
    schedule: Schedule, built: Sequence[Built], values: list[ValueSpec]
) -> list[tuple[int, ...]]:
    """What kernels need for themselves becomes values too; their numbers, kernel by kernel."""
    found = []
    for kernel, one in zip(schedule.kernels, built, strict=True):
        first = len(values)
        for k, need in enumerate(one.scratch):
            name = f"{kernel.name}.scratch{k}"
            values.append(ValueSpec("work", name, (need.count,), need.dtype, need.nbytes))
        found.append(tuple(range(first, len(values))))
    return found


def _launch(
    kernel: Kernel,
    built: Built,
    entry: int,
    numbers: Mapping[Node, int],
    scratch: tuple[int, ...],
    graph_vars: Sequence[Var],
) -> LaunchSpec:
    sizes = {var.name: var for var in graph_vars}
    reads = tuple(numbers[node] for node in kernel.inputs)
    writes = tuple(numbers[node] for node in kernel.outputs)
    cost = max(
        bounds(kernel.operations)[1] // OPERATIONS_A_NS,
        bounds(kernel.reads_nbytes + kernel.writes_nbytes)[1] // NBYTES_A_NS,
    )
    return LaunchSpec(
        kernel.name,
        entry,
        (*reads, *writes, *scratch),
        reads,
        (*writes, *scratch),
        tuple(sizes[name] for name in built.loops.sizes),
        built.tiles,
        cost,
    )


def _cached(
    kernel: Kernel, built: Built, launch: LaunchSpec, function: str, module: ModuleText
) -> CachedKernel:
    return CachedKernel(
        program=Program(function, launch.entry),
        device="cpu",
        code=kernel_text(built.loops),
        entry_point=kernel.name,
        var_names=built.loops.sizes,
        globals=tuple(int(value) for value in launch.arrays),
        outs=tuple(int(value) for value in launch.writes[: len(kernel.outputs)]),
        ins=tuple(int(value) for value in launch.reads),
        host_parallel_safe=True,
        global_size=(built.tiles, 1, 1),
        local_size=None,
        module=module,
        reads_nbytes=kernel.reads_nbytes,
        writes_nbytes=kernel.writes_nbytes,
        operations=kernel.operations,
        border=kernel.border,
        origins=kernel.origins,
    )


def _lifetimes(
    schedule: Schedule,
    numbers: Mapping[Node, int],
    scratch: Sequence[tuple[int, ...]],
    values: Sequence[ValueSpec],
) -> list[Value]:
    """Values with the ticks they live, one tick a launch; sizes at their largest."""
    end = max(1, len(schedule.kernels))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    in_place: dict[int, list[int]] = {}
    for tick, kernel in enumerate(schedule.kernels):
        for node in kernel.outputs:
            first[numbers[node]] = tick
            last[numbers[node]] = tick
        for node in kernel.inputs:
            last[numbers[node]] = tick
        for output, read in kernel.in_place:
            in_place.setdefault(numbers[output], []).append(numbers[read])
        for number in scratch[tick]:
            first[number] = last[number] = tick
    made = []
    for number, spec in enumerate(values):
        nbytes = bounds(spec.nbytes)[1]
        if spec.kind == "work":
            takes_over = tuple(
                values[read].name
                for read in in_place.get(number, ())
                if values[read].kind == "work"
            )
            span = Lifetime(first[number], last[number] + 1)
            made.append(Value(spec.name, nbytes, span, takes_over=takes_over))
        else:
            region = "mapped" if spec.kind == "constant" else "io"
            made.append(Value(spec.name, nbytes, Lifetime(0, end), region=region))
    return made
