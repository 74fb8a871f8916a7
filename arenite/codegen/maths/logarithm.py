"""log, log2 and log1p of float32 and float64.

    x = 2^e m, m in [sqrt(1/2), sqrt(2)), f = m - 1
    log(x) = e ln2 + (f - f^2/2 + f^3 P(f))

P is a minimax polynomial. Denormals are scaled up first. log1p keeps what 1 + x rounds away.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx

#: log2(e) - 1: the product with log2(e) is exact enough when 1 is added separately.
LOG2_E_LESS_1 = 0.4426950408889634


class _Constants(NamedTuple):
    ln2_high: float
    ln2_low: float
    mantissa: int
    bias: int
    least_normal: float
    root_half_bits: int  # sqrt(1/2)
    log: tuple[float, ...]


_SINGLE = _Constants(
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    mantissa=23,
    bias=127,
    least_normal=2.0**-126,
    root_half_bits=0x3F3504F3,
    log=(
        0.3333333134651184, -0.2500082552433014, 0.20001265406608582, -0.1662321835756302,
        0.14200729131698608, -0.1316053718328476, 0.12769536674022675, -0.07643899321556091,
    ),
)  # fmt: skip
_DOUBLE = _Constants(
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    mantissa=52,
    bias=1023,
    least_normal=2.0**-1022,
    root_half_bits=0x3FE6A09E667F3BCD,
    log=(
        0.3333333333333314, -0.24999999999987904, 0.20000000000066875, -0.1666666666984259,
        0.14285714280080702, -0.1249999969002692, 0.11111111146626276, -0.10000015265194687,
        0.09090924020713888, -0.08332912221741694, 0.07691526807596338, -0.07149455105415446,
        0.06684638286987303, -0.06196599430433093, 0.05667986585470393, -0.05677733512463824,
        0.06504676092693894, -0.059830852727746665, 0.026154060985242172,
    ),
)  # fmt: skip


def _constants(x: Expr) -> _Constants:
    return _SINGLE if x.dtype.bits == 32 else _DOUBLE


def log(x: Expr) -> Expr:
    e, m = split(x)
    return _special(x, _log(e, m - 1.0))


def log2(x: Expr) -> Expr:
    e, m = split(x)
    f = m - 1.0
    z = f * f
    y = fx.fma(z, -0.5, fx.polynomial(f, _constants(x).log) * (f * z))
    # log2(m) = (f + y) log2(e), the greatest summand last.
    low = fx.fma(f, LOG2_E_LESS_1, y * LOG2_E_LESS_1)
    return _special(x, ((low + y) + f) + e)


def log1p(x: Expr) -> Expr:
    c = _constants(x)
    u = x + 1.0
    back = u - 1.0
    lost = (1.0 - (u - back)) + (x - back)
    e, m = split(u)
    # What was lost, in the scale of m; for the greatest u, where it does not matter, 0.
    shift = c.bias - fx.as_integer(e)
    f = (m - 1.0) + lost * fx.as_float(shift << c.mantissa)
    f = fx.select(x > 2.0 ** (c.bias - 1), m - 1.0, f)
    return fx.select(fx.equal(x, 0.0), x, _special(u, _log(e, f)))


def split(x: Expr) -> tuple[Expr, Expr]:
    """Exponent, as a float, and m in [sqrt(1/2), sqrt(2)), of positive finite numbers."""
    c = _constants(x)
    is_small = x < c.least_normal
    word = fx.bits(fx.select(is_small, x * 2.0**c.mantissa, x))
    exponent = (word - c.root_half_bits) >> c.mantissa
    m = fx.as_float(word - (exponent << c.mantissa))
    e = ir.Cast(exponent, x.dtype)
    return fx.select(is_small, e - float(c.mantissa), e), m


def _log(e: Expr, f: Expr) -> Expr:
    c = _constants(f)
    z = f * f
    y = fx.polynomial(f, c.log) * (f * z)
    y = fx.fma(z, -0.5, fx.fma(e, c.ln2_low, y))
    return fx.fma(e, c.ln2_high, f + y)


def _special(x: Expr, result: Expr) -> Expr:
    """-inf at 0, NaN below, infinity and NaN as they are."""
    below = fx.select(x < 0.0, nan, x)
    outside = fx.select(fx.equal(x, 0.0), -inf, below)
    return fx.select((x > 0.0) & (x < inf), result, outside)
