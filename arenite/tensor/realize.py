"""The one way from a lazy tensor to numbers: through the pipeline.

What only addresses memory that is there already needs no program: an element or a run of rows of an
array is a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from arenite.ir import Graph, Node, buffer


def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
    """Compile and run what the nodes stand for; one array each. Loaded late: a tensor that is
    only traced needs no compiler."""
    from arenite import pipeline

    graph = Graph.of(nodes)
    # Small arrays of the user's and parts of arrays are given to the program rather than built into
    # it, so that one program does for all of their contents and places.
    parts = {node: part_of_array(node) for node in graph.nodes if node.op != "buffer"}
    given = {node: buffer(part) for node, part in parts.items() if part is not None}
    return pipeline.realize(graph.replace(given).outputs)


def part_of_array(node: Node) -> NDArray[Any] | None:
    """The elements of a node that lie in one piece in an array that is there; else None."""
    steps = []
    while node.op in ("reshape", "slice"):
        steps.append(node)
        [node] = node.inputs
    if node.op not in ("constant", "buffer") or not node.dtype.has_numpy:
        return None
    array: NDArray[Any]
    array = node.attr("data").array if node.op == "constant" else node.attr("source").array()
    for step in reversed(steps):
        sizes = [size for size in step.shape if isinstance(size, int)]
        if len(sizes) < step.ndim:
            return None
        if step.op == "reshape":
            array = array.reshape(sizes)
            continue
        bounds = zip(step.attr("start"), step.attr("stop"), step.attr("step"), strict=True)
        array = array[tuple(slice(a, None if b < 0 else b, c) for a, b, c in bounds)]
        if not array.flags.c_contiguous:
            return None
    return array
