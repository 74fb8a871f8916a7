"""Elements in NumPy: how each dtype is held by the reference, and how casts round.

Types narrower than a byte are held one element a byte, as ml_dtypes does; packing is a matter of
storage. Casts follow C, where C says something, and are exact about the rest:

    to bool                 x != 0, so NaN is True
    integer to integer      wraps
    float to integer        towards zero; out of range saturates, NaN is 0
    to a float              to nearest, ties to even, rounded once whatever the source;
                            out of range is infinity, or NaN where the type has no infinity
    complex to real         the imaginary part is dropped
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from arenite.dtype import SCALARS, Array, DType, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import TypeMismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray


_NATIVE_FLOATS = ("float16", "float32", "float64")


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype the reference holds elements in."""
    if dtype.is_block:
        raise TypeMismatch(f"{dtype} is block-quantised; its elements have no NumPy form")
    if dtype.has_numpy:
        return dtype.to_numpy()
    import ml_dtypes

    return cast("np.dtype[Any]", np.dtype(getattr(ml_dtypes, dtype.name)))


def held_as(shape: tuple[int, ...], dtype: DType) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and NumPy dtype of the array the reference holds a value in: rows of bytes for a
    block-quantised type."""
    if dtype.is_block:
        return (*shape[:-1], dtype.nbytes(shape[-1:])), np.dtype(np.uint8)
    return shape, numpy_dtype(dtype)


def held_dtype(numpy_dtype: np.dtype[Any]) -> DType:
    """The DType of an array that the reference holds."""
    dtype = SCALARS.get(numpy_dtype.name)
    return dtype if dtype is not None and dtype.bits < 8 else dtype_of(numpy_dtype)


def in_native_order(array: Array) -> Array:
    """The array, or a copy of it whose elements have their bytes in this machine's order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def packed(array: Array, dtype: DType) -> NDArray[np.uint8]:
    """The bytes of an array as storage has them: elements narrower than a byte side by side, low
    bits first."""
    contiguous = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits >= 8:
        return contiguous.view(np.uint8)
    if 8 % dtype.bits == 0:
        n = 8 // dtype.bits
        codes = np.zeros((-(-contiguous.size // n), n), np.uint8)
        codes.reshape(-1)[: contiguous.size] = bits_of(contiguous, dtype)
        joined = codes[:, 0]
        for k in range(1, n):
            joined = joined | codes[:, k] << np.uint8(dtype.bits * k)
        return joined
    # Of 6 bits, four in three bytes.
    groups = np.zeros((-(-contiguous.size // 4), 4), np.uint8)
    groups.reshape(-1)[: contiguous.size] = bits_of(contiguous, dtype)
    a, b, c, d = groups.T
    three = np.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], axis=1)
    return three.reshape(-1)[: dtype.nbytes(contiguous.shape)]


def unpacked(data: NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array of the elements in some bytes."""
    if dtype.bits >= 8:
        held_shape, held = held_as(shape, dtype)
        return data.view(held).reshape(held_shape)
    count = int(np.prod(shape, dtype=np.int64))
    if 8 % dtype.bits == 0:
        n = 8 // dtype.bits
        codes = np.empty((len(data), n), np.uint8)
        for k in range(n):
            codes[:, k] = data >> np.uint8(dtype.bits * k)
        return _of_low_bits(bits_of(codes.reshape(-1)[:count], dtype).reshape(shape), dtype)
    three = np.zeros((-(-count // 4), 3), np.uint8)
    three.reshape(-1)[: len(data)] = data
    a, b, c = three.T
    groups = np.stack([a, a >> 6 | b << 2, b >> 4 | c << 4, c >> 2], axis=1) & np.uint8(0x3F)
    return _of_low_bits(groups.reshape(-1)[:count].reshape(shape), dtype)


def _of_low_bits(low: NDArray[np.uint8], dtype: DType) -> Array:
    """Elements narrower than a byte from bytes that have their bits at the low end."""
    if dtype.kind is Kind.FLOAT:
        return low.view(numpy_dtype(dtype))
    return _wrapped(low, dtype)


def bits_of(array: Array, dtype: DType) -> NDArray[np.uint8]:
    """The bits of elements narrower than a byte, at the low end of a byte each."""
    return np.ascontiguousarray(array).view(np.uint8) & np.uint8((1 << dtype.bits) - 1)


def reinterpreted(array: Array, source: DType, target: DType) -> Array:
    """The same bits as another type of the same width."""
    if target.bits < 8:
        return _of_low_bits(bits_of(array, source), target).reshape(array.shape)
    return np.ascontiguousarray(array).view(numpy_dtype(target)).reshape(array.shape)


def widened(array: Array, dtype: DType) -> Array:
    """Elements in a type NumPy computes with: float32 for small floats, int8 for tiny integers."""
    if dtype.kind is Kind.FLOAT and dtype.bits < 32:
        return array.astype(np.float32)
    if dtype.bits < 8:
        return array.astype(np.int8 if dtype.kind is Kind.SIGNED else np.uint8)
    return array


def comparable(array: Array) -> Array:
    """The same numbers in a type that NumPy puts in order: of ml_dtypes' own it knows none, or one
    in which NaN is anywhere."""
    return array if array.dtype.isbuiltin != 2 else array.astype(np.float32)


def exact(array: Array, dtype: DType) -> Array:
    """Elements in the widest type of their kind: what sums and contractions accumulate in."""
    if dtype.kind is Kind.FLOAT:
        return array.astype(np.float64)
    if dtype.kind is Kind.COMPLEX:
        return array.astype(np.complex128)
    return widened(array, dtype)


def convert(array: Array, source: DType, target: DType) -> Array:
    """Cast from `source` to `target` by the rules above."""
    if source == target:
        return array
    if target.kind is Kind.BOOL:
        return np.asarray(widened(array, source) != 0)
    if source.kind is Kind.BOOL:
        return array.astype(np.uint8).astype(numpy_dtype(target))
    if target.kind is Kind.COMPLEX:
        return widened(array, source).astype(numpy_dtype(target))
    if source.kind is Kind.COMPLEX:
        return rounded(array.real, target)
    return rounded(widened(array, source), target)


def rounded(array: Array, dtype: DType) -> Array:
    """A computed array (NumPy's own number types) as elements of `dtype`."""
    if array.dtype == numpy_dtype(dtype):
        return array
    if dtype.kind is Kind.FLOAT:
        if dtype.name in _NATIVE_FLOATS:
            return array.astype(numpy_dtype(dtype))
        return _nearest_float32(array).astype(numpy_dtype(dtype))
    if array.dtype.kind == "f":
        return _saturated(array, dtype)
    return _wrapped(array, dtype)


def _wrapped(array: Array, dtype: DType) -> Array:
    if dtype.bits >= 8:
        return array.astype(numpy_dtype(dtype))
    low = array.astype(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    if dtype.kind is Kind.UNSIGNED:
        return low.astype(numpy_dtype(dtype))
    sign = np.uint8(1 << (dtype.bits - 1))
    return ((low ^ sign).astype(np.int8) - np.int8(sign)).astype(numpy_dtype(dtype))


def limits(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    if dtype.kind is Kind.SIGNED:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1


def _saturated(array: Array, dtype: DType) -> Array:
    low, high = limits(dtype)
    with np.errstate(invalid="ignore"):
        values = np.trunc(array.astype(np.float64))
        inside = (values >= low) & (values < float(high + 1))
        wide = np.where(inside, values, 0.0).astype(
            np.int64 if dtype.kind is Kind.SIGNED else np.uint64
        )
        wide = np.where(values < low, wide.dtype.type(low), wide)
        wide = np.where(values >= float(high + 1), wide.dtype.type(high), wide)
    return _wrapped(wide, dtype)


def _nearest_float32(array: Array) -> Array:
    """As float32 rounded to odd, so that rounding once more, to a narrower type, is exact."""
    if array.dtype == np.float32 or array.dtype.itemsize * 8 < 32:
        return array.astype(np.float32)
    wide = _odd_float64(array) if array.dtype.kind in "iu" else array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
    # Step back towards zero where rounding went away from it, then make the last bit sticky.
    bits = near.view(np.uint32).copy() if near.ndim else near.reshape(1).view(np.uint32).copy()
    bits = bits.reshape(near.shape)
    finite = np.isfinite(wide)
    away = finite & (np.abs(near.astype(np.float64)) > np.abs(wide))
    bits = np.where(away, bits - np.uint32(1), bits)
    inexact = finite & (near.astype(np.float64) != wide)
    bits = np.where(inexact, bits | np.uint32(1), bits)
    return np.asarray(bits, np.uint32).view(np.float32)


def _odd_float64(array: Array) -> Array:
    """Integers as float64; those over 2**52 are rounded to odd at a multiple of 2**12."""
    large = (array >= 2**52) | (array <= -(2**52)) if array.dtype.kind == "i" else array >= 2**52
    sticky = (array >> 12) | ((array & 0xFFF) != 0).astype(array.dtype)
    return np.where(large, sticky.astype(np.float64) * 4096.0, array.astype(np.float64))
