"""The printed form of a graph: one line a node, the same text for the same structure.

graph(%0: x float32[batch, 64])
%1 = constant([0.5, 0.25, ...]) : float32[64]
%2 = add(%0, %1) : float32[batch, 64]   # model.py:12
return out0=%2

The body of a loop and the sides of a branch stand below the node that has them, indented and with
numbers of their own; a region that is used again is named by its number.

%3 = loop(%0, %1, %2, body=@0, carried=1, index=0) : float32[64]
    @0(%0: int64[], %1: float32[64])
    %2 = full(value=True) : bool[]
    %3 = neg(%1) : float32[64]
    return %2, %3
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import DType
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin
from arenite.ir.ops import OPS, BufferSource, ConstantData, Region
from arenite.ir.ops.control import regions_of

_PREVIEWED_ELEMENTS = 4
INDENT = "    "


def text(graph: Graph) -> str:
    """The printed form of a graph."""
    arguments = [
        f"%{i}: {node.attr('name')} {node.type_text}" for i, node in enumerate(graph.inputs)
    ]
    head = f"graph({', '.join(arguments)})"
    ranges = [f"{var.name} in {var.low}..{var.high}" for var in graph.vars]
    if ranges:
        head += f" where {', '.join(ranges)}"
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    results = zip(graph.names, graph.outputs, strict=True)
    end = "return " + ", ".join(f"{name}=%{numbers[node]}" for name, node in results)
    becomes = [f"{state.attr('name')} becomes %{numbers[value]}" for state, value in graph.updates]
    return "\n".join([head, *_body(graph, {}), *becomes, end]) + "\n"


def _body(graph: Graph, regions: dict[Region, int]) -> list[str]:
    """The lines of all nodes but the inputs; each region where it is met first."""
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    given = set(graph.inputs)
    lines = []
    for node in graph.nodes:
        if node in given:
            continue
        new = [region for region in regions_of(node) if region not in regions]
        for region in new:
            regions.setdefault(region, len(regions))
        lines.append(_line(node, numbers, graph.origins.of(node), regions))
        for region in new:
            lines += [INDENT + line for line in _region(graph.of_region(region), region, regions)]
    return lines


def _region(graph: Graph, region: Region, regions: dict[Region, int]) -> list[str]:
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    arguments = [f"%{numbers[p]}: {p.type_text}" for p in region.parameters]
    results = ", ".join(f"%{numbers[node]}" for node in region.results)
    head = f"@{regions[region]}({', '.join(arguments)})"
    return [head, *_body(graph, regions), f"return {results}"]


def _line(
    node: Node,
    numbers: dict[Node, int],
    origins: tuple[Origin, ...],
    regions: dict[Region, int],
) -> str:
    arguments = [f"%{numbers[value]}" for value in node.inputs]
    for name, value in node.attrs:
        if isinstance(value, Region):
            arguments.append(f"{name}=@{regions[value]}")
        elif written := _attr(node, name, value):
            arguments.append(written)
    line = f"%{numbers[node]} = {node.op}({', '.join(arguments)}) : {node.type_text}"
    return f"{line}   # {', '.join(map(str, origins))}" if origins else line


def _attr(node: Node, name: str, value: object) -> str:
    """As text; empty where the node's type says the same, or it is what it always is."""
    if OPS[node.op].defaults.get(name) == value:
        return ""
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
