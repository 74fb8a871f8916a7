"""Arguments are brought to the device that a program runs on, results back to the host.

In: a graph. Out: an equal one in which every use of an argument is of its copy on the device, and
every result but arguments and constants themselves is a copy on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arenite.ir import OPS, Graph, Node, make
from arenite.ir.ops.define import on_inputs
from arenite.memory.plan import HOST


def transfers(device: str) -> Callable[[Graph], Graph]:
    """For a device whose memory is not the host's."""

    def transferred(graph: Graph) -> Graph:
        new: dict[Node, Node] = {x: make("transfer", x, device=device) for x in graph.inputs}
        for node in graph.nodes:
            if node not in new and not new.keys().isdisjoint(node.inputs):
                new[node] = on_inputs(node, tuple(new.get(value, value) for value in node.inputs))
        origins = graph.origins.subset(graph.everything)
        outputs = []
        for node in graph.outputs:
            if node not in graph.inputs and OPS[node.op].storage != "constant":
                outputs.append(make("transfer", new.get(node, node), device=HOST))
                origins.add(outputs[-1], *graph.origins.of(node))
            else:
                outputs.append(node)
        for node, made in new.items():
            origins.add(made, *graph.origins.of(node))
        return replace(graph.mapped(new, origins), outputs=tuple(outputs))

    return transferred
