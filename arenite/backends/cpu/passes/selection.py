"""The first few in order are picked one by one, where they are few beside all.

argsort(x)[..., :count]    select(x; count)
"""

from __future__ import annotations

from arenite.ir import Node, make
from arenite.ir.compose.basic import slice_axis
from arenite.ir.ops.indexing import can_select
from arenite.passes.selection import selection as in_chunks

#: Elements for each one that is picked, at the least: a sort takes some 60 cycles for an element,
#: and to pick one takes some 200.
LEAST_SHARE = 4


def selection(node: Node) -> Node:
    """One step, or the node itself."""
    return _selected(node) or in_chunks(node)


def _selected(node: Node) -> Node | None:
    if node.op != "slice" or node.inputs[0].op != "argsort":
        return None
    [places] = node.inputs
    [x], axis, count = places.inputs, places.attr("axis"), node.shape[-1]
    if (
        axis != x.ndim - 1
        or not can_select(x.dtype)
        or node is not slice_axis(places, axis, 0, count)
    ):
        return None
    size = x.shape[-1]
    if not (isinstance(size, int) and isinstance(count, int)) or count * LEAST_SHARE > size:
        return None
    return make("select", x, count=count, descending=places.attr("descending"))
