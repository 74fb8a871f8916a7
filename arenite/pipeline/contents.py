"""The kernels of a graph that can be cut in several ways, by what they do."""

from __future__ import annotations

from collections.abc import Iterator

from arenite import passes
from arenite.backends.cpu import passes as cpu
from arenite.backends.cpu.build import content_of
from arenite.backends.cpu.choose import build
from arenite.backends.cpu.compiling.pool import host_target
from arenite.codegen.kernels.built import Built
from arenite.ir.graph import Graph
from arenite.schedule import Kernel, fuse


def contents_of(graph: Graph) -> list[str]:
    """What these kernels do, hashed, each once: those with and those without Winograd's method."""
    found: dict[str, None] = {}
    neutral, _ = passes.run(graph, passes.NEUTRAL)
    for way in (cpu.PASSES, cpu.WITHOUT_WINOGRAD):
        simplified, _ = passes.run(neutral, way)
        found |= dict.fromkeys(content for _, _, content in tunable(simplified))
    return list(found)


def tunable(simplified: Graph) -> Iterator[tuple[Kernel, Built, str]]:
    """The kernels of a graph after all passes that have choices, as usual, with their content."""
    host = host_target()
    for kernel in fuse(simplified).kernels:
        built = build(kernel, host)
        if len(built.choices) > 1:
            yield kernel, built, content_of(built.loops)
