"""What formulas are written with: expressions of the loop IR that read like mathematics.

Plain numbers become constants of the dtype they meet. Comparisons and arithmetic are Python's own
operators; see `loop_ir.Expr`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.dtype import BY_NAME, DType
from arenite.dtype import FLOAT32 as FLOAT32
from arenite.dtype import FLOAT64 as FLOAT64


def integer(x: Expr, *, signed: bool = True) -> DType:
    """The integer dtype as wide as x."""
    return BY_NAME[f"{'int' if signed else 'uint'}{x.dtype.bits}"]


def constant(value: float, like: Expr) -> Expr:
    return ir.Const(value, like.dtype)


def _operand(value: Expr | float, like: Expr) -> Expr:
    return value if isinstance(value, Expr) else constant(value, like)


def select(cond: Expr, a: Expr | float, b: Expr | float) -> Expr:
    """`a` where the condition holds, else `b`; one of them is no plain number."""
    like = a if isinstance(a, Expr) else b
    assert isinstance(like, Expr)
    return ir.Select(cond, _operand(a, like), _operand(b, like))


def equal(a: Expr, b: Expr | float) -> Expr:
    return ir.Binary("eq", a, _operand(b, a))


def unequal(a: Expr, b: Expr | float) -> Expr:
    return ir.Binary("ne", a, _operand(b, a))


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    return ir.Fma(a, _operand(b, a), _operand(c, a))


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The constant term first; one fused multiply-add a term.

    Long ones are cut into interleaved ones in a power of x: a few operations more, but a chain of a
    half or a quarter of the length. Up to nine terms several vectors in flight hide the chain.
    """
    ways = 1 if len(coefficients) < 10 else 2 if len(coefficients) < 16 else 4
    powers = [x]
    while 2 ** len(powers) <= ways:
        powers.append(powers[-1] * powers[-1])
    parts = [_horner(powers[-1], coefficients[way::ways]) for way in range(ways)]
    for power in reversed(powers[:-1]):
        half = len(parts) // 2
        parts = [fma(parts[half + at], power, parts[at]) for at in range(half)]
    return parts[0]


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    total = constant(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def exact_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a * b as a sum of two floats."""
    return a * b, ir.Binary("product_error", a, b)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Floats into [low, high]; NaN stays."""
    above, below = constant(low, x), constant(high, x)
    x = ir.Select(above > x, above, x)
    return ir.Select(below < x, below, x)


def absolute(x: Expr) -> Expr:
    return ir.Unary("abs", x)


def is_nan(x: Expr) -> Expr:
    return ir.Unary("isnan", x)


def square_root(x: Expr) -> Expr:
    return ir.Unary("sqrt", x)


def nearest(x: Expr) -> Expr:
    """To the nearest whole number, halves to even."""
    return ir.Unary("round", x)


def floor(x: Expr) -> Expr:
    return ir.Unary("floor", x)


def with_sign_of(x: Expr, sign: Expr) -> Expr:
    return ir.Binary("copysign", x, sign)


def bits(x: Expr, *, signed: bool = True) -> Expr:
    return ir.Bitcast(x, integer(x, signed=signed))


def as_float(x: Expr) -> Expr:
    return ir.Bitcast(x, FLOAT32 if x.dtype.bits == 32 else FLOAT64)


def as_integer(x: Expr) -> Expr:
    """A whole float as an integer of its width; any integer where it does not fit."""
    return ir.Cast(x, integer(x), fits=True)
