"""Nodes in an order in which each stands behind those that make what it uses.

The standard asks files for that. Tools that insert casts put them at the end nevertheless, and
ONNX Runtime sorts what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def in_order(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """The nodes of one graph, as near to the file's order as can be; circles are left at the end,
    where the use of what is not made yet will be noticed."""
    makers: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if name:
                makers.setdefault(name, at)
    needs = [
        {makers[name] for name in _used(node) if name in makers} - {at}
        for at, node in enumerate(nodes)
    ]
    if all(max(one, default=-1) < at for at, one in enumerate(needs)):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    missing = [len(one) for one in needs]
    for at, one in enumerate(needs):
        for other in one:
            users[other].append(at)
    ready = [at for at, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for user in users[at]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(ready, user)
    order += [at for at, count in enumerate(missing) if count > 0]
    return [nodes[at] for at in order]


def _used(node: NodeProto) -> Iterator[str]:
    """Names that a node uses, those that graphs in it may have from around it among them."""
    pending: list[NodeProto] = [node]
    while pending:
        one = pending.pop()
        yield from one.input
        for attribute in one.attribute:
            graphs: list[GraphProto] = [attribute.g] if attribute.HasField("g") else []
            for graph in (*graphs, *attribute.graphs):
                yield from (value.name for value in graph.output)
                pending += graph.node
