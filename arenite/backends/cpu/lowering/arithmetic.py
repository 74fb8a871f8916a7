"""What each unary and binary op of the loop IR does to values in registers.

In: an op name, operands of one dtype, scalar or vector. Out: the result. No instruction here can
trap and none becomes a library call.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.cpu.lowering.maths import FLOAT_FUNCTIONS
from arenite.backends.cpu.lowering.maths.exponential import scale, times_sigmoid
from arenite.backends.cpu.lowering.maths.inverse import atan2
from arenite.backends.cpu.lowering.maths.power import float_power, integer_power
from arenite.backends.cpu.lowering.maths.remainder import (
    exact_product,
    floor_divide,
    floor_mod,
    truncated_mod,
)
from arenite.backends.cpu.lowering.numeric import ceil, floor, maximum, minimum, round_even, trunc
from arenite.backends.cpu.lowering.vector import Vec
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind


def unary(op: str, x: Vec, dtype: DType) -> Vec:
    """An op of UNARY_OPS on a value of the dtype."""
    if dtype.kind is Kind.FLOAT:
        return _FLOAT_UNARY[op](x)
    match op:
        case "neg":
            return -x
        case "not":
            return ~x
        case "abs":
            return x.abs() if dtype.kind is Kind.SIGNED else x
        case "sign":
            positive = x.ne(0).convert("zext", x.type)
            return x.lt(0).select(-1, positive) if dtype.kind is Kind.SIGNED else positive
    raise AssertionError(f"{op} of {dtype}")


def binary(op: str, a: Vec, b: Vec, dtype: DType) -> Vec:
    """An op of BINARY_OPS on two values of the dtype."""
    is_signed = dtype.kind is Kind.SIGNED
    if op in ir.COMPARISONS:
        return a.compare(op, b, signed=is_signed)
    if dtype.kind is Kind.FLOAT:
        return _FLOAT_BINARY[op](a, b)
    if dtype.kind is Kind.BOOL and op in ("max", "min"):
        return a | b if op == "max" else a & b
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "and":
            return a & b
        case "or":
            return a | b
        case "xor":
            return a ^ b
        case "max" | "min":
            return a.builder.intrinsic(f"{'s' if is_signed else 'u'}{op}", a, b)
        case "shift_left":
            return b.compare("lt", a.type.bits, signed=False).select(a << b, 0)
        case "shift_right":
            inside = b.compare("lt", a.type.bits, signed=False)
            if is_signed:
                return a.shr(inside.select(b, a.type.bits - 1), signed=True)
            return inside.select(a.shr(b, signed=False), 0)
        case "mulhi":
            wide = a.type.of("i", 2 * a.type.bits)
            product = a.convert("zext", wide) * b.convert("zext", wide)
            return product.shr(a.type.bits, signed=False).convert("trunc", a.type)
        case "pow":
            return integer_power(a, b, is_signed)
        case "div" | "fmod" | "floordiv" | "mod":
            return _integer_division(op, a, b, is_signed)
    raise AssertionError(f"{op} of {dtype}")


def _sign(x: Vec) -> Vec:
    below = x.lt(0.0).select(x.builder.constant(-1.0, x.type), x.eq(0.0).select(0.0, x))
    return x.gt(0.0).select(1.0, below)


def _infinite(x: Vec) -> Vec:
    return x.abs().eq(float("inf"))


_FLOAT_UNARY: dict[str, Callable[[Vec], Vec]] = {
    **FLOAT_FUNCTIONS,
    "neg": Vec.__neg__,
    "abs": Vec.abs,
    "sign": _sign,
    "sqrt": Vec.sqrt,
    "rsqrt": lambda x: 1.0 / x.sqrt(),
    "reciprocal": lambda x: 1.0 / x,
    "floor": floor,
    "ceil": ceil,
    "round": round_even,
    "trunc": trunc,
    "isnan": Vec.is_nan,
    "isinf": _infinite,
}

_FLOAT_BINARY: dict[str, Callable[[Vec, Vec], Vec]] = {
    "add": Vec.__add__,
    "sub": Vec.__sub__,
    "mul": Vec.__mul__,
    "div": Vec.__truediv__,
    "max": maximum,
    "min": minimum,
    "fmod": truncated_mod,
    "mod": floor_mod,
    "floordiv": floor_divide,
    "pow": float_power,
    "atan2": atan2,
    "times_sigmoid": times_sigmoid,
    "copysign": Vec.with_sign_of,
    "ldexp": scale,
    "product_error": lambda a, b: exact_product(a, b)[1],
}


def _integer_division(op: str, a: Vec, b: Vec, is_signed: bool) -> Vec:
    divisor = _constant_divisor(b)
    is_floor = op in ("floordiv", "mod")
    is_power = divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0
    if divisor is not None and is_power and (is_floor or not is_signed):
        if op in ("mod", "fmod"):
            return a & (divisor - 1)
        return a.shr(divisor.bit_length() - 1, signed=is_signed)
    if divisor is not None and divisor not in (0, -1):
        quotient = a.divide(b, signed=is_signed)
    else:
        quotient = _quotient(a, b, is_signed)
    if op == "div" or (op == "floordiv" and not is_signed):
        return quotient
    rest = a - quotient * b
    if divisor is None or divisor == 0:
        rest = b.eq(0).select(0, rest)
    if not is_floor or not is_signed:
        return rest
    differs = rest.ne(0) & (rest ^ b).lt(0)
    if op == "mod":
        return differs.select(rest + b, rest)
    return differs.select(quotient - 1, quotient)


def _constant_divisor(b: Vec) -> int | None:
    """The value of a constant that is the same in all lanes, as LLVM's text has it."""
    number = b.text.removesuffix(")").split(" ")[-1]
    return int(number) if b.is_constant and number.lstrip("-").isdigit() else None


def _quotient(a: Vec, b: Vec, is_signed: bool) -> Vec:
    """Towards zero; 0 for a divisor of 0, and the least by -1 wraps to itself."""
    if a.type.lanes > 1 and a.type.bits <= 32:
        # Exact in a float of twice the width: the quotient is never within one rounding of the
        # next integer. Vector integer division would be done lane by lane.
        wide = a.type.of("f", 64 if a.type.bits == 32 else 32)
        op = "sitofp" if is_signed else "uitofp"
        safe = b.eq(0).select(1, b)
        ratio = a.convert(op, wide) / safe.convert(op, wide)
        whole = wide.of("i", wide.bits if a.type.bits == 32 and not is_signed else 32)
        quotient = ratio.convert("fptosi", whole)
        if is_signed and a.type.bits == 32:
            # The least by -1 does not fit; negate instead.
            quotient = b.eq(-1).select(-a, quotient)
        quotient = quotient.convert("trunc", a.type)
        return b.eq(0).select(0, quotient)
    unsafe = b.eq(0) | b.eq(-1) if is_signed else b.eq(0)
    quotient = a.divide(unsafe.select(1, b), signed=is_signed)
    if is_signed:
        quotient = b.eq(-1).select(-a, quotient)
    return b.eq(0).select(0, quotient)
