"""Graphs whose sizes have bounds, for what has none: capacities, and inputs that tell sizes.

A size without a bound gets one that it is compiled for, its capacity: 64, 256, 1024 and so on. What
capacity is chosen depends on the size alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arenite.dtype import UINT8, Array
from arenite.ir import Dim, Graph, Node, Origins, Var, graph_input, variables
from arenite.ir.dim import Found, evaluate
from arenite.ir.size_substitution import substituted

#: The least a size without a bound is compiled for, and by how much that grows.
FIRST_CAPACITY = 64
GROWTH = 4


def capacity_for(size: int) -> int:
    """The capacity that a size is compiled for."""
    capacity = FIRST_CAPACITY
    while capacity < size:
        capacity *= GROWTH
    return capacity


@dataclass(frozen=True, eq=False, slots=True)
class Sized:
    """A graph with bounds for all sizes."""

    graph: Graph
    #: Sizes that stand in no input's shape by themselves: each has an input without elements.
    extra: tuple[str, ...]
    #: Sizes by the names they have in the graph.
    names: dict[str, str]
    #: Bytes of the outputs; sizes that are found inside are at their largest.
    nbytes: Dim

    def outputs_nbytes(self, sizes: Mapping[str, int]) -> int:
        """Bytes of all outputs, at most."""
        return evaluate(self.nbytes, {name: sizes[out] for name, out in self.names.items()})

    def extra_inputs(self, sizes: Mapping[str, int]) -> list[Array]:
        """Arrays for the inputs without elements."""
        return [np.empty((sizes[name], 0), np.uint8) for name in self.extra]


def sized_graph(
    inputs: list[Node], outputs: list[Node], names: Mapping[str, str], origins: Origins
) -> Sized:
    """The graph; `names` are those that sizes have outside, where they have others here."""
    graph = Graph(tuple(inputs), tuple(outputs), (), origins)
    alone = {size for node in inputs for size in node.shape if isinstance(size, Var)}
    missing = [var for var in graph.vars if var not in alone]
    # No elements, and a size that is read off its shape.
    extra = [
        graph_input(f"size_of_{var.name}", len(inputs) + k, (var, 0), UINT8)
        for k, var in enumerate(missing)
    ]
    outside = {var.name: names.get(var.name, var.name) for var in graph.vars}
    nbytes: Dim = 0
    for node in outputs:
        largest = {v.name: v.high for v in variables(node.nbytes) if isinstance(v, Found)}
        nbytes = nbytes + substituted(node.nbytes, largest)
    return Sized(
        Graph((*inputs, *extra), tuple(outputs), (), origins),
        tuple(outside[var.name] for var in missing),
        outside,
        nbytes,
    )
