"""Complex values are computed as two planes: their real parts and their imaginary parts.

In: a graph. Out: one with the same inputs and outputs, in which complex is only what lies in
memory: sources, states, rows of these, what loops, branches and the host are given and give,
outputs.

    x complex64[n], in memory        re = real(x), im = imag(x)         read where x lies
    a result for others              complex(re, im)                    written side by side

All else is ops on floats, which fuse and are vectorised like any others.

Arithmetic on complex values that are held as two nodes, (real part, imaginary part).

Products are NumPy's: (ac - bd) + (ad + bc)i, of infinities too. Quotients are Smith's, as NumPy
has them: scaled by the larger part of the divisor, so that they overflow no sooner than they must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from arenite.dtype import BOOL, INT64, UINT32, UINT64, Kind
from arenite.ir.compose import basic
from arenite.ir.compose.basic import cast
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, product
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops import OPS, Region, full, make, parameter, size
from arenite.ir.ops.complex_parts import PART_OF
from arenite.passes.rewrite import _inherit

Planes: TypeAlias = tuple[Node, Node]


def bilinear(op: str, a: Planes, b: Planes, **attrs: Any) -> Planes:
    """What is linear in both operands: a product of numbers, of matrices, a convolution."""

    def of(x: Node, y: Node) -> Node:
        return make(op, x, y, **attrs)

    re = make("sub", of(a[0], b[0]), of(a[1], b[1]))
    return re, make("add", of(a[0], b[1]), of(a[1], b[0]))


def quotient(a: Planes, b: Planes) -> Planes:
    """a / b. By zero each part is divided, so it is infinite or NaN."""
    is_real = make("ge", make("abs", b[0]), make("abs", b[1]))
    larger, smaller = _either(is_real, b)
    x, y = _either(is_real, a)
    ratio = make("div", smaller, larger)
    scale = make("reciprocal", make("add", larger, make("mul", smaller, ratio)))
    re = make("add", x, make("mul", y, ratio))
    turned = make("mul", x, ratio)
    im = make("where", is_real, make("sub", y, turned), make("sub", turned, y))
    zero = make("abs", b[0])
    is_zero = make("and", *(basic.binary("eq", part, 0.0) for part in b))
    by_zero = [make("div", part, zero) for part in a]
    scaled = [make("mul", part, scale) for part in (re, im)]
    re, im = (make("where", is_zero, *pair) for pair in zip(by_zero, scaled, strict=True))
    return re, im


def _either(condition: Node, x: Planes) -> Planes:
    """The parts, changed over where the condition does not hold."""
    return make("where", condition, *x), make("where", condition, x[1], x[0])


def _where(condition: Node, a: Planes, b: Planes) -> Planes:
    re, im = (basic.where(condition, x, y) for x, y in zip(a, b, strict=True))
    return re, im


def _gathered(x: Planes, indices: Node, axis: int) -> Planes:
    re, im = (make("gather", part, indices, axis=axis) for part in x)
    return re, im


def product_over(x: Planes, axes: tuple[int, ...]) -> Planes:
    """The product over some axes: neighbours are multiplied until one element is left."""
    kept = [axis for axis in range(x[0].ndim) if axis not in axes]
    outer = [x[0].shape[axis] for axis in kept]
    count: Dim = product(x[0].shape[axis] for axis in axes)
    last = len(kept)
    one = tuple(full(outer, value, x[0].dtype) for value in (1.0, 0.0))
    if count == 0:
        return one[0], one[1]
    may_be_empty = bounds(count)[0] < 1
    parts = []
    for part in x:
        flat = basic.reshape(basic.permute(part, [*kept, *axes]), [*outer, count])
        padding = [(0, 0)] * last + [(0, int(may_be_empty))]
        parts.append(basic.pad(flat, padding))  # an element to read, where there is none
    re, im = parts
    left, most = maximum(count, 1), bounds(count)[1]
    while most > 1:
        first = basic.iota(ceildiv(left, 2)) * 2
        second = first + 1
        end = basic.broadcast_to(basic.size_like(left, second), second.shape)
        has_second = make("lt", second, end)
        there = make("where", has_second, second, first)
        a, b = (_gathered((re, im), at, last) for at in (first, there))
        re, im = _where(has_second, bilinear("mul", a, b), a)
        left, most = ceildiv(left, 2), -(-most // 2)
    re, im = _gathered((re, im), full((), 0, INT64), last)
    if not may_be_empty:
        return re, im
    is_empty = make("eq", size(count, INT64), full((), 0, INT64))
    return _where(is_empty, (one[0], one[1]), (re, im))


def running_product(x: Planes, axis: int) -> Planes:
    """Products of all elements up to each, along an axis: over spans of 1, 2, 4, ... of them."""
    length = x[0].shape[axis]
    places = basic.iota(length)
    span = 1
    while span < bounds(length)[1]:
        before = places - span
        has_before = before >= 0
        there = make("where", has_before, before, places)
        product_of = bilinear("mul", _gathered(x, there, axis), x)
        x = _where(basic.along(has_before, axis, x[0].ndim), product_of, x)
        span *= 2
    return x


def scattered_products(data: Planes, indices: Node, updates: Planes, axis: int) -> Planes:
    """scatter_elements that multiplies: one slice of updates after the other, in each of which no
    element is met twice."""
    iteration = parameter((), INT64)
    given = [parameter(node.shape, node.dtype) for node in (*data, indices, *updates)]
    old, (places, *factors) = (given[0], given[1]), given[2:]

    def of_this(node: Node) -> Node:
        return basic.expand_dims(make("gather", node, iteration, axis=axis), axis)

    here = of_this(places)
    met = tuple(make("gather_elements", part, here, axis=axis) for part in old)
    new = bilinear("mul", (met[0], met[1]), (of_this(factors[0]), of_this(factors[1])))
    results = (
        make("scatter_elements", part, here, made, axis=axis, reduction="none")
        for part, made in zip(old, new, strict=True)
    )
    always = full((), True, BOOL)
    body = Region((iteration, *given), (always, *results))
    trips = size(indices.shape[axis], INT64)
    inputs = (trips, always, *data, indices, *updates)
    re, im = (make("loop", *inputs, body=body, carried=2, index=k) for k in range(2))
    return re, im


#: What is made of the planes of a node's inputs; those of a real input are it, twice.
Rule: TypeAlias = Callable[[Node, Sequence[Planes], dict[str, Any]], "Planes | Node"]


def is_complex(node: Node) -> bool:
    return node.dtype.kind is Kind.COMPLEX


def planes(graph: Graph) -> Graph:
    """The graph with complex values computed in two planes; itself, where there are none."""
    if not any(map(is_complex, graph.everything)):
        return graph
    splitting = _Splitting(graph)
    splitting.walk(graph)
    new = {node: splitting.whole(node) for node in graph.results}
    return graph.mapped(new, splitting.origins)


class _Splitting:
    """What the nodes of a graph, and of its bodies and branches, become."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.origins = graph.origins.subset(graph.everything)
        self._known: set[Node] = set()
        self._planes: dict[Node, Planes] = {}
        self._whole: dict[Node, Node] = {}
        self._in_memory: set[Node] = set()  # complex ones that are no planes put together
        self._regions: dict[Region, Region] = {}

    def whole(self, node: Node) -> Node:
        """What stands for a node in memory."""
        if node not in self._whole:
            self._keep(node, make("complex", *self._planes[node]))
        return self._whole[node]

    def _keep(self, node: Node, made: Node) -> None:
        self._whole[node] = made
        _inherit(made, self.graph.origins.of(node), self._known, self.origins)

    def walk(self, graph: Graph) -> None:
        """Split the nodes of a graph or a body."""
        for node in graph.nodes:
            if node not in self._planes and node not in self._whole:
                self._split(node)

    def _split(self, node: Node) -> None:
        if not any(map(is_complex, (node, *node.inputs))) or self._is_kept(node):
            self._keep(node, self._rebuilt(node))
            if is_complex(node):
                self._in_memory.add(node)
                whole = self._whole[node]
                self._set_planes(node, make("real", whole), make("imag", whole))
            return
        given = [
            self._planes[value] if is_complex(value) else (self._whole[value],) * 2
            for value in node.inputs
        ]
        made = _RULES.get(node.op, _each)(node, given, dict(node.attrs))
        if isinstance(made, Node):
            self._keep(node, made)
        else:
            self._set_planes(node, *made)

    def _is_kept(self, node: Node) -> bool:
        """Whether a node is as it is in memory, hands on what is, or takes some of its rows."""
        if node.op in ("gather", "update_slice"):
            return node.inputs[0] in self._in_memory
        op = OPS[node.op]
        is_source = op.family == "source" and op.storage != "made up"
        return is_source or op.family in ("control", "host")

    def _set_planes(self, node: Node, re: Node, im: Node) -> None:
        self._planes[node] = re, im
        for part in (re, im):
            _inherit(part, self.graph.origins.of(node), self._known, self.origins)

    def _rebuilt(self, node: Node) -> Node:
        inputs = tuple(self.whole(value) for value in node.inputs)
        attrs: dict[str, Any] = {
            name: self._region(value) if isinstance(value, Region) else value
            for name, value in node.attrs
        }
        same = inputs == node.inputs and all(attrs[name] is value for name, value in node.attrs)
        return node if same else make(node.op, *inputs, **attrs)

    def _region(self, region: Region) -> Region:
        if region not in self._regions:
            self.walk(self.graph.of_region(region))
            results = tuple(self.whole(node) for node in region.results)
            is_same = results == region.results
            self._regions[region] = region if is_same else Region(region.parameters, results)
        return self._regions[region]


