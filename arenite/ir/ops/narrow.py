"""Elements narrower than a byte, taken apart and put together.

    unpack(x)                    one element a byte, in the type that holds them
    pack(x; dtype)               elements of `dtype`, from values of it that are held one a byte

Memory has such elements side by side, low bits first; the bits behind the last one are zero. Of
held integers the low bits count; a held float is one of the narrow type.
"""

from __future__ import annotations

from arenite.dtype import BY_NAME, DType
from arenite.errors import TypeMismatch
from arenite.ir.element import convert, held_dtype
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

#: What elements of a narrow type are held in, one a byte: a type that has all of its values.
HELD = {
    BY_NAME[narrow]: BY_NAME[held]
    for narrow, held in {
        "int4": "int8",
        "int2": "int8",
        "uint4": "uint8",
        "uint2": "uint8",
        "float4_e2m1fn": "float8_e4m3fn",
    }.items()
}


def _need_narrow(op: str, dtype: DType, what: str) -> None:
    if dtype not in HELD:
        raise TypeMismatch(f"{op} is for {', '.join(map(str, HELD))}, not for {what}")


def _infer_unpack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    _need_narrow("unpack", x.dtype, typed(x.shape, x.dtype))
    return x.shape, HELD[x.dtype]


def _converted(arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType) -> Array:
    return convert(arrays[0], held_dtype(arrays[0].dtype), dtype)


define(OpDef("unpack", "packing", (1, 1), _infer_unpack, _converted))


def _infer_pack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    dtype: DType = attrs["dtype"]
    _need_narrow("pack", dtype, str(dtype))
    need_dtype("pack", f"what holds {dtype}", x, HELD[dtype])
    return x.shape, dtype


define(OpDef("pack", "packing", (1, 1), _infer_pack, _converted, {"dtype": is_dtype}))
