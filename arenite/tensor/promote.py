"""Which dtype a result has: NumPy 2's rules, with ml_dtypes' for the types NumPy lacks.

Arrays and tensors count with their dtype, 0-dimensional ones too. Python's int, float and complex
are weak: they raise the kind, never the width, and so are sizes, and what a loop carries that began
as a Python number. A Python bool counts as a bool.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias
from weakref import WeakSet

import numpy as np

from arenite.dtype import BY_NAME, FLOAT16, FLOAT64, DType, Kind
from arenite.errors import TypeMismatch
from arenite.ir import Expr, Node
from arenite.ir import size as size_node
from arenite.ir.compose.basic import Operand, cast
from arenite.ir.element import limits, numpy_dtype

Kinds: TypeAlias = tuple[Kind, ...]

BOOL, INT8, INT64, UINT64 = (BY_NAME[name] for name in ("bool", "int8", "int64", "uint64"))
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


#: Nodes that count as Python numbers of their kind: what a loop carries that began as one.
_weak: WeakSet[Node] = WeakSet()
_NUMBERS: dict[Kind, complex] = {
    Kind.BOOL: False,
    Kind.SIGNED: 1,
    Kind.UNSIGNED: 1,
    Kind.FLOAT: 1.0,
    Kind.COMPLEX: 1j,
}


def mark_weak(node: Node) -> Node:
    """The node, which counts as a Python number from now on."""
    _weak.add(node)
    return node


def is_weak(operand: object) -> bool:
    """Whether an operand is a number, or counts as one."""
    return not isinstance(operand, Node) or operand in _weak


def number_like(operand: Operand) -> complex:
    """A Python number of the kind that an operand is of; the operand, where it is one."""
    return _NUMBERS[operand.dtype.kind] if isinstance(operand, Node) else operand


def weak_result(node: Node, operands: Sequence[Operand | Expr]) -> Node:
    """The node, which counts as a Python number where all it is made of do. What is made of numbers
    alone may be another's node too, and is left as it is."""
    weak = [operand for operand in operands if is_weak(operand)]
    has_nodes = any(isinstance(operand, Node) for operand in weak)
    return mark_weak(node) if has_nodes and len(weak) == len(operands) else node


def common_dtype(operands: Sequence[Operand | Expr]) -> DType:
    """Of nodes, numbers and sizes together; at least one is a node."""
    nodes = [operand for operand in operands if isinstance(operand, Node)]
    strong = [node for node in nodes if node not in _weak] or nodes
    dtype = strong[0].dtype
    for other in strong[1:]:
        dtype = promoted(dtype, other.dtype)
    for operand in operands:
        if isinstance(operand, Expr):
            dtype = with_number(dtype, 1)
        elif not isinstance(operand, Node) or operand not in strong:
            dtype = with_number(dtype, number_like(operand))
    return dtype


def cast_all(operands: Sequence[Operand | Expr], dtype: DType) -> list[Operand]:
    """Nodes and sizes as `dtype`; numbers stay, an integer that does not fit is an error as in
    NumPy."""
    for operand in operands:
        if type(operand) is int and dtype.kind in INTEGERS:
            low, high = limits(dtype)
            if not low <= operand <= high:
                raise OverflowError(f"Python integer {operand} is out of bounds for {dtype}")
    nodes = [size_node(x, INT64) if isinstance(x, Expr) else x for x in operands]
    return [cast(x, dtype) if isinstance(x, Node) else x for x in nodes]


def float_dtype(dtype: DType) -> DType:
    """What exp, sin and their like compute in: integers become the smallest float that NumPy
    deems wide enough."""
    if dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
        return dtype
    if dtype.bits <= 8:
        return FLOAT16
    return BY_NAME["float32" if dtype.bits == 16 else "float64"]


def float_common(operands: Sequence[Operand | Expr]) -> DType:
    """What a float function of several operands computes in: each becomes a float first."""
    nodes = [operand for operand in operands if isinstance(operand, Node)]
    strong = [float_dtype(node.dtype) for node in nodes if node not in _weak]
    strong = strong or [float_dtype(node.dtype) for node in nodes]
    dtype = strong[0]
    for other in strong[1:]:
        dtype = promoted(dtype, other)
    return dtype


def sum_dtype(dtype: DType) -> DType:
    """What sum, prod and their running forms accumulate integers in."""
    if dtype.kind is Kind.UNSIGNED and dtype.bits <= 64:
        return UINT64
    return INT64 if dtype.kind in (Kind.BOOL, Kind.SIGNED) else dtype
