"""Arithmetic on complex values that are held as two nodes, (real part, imaginary part).

Products are NumPy's: (ac - bd) + (ad + bc)i, of infinities too. Quotients are Smith's, as NumPy
has them: scaled by the larger part of the divisor, so that they overflow no sooner than they must.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from arenite.ir.compose import basic
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, product
from arenite.ir.node import Node
from arenite.ir.ops import Region, full, make, parameter, size
from arenite.ir.ops.define import BOOL, INT64

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
