"""Casts of floats to bytes, as quantisation has them, in fewer and cheaper operations.

    cast(clip(x, 0, 255), uint8)       cast(x, uint8): casts keep within bounds by themselves
    cast(round(x) + zero, uint8)       x kept within bounds, and added to a float so great that its
                                       last place is 1: the sum is rounded to nearest even, and the
                                       last byte of its bits is the integer's; bits of numbers that
                                       are finite keep their order, and are kept within bounds

Both keep every result, also of what is not finite. Signed bytes are made of unsigned ones with a
bit turned: products want those, and zero points tell the difference.

Bytes that are only looked at as numbers again need not become bytes.

    cast(cast(uint8 of r + great, int32) - z, float32)       (r + great) - great + (zero - z)

`byte_casts` rounds by adding a great float: less this it is the number itself, exactly. That is how
quantised networks add residuals: both are rounded to bytes, whose numbers are scaled and added.

What somebody else reads as bytes stays bytes, which are the least to keep. So does the second of
two that are added, which is read from memory when the first is finished.

Signed bytes that nobody reads as the unsigned ones they are made of are made at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.ops.byte_products import TURN, turned
from arenite.dtype import FLOAT32, INT8, INT16, INT32, UINT8, DType, Kind
from arenite.ir import Graph, Node, make
from arenite.ir.compose.basic import binary, where
from arenite.ir.ops.define import INTEGER, REAL
from arenite.passes.rewrite import remade

BYTES = (INT8, UINT8)
#: Wider integers whose products of bytes are exact in int32, as far as they go.
SUMS = (INT16, INT32)

#: A float32 whose last place is 1, with room for the same below and above it. The last byte of its
#: bits is zero.
GREAT = 12582912.0
GREAT_BITS = int(np.float32(GREAT).view(np.int32))
#: Zero points up to which bounds are far from where floats have no room for halves.
_MOST_ZERO = 1 << 16
#: How far from zero results are, from how far operands are.
_LIMITS: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.add,
    "mul": operator.mul,
    "maximum": max,
    "minimum": max,
    "round": lambda x: x + 1,
    "neg": float,
}
#: A float32 that is far from infinity, whatever rounding adds; and nodes that are looked at.
_GREATEST, _MOST_NODES = 1e38, 32


def cast_to_byte(node: Node) -> Node:
    """One step, or the node itself: a cast to 8 bits."""
    [x] = node.inputs
    if x.dtype.kind is not Kind.FLOAT:
        return node
    if x.op in ("maximum", "minimum"):
        return _without_bound(node, x)
    rounded, zero = x, 0
    if x.op == "add":
        for value, other in (x.inputs, x.inputs[::-1]):
            found = _whole(other)
            if value.op == "round" and found is not None:
                rounded, zero = value, found
    if rounded.op != "round" or rounded.dtype != FLOAT32:
        return node
    return _nearest(rounded.inputs[0], zero, node)


def _without_bound(node: Node, x: Node) -> Node:
    """The cast without a bound that it has anyway."""
    low, high = byte_bounds(node.dtype)
    for value, other in (x.inputs, x.inputs[::-1]):
        bound = numbers_of(other)
        if bound is None or bound.size == 0:
            continue
        if bound.max() <= low if x.op == "maximum" else bound.min() >= high:
            return make("cast", value, dtype=node.dtype)
    return node


def byte_bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest of 8-bit integers."""
    return (-128, 127) if dtype == INT8 else (0, 255)


def _whole(node: Node) -> int | None:
    """A whole number that is not too great, if a node is that everywhere."""
    number = _one_number(node)
    if number is None or not abs(number) <= _MOST_ZERO or number != int(number):
        return None
    return int(number)


def _nearest(x: Node, zero: int, node: Node) -> Node:
    """The cast of round(x) + zero."""
    is_signed = node.dtype == INT8
    low, high = (bound - zero for bound in byte_bounds(node.dtype))
    if is_finite(x):
        bits = make("bitcast", x + GREAT, dtype=INT32)
        for op, bound in (("maximum", low), ("minimum", high)):
            bits = binary(op, bits, GREAT_BITS + bound)
    else:
        inside = where(x > low, x, low)  # NaN becomes the lower bound
        inside = where(inside < high, inside, high)
        if is_signed:
            inside = where(make("isnan", x), -zero, inside)
        bits = make("bitcast", inside + GREAT, dtype=INT32)
    zero += TURN if is_signed else 0
    if zero:
        bits = bits + zero
    made = make("cast", bits, dtype=UINT8)
    return make("bitcast", turned(made), dtype=INT8) if is_signed else made


