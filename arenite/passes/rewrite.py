"""Passes: named rewrites of a graph into an equal one, each recorded with what it made.

A pass is a rule for one node whose inputs have been rewritten already; it answers another node of
the same type, or the node itself. Rules are applied from the inputs on, until nothing changes.
Common subexpressions need no pass: equal nodes are one object from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TypeAlias

from arenite.errors import InvalidGraph
from arenite.ir import OPS, Graph, Node, Origin, Origins, Region, make, topological
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.define import on_inputs
from arenite.ir.regions import original

Rule: TypeAlias = Callable[[Node], Node]

#: Rules that lead to each other would go round for ever.
MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    #: For each node; without one, no node is looked at.
    rule: Rule | None = None
    #: What is done first, with the whole graph in view.
    before: Callable[[Graph], Graph] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What a pass made of the graph."""

    name: str
    graph: Graph
    seconds: float

    def __repr__(self) -> str:
        return f"<after {self.name}: {len(self.graph)} nodes, {self.seconds * 1e3:.1f} ms>"


def apply(graph: Graph, rule: Rule) -> Graph:
    """The graph with the rule applied to every node, inputs first; in bodies and branches too. The
    graph itself where nothing changes."""
    return _Rewriting(graph, rule).of(graph)


class _Rewriting:
    """A rule on its way through a graph and the bodies in it."""

    def __init__(self, graph: Graph, rule: Rule) -> None:
        self._whole = graph
        self._rule = rule
        self._regions: dict[Region, Region] = {}  # those that were rewritten already

    @cached_property
    def _origins(self) -> Origins:
        """Of all nodes; learns of new ones. Made when there is something new."""
        return self._whole.origins.subset(self._whole.everything)

    def of(self, graph: Graph) -> Graph:
        rule = self._rule
        new: dict[Node, Node] = {}  # for nodes that do not stay
        known: set[Node] = set()
        for node in graph.nodes:
            result = node
            if OPS[node.op].family == "control" and regions_of(node):
                result = self._with_regions(node, graph, new)
            elif new and not new.keys().isdisjoint(node.inputs):
                result = on_inputs(node, tuple([new.get(value, value) for value in node.inputs]))
            changed = rule(result)
            if changed is not result:
                result = self._settled(changed, result)
            if result is node:
                known.add(node)
                continue
            new[node] = result
            if any(region not in self._regions.values() for region in regions_of(result)):
                _inherit_inside(result, self._origins)
            _inherit(result, graph.origins.of(node), known, self._origins)
        return graph.mapped(new, self._origins) if new else graph

    def _settled(self, changed: Node, result: Node) -> Node:
        """What the rule leaves alone, where it made one node of another."""
        for _ in range(MAX_STEPS):
            if changed.shape != result.shape or changed.dtype != result.dtype:
                raise InvalidGraph(f"{changed!r} cannot stand for {result!r}: another type")
            result = changed
            changed = self._rule(result)
            if changed is result:
                break
        return result

    def _with_regions(self, node: Node, graph: Graph, new: Mapping[Node, Node]) -> Node:
        attrs = {
            name: self._region(value, graph) if isinstance(value, Region) else value
            for name, value in node.attrs
        }
        inputs = tuple(new.get(value, value) for value in node.inputs)
        same_inside = all(attrs[name] == region for name, region in _regions_by_name(node))
        same = same_inside and all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        return node if same else make(node.op, *inputs, **attrs)

    def _region(self, region: Region, graph: Graph) -> Region:
        if region not in self._regions:
            inside = self.of(graph.of_region(region))
            self._regions[region] = Region(region.parameters, inside.outputs)
        return self._regions[region]


def _regions_by_name(node: Node) -> list[tuple[str, Region]]:
    return [(name, value) for name, value in node.attrs if isinstance(value, Region)]


def _inherit(
    result: Node, inherited: tuple[Origin, ...], known: set[Node], origins: Origins
) -> None:
    """What stands for a node comes from where that came from, with all that it is made of and
    that was not there before."""
    origins.add(result, *inherited)
    pending = [] if result in known else [result]
    while pending:
        node = pending.pop()
        if node not in known:
            known.add(node)
            origins.add(node, *inherited)
            pending += node.inputs


def _inherit_inside(node: Node, origins: Origins) -> None:
    """Nodes of bodies that a rule made anew come from where the old ones came from."""
    for region in regions_of(node):
        for one in topological((*region.results, *node.inputs)):
            old = original(one)
            if old is not None:
                origins.add(one, *origins.of(old))


def remade(graph: Graph, remake: Callable[[Node, Node, Mapping[Node, Node]], Node]) -> Graph:
    """The graph with `remake(node, rebuilt, new)` for each node, inputs first: `rebuilt` is the
    node on what its inputs became, and `new` has that. The graph itself where nothing changes."""
    new: dict[Node, Node] = {}
    origins = graph.origins.subset(graph.everything)
    for node in graph.nodes:
        same = all(new[value] is value for value in node.inputs)
        rebuilt = node if same else on_inputs(node, tuple(new[value] for value in node.inputs))
        new[node] = made = remake(node, rebuilt, new)
        origins.add(made, *graph.origins.of(node))
    return graph if all(new[node] is node for node in graph.results) else graph.mapped(new, origins)


def run(graph: Graph, passes: tuple[Pass, ...]) -> tuple[Graph, tuple[Record, ...]]:
    """The graph after all passes, and what each of them left."""
    records = []
    for one in passes:
        began = perf_counter()
        if one.before is not None:
            graph = one.before(graph)
        if one.rule is not None:
            graph = apply(graph, one.rule)
        records.append(Record(one.name, graph, perf_counter() - began))
    return graph, tuple(records)
