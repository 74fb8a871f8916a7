"""Products with weights of a few bits that come apart: numbers, scales, and what is taken off.

A product of blocks rounds what it multiplies to 8 bits, with a scale for each 32 elements. Where
that is not allowed, a factor is cut into three parts that lose nothing so: what rounding makes of
it, of what is left, and of what is left then. 24 bits are as many as float32 has.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import BY_NAME, float32
from arenite.ir.compose.basic import (
    add,
    binary,
    broadcast_to,
    cast,
    concat,
    expand_dims,
    mul,
    reshape,
    slice_axis,
    sub,
    unary,
    where,
)
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Dim
from arenite.ir.node import Node
from arenite.ir.ops.blocks import LEAST_NORMAL, RUN, join_blocks, matmul_blocks
from arenite.ir.ops.sources import constant

#: Parts of a factor that is not to be rounded.
PARTS = 3
#: Elements of the longest block type there is for numbers of so many bits.
LONGEST = {4: 128, 8: 32}


def has_blocks(bits: int, block: int, depth: Dim) -> bool:
    """Whether there is a block type for such numbers, of which `block` share a scale."""
    return bits in LONGEST and isinstance(depth, int) and block % RUN == 0 == depth % RUN


def blocks_of(numbers: Node, scales: Node, zeros: Node | None, bits: int, block: int) -> Node:
    """Weights (number - zero) * scale. Numbers[N, bytes] have low bits first; scales[N, blocks],
    zeros the same or one for all. Without zeros, half of the range is taken off."""
    width, nbytes = numbers.shape
    depth = nbytes * 8 // bits
    longest = LONGEST[bits]
    length = longest if block % longest == 0 == depth % longest else RUN
    if zeros is None and bits == 8:
        zeros = constant(np.full((1, 1), 128, np.float32))
    floats = [scales] if zeros is None else [scales, mul(scales, unary("neg", zeros))]
    fields = [repeated(one, 1, block // length, depth // length) for one in floats]
    dtype = BY_NAME[f"u{bits}x{length}{'' if zeros is None else '_least'}"]
    return join_blocks(dtype, *fields, reshape(numbers, (width, depth // length, -1)))


def repeated(x: Node, axis: int, times: Dim, size: Dim) -> Node:
    """Each element of an axis so many times, and of these the first `size`."""
    shape = [*x.shape]
    apart = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    each = broadcast_to(apart, (*shape[: axis + 1], times, *shape[axis + 1 :]))
    shape[axis] = shape[axis] * times
    return slice_axis(reshape(each, shape), axis, 0, size)


def product_of_blocks(x: Node, w: Node, may_round: bool) -> Node:
    """x times the transposed weights, float32."""
    rows = reshape(cast(x, float32), (1, *x.shape)) if x.ndim == 1 else cast(x, float32)
    made = matmul_blocks(rows, w) if may_round else _product_of_parts(rows, w)
    return reshape(made, (*x.shape[:-1], w.shape[0]))


def _product_of_parts(x: Node, w: Node) -> Node:
    parts, left = [], x
    for _ in range(PARTS - 1):
        parts.append(_rounded(left))
        left = sub(left, parts[-1])
    made = matmul_blocks(concat([expand_dims(part, 0) for part in (*parts, left)], 0), w)
    ends = [reshape(slice_axis(made, 0, k, k + 1), made.shape[1:]) for k in range(PARTS)]
    return add(add(ends[2], ends[1]), ends[0])


def _rounded(x: Node) -> Node:
    """What a product takes x for."""
    *rows, depth = x.shape
    runs = reshape(x, (*rows, depth // RUN, RUN))
    scale = mul(reduce("max", unary("abs", runs), (x.ndim,), keep=True), 1 / 127)
    is_zero = binary("lt", scale, LEAST_NORMAL)
    numbers = unary("round", binary("div", runs, where(is_zero, 1.0, scale)))
    return reshape(where(is_zero, 0.0, mul(numbers, scale)), x.shape)
