"""The printed form of a graph: one line a node, the same text for the same structure.

graph(%0: x float32[batch, 64])
%1 = constant([0.5, 0.25, ...]) : float32[64]
%2 = add(%0, %1) : float32[batch, 64]   # model.py:12
return out0=%2
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import DType
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, typed
from arenite.ir.ops import BufferSource, ConstantData

_PREVIEWED_ELEMENTS = 4


def text(graph: Graph) -> str:
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    arguments = [
        f"%{numbers[node]}: {node.attr('name')} {typed(node.shape, node.dtype)}"
        for node in graph.inputs
    ]
    lines = [f"graph({', '.join(arguments)})"]
    ranges = [f"{var.name} in {var.low}..{var.high}" for var in graph.vars]
    if ranges:
        lines[0] += f" where {', '.join(ranges)}"
    given = set(graph.inputs)
    for node in graph.nodes:
        if node not in given:
            lines.append(_line(node, numbers, graph.origins.of(node)))
    results = zip(graph.names, graph.outputs, strict=True)
    lines.append("return " + ", ".join(f"{name}=%{numbers[node]}" for name, node in results))
    return "\n".join(lines) + "\n"


def _line(node: Node, numbers: dict[Node, int], origins: tuple[Origin, ...]) -> str:
    arguments = [f"%{numbers[value]}" for value in node.inputs]
    arguments += [written for name, value in node.attrs if (written := _attr(node, name, value))]
    line = f"%{numbers[node]} = {node.op}({', '.join(arguments)}) : {typed(node.shape, node.dtype)}"
    return f"{line}   # {', '.join(map(str, origins))}" if origins else line


def _attr(node: Node, name: str, value: object) -> str:
    """As text; empty where the node's type says the same."""
    if isinstance(value, ConstantData):
        return preview(value.array)
    if isinstance(value, BufferSource):
        return f"id={value.id}"
    if isinstance(value, DType) or (name == "shape" and value == node.shape):
        return ""
    return f"{name}={value}"


def preview(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    """The first elements of an array."""
    if array.ndim == 0:
        return str(array)
    shown = ", ".join(str(element) for element in array.reshape(-1)[:_PREVIEWED_ELEMENTS])
    return f"[{shown}{', ...' if array.size > _PREVIEWED_ELEMENTS else ''}]"
