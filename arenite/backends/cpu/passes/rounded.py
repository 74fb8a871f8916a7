"""Bytes that are only looked at as numbers again need not become bytes.

    cast(cast(uint8 of r + great, int32) - z, float32)       (r + great) - great + (zero - z)

`byte_casts` rounds by adding a great float: less this it is the number itself, exactly. That is how
quantised networks add residuals: both are rounded to bytes, whose numbers are scaled and added.

What somebody else reads as bytes stays bytes, which are the least to keep. So does the second of
two that are added, which is read from memory when the first is finished.

Signed bytes that nobody reads as the unsigned ones they are made of are made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from arenite.backends.cpu.ops.byte_products import INT8, TURN
from arenite.backends.cpu.passes.byte_casts import (
    BYTES,
    FLOAT32,
    GREAT,
    numbers_of,
    rounded,
    unturned,
)
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.define import INT32, make
from arenite.passes.rewrite import remade


def stay_numbers(graph: Graph) -> Graph:
    """The graph without bytes that only one cast back to numbers looks at."""
    if not any(node.dtype in BYTES for node in graph.nodes):
        return graph
    users, outputs = graph.users(), set(graph.results)

    def is_between(node: Node) -> bool:
        return len(users[node]) == 1 and node not in outputs

    each = {node: _rounded(node, is_between) for node in graph.nodes}
    found = {node: rounded for node, rounded in each.items() if rounded is not None}
    taken = set(_first_operands(found, users))

    def remake(node: Node, rebuilt: Node, new: Mapping[Node, Node]) -> Node:
        if node in taken:
            raised, more = found[node]
            great = new[raised]
            if great.dtype == INT32:
                great = make("bitcast", great, dtype=FLOAT32)
            number = great - GREAT
            return number + float(more) if more else number
        bits = unturned(node)
        if bits is not None and bits.op == "cast" and is_between(bits):
            [whole] = bits.inputs
            return _signed(new[whole]) if whole.dtype == INT32 else rebuilt
        return rebuilt

    return remade(graph, remake)


def _signed(whole: Node) -> Node:
    """The last bytes of integers with a bit turned, as signed ones: 128 less, or more."""
    more = -TURN
    if whole.op == "add" and whole.inputs[1].op == "full":
        whole, shift = whole.inputs
        more += int(shift.attr("value"))
    return make("cast", whole + more if more else whole, dtype=INT8)


def _first_operands(
    nodes: Iterable[Node], users: Mapping[Node, tuple[Node, ...]]
) -> Iterator[Node]:
    """Of nodes that meet others of them behind scales, those that come first there."""
    met: dict[Node, dict[Node, Node]] = {}
    for node in nodes:
        last = node
        while len(users[last]) == 1 and users[last][0].op in ("mul", "div"):
            [last] = users[last]
        if len(users[last]) != 1:
            yield node
            continue
        met.setdefault(users[last][0], {})[last] = node
    for user, operands in met.items():
        yield next(operands[value] for value in user.inputs if value in operands)


def _rounded(node: Node, is_between: Callable[[Node], bool]) -> tuple[Node, int] | None:
    """For bytes as floats: what is rounded by its last place, or its bits, and what is added to
    the number."""
    if node.op != "cast" or node.dtype != FLOAT32:
        return None
    [number] = node.inputs
    passed, taken = [number], 0
    if number.op == "sub":
        number, zero = number.inputs
        found = numbers_of(zero)
        if found is None or not found.size or found.min() != found.max():
            return None
        passed.append(number)
        taken = int(found.min())
    if number.op != "cast" or number.dtype != INT32 or number.inputs[0].dtype not in BYTES:
        return None
    [byte] = number.inputs
    made = rounded(byte)
    if made is None or not all(map(is_between, [*passed, byte])):
        return None
    raised, point = made
    return raised, point - taken
