"""A Graph becomes a Compiled program of C."""

from __future__ import annotations

from arenite import passes
from arenite.backends.c.build import build
from arenite.backends.c.compile import functions_of
from arenite.backends.c.passes import PASSES
from arenite.ir.graph import Graph
from arenite.pipeline.build import _cached, _launch, _sizes
from arenite.pipeline.load import load_kernels
from arenite.pipeline.planning import planned
from arenite.pipeline.steps import lowered
from arenite.pipeline.program import refuse_cut
from arenite.program.cached_kernel import ModuleText
from arenite.program.compiled import Compiled
from arenite.program.skeleton import shared_of
from arenite.schedule import fuse


def build_c(graph: Graph, memory: int | None = None, freestanding: bool = False) -> Compiled:
    refuse_cut(graph, "written in C")
    simplified, _ = passes.run(graph, PASSES)
    schedule = fuse(simplified)
    built = {kernel.number: build(kernel) for kernel in schedule.kernels}
    names = {kernel.number: kernel.name for kernel in schedule.kernels}
    scratch = {number: one.scratch for number, one in built.items()}
    sizes = {var.symbol: var for var in (*graph.vars, *graph.found)}
    given = [size for one in built.values() for size in _sizes(one, sizes)]
    program = lowered(graph, schedule, scratch, load_kernels(schedule, built), given)
    specs = [_launch(launch, built[launch.kernel.number], 0, sizes) for launch in program.launches]
    plan = planned(program, shared_of(specs), memory, "memory")
    plan.verify()
    image, functions = functions_of(built, names, freestanding)

    def ready(launch):
        number = launch.kernel.number
        spec = _launch(launch, built[number], 0, sizes)
        function = functions[number]
        text = image.kernels[function].text
        return spec, _cached(launch.kernel, built[number], spec, function, ModuleText.of(text), text)

    at_load = [ready(launch) for launch in program.load]
    in_runs = [ready(launch) for launch in program.launches]
    return Compiled(
        image=image.to_bytes(),
        load_kernels=tuple(kernel for _, kernel in at_load),
        load=tuple(spec for spec, _ in at_load),
        kernels=tuple(kernel for _, kernel in in_runs),
        launches=tuple(spec for spec, _ in in_runs),
        values=tuple(program.values),
        outputs=tuple(program.outputs),
        constants=tuple(program.constants),
        plan=plan,
        steps=tuple(program.steps),
        cells=tuple(program.cells),
        found=program.found,
        late=program.late,
        hosts=tuple(program.hosts),
    )
