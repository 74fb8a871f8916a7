"""The kernels of a graph that can be cut in several ways, by what they do."""

from __future__ import annotations

from collections.abc import Iterator

from arenite import passes
from arenite.codegen.kernel_choices import content_of
from arenite.codegen.kernels.built import Built
from arenite.ir.graph import Graph
from arenite.program.backend import backend_of
from arenite.program.options import Options
from arenite.schedule import Kernel, fuse


def contents_of(graph: Graph, options: Options) -> list[str]:
    """What these kernels do, hashed, each once, in whichever way the graph is compiled."""
    contents: dict[str, None] = {}
    neutral, _ = passes.run(graph, passes.NEUTRAL)
    for way in backend_of(options.device).ways(options):
        simplified, _ = passes.run(neutral, way)
        contents |= dict.fromkeys(content for _, _, content in tunable(simplified, options))
    return list(contents)


def tunable(simplified: Graph, options: Options) -> Iterator[tuple[Kernel, Built, str]]:
    """The kernels of a graph after all passes that have choices, as usual, with their content."""
    backend = backend_of(options.device)
    for kernel in fuse(simplified).kernels:
        built = backend.build(kernel)
        if len(built.choices) > 1:
            yield kernel, built, content_of(built.loops)
