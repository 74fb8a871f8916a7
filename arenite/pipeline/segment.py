"""One segment of a program that is cut: native code for the sizes it is entered with.

A size without a bound gets one that it is compiled for, its capacity: 64, 256, 1024 and so on, so
that a loop which grows is compiled as often as its length has digits to the base 4, and what one
capacity is chosen for depends on the size alone. Everything else is as in any other graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME
from arenite.ir.dim import Dim, Found, Var, evaluate, found_in, variables
from arenite.ir.graph import Graph, everything, found_sizes
from arenite.ir.node import Node
from arenite.ir.ops import full, graph_input, make
from arenite.ir.ops import size as size_node
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.define import INT64
from arenite.ir.ops.unbounded import NO_BOUND, sizes_made
from arenite.ir.resize import Resizing
from arenite.pipeline.stages import Segment

Array = NDArray[Any]

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
    """The graph of a segment with bounds for all sizes."""

    graph: Graph
    #: Sizes that stand in no input's shape by themselves: each has an input without elements.
    extra: tuple[str, ...]
    #: Sizes by the names they have in the graph.
    names: dict[str, str]

    def outputs_nbytes(self, sizes: Mapping[str, int]) -> int:
        """Bytes of all outputs, at most."""
        here = {name: sizes[outside] for name, outside in self.names.items()}
        total = 0
        for node in self.graph.outputs:
            inside = {
                var.name: var.high for var in variables(node.nbytes) if isinstance(var, Found)
            }
            total += evaluate(node.nbytes, here | inside)
        return total


class SegmentSizes:
    """The sizes a segment is entered with, and its graph for capacities of them."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        roots = (*segment.outputs, *(value for cut in segment.cuts for value in cut.inputs))
        nodes = _until(roots, segment.inputs)
        self._ranges = [node for node in nodes if node.op == "arange"]
        made = {size.name for node in nodes for size in sizes_made(node) if node.op == "cut"}
        shapes = [size for node in segment.inputs for size in node.shape]
        mentioned = [set().union(*map(found_in, shapes)), *map(found_sizes, nodes)]
        found = dict.fromkeys(
            size
            for sizes in mentioned
            for size in sorted(sizes, key=lambda size: size.name)
            if size.name not in made
        )
        #: Found elsewhere, before the segment is entered.
        self.outside = tuple(found)
        self.unbounded = tuple(size for size in self.outside if size.high >= NO_BOUND)

    def capacities(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """What is to be compiled for these sizes, in the order of `unbounded`."""
        return tuple(capacity_for(sizes[size.name]) for size in self.unbounded)

    def tight(self, sizes: Mapping[str, int], slack: int) -> tuple[int, ...]:
        """The sizes themselves and a part of them, 1/slack; 0: no more than they are."""
        return tuple(
            sizes[size.name] + (sizes[size.name] // slack if slack else 0)
            for size in self.unbounded
        )

    def sized(self, capacities: tuple[int, ...]) -> Sized:
        """The graph for these capacities."""
        segment = self.segment
        highest = {size.name: size.high for size in self.outside}
        highest |= {s.name: c for s, c in zip(self.unbounded, capacities, strict=True)}
        within: dict[str, Dim] = {
            name: Var(f"entering_{k}", 0, high) for k, (name, high) in enumerate(highest.items())
        }
        names = {str(var): name for name, var in within.items()}
        origins = segment.origins.subset(_until(segment.outputs, segment.inputs))
        resizing = Resizing(within, {}, origins)
        for k, node in enumerate(segment.inputs):
            shape = resizing.shape(node.shape)
            resizing.new[node] = graph_input(f"x{k}", k, shape, node.dtype)
        inputs = [resizing.new[node] for node in segment.inputs]
        for node in self._ranges:
            shape = resizing.shape(node.shape)
            resizing.new[node] = make("iota", shape=shape, axis=0, dtype=INT64)
        counts = [cut.inputs[1] for cut in segment.cuts]
        resizing.add((*segment.outputs, *counts))
        outputs = [resizing.new[node] for node in segment.outputs]
        for cut, count in zip(segment.cuts, counts, strict=True):
            [rows] = resizing.shape(cut.inputs[0].shape[:1])
            limited = make("minimum", resizing.new[count], size_node(rows, INT64))
            outputs.append(make("maximum", limited, full((), 0, INT64)))
        graph = Graph(tuple(inputs), tuple(outputs), (), origins)
        alone = {size for node in inputs for size in node.shape if isinstance(size, Var)}
        missing = [var for var in graph.vars if var not in alone]
        # No elements, and a size that is read off its shape.
        inputs += [
            graph_input(f"size_of_{var.name}", len(inputs) + k, (var, 0), BY_NAME["uint8"])
            for k, var in enumerate(missing)
        ]
        names |= {var.name: var.name for var in graph.vars if var.name not in names}
        used = {var.name for var in graph.vars}
        return Sized(
            Graph(tuple(inputs), tuple(outputs), (), origins),
            tuple(names[var.name] for var in missing),
            {name: outside for name, outside in names.items() if name in used},
        )


def extra_inputs(sized: Sized, sizes: Mapping[str, int]) -> list[Array]:
    """Arrays for the inputs without elements."""
    return [np.empty((sizes[name], 0), np.uint8) for name in sized.extra]


def _until(roots: Iterable[Node], inputs: tuple[Node, ...]) -> list[Node]:
    """The nodes of a segment, those of bodies too."""
    given = set(inputs)
    found: list[Node] = []
    pending = [*roots]
    seen = set(given)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        found.append(node)
        if node.op != "arange":
            pending += node.inputs
    return [one for node in found for one in _with_bodies(node)]


def _with_bodies(node: Node) -> list[Node]:
    inside = [one for r in regions_of(node) for one in everything((*r.parameters, *r.results))]
    return [node, *inside]
