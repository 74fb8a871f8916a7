"""Any graph becomes something to call: one program, or one in segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.errors import NotCompiled
from arenite.ir.interface import GraphInterface
from arenite.memory.plan import HOST
from arenite.pipeline import compile_graph
from arenite.program.backend import backend_of
from arenite.program.options import USUAL, Options

if TYPE_CHECKING:
    from arenite.ir import Graph, Node
    from arenite.program.backend import OnCompiled
    from arenite.runtime.compiled_program import CompiledProgram


def compile_program(
    graph: Graph | GraphInterface,
    options: Options = USUAL,
    *,
    threads: int | None = None,
    on_progress: OnCompiled | None = None,
    in_segments: bool | None = None,
    is_checked_later: bool = False,
) -> CompiledProgram:
    """An Executable for this machine, or one in segments where no plan can be made before a run,
    or where the device refuses ops: those run on the CPU then.
    `on_progress(done, total)` hears of kernels, but for those of segments. `in_segments` says
    whether only these can run the graph, where that is known. `is_checked_later`: whoever calls an
    Executable holds its sizes to the budget."""
    interface = GraphInterface.of(graph)
    if in_segments is None:
        in_segments = is_cut(interface.graph)
    if not in_segments:
        whole = options._replace(memory=None) if is_checked_later else options
        try:
            return compile_graph(interface, whole, threads=threads, on_progress=on_progress)
        except NotCompiled:
            if backend_of(options.device).memory == HOST:
                raise
    from arenite.pipeline.segmented import SegmentedExecutable

    return SegmentedExecutable(interface.graph, options, threads)


def is_cut(graph: Graph) -> bool:
    """Whether only a program in segments can run a graph."""
    return _cutting(graph) is not None


def refuse_cut(graph: Graph, to_do: str) -> None:
    """NotCompiled for a graph that only a program in segments can run, with what to do instead."""
    node = _cutting(graph)
    if node is not None:
        origins = graph.origins.of(node)
        where = f", which comes from {origins[0]}," if origins else ""
        raise NotCompiled(
            f"at {node.op}{where} the program is cut: what comes behind is planned when a run has "
            f"come so far. As one graph it can't be {to_do}"
        )


def _cutting(graph: Graph) -> Node | None:
    """A node before which native code ends."""
    from arenite.ir.ops.unbounded import CUTTING

    return next((node for node in graph.everything if node.op in CUTTING), None)
