"""One segment of a program that is cut: its graph for the sizes it is entered with.

Sizes found before are variables in it, read off the shapes of its inputs; those without a bound get
the capacity they are compiled for. Everything else is as in any other graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arenite.dtype import INT64
from arenite.ir import Dim, Node, Var, full, graph_input, make
from arenite.ir import size as size_node
from arenite.ir.dim import found_in
from arenite.ir.graph import everything, found_sizes
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.unbounded import NO_BOUND, sizes_made
from arenite.ir.size_substitution import SizeSubstitution, substituted
from arenite.pipeline.sizes import Sized, capacity_for, sized_graph
from arenite.pipeline.stages import Segment


class SegmentSizes:
    """The sizes a segment is entered with, and its graph for capacities of them."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        roots = (*segment.outputs, *(count for one in segment.found for count in one.counts))
        nodes = _until(roots, segment.inputs)
        self._ranges = [node for node in nodes if node.op == "arange"]
        own = {size.name for node in nodes for size in sizes_made(node) if node.op == "cut"}
        known = [size for node in segment.inputs for size in node.shape]
        known += [one.rows for one in segment.found]
        mentioned = [set().union(*map(found_in, known)), *map(found_sizes, nodes)]
        bounds = dict.fromkeys(
            size
            for sizes in mentioned
            for size in sorted(sizes, key=lambda size: size.name)
            if size.name not in own
        )
        #: Found elsewhere, before the segment is entered.
        self.outside = tuple(bounds)
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
        lowest = {size.name: size.low for size in self.outside}
        within: dict[str, Dim] = {
            name: Var(f"entering_{k}", lowest[name], high)
            for k, (name, high) in enumerate(highest.items())
        }
        names = {str(var): name for name, var in within.items()}
        origins = segment.origins.subset(_until(segment.outputs, segment.inputs))
        substitution = SizeSubstitution(within, {}, origins)
        for k, node in enumerate(segment.inputs):
            shape = substitution.shape(node.shape)
            substitution.new[node] = graph_input(f"x{k}", k, shape, node.dtype)
        inputs = [substitution.new[node] for node in segment.inputs]
        for node in self._ranges:
            shape = substitution.shape(node.shape)
            substitution.new[node] = make("iota", shape=shape, axis=0, dtype=INT64)
        counts = [count for one in segment.found for count in one.counts]
        substitution.add((*segment.outputs, *counts))
        outputs = [substitution.new[node] for node in segment.outputs]
        for one in segment.found:
            least = size_node(substituted(one.rows, substitution.sizes), INT64)
            for count in one.counts:
                least = make("minimum", least, substitution.new[count])
            outputs.append(make("maximum", least, full((), 0, INT64)))
        return sized_graph(inputs, outputs, names, origins)

    def named(self, capacities: tuple[int, ...]) -> dict[str, int]:
        """Capacities by what they are of."""
        return {size.name: c for size, c in zip(self.unbounded, capacities, strict=True)}


def _until(roots: Iterable[Node], inputs: tuple[Node, ...]) -> list[Node]:
    """The nodes of a segment, those of bodies too."""
    given = set(inputs)
    nodes: list[Node] = []
    pending = [*roots]
    seen = set(given)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        nodes.append(node)
        if node.op != "arange":
            pending += node.inputs
    return [one for node in nodes for one in _with_bodies(node)]


def _with_bodies(node: Node) -> list[Node]:
    inside = [one for r in regions_of(node) for one in everything((*r.parameters, *r.results))]
    return [node, *inside]
