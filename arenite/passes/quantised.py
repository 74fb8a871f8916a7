"""Products of dequantised numbers are products of integers, whose scales come after.

    conv(x * s, w * t)                 conv(x, w) * (s * t)      x, w integers of a byte less their
    matmul(x * s, w * t)               matmul(x, w) * (s * t)    zero points, cast to float32
    x * s + b * s                      (x + b) * s               b integers, a bias
    relu(x * s) / u                    relu(x * (s / u))         also of sums, and within bounds
    reshape(x * s)                     reshape(x) * s            and other moves of elements
    max(x * s)                         max(x) * s                of bytes, in windows too
    quantised(x * s)                   x                         with the scale and zero point of x

Scales are constants. That is how ONNX spells a quantised network: DequantizeLinear, an operator on
floats, QuantizeLinear. Equal but for rounding: integers are summed exactly, and each number is
scaled once. What has no product, or one too long for 32 bits, stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import FLOAT32, INT8, INT32, UINT8
from arenite.ir.dim import Dim, bounds, product
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node, Shape
from arenite.ir.ops.define import make
from arenite.ir.ops.reductions import least
from arenite.ir.ops.sources import constant, full
from arenite.ir.reference import evaluate
from arenite.passes.constants import is_known

BYTES = (INT8, UINT8)
#: Products of bytes less zero points that 32 bits have room for.
MAX_DEPTH = (2**31 - 1) // (255 * 255)
#: Elements of constants that are looked at.
MAX_LOOKED_AT = 1 << 16
#: Sums and bounds between scaled integers and what quantises them.
MAX_BETWEEN = 4
#: How far a bias may be from the scale of the sums it is added to.
TOLERANCE = 1e-5

_numbers: WeakKeyDictionary[Node, NDArray[np.float32] | None] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Scaled:
    """int32 numbers times a constant; `scale` has the axes of the numbers, of size 1 where it does
    not differ."""

    numbers: Node
    scale: Node

    @property
    def real(self) -> Node:
        shape = self.numbers.shape
        real = make("cast", self.numbers, dtype=FLOAT32)
        return make("mul", real, _expanded(self.scale, shape))


@dataclass(frozen=True, slots=True)
class Byte:
    """Bytes less a zero point."""

    bytes: Node
    zero: Node | None  # of one shape with the bytes


def quantised(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op in ("conv", "matmul"):
        return _product(node) if node.dtype == FLOAT32 else node
    if node.op == "mul":
        return _with_constant_scale(node)
    if node.op == "add" and node.dtype == FLOAT32:
        return _with_bias(node)
    if node.op == "div" and node.dtype == FLOAT32:
        return _in_units(node)
    if node.op in ("reshape", "permute", "slice", "expand") and node.dtype == FLOAT32:
        return _moved(node)
    if node.op == "max" and node.dtype == FLOAT32:
        return _greatest(node)
    if node.op == "cast" and node.dtype in BYTES:
        return _as_it_was(node)
    return node


# What a node is.


def _scaled(node: Node) -> Scaled | None:
    """Integers times a constant, if it is that."""
    if node.op != "mul" or node.dtype != FLOAT32:
        return None
    for real, scale in (node.inputs, node.inputs[::-1]):
        if real.op == "cast" and real.inputs[0].dtype == INT32 and is_known(scale):
            return Scaled(real.inputs[0], _unexpanded(scale))
    return None


def _byte(numbers: Node) -> Byte | None:
    zero = None
    if numbers.op == "sub":
        numbers, zero = numbers.inputs
    is_wide = numbers.op == "cast" and numbers.inputs[0].dtype in BYTES
    return Byte(numbers.inputs[0], zero) if is_wide else None


def _unexpanded(node: Node) -> Node:
    """A constant without axes it does not differ along: of size 1."""
    while node.op == "expand":
        [node] = node.inputs
    if node.op == "full":
        return full((1,) * node.ndim, node.attr("value"), node.dtype)
    return node


def _expanded(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else make("expand", node, shape=shape)


def _reshaped(node: Node, shape: Shape) -> Node:
    return node if node.shape == shape else make("reshape", node, shape=shape)


def _differs_only(node: Node, axes: tuple[int, ...]) -> bool:
    return all(size == 1 for axis, size in enumerate(node.shape) if axis not in axes)


def _looked_at(node: Node) -> NDArray[np.float32] | None:
    """The numbers of a constant that is not large, nor made of large ones. Those of a buffer are
    not looked at: a program serves all graphs that differ in these alone."""
    if node not in _numbers:
        is_small = is_known(node) and all(map(_is_small, topological([node])))
        found = evaluate(Graph.of([node]))[0].astype(np.float32) if is_small else None
        _numbers[node] = found
    return _numbers[node]


def _is_small(node: Node) -> bool:
    return node.op != "buffer" and bounds(product(node.shape))[1] <= MAX_LOOKED_AT


def _one_number(node: Node) -> float | None:
    found = _looked_at(_unexpanded(node))
    return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None


# Products.


def _product(node: Node) -> Node:
    a, w = (_scaled(value) for value in node.inputs)
    if a is None or w is None or not is_known(w.numbers):
        return node
    if _byte(a.numbers) is None or _byte(w.numbers) is None:
        return node
    scale = _conv_scale(node, a, w) if node.op == "conv" else _matmul_scale(node, a, w)
    if scale is None:
        return node
    sums = make(node.op, a.numbers, w.numbers, **dict(node.attrs))
    return Scaled(sums, scale).real


def _conv_scale(node: Node, a: Scaled, w: Scaled) -> Node | None:
    """One number for all, or one for each channel of the result."""
    depth = product(w.numbers.shape[1:])
    if not (_is_short(depth) and _differs_only(a.scale, ()) and _differs_only(w.scale, (0,))):
        return None
    row = (1, product(w.scale.shape), *[1] * (node.ndim - 2))
    return _times(_reshaped(a.scale, (1,) * node.ndim), _reshaped(w.scale, row))


def _matmul_scale(node: Node, a: Scaled, w: Scaled) -> Node | None:
    """One number for all, or one for each row, column, or both."""
    row, column = a.numbers.ndim - 2, w.numbers.ndim - 1
    if node.attr("transpose_a"):
        row += 1
    if node.attr("transpose_b"):
        column -= 1
    if not (_is_short(_depth(node)) and _differs_only(w.scale, (column,))):
        return None
    batch = tuple(range(a.numbers.ndim - 2))
    if not _differs_only(a.scale, (*batch, row)):
        return None
    ones = (1,) * (node.ndim - a.numbers.ndim)
    of_rows = _reshaped(a.scale, (*ones, *a.scale.shape[:-2], product(a.scale.shape[-2:]), 1))
    of_columns = _reshaped(w.scale, (*[1] * (node.ndim - 1), product(w.scale.shape)))
    return _times(of_rows, of_columns)


def _is_short(depth: Dim) -> bool:
    return 0 < bounds(depth)[1] <= MAX_DEPTH


def _times(a: Node, b: Node) -> Node:
    shape = tuple(
        max(x, y, key=lambda one: one != 1) for x, y in zip(a.shape, b.shape, strict=True)
    )
    return _computed(make("mul", _expanded(a, shape), _expanded(b, shape)))


def _computed(scale: Node) -> Node:
    """As a constant, where that is not large: what it is followed by depends on its numbers."""
    numbers = _looked_at(scale)
    return scale if numbers is None else constant(numbers, FLOAT32)


def _with_constant_scale(node: Node) -> Node:
    """Integers times a scale that was computed of constants, as QLinearConv has it."""
    scaled = _scaled(node)
    leaf = None if scaled is None else scaled.scale
    while leaf is not None and leaf.op == "reshape":
        [leaf] = leaf.inputs
    if scaled is None or leaf is None or leaf.op in ("constant", "full"):
        return node
    scale = _computed(scaled.scale)
    return node if scale is scaled.scale else Scaled(scaled.numbers, scale).real


def _with_bias(node: Node) -> Node:
    """A bias of as many integers as the sums are of, added to these."""
    for value, other in (node.inputs, node.inputs[::-1]):
        sums = _scaled(value)
        if sums is None or sums.numbers.op not in ("conv", "matmul") or not is_known(other):
            continue
        bias = _bias(_unexpanded(other))
        if bias is None:
            continue
        ours, theirs = _looked_at(sums.scale), _looked_at(bias.scale)
        if ours is None or theirs is None or not _has_room(sums.numbers, bias.numbers):
            continue
        spread = np.broadcast_shapes(ours.shape, theirs.shape)
        if np.allclose(theirs, ours, rtol=TOLERANCE, atol=0) and len(spread) == node.ndim:
            numbers = _expanded(bias.numbers, node.shape)
            return Scaled(make("add", sums.numbers, numbers), sums.scale).real
    return node


def _has_room(sums: Node, bias: Node) -> bool:
    """Whether 32 bits have room for sums and a bias."""
    numbers = _looked_at(bias)
    w = sums.inputs[1]
    depth = product(w.shape[1:]) if sums.op == "conv" else _depth(sums)
    most = bounds(depth)[1] * 255 * 255
    return numbers is not None and most + float(np.abs(numbers).max(initial=0)) < 2**31


def _depth(matmul: Node) -> Dim:
    return matmul.inputs[1].shape[-1 if matmul.attr("transpose_b") else -2]


def _bias(node: Node) -> Scaled | None:
    """Scaled integers that were laid along another axis, perhaps."""
    scaled = _scaled(node.inputs[0] if node.op == "reshape" else node)
    if scaled is None or node.op != "reshape":
        return scaled
    scale = _expanded(scaled.scale, scaled.numbers.shape)
    return Scaled(_reshaped(scaled.numbers, node.shape), _reshaped(scale, node.shape))


# Scales that wait until numbers are quantised again.


def _in_units(node: Node) -> Node:
    x, unit = node.inputs
    if not _is_of_integers(x) or not is_known(unit):
        return node
    number = _one_number(unit)
    if number is None or not 0 < number < float("inf"):
        return node
    made = _divided(x, number, 0)
    return node if made is None else made


def _is_of_integers(x: Node, depth: int = 0) -> bool:
    """Whether numbers may be made of scaled integers, so that they are worth a look."""
    if _scaled(x) is not None:
        return True
    if x.op not in ("maximum", "minimum", "add", "sub") or depth > MAX_BETWEEN:
        return False
    return any(_is_of_integers(value, depth + 1) for value in x.inputs)


def _divided(x: Node, unit: float, depth: int) -> Node | None:
    """Numbers made of scaled integers, in other units; None if they are not."""
    scaled = _scaled(x)
    if scaled is not None:
        by = full(scaled.scale.shape, unit, FLOAT32)
        return Scaled(scaled.numbers, _computed(make("div", scaled.scale, by))).real
    if x.op not in ("maximum", "minimum", "add", "sub") or depth > MAX_BETWEEN:
        return None
    if all(map(is_known, x.inputs)):
        return None
    parts = []
    for value in x.inputs:
        if is_known(value):
            inner = _unexpanded(value)
            less = make("div", inner, full(inner.shape, unit, FLOAT32))
            parts.append(_expanded(less, x.shape))
            continue
        part = _divided(value, unit, depth + 1)
        if part is None:
            return None
        parts.append(part)
    return make(x.op, *parts)


# Moves, and what only chooses among numbers.


def _moved(node: Node) -> Node:
    """The bytes moved, and scaled where they are then."""
    scaled = _scaled(node.inputs[0])
    byte = None if scaled is None else _byte(scaled.numbers)
    if scaled is None or byte is None:
        return node
    attrs = dict(node.attrs)
    zero, scale = _same_everywhere(byte, scaled, node.shape)
    if scale is None and node.op == "permute":
        zero = None if byte.zero is None else make("permute", byte.zero, **attrs)
        scale = make("permute", scaled.scale, **attrs)
    if scale is None:
        return node
    return _of_bytes(make(node.op, byte.bytes, **attrs), zero, scale)


def _same_everywhere(byte: Byte, scaled: Scaled, shape: Shape) -> tuple[Node | None, Node | None]:
    """Zero point and scale for bytes of another shape; no scale where they are not one number."""
    if not _differs_only(scaled.scale, ()):
        return None, None
    scale = _reshaped(scaled.scale, (1,) * len(shape))
    if byte.zero is None:
        return None, scale
    number = _one_number(byte.zero)
    return (None, None) if number is None else (full(shape, int(number), INT32), scale)


def _of_bytes(numbers: Node, zero: Node | None, scale: Node) -> Node:
    wide = make("cast", numbers, dtype=INT32)
    return Scaled(wide if zero is None else make("sub", wide, zero), scale).real


def _greatest(node: Node) -> Node:
    """The greatest of scaled bytes, in windows perhaps, is the greatest byte, scaled."""
    [value] = node.inputs
    window = value if value.op == "window" else None
    value = value if window is None else window.inputs[0]
    pad = value if value.op == "pad" and window is not None else None
    value = value if pad is None else pad.inputs[0]
    scaled = _scaled(value)
    byte = None if scaled is None else _byte(scaled.numbers)
    if scaled is None or byte is None or not _always_sees(window, pad):
        return node
    zero, scale = _same_everywhere(byte, scaled, node.shape)
    number = None if scale is None else _one_number(scale)
    if scale is None or number is None or not number > 0:
        return node
    made = byte.bytes
    if pad is not None:
        lowest = least(made.dtype)
        made = make("pad", made, padding=pad.attr("padding"), value=lowest)
    if window is not None:
        made = make("window", made, **dict(window.attrs))
    return _of_bytes(make("max", made, axes=node.attr("axes")), zero, scale)


def _always_sees(window: Node | None, pad: Node | None) -> bool:
    """Whether every window has an element in it that is no padding, which is below all."""
    if window is None or pad is None:
        return True
    if pad.attr("value") != float("-inf") or any(one != 1 for one in window.attr("dilations")):
        return False
    sizes = dict(zip(window.attr("axes"), window.attr("sizes"), strict=True))
    return all(
        max(bounds(before)[1], bounds(after)[1]) < sizes.get(axis, 1)
        for axis, (before, after) in enumerate(pad.attr("padding"))
    )


def _as_it_was(node: Node) -> Node:
    """Bytes that were dequantised, and are quantised as they were."""
    [x] = node.inputs
    zero = 0.0
    if x.op == "add" and x.inputs[0].op == "round":
        number = _one_number(x.inputs[1]) if is_known(x.inputs[1]) else None
        if number is None:
            return node
        x, zero = x.inputs[0], number
    scaled = _scaled(x.inputs[0]) if x.op == "round" else None
    byte = None if scaled is None else _byte(scaled.numbers)
    if scaled is None or byte is None or byte.bytes.dtype != node.dtype:
        return node
    had = 0.0 if byte.zero is None else _one_number(byte.zero)
    return byte.bytes if had == zero and _one_number(scaled.scale) == 1.0 else node
