"""Short loops are written out, for devices whose programs are launches one after another.

    loop(2, true, x; body)        body(1, body(0, x))

The number of iterations is fixed, and nothing but it ends the loop.
"""

from __future__ import annotations

from arenite.dtype import INT64
from arenite.ir import Node, full, make, topological
from arenite.ir.ops.control import is_always, loop_parts, trip_size
from arenite.ir.regions import rebuilt

#: Nodes that a loop becomes at the most.
MOST_NODES = 4096


def unrolled(node: Node) -> Node:
    """A result of a loop, of so many copies of its body; all else as it is."""
    if node.op != "loop":
        return node
    parts = loop_parts(node)
    trips = trip_size(parts.trips)
    is_counted = is_always(parts.condition) and is_always(parts.goes_on)
    if not is_counted or not isinstance(trips, int) or trips == 0:
        return node
    made = (*parts.following, *parts.rows)
    if trips * len([*topological(made)]) > MOST_NODES:
        return node
    carried, rows = parts.initial, []
    captures = dict(zip(parts.captured, parts.captures, strict=True))
    for k in range(trips):
        given = dict(zip(parts.carried, carried, strict=True))
        new = rebuilt(made, {parts.iteration: full((), k, INT64), **given, **captures})
        carried = tuple(new[one] for one in parts.following)
        rows.append([new[one] for one in parts.rows])
    index: int = node.attr("index")
    if index < len(carried):
        return carried[index]
    column = [row[index - len(carried)] for row in rows]
    stacked = [make("reshape", one, shape=(1, *one.shape)) for one in column]
    return stacked[0] if trips == 1 else make("concat", *stacked, axis=0)