def is_finite(node: Node) -> bool:
    """Whether float32 numbers are made of integers and constants, and too small to overflow."""
    limits: dict[Node, float] = {}  # that no element is further from zero than
    pending, n_left = [node], _MOST_NODES
    while pending:
        one = pending[-1]
        numbers = numbers_of(one)
        known = [limits[value] for value in one.inputs if value in limits]
        if numbers is not None:
            limits[one] = float(np.abs(numbers.astype(np.float64)).max(initial=0.0))
        elif one.dtype != FLOAT32 or n_left == 0:
            return False
        elif one.op == "cast" and one.inputs[0].dtype.kind in INTEGER:
            limits[one] = 2.0 ** one.inputs[0].dtype.bits
        elif one.op not in _LIMITS:
            return False
        elif len(known) < len(one.inputs):
            pending += [value for value in one.inputs if value not in limits]
            n_left -= 1
            continue
        else:
            limits[one] = _LIMITS[one.op](*known)
        if not limits[one] < _GREATEST:
            return False
        pending.pop()
    return True


def unturned(byte: Node) -> Node | None:
    """The unsigned bytes that a signed one was made of by turning a bit, if it was."""
    if byte.op != "bitcast" or byte.dtype != INT8 or byte.inputs[0].op != "xor":
        return None
    bits, other = byte.inputs[0].inputs
    return bits if _one_number(other) == TURN else None


def without_turn(node: Node) -> Node:
    """One step, or the node itself: turned bytes as wider integers, less a zero point."""
    [*operands] = node.inputs
    if node.op == "cast" and operands[0].dtype == INT8:
        bits = unturned(operands[0])
        if bits is None:
            return node
        return make("cast", bits, dtype=node.dtype) - TURN
    if node.op == "sub" and operands[0].op == "sub" and node.dtype == INT32:
        wide, first = operands[0].inputs
        numbers = [_one_number(one) for one in (first, operands[1])]
        if wide.op == "cast" and wide.inputs[0].dtype == UINT8 and None not in numbers:
            zero = sum(int(number) for number in numbers if number is not None)
            return wide - zero
    return node


def rounded(byte: Node) -> tuple[Node, int] | None:
    """Of unsigned bytes made as above: the float that rounds by its last place, or its bits, and
    the zero point."""
    if byte.op != "cast" or byte.dtype != UINT8:
        return None
    [bits], zero = byte.inputs, 0
    if bits.op == "add":
        bits, shift = bits.inputs
        found = _one_number(shift)
        if found is None:
            return None
        zero = int(found)
    low, high = (bound - zero for bound in byte_bounds(UINT8))
    if bits.op == "minimum":
        return (bits, zero) if _are_within(bits, low, high) else None
    if bits.op != "bitcast" or bits.inputs[0].op != "add" or bits.inputs[0].dtype != FLOAT32:
        return None
    [raised] = bits.inputs
    is_ours = _one_number(raised.inputs[1]) == GREAT and _is_within(raised.inputs[0], low, high)
    return (raised, zero) if is_ours else None


def _are_within(bits: Node, low: int, high: int) -> bool:
    """Whether bits of floats were kept within these bounds, as above."""
    for op, bound in (("minimum", high), ("maximum", low)):
        if bits.op != op or bits.dtype != INT32:
            return False
        bits, limit = bits.inputs
        if _one_number(limit) != GREAT_BITS + bound:
            return False
    is_raised = bits.op == "bitcast" and bits.inputs[0].op == "add"
    return is_raised and _one_number(bits.inputs[0].inputs[1]) == GREAT


def _is_within(x: Node, low: int, high: int) -> bool:
    """Whether a node was kept within these bounds, as above."""
    if x.op == "where" and x.inputs[0].op == "isnan":
        x = x.inputs[2]
    for op, bound in (("lt", high), ("gt", low)):
        if x.op != "where" or x.inputs[0].op != op or x.inputs[0].inputs != x.inputs[1:]:
            return False
        if _one_number(x.inputs[2]) != bound:
            return False
        x = x.inputs[1]
    return True


def _one_number(node: Node) -> float | None:
    found = numbers_of(node)
    if found is None or found.size == 0 or found.min() != found.max():
        return None
    return float(found.reshape(-1)[0])


def numbers_of(node: Node) -> NDArray[Any] | None:
    """The numbers that a constant is made of, whatever their order; None if it is none."""
    while node.op in ("expand", "reshape", "permute", "cast") and _keeps_numbers(node):
        [node] = node.inputs
    if node.dtype.bits < 8 or node.dtype.kind not in REAL:
        return None
    if node.op == "full":
        return np.asarray(node.attr("value"))
    return np.asarray(node.attr("data").array) if node.op == "constant" else None


def _keeps_numbers(node: Node) -> bool:
    """Whether what a cast gives is what it takes: bytes become wider."""
    return node.op != "cast" or (node.inputs[0].dtype in BYTES and node.dtype in SUMS)


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
