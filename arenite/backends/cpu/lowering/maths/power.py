"""pow of floats and of integers.

float32 goes through float64: 2^(y log2|x|) with polynomials of about 2^-36 relative error, then one
rounding. float64 needs the logarithm to some 65 bits: it is computed as a sum of two floats,

    log(m) = 2 s + 2/3 s^3 + ..., s = (m - 1) / (m + 1)

with s and its first term in two parts, and multiplied by y without losing the lower part.
"""

from __future__ import annotations

from arenite.backends.cpu.lowering.maths.exponential import exp_sum
from arenite.backends.cpu.lowering.maths.logarithm import split
from arenite.backends.cpu.lowering.maths.remainder import exact_product
from arenite.backends.cpu.lowering.numeric import floor, fma, polynomial, round_even
from arenite.backends.cpu.lowering.vector import Vec

_LOG2_SINGLE = (
    1.4426950408865664,
    -0.7213475203270134,
    0.48089834880777177,
    -0.36067379326558097,
    0.28853879533025933,
    -0.24044642493047413,
    0.2061071292642141,
    -0.18043698831734764,
    0.16021682462242096,
    -0.1424958450009843,
    0.1302710430725139,
    -0.13463973719282063,
    0.1325407035421204,
    -0.06975496811456271,
)
_EXP2_SINGLE = (
    0.9999999999613787,
    0.6931471807297945,
    0.24022651201148845,
    0.05550410350370657,
    0.009618026848657866,
    0.0013333924020859796,
    0.00015469422023357048,
    1.5201819863165158e-05,
)

_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
#: 2/3, and with s^2 the rest of the series of 2 atanh(s) / s^3, minimax on |s| < 0.1716.
_TWO_THIRDS = 0.6666666666666666
_ATANH_REST = (
    0.39999999999999974,
    0.2857142857144705,
    0.22222222217067572,
    0.18181818927557408,
    0.15384552986019634,
    0.13336466090629143,
    0.11671816921211592,
    0.12013873432410398,
)
_THIRD_LOW = 3.700743415417188e-17


def float_power(x: Vec, y: Vec) -> Vec:
    """C's pow: any base to the power 0 is 1, 1 to any power is 1, NaN included."""
    magnitude = x.abs()
    result = (_single if x.type.bits == 32 else _double)(magnitude, y)
    infinity = float("inf")
    # 1 to the infinite: the product with a logarithm of 0 is NaN.
    result = (magnitude.eq(1.0) & y.abs().eq(infinity)).select(1.0, result)
    whole = floor(y)
    is_whole = whole.eq(y)
    half = y * 0.5
    is_odd = is_whole & floor(half).ne(half)
    is_negative = x.bits().lt(0)
    result = (is_negative & is_odd).select(-result, result)
    no_real = x.lt(0.0) & ~is_whole & magnitude.ne(infinity) & y.abs().ne(infinity)
    result = no_real.select(float("nan"), result)
    result = (x.is_nan() | y.is_nan()).select(float("nan"), result)
    return (x.eq(1.0) | y.eq(0.0)).select(1.0, result)


def _single(x: Vec, y: Vec) -> Vec:
    wide = x.type.of("f", 64)
    e, m = split(x)
    f = m.convert("fpext", wide) - 1.0
    log2 = fma(polynomial(f, _LOG2_SINGLE), f, e.convert("fpext", wide))
    infinity = float("inf")
    is_edge = x.eq(0.0) | x.eq(infinity)
    edge = x.eq(0.0).select(x.builder.constant(-infinity, wide), infinity)
    log2 = is_edge.select(edge, log2)
    t = (log2 * y.convert("fpext", wide)).clamp(-300.0, 300.0)
    n = round_even(t)
    p = polynomial(t - n, _EXP2_SINGLE)
    whole = n.to_int()
    scaled = (p.bits() + (whole << 52)).as_float()
    result = t.is_nan().select(t, scaled)
    return result.convert("fptrunc", x.type)


def _double(x: Vec, y: Vec) -> Vec:
    """Of a magnitude."""
    high, low = _log_sum(x)
    infinity = float("inf")
    product, error = exact_product(y, high)
    rest = fma(y, low, error)
    # Beyond the range of exp the lower part means nothing, and may be NaN.
    is_inside = product.abs().lt(800.0)
    rest = is_inside.select(rest, 0.0)
    is_edge = x.eq(0.0) | x.eq(infinity)
    edge = x.eq(0.0).select(x.builder.constant(-infinity, x.type), infinity)
    return exp_sum(is_edge.select(edge * y, product), is_edge.select(0.0, rest))


def _log_sum(x: Vec) -> tuple[Vec, Vec]:
    """log(x) as a sum of two floats, to about 2^-66 relative."""
    e, m = split(x)
    f = m - 1.0
    g = m + 1.0
    g_low = m - (g - 1.0)
    s = f / g
    # What the quotient and the sum below it lost.
    product, error = exact_product(s, g)
    s_low = ((f - product) - error - s * g_low) / g
    z = s * s
    z_product, z_error = exact_product(s, s)
    z_low = z_error + 2.0 * (s * s_low)
    cube, cube_error = exact_product(s, z_product)
    cube_low = cube_error + s * z_low + s_low * z_product
    # 2 s + 2/3 s^3 + s^5 R(s^2); the second term in two parts as well.
    term, term_error = exact_product(cube, x.builder.constant(_TWO_THIRDS, x.type))
    term_low = term_error + cube * _THIRD_LOW + cube_low * _TWO_THIRDS
    tail = cube * z * polynomial(z, _ATANH_REST)
    twice = s * 2.0
    total = twice + term
    total_low = (twice - total) + term
    low = total_low + (s_low * 2.0 + term_low + tail)
    # e ln2 on top.
    base = e * _LN2_HIGH
    high = base + total
    is_base_greater = e.ne(0.0)
    high_low = is_base_greater.select((base - high) + total, total - high)
    low = low + high_low + e * _LN2_LOW
    result = high + low
    return result, (high - result) + low


def integer_power(x: Vec, y: Vec, is_signed: bool) -> Vec:
    """By squaring, wrapping; a negative exponent gives 0 unless the base is 1 or -1."""
    b = x.builder
    one = b.constant(1, x.type)
    front, head, after = b.block, b.new_block("square"), b.new_block("power")
    front.end = f"br label %{head.name}"
    b.block = head
    left, base, result = (Vec(b, b.new_name(), x.type) for _ in range(3))
    odd = (left & 1).ne(0)
    next_result = odd.select(result * base, result)
    next_base = base * base
    next_left = left.shr(1, signed=False)
    again = b.any(next_left.ne(0))
    head.end = f"br i1 {again.text}, label %{head.name}, label %{after.name}"
    for value, start, following in (
        (left, y, next_left),
        (base, x, next_base),
        (result, one, next_result),
    ):
        b.set_phi(head, value.text, [(start, front), (following, head)])
    b.block = after
    if not is_signed:
        return next_result
    is_odd = (y & 1).ne(0)
    negative_one = is_odd.select(b.constant(-1, x.type), 1)
    inverse = x.eq(-1).select(negative_one, x.eq(1).select(one, 0))
    return y.lt(0).select(inverse, next_result)
