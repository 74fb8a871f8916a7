"""Random numbers from random bits: each a function of (seed, counter), so a graph that holds them
is a pure function like any other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arenite.dtype import FLOAT32, FLOAT64, UINT64, DType
from arenite.errors import InvalidArgument
from arenite.ir.compose.basic import cast, slice_axis
from arenite.ir.compose.basic import reshape as reshaped
from arenite.ir.dim import Dim
from arenite.ir.node import Node
from arenite.ir.ops import full, make


def bits(seed: Node, counter: int, shape: Sequence[Dim]) -> Node:
    """uint32"""
    return make("random_bits", seed, counter=counter, shape=tuple(shape))


def bits64(seed: Node, counter: int, shape: Sequence[Dim]) -> Node:
    """uint64, of two neighbouring words, the low one first"""
    pairs = cast(bits(seed, counter, (*shape, 2)), UINT64)
    low, high = (reshaped(slice_axis(pairs, len(shape), i, i + 1), tuple(shape)) for i in range(2))
    return low | high << 32


def uniform(seed: Node, counter: int, shape: Sequence[Dim], dtype: DType) -> Node:
    """In [0, 1): a multiple of 2**-24, for float64 of 2**-53; for smaller types rounded to
    nearest, so that 1 itself may come up."""
    if dtype == FLOAT64:
        whole = cast(bits64(seed, counter, shape) >> 11, dtype)
        return whole * (2.0**-53)
    if dtype.kind.value != "float":
        raise InvalidArgument(f"random numbers in [0, 1) are floats, not {dtype}")
    whole = cast(bits(seed, counter, shape) >> 8, FLOAT32)
    return cast(whole * (2.0**-24), dtype)


def normal(seed: Node, counter: int, shape: Sequence[Dim], dtype: DType) -> Node:
    """Mean 0 and variance 1, by Box and Muller: one pair of uniform numbers for each."""
    wide = dtype if dtype == FLOAT64 else FLOAT32
    pairs = uniform(seed, counter, (2, *shape), wide)
    radius, angle = (reshaped(slice_axis(pairs, 0, i, i + 1), tuple(shape)) for i in range(2))
    away = make("sqrt", make("log", 1.0 - radius) * -2.0)  # 1 - u is never 0
    return cast(away * make("cos", angle * (2 * math.pi)), dtype)


def integers(
    seed: Node, counter: int, shape: Sequence[Dim], low: int, high: int, dtype: DType
) -> Node:
    """In [low, high). No number is likelier than another by more than one part in 2**32."""
    count = high - low
    if not 0 < count <= 2**64:
        raise InvalidArgument(f"no integers lie in [{low}, {high}), or too many")
    wide = bits64(seed, counter, shape)
    if count <= 2**32:
        whole = (wide >> 32) * count
        wide = whole >> 32
    elif count < 2**64:
        wide = wide % count
    shifted = wide + full(wide.shape, low % 2**64, UINT64)
    return cast(shifted, dtype)
