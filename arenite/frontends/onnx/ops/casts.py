"""Operators that change the type of elements: Cast, CastLike, BitCast."""

from __future__ import annotations

from arenite.dtype import BOOL, BY_NAME, FLOAT32, INT32, UINT8, UINT32, DType, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.strings import cast_from_string, cast_to_string
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.types import STRING
from arenite.ir import Node, full, make
from arenite.ir.compose import basic, neural
from arenite.ir.compose.basic import binary, where
from arenite.ir.ops.define import INTEGER

POWERS = BY_NAME["float8_e8m0fnu"]
#: Types whose casts keep within their range where `saturate` says so, and their greatest numbers.
SATURATING = {
    BY_NAME["float8_e4m3fn"]: 448.0,
    BY_NAME["float8_e4m3fnuz"]: 240.0,
    BY_NAME["float8_e5m2"]: 57344.0,
    BY_NAME["float8_e5m2fnuz"]: 57344.0,
}


@operator("Cast", since=6)
def cast_to(call: Call) -> Result:
    return _cast(call, call.dtype_attr("to"), call.need_attr("to") == STRING)


@operator("CastLike", since=15)
def cast_like(call: Call) -> Result:
    target = call.value(1)
    return _cast(call, target.dtype, target.is_string)


def _cast(call: Call, dtype: DType, to_string: bool) -> Result:
    given = call.value(0)
    if given.is_string:
        return given if to_string else cast_from_string(call, given, dtype)
    if to_string:
        return cast_to_string(call, given)
    saturate = bool(call.attr("saturate", 1))
    if dtype == POWERS:
        return power_of_two(call, given.node, saturate, call.attr("round_mode", "up"))
    return numbers(given.node, dtype, saturate)


def numbers(x: Node, dtype: DType, saturate: bool = True) -> Node:
    """A cast between numbers; to a float8 it keeps within the finite ones with `saturate`, and
    integers narrower than a byte are the low bits of whole numbers."""
    if x.dtype.kind is Kind.FLOAT and dtype.kind in INTEGER and dtype.bits < 8:
        x = basic.cast(x, INT32)
    if x.dtype == dtype or dtype not in SATURATING or not saturate:
        return basic.cast(x, dtype)
    wide = x
    if x.dtype.kind is not Kind.FLOAT or x.dtype.bits < 16:
        wide = basic.cast(x, FLOAT32)  # has every number within the range of a float8
    greatest = SATURATING[dtype]
    return basic.cast(neural.clip(wide, -greatest, greatest), dtype)


def power_of_two(call: Call, x: Node, saturate: bool, mode: str) -> Node:
    """Of a number the power of two next to it, as its exponent; infinity is no number."""
    if mode not in ("up", "down", "nearest"):
        call.fail(f"round_mode is 'up', 'down' or 'nearest', not {mode!r}")
    bits = make("bitcast", basic.cast(x, FLOAT32), dtype=UINT32)
    exponent = bits >> 23 & 0xFF
    fraction = bits & 0x7FFFFF
    if mode == "up":
        rises = fraction > 0
    elif mode == "nearest":
        # Halfway up; among what has no leading one only what is more than halfway.
        is_normal = exponent > 0
        more = fraction > 0x400000
        rises = where(is_normal, fraction >= 0x400000, more)
    else:
        rises = full(bits.shape, False, BOOL)
    last = 0xFE if saturate else 0xFF
    risen = binary("minimum", exponent + basic.cast(rises, UINT32), last)
    code = where(binary("eq", exponent, 0xFF), exponent, risen)
    return make("bitcast", basic.cast(code, UINT8), dtype=POWERS)


@operator("BitCast", since=26)
def bit_cast(call: Call) -> Result:
    dtype = call.dtype_attr("to")
    given = call.value(0)
    if given.is_string or call.need_attr("to") == STRING:
        call.fail("strings have no bits to keep")
    if given.dtype.bits != dtype.bits:
        call.fail(f"{given.dtype} has {given.dtype.bits} bits, and {dtype} {dtype.bits}")
    node = given.node
    if given.dtype == BOOL:
        node = basic.cast(node, UINT8)
    if dtype == BOOL:
        return binary("ne", make("bitcast", node, dtype=UINT8), 0)
    return node if node.dtype == dtype else make("bitcast", node, dtype=dtype)
