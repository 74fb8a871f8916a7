"""Elementwise ops: one element of the result from one element of each input.

Inputs have equal shapes and, but for `where`'s condition, equal dtypes: promotion and
broadcasting are made explicit before. Small floats are computed in float32 and rounded once.
Integers wrap; an integer divided by zero gives 0, as NumPy has it, and so does its remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from arenite.dtype import BOOL, Array, DType, Kind
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.element import convert, held_dtype, reinterpreted, rounded, widened
from arenite.ir.node import Node
from arenite.ir.ops.define import (
    ANY,
    BITS,
    FLOAT,
    INTEGER,
    NUMBER,
    ORDERED,
    REAL,
    Attrs,
    Inferred,
    Sizes,
    define,
    need_dtype,
    need_kind,
)

Function: TypeAlias = Callable[..., Any]

#: What a division costs, and a function that is many operations, beside an addition.
DIVISION, FUNCTION = 3, 12


def _need_alike(op: str, inputs: tuple[Node, ...]) -> None:
    first = inputs[0]
    for other in inputs[1:]:
        if other.dtype != first.dtype:
            raise TypeMismatch(
                f"{op}: dtypes differ: {first.type_text} and {other.type_text}; cast one of them"
            )
        if other.shape != first.shape:
            raise ShapeMismatch(f"{op}: shapes differ: {first.type_text} and {other.type_text}")


def _elementwise(
    name: str,
    arity: int,
    kinds: tuple[Kind, ...],
    function: Function,
    *,
    result: DType | None = None,
    precise: bool = False,
    cost: int = 1,
    chooses: bool = False,
) -> None:
    """`result` where it is not the dtype of the inputs. `precise`: a function that no hardware
    rounds right, so the reference computes it on floats in float64 and rounds that."""

    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        _need_alike(name, inputs)
        need_kind(name, inputs[0], kinds)
        return inputs[0].shape, result or inputs[0].dtype

    def reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
        # A bool result says nothing of the operands, whose own NumPy dtype is enough to widen them.
        operands = [_computed(array) for array in arrays]
        if precise and dtype.kind is Kind.FLOAT:
            operands = [operand.astype(np.float64) for operand in operands]
        computed = np.asarray(function(*operands))
        return computed.astype(np.bool_) if dtype == BOOL else rounded(computed, dtype)

    chooses = chooses or result == BOOL
    arities = (arity, arity)
    define(name, "elementwise", arities, infer, reference, cost=cost, chooses=chooses)


def _computed(array: Array) -> Array:
    """In a type NumPy computes with."""
    if array.dtype.kind in "biufc" and array.dtype != np.float16:
        return array
    return widened(array, held_dtype(array.dtype))


def _function(name: str, function: Function, arity: int = 1, cost: int = FUNCTION) -> None:
    """A function of floats that no hardware rounds right."""
    _elementwise(name, arity, FLOAT, function, precise=True, cost=cost)


def _per_element(function: Callable[[float], float]) -> Function:
    """NumPy lacks it, Python has it."""
    mapped = np.frompyfunc(function, 1, 1)

    def apply(x: Array) -> Array:
        return np.asarray(mapped(x)).astype(np.float64)

    return apply


def _sign(x: Array) -> Array:
    return np.asarray(np.sign(x))


def _reciprocal(x: Array) -> Array:
    return np.asarray(np.divide(x.dtype.type(1), x))


_elementwise("neg", 1, NUMBER, np.negative)
_elementwise("abs", 1, REAL, np.abs)
_elementwise("sign", 1, REAL, _sign)
_elementwise("sqrt", 1, FLOAT, np.sqrt, cost=DIVISION)
_elementwise("reciprocal", 1, FLOAT, _reciprocal, cost=DIVISION)
_elementwise("floor", 1, FLOAT, np.floor)
_elementwise("ceil", 1, FLOAT, np.ceil)
_elementwise("round", 1, FLOAT, np.rint)  # half to even
_elementwise("trunc", 1, FLOAT, np.trunc)
_elementwise("not", 1, BITS, np.invert)

for _name in "exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh".split():
    _function(_name, getattr(np, _name))
for _name in "sin cos tan sinh cosh tanh".split():
    _function(f"a{_name}", getattr(np, f"arc{_name}"))
_function("rsqrt", lambda x: 1 / np.sqrt(x), cost=DIVISION)
_function("erf", _per_element(math.erf))

_elementwise("isnan", 1, FLOAT, np.isnan, result=BOOL)
_elementwise("isinf", 1, FLOAT, np.isinf, result=BOOL)


def _pow(x: Array, y: Array) -> Array:
    """Integers to a negative power are truncated towards zero: 0, but for bases 1 and -1.
    Zero to a negative power is 0, like a division by zero."""
    if x.dtype.kind != "i":
        return np.asarray(np.power(x, y))
    one = x.dtype.type(1)
    inverse = np.where(x == 1, one, np.where(x == -1, np.where(y % 2 == 0, one, -one), 0 * one))
    return np.where(y < 0, inverse, np.power(x, np.where(y < 0, 0 * one, y)))


_elementwise("add", 2, NUMBER, np.add)
_elementwise("sub", 2, NUMBER, np.subtract)
_elementwise("mul", 2, NUMBER, np.multiply)
_elementwise("div", 2, (Kind.FLOAT, Kind.COMPLEX), np.divide, cost=DIVISION)
_elementwise("floordiv", 2, REAL, np.floor_divide, cost=DIVISION)
_elementwise("mod", 2, REAL, np.mod, cost=DIVISION)  # the sign of the divisor
_elementwise("fmod", 2, REAL, np.fmod, cost=DIVISION)  # the sign of the dividend
_elementwise("maximum", 2, ORDERED, np.maximum, chooses=True)  # NaN if either is
_elementwise("minimum", 2, ORDERED, np.minimum, chooses=True)
_elementwise("and", 2, BITS, np.bitwise_and, chooses=True)
_elementwise("or", 2, BITS, np.bitwise_or, chooses=True)
_elementwise("xor", 2, BITS, np.bitwise_xor, chooses=True)
_elementwise("shift_left", 2, INTEGER, np.left_shift)
_elementwise("shift_right", 2, INTEGER, np.right_shift)
_function("atan2", np.arctan2, arity=2)


_elementwise("pow", 2, REAL, _pow, precise=True, cost=FUNCTION)

_elementwise("eq", 2, ANY, np.equal, result=BOOL)
_elementwise("ne", 2, ANY, np.not_equal, result=BOOL)
_elementwise("lt", 2, ORDERED, np.less, result=BOOL)
_elementwise("le", 2, ORDERED, np.less_equal, result=BOOL)
_elementwise("gt", 2, ORDERED, np.greater, result=BOOL)
_elementwise("ge", 2, ORDERED, np.greater_equal, result=BOOL)


def _infer_where(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    condition, a, b = inputs
    need_dtype("where", "the condition", condition, BOOL)
    _need_alike("where", (a, b))
    if condition.shape != a.shape:
        raise ShapeMismatch(
            f"where: the condition has shape {condition.shape}, the choices {a.shape}"
        )
    return a.shape, a.dtype


define(
    "where",
    "elementwise",
    (3, 3),
    _infer_where,
    lambda arrays, attrs, shape, dtype: np.where(arrays[0], arrays[1], arrays[2]),
    chooses=True,
)


def _infer_cast(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    need_kind("cast", inputs[0], ANY)
    if attrs["dtype"].kind not in ANY:
        raise TypeMismatch(f"cast makes numbers, not {attrs['dtype']}")
    return inputs[0].shape, attrs["dtype"]


def _cast_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return convert(arrays[0], held_dtype(arrays[0].dtype), dtype)


define("cast", "elementwise", (1, 1), _infer_cast, _cast_reference, {"dtype": DType})


def _infer_bitcast(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    target: DType = attrs["dtype"]
    if x.dtype.is_block or target.is_block or x.dtype.bits != target.bits:
        raise TypeMismatch(
            f"bitcast keeps the bits of an element: {x.type_text} has {x.dtype.bits}, "
            f"{target} {target.bits}"
        )
    return x.shape, target


def _bitcast_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return reinterpreted(arrays[0], held_dtype(arrays[0].dtype), dtype)


define("bitcast", "elementwise", (1, 1), _infer_bitcast, _bitcast_reference, {"dtype": DType})
