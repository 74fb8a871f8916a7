"""log, log2 and log1p of float32 and float64.

    x = 2^e m, m in [sqrt(1/2), sqrt(2)), f = m - 1
    log(x) = e ln2 + (f - f^2/2 + f^3 P(f))

P is a minimax polynomial. Denormals are scaled up first. log1p keeps what 1 + x rounds away.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.cpu.lowering.numeric import fma, polynomial
from arenite.backends.cpu.lowering.vector import Vec

#: log2(e) - 1: the product with log2(e) is exact enough when 1 is added separately.
LOG2_E_LESS_1 = 0.4426950408889634


@dataclass(frozen=True, slots=True)
class _Constants:
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
        0.3333333134651184,
        -0.2500082552433014,
        0.20001265406608582,
        -0.1662321835756302,
        0.14200729131698608,
        -0.1316053718328476,
        0.12769536674022675,
        -0.07643899321556091,
    ),
)
_DOUBLE = _Constants(
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    mantissa=52,
    bias=1023,
    least_normal=2.0**-1022,
    root_half_bits=0x3FE6A09E667F3BCD,
    log=(
        0.3333333333333314,
        -0.24999999999987904,
        0.20000000000066875,
        -0.1666666666984259,
        0.14285714280080702,
        -0.1249999969002692,
        0.11111111146626276,
        -0.10000015265194687,
        0.09090924020713888,
        -0.08332912221741694,
        0.07691526807596338,
        -0.07149455105415446,
        0.06684638286987303,
        -0.06196599430433093,
        0.05667986585470393,
        -0.05677733512463824,
        0.06504676092693894,
        -0.059830852727746665,
        0.026154060985242172,
    ),
)


def _constants(x: Vec) -> _Constants:
    return _SINGLE if x.type.bits == 32 else _DOUBLE


def log(x: Vec) -> Vec:
    c = _constants(x)
    e, m = split(x)
    return _special(x, _log(e, m - 1.0, c))


def log2(x: Vec) -> Vec:
    c = _constants(x)
    e, m = split(x)
    f = m - 1.0
    z = f * f
    y = fma(z, -0.5, polynomial(f, c.log) * (f * z))
    # log2(m) = (f + y) log2(e), the greatest summand last.
    low = fma(f, LOG2_E_LESS_1, y * LOG2_E_LESS_1)
    return _special(x, ((low + y) + f) + e)


def log1p(x: Vec) -> Vec:
    c = _constants(x)
    u = x + 1.0
    back = u - 1.0
    lost = (1.0 - (u - back)) + (x - back)
    e, m = split(u)
    # What was lost, in the scale of m; for the greatest u, where it does not matter, 0.
    shift = c.bias - e.to_int()
    f = (m - 1.0) + lost * (shift << c.mantissa).as_float()
    f = x.gt(2.0 ** (c.bias - 1)).select(m - 1.0, f)
    result = _special(u, _log(e, f, c))
    return x.eq(0.0).select(x, result)


def split(x: Vec) -> tuple[Vec, Vec]:
    """Exponent, as a float, and m in [sqrt(1/2), sqrt(2)), of positive finite numbers."""
    c = _constants(x)
    is_small = x.lt(c.least_normal)
    bits = is_small.select(x * 2.0**c.mantissa, x).bits()
    exponent = (bits - c.root_half_bits).shr(c.mantissa, signed=True)
    m = (bits - (exponent << c.mantissa)).as_float()
    e = exponent.convert("sitofp", x.type)
    return is_small.select(e - float(c.mantissa), e), m


def _log(e: Vec, f: Vec, c: _Constants) -> Vec:
    z = f * f
    y = polynomial(f, c.log) * (f * z)
    y = fma(z, -0.5, fma(e, c.ln2_low, y))
    return fma(e, c.ln2_high, f + y)


def _special(x: Vec, result: Vec) -> Vec:
    """-inf at 0, NaN below, infinity and NaN as they are."""
    infinity = float("inf")
    below = x.lt(0.0).select(float("nan"), x)
    outside = x.eq(0.0).select(-infinity, below)
    return (x.gt(0.0) & x.lt(infinity)).select(result, outside)
