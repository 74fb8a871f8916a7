"""Dtypes by name, what they hold, and which dtype several give: the array API's functions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from arenite.dtype import BOOL, BY_NAME, INT64, DType, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, TypeMismatch
from arenite.ir.element import limits, numpy_dtype
from arenite.tensor.base import DTypeLike
from arenite.tensor.promote import promoted, with_number
from arenite.tensor.tensor import Tensor

bool = BOOL  # noqa: A001
int8, int16, int32, int64 = (BY_NAME[f"int{bits}"] for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (BY_NAME[f"uint{bits}"] for bits in (8, 16, 32, 64))
float16, float32, float64 = (BY_NAME[f"float{bits}"] for bits in (16, 32, 64))
bfloat16 = BY_NAME["bfloat16"]
complex64, complex128 = BY_NAME["complex64"], BY_NAME["complex128"]

Truth: TypeAlias = builtins.bool

#: The dtypes of the array API, by kind; `kinds_of` tells what else counts as one.
_KINDS = {
    "bool": (Kind.BOOL,),
    "signed integer": (Kind.SIGNED,),
    "unsigned integer": (Kind.UNSIGNED,),
    "integral": (Kind.SIGNED, Kind.UNSIGNED),
    "real floating": (Kind.FLOAT,),
    "complex floating": (Kind.COMPLEX,),
    "numeric": (Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX),
}


@dataclass(frozen=True)
class FloatLimits:
    """What a float dtype holds; of a complex one, its parts."""

    bits: int  # of one number
    eps: float  # from 1 to the next larger number
    max: float  # the largest number
    min: float  # the least number, which is negative
    smallest_normal: float  # the smallest positive number with all digits
    dtype: DType  # of one number


@dataclass(frozen=True)
class IntegerLimits:
    """What an integer dtype holds."""

    bits: int  # of one number
    max: int  # the largest number
    min: int  # the least number
    dtype: DType  # of one number


def finfo(type: DTypeLike | Tensor, /) -> FloatLimits:  # noqa: A002
    """The limits of a float dtype, or of a tensor's; of complex numbers those of their parts."""
    dtype = _dtype_of(type)
    if dtype.kind is Kind.COMPLEX:
        dtype = BY_NAME[f"float{dtype.bits // 2}"]
    if dtype.kind is not Kind.FLOAT:
        raise TypeMismatch(f"finfo is of floats, not of {dtype}; iinfo is of integers")
    held = numpy_dtype(dtype)
    if dtype.name.startswith("float") and dtype.bits >= 16:
        found: Any = np.finfo(held)
    else:
        import ml_dtypes

        found = ml_dtypes.finfo(held)  # type: ignore[no-untyped-call]
    return FloatLimits(
        bits=dtype.bits,
        eps=float(found.eps),
        max=float(found.max),
        min=float(found.min),
        smallest_normal=float(found.smallest_normal),
        dtype=dtype,
    )


def iinfo(type: DTypeLike | Tensor, /) -> IntegerLimits:  # noqa: A002
    """The limits of an integer dtype, or of a tensor's."""
    dtype = _dtype_of(type)
    if dtype.kind not in _KINDS["integral"]:
        raise TypeMismatch(f"iinfo is of integers, not of {dtype}; finfo is of floats")
    low, high = limits(dtype)
    return IntegerLimits(dtype.bits, int(high), int(low), dtype)


def _dtype_of(given: DTypeLike | Tensor) -> DType:
    return given.dtype if isinstance(given, Tensor) else dtype_of(given)


def isdtype(dtype: DTypeLike, kind: DTypeLike | Sequence[DTypeLike]) -> Truth:
    """Whether a dtype is another one, or of a kind: "bool", "signed integer", "unsigned integer",
    "integral", "real floating", "complex floating", "numeric"; or one of several.

    isdtype(x.dtype, ("integral", "bool"))
    """
    if isinstance(kind, tuple | list):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return dtype_of(dtype).kind in _KINDS[kind]
    try:
        return dtype_of(dtype) == dtype_of(kind)  # type: ignore[arg-type]
    except InvalidArgument:
        known = ", ".join(map(repr, _KINDS))
        raise InvalidArgument(
            f"isdtype: {kind!r} is neither a dtype nor a kind; kinds are {known}"
        ) from None


def kinds_of(kind: str | Sequence[str] | None) -> dict[str, DType]:
    """The array API's dtypes of a kind, of several, or all, by name."""
    integers = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
    standard = (bool, *integers, float32, float64, complex64, complex128)
    wanted = tuple(_KINDS) if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
    unknown = [one for one in wanted if one not in _KINDS]
    if unknown:
        raise InvalidArgument(f"there is no kind {unknown[0]!r}; kinds are {', '.join(_KINDS)}")
    return {dtype.name: dtype for dtype in standard if isdtype(dtype, wanted)}


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, arrays, dtypes and Python numbers give together: the smallest one
    that holds all; numbers raise the kind, never the width."""
    if not arrays_and_dtypes:
        raise InvalidArgument("result_type: at least one array, dtype or number is needed")
    is_number = [type(one) in (builtins.bool, int, float, complex) for one in arrays_and_dtypes]
    pairs = list(zip(arrays_and_dtypes, is_number, strict=True))
    dtypes = [_strong_dtype(one) for one, number in pairs if not number]
    numbers = [one for one, number in pairs if number]
    if not dtypes:
        dtypes = [bool if type(numbers[0]) is builtins.bool else INT64]
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = promoted(result, dtype)
    for number in numbers:
        result = with_number(result, number)
    return result


def _strong_dtype(given: Any) -> DType:
    has_dtype = isinstance(given, Tensor | np.ndarray | np.generic)
    return dtype_of(given.dtype if has_dtype else given)


def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> Truth:
    """Whether a dtype, or a tensor's, becomes another one by promotion: `to` holds it, too.

    can_cast("int16", "int32")
    """
    source, target = _dtype_of(from_), dtype_of(to)
    try:
        return promoted(source, target) == target
    except TypeMismatch:
        return False


def astype(x: Any, dtype: DTypeLike, /, *, copy: Truth = True, device: str | None = None) -> Tensor:
    """Cast; see arenite.ir.element for how each pair of types rounds. Tensors never change, so
    `copy` makes no difference."""
    return Tensor(x).astype(dtype, copy=copy).to_device(device or "cpu")
