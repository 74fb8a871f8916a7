"""Elementwise functions and operators against NumPy, over dtypes, shapes, strides, edge values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import AreniteError, InvalidArgument, TypeMismatch
from arenite.tensor import Tensor, maximum, minimum, where
from tests.tensor.examples import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOATS,
    INTS,
    NUMBERS,
    array,
    arrays,
    quiet,
    same,
    seeds,
)

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan arcsin arccos arctan sinh cosh tanh "
    "arcsinh arccosh arctanh rint floor ceil trunc absolute fabs negative positive sign square "
    "reciprocal invert isnan isinf isfinite signbit deg2rad rad2deg logical_not"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder fmod power maximum minimum fmax fmin "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift equal not_equal less less_equal "
    "greater greater_equal arctan2 hypot copysign logaddexp logical_and logical_or logical_xor"
).split()


def try_both(ufunc: np.ufunc, *operands: Any) -> None:
    """NumPy's answer and ours are the same, or both refuse."""
    tensors = [Tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
    try:
        with quiet():
            expected = ufunc(*operands)
    except (TypeError, ValueError, OverflowError):
        with pytest.raises((AreniteError, OverflowError)):
            ufunc(*tensors)
        return
    same(ufunc(*tensors), expected)


@pytest.mark.parametrize("name", UNARY)
def test_unary_as_numpy(name: str) -> None:
    for dtype in ALL:
        given = array(dtype, (5, 7), seed=len(name))
        if name == "reciprocal" and dtype.kind in "biu":  # 1/0 of integers is anything
            given = np.where(given == 0, dtype.type(1), given)
        try_both(getattr(np, name), given)


@pytest.mark.parametrize("name", UNARY)
def test_unary_on_bfloat16_rounds_what_float32_gives(name: str) -> None:
    if name in ("invert", "square"):  # no such loop; more roundings of its own
        return
    given = array(np.dtype(np.float32), (40,)).astype(BFLOAT16)
    with quiet():
        expected = getattr(np, name)(given.astype(np.float32))
        expected = expected if expected.dtype == bool else expected.astype(BFLOAT16)
    same(getattr(np, name)(Tensor(given)), expected)


@pytest.mark.parametrize("name", BINARY)
@given(a=arrays(), b=st.sampled_from(ALL), seed=seeds())
@settings(max_examples=25, deadline=None)
def test_binary_as_numpy(name: str, a: Any, b: np.dtype[Any], seed: int) -> None:
    # Exponents that NumPy refuses depend on data; integers wrap the same way without them.
    other = array(b, a.shape, seed)
    if name == "power" and np.promote_types(a.dtype, b).kind in "iu":
        other = np.abs(other) % 5
    if name in ("left_shift", "right_shift") and other.dtype.kind in "iu":
        other = np.abs(other.astype(np.int64) % 70).astype(b)
    try_both(getattr(np, name), a, other)


@pytest.mark.parametrize("op", ["add", "multiply", "equal", "maximum", "where"])
@given(seed=seeds(), shape=st.lists(st.integers(1, 3), max_size=3), data=st.data())
@settings(max_examples=20, deadline=None)
def test_shapes_broadcast_as_in_numpy(
    op: str, seed: int, shape: list[int], data: st.DataObject
) -> None:
    ones = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    cut = data.draw(st.integers(0, len(shape)))
    a = array(np.dtype("float32"), shape, seed)
    b = array(np.dtype("float32"), [1 if one else s for s, one in zip(shape, ones, strict=True)])
    b = b.reshape(b.shape[cut:]) if all(s == 1 for s in b.shape[:cut]) else b
    if op == "where":
        same(where(Tensor(a > 0), Tensor(b), a), np.where(a > 0, b, a))
    else:
        try_both(getattr(np, op), a, b)


SCALARS: list[Any] = [True, 0, 3, -2, 300, 2.5, -0.0, float("nan"), 1j, np.int8(3), np.float64(2.5)]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}({s})")
@pytest.mark.parametrize("dtype", [*ALL, np.dtype("complex64")], ids=str)
def test_python_numbers_are_weak(dtype: np.dtype[Any], scalar: Any) -> None:
    is_complex = dtype.kind == "c"
    given = array(np.dtype("float32") if is_complex else dtype, (3, 4), edges=False).astype(dtype)
    ops = [np.add, np.subtract, np.multiply, np.divide]
    if not is_complex and not isinstance(scalar, complex):
        ops.append(np.maximum)
    for op in ops:
        try_both(op, given, scalar)
        try_both(op, scalar, given)


OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_operators_work_from_both_sides(function: Callable[[Any, Any], Any]) -> None:
    a, b = np.array([[1, 2, 3], [7, 5, 4]]), np.array([2, 3, 1])
    same(function(Tensor(a), Tensor(b)), function(a, b))
    same(function(Tensor(a), b), function(a, b))
    same(function(a, Tensor(b)), function(a, b))
    same(function(Tensor(a), 2), function(a, 2))
    same(function(2, Tensor(a)), function(2, a))


