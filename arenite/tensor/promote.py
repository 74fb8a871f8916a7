"""Which dtype a result has: NumPy 2's rules, with ml_dtypes' for the types NumPy lacks.

Arrays and tensors count with their dtype, 0-dimensional ones too. Python's int, float and complex
are weak: they raise the kind, never the width. A Python bool counts as a bool.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np

from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import TypeMismatch
from arenite.ir.compose.basic import Operand, cast
from arenite.ir.element import limits, numpy_dtype
from arenite.ir.node import Node

Kinds: TypeAlias = tuple[Kind, ...]

BOOL, INT8, INT64, UINT64 = (BY_NAME[name] for name in ("bool", "int8", "int64", "uint64"))
FLOAT64 = BY_NAME["float64"]
INTEGERS = (Kind.SIGNED, Kind.UNSIGNED)


@cache
def promoted(a: DType, b: DType) -> DType:
    """The smallest dtype that holds both."""
    if a == b:
        return a
    if a.is_block or b.is_block:
        raise TypeMismatch(f"{a} and {b} have no common dtype; convert the block-quantised one")
    try:
        common = np.promote_types(numpy_dtype(a), numpy_dtype(b))
    except TypeError:
        raise TypeMismatch(f"{a} and {b} have no common dtype; cast one with astype") from None
    return BY_NAME[common.name]


def with_number(dtype: DType, number: complex) -> DType:
    """The dtype of `dtype` combined with a Python number."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return INT64 if dtype == BOOL else dtype
    if isinstance(number, float):
        return dtype if dtype.kind in (Kind.FLOAT, Kind.COMPLEX) else FLOAT64
    if dtype.kind is Kind.COMPLEX:
        return dtype
    wide = dtype.kind is not Kind.FLOAT or dtype == FLOAT64
    return BY_NAME["complex128" if wide else "complex64"]


def common_dtype(operands: list[Operand]) -> DType:
    """Of nodes and numbers together; at least one is a node."""
    nodes = [operand.dtype for operand in operands if isinstance(operand, Node)]
    dtype = nodes[0]
    for other in nodes[1:]:
        dtype = promoted(dtype, other)
    for operand in operands:
        if not isinstance(operand, Node):
            dtype = with_number(dtype, operand)
    return dtype


def cast_all(operands: list[Operand], dtype: DType) -> list[Operand]:
    """Nodes as `dtype`; numbers stay, an integer that does not fit is an error as in NumPy."""
    for operand in operands:
        if type(operand) is int and dtype.kind in INTEGERS:
            low, high = limits(dtype)
            if not low <= operand <= high:
                raise OverflowError(f"Python integer {operand} is out of bounds for {dtype}")
    return [cast(x, dtype) if isinstance(x, Node) else x for x in operands]


def float_dtype(dtype: DType) -> DType:
    """What exp, sin and their like compute in: integers become the smallest float that NumPy
    deems wide enough."""
    if dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
        return dtype
    if dtype.bits <= 8:
        return BY_NAME["float16"]
    return BY_NAME["float32" if dtype.bits == 16 else "float64"]


def float_common(operands: list[Operand]) -> DType:
    """What a float function of several operands computes in: each becomes a float first."""
    nodes = [float_dtype(operand.dtype) for operand in operands if isinstance(operand, Node)]
    dtype = nodes[0]
    for other in nodes[1:]:
        dtype = promoted(dtype, other)
    return dtype


def sum_dtype(dtype: DType) -> DType:
    """What sum, prod and their running forms accumulate integers in."""
    if dtype.kind is Kind.UNSIGNED and dtype.bits <= 64:
        return UINT64
    return INT64 if dtype.kind in (Kind.BOOL, Kind.SIGNED) else dtype
