"""Any graph becomes something to call: one program, or one in segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.ir.ops.unbounded import CUTTING
from arenite.memory.plan import MEMORY
from arenite.pipeline import compile_graph

if TYPE_CHECKING:
    from arenite.ir.graph import Graph
    from arenite.pipeline.segmented import SegmentedExecutable
    from arenite.runtime.executable import Executable


def compile_program(
    graph: Graph,
    *,
    threads: int | None = None,
    memory: int | None = None,
    plan: str = MEMORY,
    winograd: bool = True,
) -> Executable | SegmentedExecutable:
    """An Executable for this machine, or one in segments where no plan can be made before a run."""
    if any(node.op in CUTTING for node in graph.everything):
        from arenite.pipeline.segmented import SegmentedExecutable

        return SegmentedExecutable(graph, threads, memory, plan, winograd)
    return compile_graph(graph, threads=threads, memory=memory, plan=plan, winograd=winograd)
