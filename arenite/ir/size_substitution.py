"""Graphs with other sizes: a size becomes another one wherever it stands, in bodies too.

In: nodes, and what becomes of sizes by name. Out: the same computation over the new sizes. A size
that is found inside, by a `cut`, gets the bound that the new sizes give it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from arenite.ir.dim import Dim, Expr, Found, bounds, substitute, variables
from arenite.ir.graph import found_sizes, topological
from arenite.ir.node import Node, Origins, Shape
from arenite.ir.ops import Region, make, parameter
from arenite.ir.ops.unbounded import sizes_made


def substituted(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """The size with some of its variables replaced, by name."""
    named = {var: sizes[var.name] for var in variables(dim) if var.name in sizes}
    return substitute(dim, named) if named else dim


def sized_order(roots: Iterable[Node], stop: Collection[Node] = ()) -> list[Node]:
    """Every node the roots reach, each after its inputs and after what finds the sizes it has; not
    `stop` and what is behind."""
    reached = topological(roots, stop)
    makers = {size.name: node for node in reversed(reached) for size in sizes_made(node)}
    if not makers:
        return reached
    order: list[Node] = []
    done = set(stop)
    pending = reached[::-1]
    while pending:
        node = pending[-1]
        if node in done:
            pending.pop()
            continue
        missing = [value for value in needs(node, makers) if value not in done]
        if missing:
            pending += missing[::-1]
        else:
            pending.pop()
            done.add(node)
            order.append(node)
    return order


def needs(node: Node, makers: Mapping[str, Node]) -> list[Node]:
    """What must be there before a node: its inputs, and those that find the sizes it has."""
    named = (makers.get(size.name) for size in found_sizes(node))
    return [*node.inputs, *(one for one in named if one is not None and one is not node)]


class SizeSubstitution:
    """Nodes by the nodes they become. `sizes` learns the sizes that are found inside."""

    def __init__(self, sizes: dict[str, Dim], given: Mapping[Node, Node], origins: Origins) -> None:
        self.sizes = sizes
        self.new = dict(given)
        self._regions: dict[Region, Region] = {}
        self._origins = origins
        self._n_found = 0

    def add(self, roots: Iterable[Node]) -> None:
        """Make all that the roots reach, behind what was given."""
        for node in sized_order(roots, self.new):
            made = self._made(node)
            self.new[node] = made
            if made is not node:
                self._origins.add(made, *self._origins.of(node))

    def shape(self, shape: Shape) -> Shape:
        """A shape over the new sizes."""
        return tuple(substituted(size, self.sizes) for size in shape)

    def _made(self, node: Node) -> Node:
        if node.op == "parameter":
            shape = self.shape(node.shape)
            return node if shape == node.shape else parameter(shape, node.dtype)
        inputs = tuple(self.new[value] for value in node.inputs)
        if node.op == "cut":
            old: Found = node.attr("size")
            if old.name not in self.sizes:
                high = bounds(inputs[0].shape[0])[1]
                self.sizes[old.name] = Found(f"found_in_segment_{self._n_found}", 0, high)
                self._n_found += 1
        attrs = {name: self._value(value) for name, value in node.attrs}
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        if same and all(attrs[name] is value for name, value in node.attrs):
            return node
        return make(node.op, *inputs, **attrs)

    def _value(self, value: object) -> object:
        """An attribute over the new sizes; itself where they change nothing."""
        if isinstance(value, tuple):
            items = tuple(map(self._value, value))
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if isinstance(value, Region):
            return self._region(value)
        if isinstance(value, Expr):
            made = substituted(value, self.sizes)
            return value if made == value else made
        return value

    def _region(self, region: Region) -> Region:
        found = self._regions.get(region)
        if found is None:
            self.add((*region.parameters, *region.results))
            parameters = tuple(self.new[one] for one in region.parameters)
            found = Region(parameters, tuple(self.new[node] for node in region.results))
            if found == region:
                found = region
            self._regions[region] = found
        return found
