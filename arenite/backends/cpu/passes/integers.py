"""Products of bytes by constant weights are done by dot products of bytes, with packed weights.

    matmul(a - za, w - zw)    matmul_bytes(a, panels of w) - za * (sums of w - K * zw)
                                                           - zw * sums of a
    conv likewise, with channels last

a and w are 8-bit integers, seen through casts to wider ones; za and zw are zero points, which may
be missing. Signed activations are multiplied as unsigned ones and unsigned weights become signed,
both by turning one bit, which adds 128 to the one and takes it from the other: zero points move
along. All of this is exact modulo 2**32. What depends on constants alone is computed at load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arenite.backends.cpu.ops.byte_products import TURN, WORD, turned, unsigned
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.passes.byte_casts import (
    BYTES,
    SUMS,
    byte_bounds,
    cast_to_byte,
    numbers_of,
    unturned,
    without_turn,
)
from arenite.dtype import INT8, INT32, UINT8
from arenite.ir import Dim, Node, bounds, constant, full, make, product
from arenite.ir.compose.basic import broadcast_to, cast, pad, reshape
from arenite.passes.channels_last import permuted, unpermuted
from arenite.passes.constants import is_known

#: Places of an image up to which taps outside are left out, and not filled with the zero point.
FEW_PLACES, FEW_DEPTHWISE_PLACES, ANY_PLACES = 14 * 14, 28 * 28, 1 << 20

#: A zero point: one number, or one for each row or column.
Zero = int | Node


@dataclass(frozen=True, slots=True)
class _Factor:
    """Bytes, and what is taken from each of them: of the shape of the bytes."""

    bytes: Node
    zero: Node | None


def integers(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op == "cast" and node.dtype in BYTES:
        return cast_to_byte(node)
    if node.op in ("cast", "sub") and node.dtype in SUMS:
        return without_turn(node)
    if node.op not in ("matmul", "conv"):
        return node
    a, w = (_factor(value) for value in node.inputs)
    if a is None or w is None or not is_known(w.bytes):
        return node
    made = _matmul(node, a, w) if node.op == "matmul" else _conv(node, a, w)
    return node if made is None else cast(made, node.dtype)


def _factor(node: Node) -> _Factor | None:
    """A factor as bytes minus a zero point, if it is that."""
    zero = None
    if node.op == "sub" and node.dtype in SUMS:
        node, zero = node.inputs
        if node.op == "sub":  # and of turned bytes
            node, more = node.inputs
            zero = make("add", zero, more)
    if node.op == "cast" and node.dtype in SUMS:
        [node] = node.inputs
    elif zero is not None:
        return None
    return _Factor(node, zero) if node.dtype in BYTES else None


# Products.


def _matmul(node: Node, a: _Factor, w: _Factor) -> Node | None:
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")
    k_of_a, k_of_w = (a.bytes.ndim - (2 if transpose_a else 1)), (1 if transpose_b else 0)
    if not _is_matrix(w.bytes) or w.bytes.ndim > a.bytes.ndim:
        return None
    matrix = w.bytes.shape[-2:]
    za = _zero(a.zero, (k_of_a,))
    zw = _zero(w.zero, (w.bytes.ndim - 2 + k_of_w,))
    depth = a.bytes.shape[k_of_a]
    if za is None or zw is None or not isinstance(depth, int) or depth < 1:
        return None
    x, za = _unsigned(a.bytes, za)
    own, zw = _signed(reshape(w.bytes, matrix), zw)
    if transpose_a:
        x, za = _turned(x), za if isinstance(za, int) else _turned(za)
    if transpose_b:
        own = permuted(own, (1, 0))
    columns = bounds(own.shape[1])[1]
    made = make("matmul_bytes", x, matmul_panels(own), columns=columns)
    zw = zw if isinstance(zw, int) else reshape(zw, (1, columns))
    if za != 0:
        made = make("sub", made, _zero_sums(za, _less(own, zw), (0,), made.shape))
    if zw != 0:
        rows = make("sum", make("cast", unsigned(x), dtype=INT32), axes=(x.ndim - 1,))
        rows = reshape(rows, (*x.shape[:-1], 1))
        made = make("sub", made, _outer(rows, _vector(zw, columns), made.shape))
    return made


def _is_matrix(w: Node) -> bool:
    """Whether weights are one matrix, of fixed size."""
    return all(size == 1 for size in w.shape[:-2]) and _is_fixed(w)


def _turned(x: Node) -> Node:
    return permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def matmul_panels(w: Node) -> Node:
    """Weights [K, N] as panels [P, K/4, 16, 4]."""
    depth, columns = (bounds(size)[1] for size in w.shape)
    words, n_panels = -(-depth // WORD), -(-columns // PANEL)
    w = pad(w, ((0, words * WORD - depth), (0, n_panels * PANEL - columns)))
    w = make("reshape", w, shape=(words, WORD, n_panels, PANEL))
    return permuted(w, (2, 0, 3, 1))


# Convolutions.


def _conv(node: Node, a: _Factor, w: _Factor) -> Node | None:
    groups: int = node.attr("groups")
    x, own = a.bytes, w.bytes
    channels, per_group = own.shape[0], own.shape[1]
    inner = tuple(range(1, x.ndim))
    za, zw = _zero(a.zero, inner), _zero(w.zero, inner)
    if za is None or zw is None or not _is_fixed(own):
        return None
    if groups > 1 and per_group == 1:
        return _depthwise(node, x, own, za) if channels == groups and zw == 0 else None
    x, za = _unsigned(x, za)
    own, zw = _signed(own, zw)
    first = (0, x.ndim - 1, *range(1, x.ndim - 1))
    x = unpermuted(x, first)
    attrs = {name: node.attr(name) for name in ("strides", "padding", "dilations")}
    is_padded = any(pair != (0, 0) for pair in attrs["padding"])
    is_byte = isinstance(za, int) and 0 <= za <= 255
    is_worth = _has_few_places(node, FEW_PLACES) and per_group % WORD == 0
    sees_less = is_padded and za != 0 and (not is_byte or is_worth)
    if sees_less and not _has_few_places(node, ANY_PLACES):
        return None
    pad = {"pad_value": za if is_padded and not sees_less else 0}
    made = make("conv_bytes", x, conv_panels(own, groups), channels=channels, **attrs, **pad)
    if sees_less:
        made = make("sub", made, _seen_shift(node, za, _less(own, zw), made.shape))
    elif za != 0:
        made = make("sub", made, _zero_sums(za, _less(own, zw), inner, made.shape))
    if zw != 0:
        ones = full((groups, *own.shape[1:]), 1, INT8)
        seen = make("conv_bytes", x, conv_panels(ones, groups), channels=groups, **attrs, **pad)
        each = (*made.shape[:-1], groups, channels // groups)
        seen = reshape(broadcast_to(reshape(seen, (*each[:-1], 1)), each), made.shape)
        made = make("sub", made, _outer(seen, _vector(zw, channels), made.shape))
    return permuted(made, first)


def _has_few_places(node: Node, most: int) -> bool:
    """Whether a convolution has a fixed number of places, and not too many."""
    places = product(node.shape[2:])
    return isinstance(places, int) and places <= most


def _seen_shift(node: Node, zero: Zero, w: Node, shape: tuple[Dim, ...]) -> Node:
    """What a zero point adds where there are zeros around the image: places at its edges see less
    of it."""
    if isinstance(zero, int):
        return broadcast_to(_seen_sums(node, w * zero), shape)
    return _outer(zero, _seen_sums(node, w), shape)


def _seen_sums(node: Node, w: Node) -> Node:
    """Sums of weights over the taps inside the image, for each place and channel: [1, *S, O]."""
    n_taps = bounds(product(w.shape[2:]))[1]
    sums = permuted(make("sum", w, axes=(1,)), (*range(1, w.ndim - 1), 0))
    sums = reshape(sums, (n_taps, w.shape[0]))
    inside = np.ones((1, 1), np.int32)
    for size, taps, n_places, stride, dilation, (before, _) in zip(
        node.inputs[0].shape[2:],
        w.shape[2:],
        node.shape[2:],
        node.attr("strides"),
        node.attr("dilations"),
        node.attr("padding"),
        strict=True,
    ):
        at = np.arange(n_places)[:, None] * stride + np.arange(taps) * dilation - before
        inside = np.kron(inside, ((at >= 0) & (at < size)).astype(np.int32))
    # A sum of products, because that follows from constants alone and is done at load.
    taps = (len(inside), n_taps, w.shape[0])
    each = broadcast_to(constant(inside.reshape(len(inside), n_taps, 1)), taps)
    seen = make("sum", make("mul", each, broadcast_to(sums, taps)), axes=(1,))
    return reshape(seen, (1, *node.shape[2:], w.shape[0]))


def _depthwise(node: Node, x: Node, w: Node, zero: Zero) -> Node | None:
    """Every channel by itself, on bytes as they are."""
    n_spatial = x.ndim - 2
    first = (0, x.ndim - 1, *range(1, x.ndim - 1))
    attrs = {name: node.attr(name) for name in ("strides", "padding", "dilations")}
    last = unpermuted(x, first)
    is_padded = any(pair != (0, 0) for pair in attrs["padding"])
    low, high = byte_bounds(x.dtype)
    is_byte = isinstance(zero, int) and low <= zero <= high
    sees_less = is_padded and zero != 0
    if sees_less and is_byte and not _has_few_places(node, FEW_DEPTHWISE_PLACES):
        last = make("pad", last, padding=((0, 0), *attrs["padding"], (0, 0)), value=zero)
        attrs["padding"] = ((0, 0),) * n_spatial
        sees_less = False
    if sees_less and not _has_few_places(node, ANY_PLACES):
        return None
    taps = permuted(reshape(w, (w.shape[0], *w.shape[2:])), (*range(1, 1 + n_spatial), 0))
    made = make("depthwise_last", last, taps, **attrs)
    if sees_less:
        made = make("sub", made, _seen_shift(node, zero, _less(w, 0), made.shape))
    elif zero != 0:
        made = make("sub", made, _zero_sums(zero, _less(taps, 0), range(n_spatial), made.shape))
    return permuted(made, first)


def conv_panels(w: Node, groups: int) -> Node:
    """Weights [O, C/groups, *K] as panels [groups, P, *K, C/groups/4, 16, 4]."""
    channels, depth, *taps = (bounds(size)[1] for size in w.shape)
    own = channels // groups
    n_panels, words = -(-own // PANEL), -(-depth // WORD)
    w = make("reshape", w, shape=(groups, own, depth, *taps))
    more = [(0, n_panels * PANEL - own), (0, words * WORD - depth)]
    w = pad(w, ((0, 0), *more, *[(0, 0)] * len(taps)))
    w = make("reshape", w, shape=(groups, n_panels, PANEL, words, WORD, *taps))
    return permuted(w, (0, 1, *range(5, w.ndim), 3, 2, 4))


# Zero points.


def _zero(zero: Node | None, axes: Sequence[int]) -> Zero | None:
    """A zero point that is the same along some axes, which have size 1 then; None if it is not."""
    if zero is None:
        return 0
    numbers = numbers_of(zero)
    if numbers is not None and numbers.size and numbers.min() == numbers.max():
        return int(numbers.min())
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(zero.shape))
    while zero.op == "expand":
        [zero] = zero.inputs
        if all(zero.shape[axis] == 1 for axis in axes):
            return cast(broadcast_to(zero, shape), INT32)
    return None


def _unsigned(node: Node, zero: Zero) -> tuple[Node, Zero]:
    """Bytes that are multiplied as unsigned ones, and the zero point of those."""
    if node.dtype == UINT8:
        return node, zero
    bits = unturned(node)
    return node if bits is None else bits, zero + TURN


def _signed(node: Node, zero: Zero) -> tuple[Node, Zero]:
    if node.dtype == INT8:
        return node, zero
    return make("bitcast", turned(node), dtype=INT8), zero - TURN


def _less(w: Node, zero: Zero) -> Node:
    """Weights, widened, less their zero point."""
    wide = make("cast", w, dtype=INT32)
    return wide if zero == 0 else wide - zero


def _zero_sums(zero: Zero, w: Node, axes: Sequence[int], shape: tuple[Dim, ...]) -> Node:
    """What the zero point of the rows adds to each sum: itself times the sum of a column."""
    if isinstance(zero, int):
        return broadcast_to(make("sum", w * zero, axes=tuple(axes)), shape)
    return _outer(zero, make("sum", w, axes=tuple(axes)), shape)


def _outer(rows: Node, columns: Node, shape: tuple[Dim, ...]) -> Node:
    """A number for each row, its last axis 1 or all columns, times one for each column."""
    return make("mul", broadcast_to(rows, shape), broadcast_to(columns, shape))


def _vector(zero: Zero, length: Dim) -> Node:
    return full((length,), zero, INT32) if isinstance(zero, int) else reshape(zero, (length,))


# Weights.


def _is_fixed(w: Node) -> bool:
    return all(isinstance(size, int) and size > 0 for size in w.shape)
