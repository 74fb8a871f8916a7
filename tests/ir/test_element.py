"""Casts: exact where they round, stated where C is silent; packing of tiny types."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, Kind
from arenite.errors import TypeMismatch
from arenite.ir.element import (
    convert,
    held_dtype,
    limits,
    numpy_dtype,
    packed,
    reinterpreted,
    unpacked,
)

SCALARS = [dtype for dtype in BY_NAME.values() if not dtype.is_block]
TINY = [dtype for dtype in SCALARS if dtype.bits < 8]
NARROW = [d for d in SCALARS if d.kind is Kind.FLOAT and d.bits < 32 and "e8m0" not in d.name]


def all_values(name: str) -> NDArray[Any]:
    """Every finite value of a narrow float, sorted, each once."""
    dtype = BY_NAME[name]
    codes = np.arange(2**dtype.bits).astype(np.uint16 if dtype.bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = codes.view(numpy_dtype(dtype)).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def nearest(value: Fraction, values: NDArray[Any]) -> set[float]:
    """The value or the two values of a type that lie nearest."""
    place = int(np.searchsorted(values, float(value)))
    around = values[max(0, place - 2) : place + 2]
    distance = min(abs(Fraction(v) - value) for v in around)
    return {float(v) for v in around if abs(Fraction(v) - value) == distance}


@pytest.mark.parametrize("target", NARROW, ids=str)
@given(st.one_of(st.floats(-7, 7), st.integers(-(2**63), 2**63 - 1), st.floats(-1e-3, 1e-3)))
@settings(max_examples=60, deadline=None)
def test_narrow_floats_are_rounded_once_to_nearest(target: Any, value: float) -> None:
    values = all_values(target.name)
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        made = float(convert(array, held_dtype(array.dtype), target).astype(np.float64))
    if abs(value) > values[-1]:
        return  # past the end: infinity, NaN or the largest, as the type has it
    assert made in nearest(Fraction(value), values)


@pytest.mark.parametrize("target", NARROW, ids=str)
def test_ties_go_to_even(target: Any) -> None:
    values = all_values(target.name)[-40:]
    middles = (values[:-1] + values[1:]) / 2
    made = convert(middles, BY_NAME["float64"], target)
    bits = made.view(np.uint16 if target.bits == 16 else np.uint8)
    assert (bits % 2 == 0).all()
    # Anything to one side of the middle goes to that side, seen from float64 too.
    for away, expected in ((-1, values[:-1]), (1, values[1:])):
        beside = np.nextafter(middles, away * np.inf)
        np.testing.assert_array_equal(
            convert(beside, BY_NAME["float64"], target).astype(np.float64), expected
        )


@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_small_integers_survive_every_cast(source: Any) -> None:
    for target in SCALARS:
        value = np.array([1, 0, 1]).astype(numpy_dtype(source))
        if "e8m0" in source.name or "e8m0" in target.name:
            value = np.array([1, 1, 1]).astype(numpy_dtype(source))  # it has no zero
        made = convert(value, source, target)
        assert made.dtype == numpy_dtype(target)
        np.testing.assert_array_equal(
            made.astype(np.complex128), value.astype(np.complex128), err_msg=str(target)
        )


@pytest.mark.parametrize("target", [d for d in SCALARS if "int" in d.name], ids=str)
def test_floats_saturate_as_integers(target: Any) -> None:
    low, high = limits(target)
    given = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1.9, -0.9, float(high), float(low)])
    made = [int(element) for element in convert(given, BY_NAME["float64"], target)]
    assert made == [0, high, low, high, low, 1, 0, high, low]


@pytest.mark.parametrize("target", [d for d in SCALARS if "int" in d.name], ids=str)
@given(value=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=20, deadline=None)
def test_integers_wrap(target: Any, value: int) -> None:
    made = int(convert(np.array([value]), BY_NAME["int64"], target)[0])
    low, high = limits(target)
    assert low <= made <= high
    assert (made - value) % 2**target.bits == 0


def test_to_bool_is_whether_it_is_not_zero() -> None:
    given = np.array([0.0, -0.0, np.nan, 0.5, -1, 1e-300])
    expected = [False, False, True, True, True, True]
    assert convert(given, BY_NAME["float64"], BY_NAME["bool"]).tolist() == expected
    given = np.array([0j, 1j])
    assert convert(given, BY_NAME["complex128"], BY_NAME["bool"]).tolist() == [False, True]
    tiny = np.array([0, -8], ml_dtypes.int4)
    assert convert(tiny, BY_NAME["int4"], BY_NAME["bool"]).tolist() == [False, True]


def test_the_imaginary_part_is_dropped() -> None:
    made = convert(np.array([2.75 + 1j]), BY_NAME["complex128"], BY_NAME["int8"])
    assert made.tolist() == [2]


@pytest.mark.parametrize("bits", [52, 53, 60, 63])
def test_large_integers_round_once(bits: int) -> None:
    base = 2**bits
    values = np.array([base + base // 256, base + base // 256 + 1, base + base // 256 - 1])
    values = values if bits < 63 else values.astype(np.uint64)
    made = convert(values, held_dtype(values.dtype), BY_NAME["bfloat16"]).astype(np.float64)
    step = base // 128
    assert made.tolist() == [float(base), float(base + step), float(base)]


@pytest.mark.parametrize("dtype", TINY, ids=str)
@given(st.lists(st.integers(0, 63), max_size=9))
@settings(max_examples=20, deadline=None)
def test_packing_is_by_bits_low_ones_first(dtype: Any, codes: list[int]) -> None:
    codes = [code % 2**dtype.bits for code in codes]
    array = unpacked(
        packed(np.array(codes, np.uint8), BY_NAME["uint8"]), BY_NAME["uint8"], (len(codes),)
    )
    elements = reinterpreted_codes(array, dtype)
    data = packed(elements, dtype)
    whole = sum(code << (dtype.bits * i) for i, code in enumerate(codes))
    assert len(data) == -(-len(codes) * dtype.bits // 8)
    assert int.from_bytes(data.tobytes(), "little") == whole
    again = unpacked(data, dtype, (len(codes),))
    assert again.dtype == numpy_dtype(dtype)
    assert packed(again, dtype).tobytes() == data.tobytes()


def reinterpreted_codes(codes: NDArray[np.uint8], dtype: Any) -> NDArray[Any]:
    if dtype.kind is Kind.FLOAT:
        return codes.view(numpy_dtype(dtype))
    return codes.astype(np.int8).astype(numpy_dtype(dtype))


def test_bits_are_kept_by_reinterpreting() -> None:
    codes = np.arange(16).astype(ml_dtypes.uint4)
    as_float = reinterpreted(codes, BY_NAME["uint4"], BY_NAME["float4_e2m1fn"])
    assert as_float.astype(np.float32)[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    as_int = reinterpreted(as_float, BY_NAME["float4_e2m1fn"], BY_NAME["int4"])
    assert as_int.astype(int).tolist() == [*range(8), *range(-8, 0)]


def test_block_types_have_no_elements() -> None:
    with pytest.raises(TypeMismatch, match="q4_0 is block-quantised"):
        numpy_dtype(BY_NAME["q4_0"])