def _each(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    """Both planes alike: what moves or chooses elements, or adds them."""
    re, im = (make(node.op, *(value[k] for value in given), **attrs) for k in range(2))
    return re, im


def _bilinear(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    a, b = given
    return bilinear(node.op, a, b, **attrs)


def _full(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    value, part = complex(attrs["value"]), PART_OF[node.dtype]
    return full(node.shape, value.real, part), full(node.shape, value.imag, part)


def _counted(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    part = PART_OF[node.dtype]
    return make(node.op, **attrs | {"dtype": part}), full(node.shape, 0.0, part)


def _pad(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    value = complex(attrs["value"])
    re, im = (
        make("pad", part, padding=attrs["padding"], value=number)
        for part, number in zip(given[0], (value.real, value.imag), strict=True)
    )
    return re, im


def _compared(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Node:
    re, im = _each(node, given, attrs)
    return make("and" if node.op == "eq" else "or", re, im)


def _cast(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes | Node:
    [(re, im)] = given
    if is_complex(node):
        part = PART_OF[node.dtype]
        if not is_complex(node.inputs[0]):
            return cast(re, part), full(node.shape, 0.0, part)
        return cast(re, part), cast(im, part)
    if node.dtype == BOOL:
        return make("or", cast(re, BOOL), cast(im, BOOL))
    return cast(re, node.dtype)


def _bitcast(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes | Node:
    """Among types of 64 bits: the real part is at the low end."""
    [(re, im)] = given
    high = full(node.shape, 32, UINT64)
    if is_complex(node.inputs[0]):
        if is_complex(node):
            return re, im
        low, up = (cast(make("bitcast", part, dtype=UINT32), UINT64) for part in (re, im))
        word = make("or", low, make("shift_left", up, high))
        return word if node.dtype == UINT64 else make("bitcast", word, dtype=node.dtype)
    word = re if re.dtype == UINT64 else make("bitcast", re, dtype=UINT64)
    low, up = (cast(part, UINT32) for part in (word, make("shift_right", word, high)))
    part = PART_OF[node.dtype]
    return make("bitcast", low, dtype=part), make("bitcast", up, dtype=part)


def _scatter(node: Node, given: Sequence[Planes], attrs: dict[str, Any]) -> Planes:
    if attrs["reduction"] != "mul":
        return _each(node, given, attrs)
    data, (indices, _), updates = given
    return scattered_products(data, indices, updates, attrs["axis"])


_RULES: dict[str, Rule] = {
    "real": lambda node, given, attrs: given[0][0],
    "imag": lambda node, given, attrs: given[0][1],
    "complex": lambda node, given, attrs: (given[0][0], given[1][0]),
    "full": _full,
    "iota": _counted,
    "size": _counted,
    "pad": _pad,
    "mul": _bilinear,
    "matmul": _bilinear,
    "conv": _bilinear,
    "conv_transpose": _bilinear,
    "div": lambda node, given, attrs: quotient(given[0], given[1]),
    "eq": _compared,
    "ne": _compared,
    "cast": _cast,
    "bitcast": _bitcast,
    "prod": lambda node, given, attrs: product_over(given[0], attrs["axes"]),
    "cumprod": lambda node, given, attrs: running_product(given[0], attrs["axis"]),
    "scatter_elements": _scatter,
}
