"""Values narrower than a byte are held one element a byte, in a type that kernels compute with.

    int4, int2          int8
    uint4, uint2        UINT8
    float4, float6      float8_e4m3fn, which has all of their values

In: a graph. Out: one with the same inputs and outputs, in which nothing but these (and arrays that
exist already) is narrow: sources are unpacked, outputs packed. Ops that compute are rebuilt on held
values (floats in FLOAT32, so that they are rounded once) and what they make is wrapped or rounded
to the narrow type again; ops that only choose or move elements need neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arenite.dtype import BOOL, BY_NAME, FLOAT32, FLOAT64, INT8, INT64, UINT8, DType, Kind
from arenite.ir import OPS, Graph, Node, Region, constant, full, make, parameter
from arenite.ir.compose.basic import binary, cast, where
from arenite.ir.element import limits
from arenite.ir.ops.narrow import HELD, SMALL_FLOATS
from arenite.ir.ops.reductions import greatest, least
from arenite.passes.rewrite import _inherit, apply

FLOAT8 = BY_NAME["float8_e4m3fn"]


def narrow(graph: Graph) -> Graph:
    """The graph with every narrow value held one element a byte; itself, where there is none."""
    if not any(node.dtype in HELD for node in graph.everything):
        return graph
    holding = _Holding(graph)
    new = holding.values(graph, {})
    for node in dict.fromkeys(graph.results):
        if node.dtype in HELD:
            is_there = node.op == "input" or OPS[node.op].storage == "constant"
            new[node] = node if is_there else make("pack", new[node], dtype=node.dtype)
            _inherit(new[node], graph.origins.of(node), holding.known, holding.origins)
    return apply(graph.mapped(new, holding.origins), _wrapped_once)


def _wrapped_once(node: Node) -> Node:
    """What has been cut down to some bits before is not cut down to as many, or more, again."""
    bits = _wrapped_bits(node)
    if bits is None:
        return node
    inner = node.inputs[0] if node.op == "and" else node.inputs[0].inputs[0]
    before = _wrapped_bits(inner)
    return inner if before is not None and before <= bits and inner.op == node.op else node


def _wrapped_bits(node: Node) -> int | None:
    """To how many low bits of a byte `wrapped` cuts, where the node is made by that."""
    if node.dtype not in (INT8, UINT8) or len(node.inputs) != 2 or node.inputs[1].op != "full":
        return None
    value = node.inputs[1].attr("value")
    if node.op == "and" and node.dtype == UINT8 and value in (3, 15):
        return 2 if value == 3 else 4
    if node.op != "shift_right" or node.dtype != INT8 or value not in (4, 6):
        return None
    left = node.inputs[0]
    return 8 - value if left.op == "shift_left" and left.inputs[1] is node.inputs[1] else None


class _Holding:
    """What the nodes of a graph, and of its bodies and branches, are held as."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.origins = graph.origins.subset(graph.everything)
        self.known: set[Node] = set()
        self._regions: dict[Region, Region] = {}

    def values(self, graph: Graph, parameters: dict[Node, Node]) -> dict[Node, Node]:
        """What every node of a graph or a body becomes; `parameters` are replaced already."""
        new = dict(parameters)
        for node in graph.nodes:
            if node not in new:
                new[node] = self._held(node, tuple(new[value] for value in node.inputs))
            _inherit(new[node], self.graph.origins.of(node), self.known, self.origins)
        return new

    def _region(self, region: Region) -> Region:
        if region not in self._regions:
            parameters = {
                one: parameter(one.shape, HELD[one.dtype]) if one.dtype in HELD else one
                for one in region.parameters
            }
            new = self.values(self.graph.of_region(region), parameters)
            results = tuple(new[node] for node in region.results)
            self._regions[region] = Region(tuple(parameters.values()), results)
        return self._regions[region]

    def _held(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        attrs: dict[str, Any] = {
            name: self._region(value) if isinstance(value, Region) else value
            for name, value in node.attrs
        }
        if node.dtype not in HELD and not any(value.dtype in HELD for value in node.inputs):
            same = inputs == node.inputs and all(attrs[name] is value for name, value in node.attrs)
            return node if same else make(node.op, *inputs, **attrs)
        if node.op in _SPECIAL:
            return _SPECIAL[node.op](node, inputs)
        if _only_chooses(node):
            return make(node.op, *inputs, **attrs)
        return _computed(node, inputs, attrs)


def _only_chooses(node: Node) -> bool:
    if node.op == "scatter_elements":
        return node.attr("reduction") in ("none", "min", "max")
    op = OPS[node.op]
    return op.chooses or op.family in ("movement", "control")


def _computed(node: Node, inputs: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """An op on held values, its result wrapped or rounded."""
    wide = [
        cast(value, FLOAT32) if old.dtype in SMALL_FLOATS else value
        for value, old in zip(inputs, node.inputs, strict=True)
    ]
    made = make(node.op, *wide, **attrs)
    if node.dtype not in HELD:
        return cast(made, node.dtype)
    if node.dtype not in SMALL_FLOATS and node.op in ("max", "min"):
        # Over no elements: the ends of the narrow type, not those of the one that holds it.
        op, end = ("maximum", least) if node.op == "max" else ("minimum", greatest)
        return binary(op, made, end(node.dtype))
    return rounded(made, node.dtype)


def _source(node: Node, inputs: Sequence[Node]) -> Node:
    return make("unpack", node)


def _constant(node: Node, inputs: Sequence[Node]) -> Node:
    held = HELD[node.dtype]
    return constant(node.attr("data").array.astype(held.to_numpy()), held)


def _full(node: Node, inputs: Sequence[Node]) -> Node:
    return full(node.shape, _value(node), HELD[node.dtype])


def _value(node: Node) -> float:
    """The number that a `full` or a `pad` has, as one of the narrow type."""
    value: float = full((), node.attr("value"), node.dtype).attr("value")
    return value


def _counted(node: Node, inputs: Sequence[Node]) -> Node:
    return rounded(make(node.op, **dict(node.attrs) | {"dtype": INT64}), node.dtype)


def _pad(node: Node, inputs: Sequence[Node]) -> Node:
    return make("pad", *inputs, padding=node.attr("padding"), value=_value(node))


def _convert(node: Node, inputs: Sequence[Node]) -> Node:
    [x] = inputs
    return rounded(x, node.dtype) if node.dtype in HELD else cast(x, node.dtype)


def _bitcast(node: Node, inputs: Sequence[Node]) -> Node:
    return of_codes(codes(inputs[0], node.inputs[0].dtype), node.dtype)


def _unpack(node: Node, inputs: Sequence[Node]) -> Node:
    return inputs[0]


def _pack(node: Node, inputs: Sequence[Node]) -> Node:
    is_float = node.dtype in SMALL_FLOATS
    return inputs[0] if is_float else _wrapped(inputs[0], node.dtype)


_SPECIAL = {
    "input": _source,
    "buffer": _source,
    "constant": _constant,
    "state": _source,
    "full": _full,
    "iota": _counted,
    "size": _counted,
    "pad": _pad,
    "cast": _convert,
    "bitcast": _bitcast,
    "unpack": _unpack,
    "pack": _pack,
}


# Values, as held.


def _like(x: Node, value: float) -> Node:
    return full(x.shape, value, x.dtype)


def _bits(x: Node, dtype: DType) -> Node:
    return x if x.dtype == dtype else make("bitcast", x, dtype=dtype)


def rounded(x: Node, dtype: DType) -> Node:
    """A value of any type as one of the narrow type, held: a cast."""
    if dtype in SMALL_FLOATS:
        return _rounded_to_float(x, dtype)
    held = cast(x, HELD[dtype])
    if x.dtype.kind is not Kind.FLOAT:
        return held if x.dtype == BOOL else _wrapped(held, dtype)
    low, high = limits(dtype)
    held = binary("minimum", held, high)
    return binary("maximum", held, low) if dtype.kind is Kind.SIGNED else held


def _wrapped(x: Node, dtype: DType) -> Node:
    if dtype.kind is Kind.UNSIGNED:
        return x & (1 << dtype.bits) - 1
    unused = 8 - dtype.bits
    return x << unused >> unused


def _rounded_to_float(x: Node, dtype: DType) -> Node:
    """To the nearest number of a small float, halfway to the one whose last bit is 0; beyond the
    largest is the largest, and NaN a zero of the other sign. In FLOAT32, which has all that lies
    near these of every type but float64."""
    small = SMALL_FLOATS[dtype]
    x = cast(x, FLOAT64 if x.dtype == FLOAT64 else FLOAT32)
    magnitude = make("abs", x)
    unit = _like(x, small.step(small.exponents[-1]))
    for exponent in reversed(small.exponents[:-1]):
        is_below = magnitude < (2.0 ** (exponent + 1))
        unit = where(is_below, small.step(exponent), unit)
    near = make("mul", make("round", make("div", x, unit)), unit)
    near = binary("maximum", binary("minimum", near, small.largest), -small.largest)
    is_negative = _bits(x, BY_NAME[f"int{x.dtype.bits}"]) < 0
    zero = make("where", is_negative, _like(x, 0.0), _like(x, -0.0))
    return cast(make("where", make("isnan", x), zero, near), FLOAT8)


def codes(x: Node, dtype: DType) -> Node:
    """The bits of a held value, at the low end of a byte each."""
    x = _bits(x, UINT8)
    if dtype not in SMALL_FLOATS:
        return x & (1 << dtype.bits) - 1 if dtype.kind is Kind.SIGNED else x
    small = SMALL_FLOATS[dtype]
    magnitude = x & 0x7F
    code = magnitude - small.held_offset >> small.held_shift
    for number, held in enumerate(small.held_below_normal):
        code = where(binary("eq", magnitude, held), number, code)
    sign = (x & 0x80) >> 8 - dtype.bits
    return make("or", code, sign)


def of_codes(code: Node, dtype: DType) -> Node:
    """The held value of some bits, at the low end of a byte each."""
    if dtype.kind is Kind.UNSIGNED:
        return code
    if dtype.kind is Kind.SIGNED:
        return _wrapped(_bits(code, INT8), dtype)
    small = SMALL_FLOATS[dtype]
    sign_bit = 1 << dtype.bits - 1
    magnitude = code & sign_bit - 1
    bits = (magnitude << small.held_shift) + small.held_offset
    for number, held in enumerate(small.held_below_normal):
        bits = where(binary("eq", magnitude, number), held, bits)
    sign = (code & sign_bit) << 8 - dtype.bits
    return _bits(make("or", bits, sign), FLOAT8)