def test_unary_operators_and_methods() -> None:
    a = np.array([[-1.5, 2.5], [0.5, -3.0]])
    t, i = Tensor(a), Tensor(np.array([1, -2, 3]))
    same(-t, -a)
    same(+t, a)
    same(abs(t), abs(a))
    same(~i, ~np.array([1, -2, 3]))
    same(divmod(t, 2)[0], divmod(a, 2)[0])
    same(np.divmod(t, 2)[1], divmod(a, 2)[1])
    same(t.clip(-1, 1), a.clip(-1, 1))
    same(t.clip(min=0), a.clip(min=0))
    same(i.clip(max=2.5), np.array([1, -2, 3]).clip(max=2.5))
    same(t.maximum(1), np.maximum(a, 1))
    same(t.minimum(1), np.minimum(a, 1))
    same(maximum(1, t), np.maximum(a, 1))
    same(minimum(a, t), a)
    same((t > 0).where(t, 0), np.where(a > 0, a, 0))
    same(where([True, False], 1, 2.5), np.where([True, False], 1, 2.5))
    same((t > 0).logical_not(), ~(a > 0))
    same(t.isnan() | t.isinf() | t.isfinite(), np.ones((2, 2), bool))
    same(t.abs().rsqrt(), 1 / np.sqrt(abs(a)))
    same(t.reciprocal(), 1 / a)
    same(i.reciprocal(), np.reciprocal(np.array([1, -2, 3])))
    same(t.log10(), np.log10(np.where(a > 0, a, np.nan)))
    same(t.floor() + t.ceil() + t.trunc(), np.floor(a) + np.ceil(a) + np.trunc(a))
    same(t.astype("int32").sign().square(), np.array([[1, 1], [0, 1]], np.int32))


@pytest.mark.parametrize("decimals", [0, 2, -1])
def test_round(decimals: int) -> None:
    given = np.array([0.5, 1.5, 2.5, 12.345, -17.775, np.inf])
    same(Tensor(given).round(decimals), given.round(decimals))
    same(Tensor([15, 25]).round(decimals=0), np.array([15, 25]))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -1.0, 2.5, True])
@pytest.mark.parametrize("dtype", [BOOL, *NUMBERS], ids=str)
def test_powers(dtype: np.dtype[Any], exponent: float) -> None:
    if dtype == BOOL and type(exponent) is int and exponent == 2:
        return  # NumPy squares, in int8, and gives int64 for every other exponent
    given = np.abs(array(dtype, (20,), edges=False).astype(dtype))
    with quiet():
        same(Tensor(given) ** exponent, given**exponent)


def test_integer_powers_below_zero() -> None:
    with pytest.raises(InvalidArgument, match="negative integer powers"):
        _ = Tensor([2]) ** -1
    base, exponent = np.array([2, 1, -1, -1, 0]), np.array([-1, -3, -3, -2, -1])
    same(Tensor(base) ** Tensor(exponent), np.array([0, 1, -1, 1, 0]))


@pytest.mark.parametrize("source", [*ALL, BFLOAT16], ids=str)
def test_astype_as_numpy_where_it_is_defined(source: np.dtype[Any]) -> None:
    for target in [*ALL, BFLOAT16, np.dtype("complex64")]:
        given = array(source if source.kind in "biuf" else np.dtype("float32"), (30,), edges=False)
        if target.kind == "u" and given.dtype.kind == "f":
            given = np.abs(given)  # below zero C does not say
        given = given.astype(source)
        same(Tensor(given).astype(target), given.astype(target))


def test_view_reads_bits() -> None:
    given = array(np.dtype("float32"), (9,))
    same(Tensor(given).view("int32"), given.view(np.int32))
    same(Tensor(given).view("uint32").view("float32").view("int32"), given.view(np.int32))
    with pytest.raises(TypeMismatch, match=r"float32\[9\] has 32, int64 64"):
        Tensor(given).view("int64")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_comparisons_with_nan_and_zero_signs(dtype: np.dtype[Any]) -> None:
    a = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0], dtype)
    for x in a:
        for op in (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal):
            same(op(Tensor(a), x), op(a, x))


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_division_by_zero_is_zero(dtype: np.dtype[Any]) -> None:
    a, zero = np.array([5, 0, 7], dtype), np.zeros(3, dtype)
    with quiet():
        for op in (np.floor_divide, np.remainder, np.fmod):
            same(op(Tensor(a), zero), op(a, zero))


COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


@pytest.mark.parametrize("value", [300, -1, 2**70, -(2**70)])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64"])
def test_comparing_with_a_number_out_of_range(dtype: str, value: int) -> None:
    a = array(np.dtype(dtype), (10,))
    for compare in COMPARISONS:
        same(compare(Tensor(a), value), compare(a, value))
        same(compare(value, Tensor(a)), compare(value, a))
    if dtype == "uint8":
        with pytest.raises(OverflowError, match=f"integer {value} is out of bounds for uint8"):
            Tensor(a) + value


def test_comparing_signs_exactly() -> None:
    a = np.array([[-1], [0], [2**63 - 1], [-(2**63)]])
    b = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    for compare in COMPARISONS:
        same(compare(Tensor(a), b), compare(a, b))
        same(compare(b, Tensor(a)), compare(b, a))


def test_what_bools_do_not_do() -> None:
    yes = Tensor([True, False])
    with pytest.raises(TypeMismatch, match="bools are not subtracted"):
        _ = yes - yes
    with pytest.raises(TypeMismatch, match="has no negative"):
        _ = -yes
    with pytest.raises(TypeMismatch, match=r"not float64\[1\]"):
        _ = ~Tensor([1.5])


def test_types_without_a_common_one() -> None:
    small = Tensor([1.0, 2.0]).astype("float8_e4m3fn")
    with pytest.raises(TypeMismatch, match=r"float8_e4m3fn and float8_e5m2 have no common dtype"):
        _ = small + Tensor([1.0]).astype("float8_e5m2")
    same((small + 1).astype("float32"), np.array([2, 3], np.float32))


def test_tiny_integers_wrap() -> None:
    t = Tensor([7, -8, 3]).astype("int4")
    assert t.nbytes == 2
    same((t + t).astype("int8"), np.array([-2, 0, 6], np.int8))
    same((t * 2).astype("int8"), np.array([-2, 0, 6], np.int8))
    same((Tensor([3, 1]).astype("uint2") + 1).astype("int8"), np.array([0, 2], np.int8))
