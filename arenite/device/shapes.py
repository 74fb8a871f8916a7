"""Shapes as callers give them: checked, and made of a number of bytes."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from arenite.dtype import DType
from arenite.errors import InvalidArgument, InvalidView

MAX_AXES = 64  # as NumPy's arrays have them


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a caller gives it; of sizes that are negative the dtype complains."""
    try:
        sizes = tuple(map(operator.index, shape))
    except TypeError:
        raise InvalidArgument(f"a shape is a sequence of integers, not {shape!r}") from None
    if len(sizes) > MAX_AXES:
        raise InvalidArgument(f"a shape has at most {MAX_AXES} sizes, not {len(sizes)}")
    return sizes


def flat_shape(dtype: DType, nbytes: int) -> tuple[int]:
    """All elements that so many bytes hold, in one dimension."""
    count, rest = divmod(nbytes * 8, dtype.bits)
    if rest:
        raise InvalidView(
            f"{nbytes} bytes are no whole number of {dtype} "
            f"{'blocks' if dtype.is_block else 'elements'} of {dtype.bits} bits"
        )
    return (count * dtype.block_length,)
