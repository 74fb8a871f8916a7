"""Passes: named rewrites of a graph into an equal one, each recorded with what it made.

A pass is a rule for one node whose inputs have been rewritten already; it answers another node of
the same type, or the node itself. Rules are applied from the inputs on, until nothing changes.
Common subexpressions need no pass: equal nodes are one object from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from arenite.errors import InvalidGraph
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node, Origin, Origins
from arenite.ir.ops import Region
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.define import make
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
    """The graph with the rule applied to every node, inputs first; in bodies and branches too."""
    return _apply(graph, rule, {}, graph.origins.subset(graph.everything))


def _apply(graph: Graph, rule: Rule, regions: dict[Region, Region], origins: Origins) -> Graph:
    """`regions` are those that were rewritten already; `origins` learns of new nodes."""
    new: dict[Node, Node] = {}
    known: set[Node] = set()
    for node in graph.nodes:
        inputs = tuple(new[value] for value in node.inputs)
        attrs = dict(node.attrs)
        for name, value in node.attrs:
            if isinstance(value, Region):
                if value not in regions:
                    inside = _apply(graph.of_region(value), rule, regions, origins)
                    regions[value] = Region(value.parameters, inside.outputs)
                attrs[name] = regions[value]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        result = node if same and attrs == dict(node.attrs) else make(node.op, *inputs, **attrs)
        for _ in range(MAX_STEPS):
            changed = rule(result)
            if changed is result:
                break
            if changed.shape != result.shape or changed.dtype != result.dtype:
                raise InvalidGraph(f"{changed!r} cannot stand for {result!r}: another type")
            result = changed
        new[node] = result
        if any(region not in regions.values() for region in regions_of(result)):
            _inherit_inside(result, origins)
        _inherit(result, graph.origins.of(node), known, origins)
    return graph.mapped(new, origins)


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
