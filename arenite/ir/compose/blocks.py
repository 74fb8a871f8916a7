"""Weights of a few bits that come apart: numbers, scales, and what is taken off."""

from __future__ import annotations

import numpy as np

from arenite.dtype import BY_NAME, FLOAT32
from arenite.ir.compose.basic import broadcast_to, cast, reshape, slice_axis
from arenite.ir.dim import Dim
from arenite.ir.node import Node
from arenite.ir.ops.blocks import RUN, dequantise, join_blocks, matmul_blocks
from arenite.ir.ops.define import make
from arenite.ir.ops.sources import constant

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
    floats = [scales] if zeros is None else [scales, scales * -zeros]
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
    """x times the transposed weights, FLOAT32; x may be rounded to 8 bits."""
    rows = reshape(cast(x, FLOAT32), (1, *x.shape)) if x.ndim == 1 else cast(x, FLOAT32)
    if may_round:
        made = matmul_blocks(rows, w)
    else:
        made = make("matmul", rows, dequantise(w), transpose_a=False, transpose_b=True)
    return reshape(made, (*x.shape[:-1], w.shape[0]))
