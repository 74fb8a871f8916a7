"""Elements narrower than a byte, taken apart and put together.

    unpack(x)                    uint8: the bits of each element, at the low end of a byte
    pack(codes; dtype)           elements of `dtype` from the low bits of each byte

Memory has such elements side by side, low bits first; the bits behind the last one are zero.
"""

from __future__ import annotations

from arenite.dtype import DType, uint8
from arenite.errors import TypeMismatch
from arenite.ir.node import Node, typed
from arenite.ir.ops.define import (
    Array,
    Attrs,
    Inferred,
    OpDef,
    define,
    is_dtype,
    need_dtype,
)
from arenite.ir.ops.element import bits_of, held_dtype, reinterpreted


def _need_narrow(op: str, dtype: DType, what: str) -> None:
    if dtype.bits not in (1, 2, 4):
        raise TypeMismatch(f"{op}: {what} has no whole number of elements in a byte")


def _infer_unpack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    _need_narrow("unpack", x.dtype, typed(x.shape, x.dtype))
    return x.shape, uint8


def _unpack_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    return bits_of(arrays[0], held_dtype(arrays[0].dtype)).reshape(shape)


define(OpDef("unpack", "packing", (1, 1), _infer_unpack, _unpack_reference))


def _infer_pack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (codes,) = inputs
    need_dtype("pack", "codes", codes, uint8)
    _need_narrow("pack", attrs["dtype"], str(attrs["dtype"]))
    return codes.shape, attrs["dtype"]


def _pack_reference(
    arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType
) -> Array:
    return reinterpreted(arrays[0], dtype, dtype)


define(OpDef("pack", "packing", (1, 1), _infer_pack, _pack_reference, {"dtype": is_dtype}))
