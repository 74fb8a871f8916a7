"""erf and 1 + erf of float32 and float64.

Near 0: x + x P(x^2). Beyond 1.125, float32: 1 - R(x)^4, with R a polynomial for the fourth root of
erfc, which is almost a straight line. Beyond 1, float64: 1 - exp(-x^2) T(x), with T a polynomial
for exp(x^2) erfc(x). Beyond 3.92 (5.9) it is 1.

1 + erf(x), float32: R(|x|)^4 below 0, 2 - R(x)^4 above, one polynomial for all x. Near 0 erf needs
to be exact relative to its own size; added to 1 it does not, which saves a third of the work. Below
-2.25, where little is left of the 1, it is exp(-x^2) T(1/|x|): so rare that it is branched over.

gelu(x) = x/2 (1 + erf(x sqrt(1/2))), float32: max(x, 0) - |x|/2 R(|x|)^4, with R the fourth root of
erfc(|x| sqrt(1/2)). Neither sign nor scale cost an instruction, so it is cheaper than its parts.
"""

from __future__ import annotations

import math

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths import formula as fx
from arenite.codegen.maths.exponential import exp_sum

_SMALL_SINGLE = (
    0.12837916612625122, -0.3761260211467743, 0.11283256113529205, -0.02683922089636326,
    0.005160253029316664, -0.0007765729678794742, 7.063264638418332e-05,
)  # fmt: skip
_SMALL_DOUBLE = (
    0.12837916709551256, -0.37612638903183343, 0.11283791670936949, -0.026866170641958648,
    0.0052239775967294864, -0.0008548325484582094, 0.0001205528048103558,
    -1.4924465288031216e-05, 1.6444145655765087e-06, -1.6183949764637659e-07,
    1.3616506529422654e-08, -7.607431757686828e-10,
)  # fmt: skip
#: The fourth root of erfc(t + 2.5), and exp(x^2) erfc(x) at x = t + 3.5.
_ERFC_ROOT_SINGLE = (
    0.14203262329101562, -0.1900612860918045, 0.09363431483507156, -0.012316749431192875,
    -0.006501446478068829, 0.0027409554459154606, 9.31617760215886e-05, -0.00017946558364201337,
)  # fmt: skip
_SCALED_ERFC_DOUBLE = (
    0.15529365560917088, -0.04132357782747914, 0.010661133208335748, -0.0026730745276120796,
    0.0006526858249878742, -0.00015546956632227704, 3.618272581814923e-05,
    -8.234033281506392e-06, 1.840959052060643e-06, -4.0331854886166704e-07,
    7.956705872227708e-08, -2.3718498460271755e-08, 3.4280910185229647e-09,
    2.1353554701538658e-09, 2.5707962672460585e-09, 6.716887190928099e-10,
    -1.9210318454340244e-10, -2.6440748800579235e-10, -1.1270607979199931e-10,
    -2.688623011600916e-11, -3.5638619496523366e-12, -2.1457964175055984e-13,
)  # fmt: skip
#: (R(t) - 1) / t, with R the fourth root of erfc, to 3.8, where erfc is under 1e-7.
_ROOT_SLOPE_SINGLE = (
    -0.28209322690963745, -0.11939658224582672, 0.01565924659371376, 0.01802079565823078,
    -0.0002044751454377547, -0.002941164653748274, 0.0007901332573965192,
    -6.511631363537163e-05,
)  # fmt: skip
#: t exp(t^2) erfc(t) in powers of 1/t^2, from 2.2 on.
_FAR_ERFC_SINGLE = (
    0.5641892552375793, -0.28204068541526794, 0.4201907813549042, -0.9795355200767517,
    2.5129857063293457, -4.9574384689331055, 4.852011680603027,
)  # fmt: skip
#: The same at 1/t^2 = u + 0.115, from 2.2 to 5.76; and from 5.7 on in powers of 1/t^2.
_MIDDLE_ERFC_DOUBLE = (
    0.5361728750594675, -0.21272074311006225, 0.21896102928036393, -0.3325078076634865,
    0.6361969891412765, -1.4261204502576752, 3.5951403094339214, -9.932468573314393,
    29.55096920911387, -93.47663882872403, 311.1346169860387, -1088.161587142294,
    4036.5590388145215, -14611.949568807982, 44530.51565842286, -219478.3215436687,
    1747133.2612921905, -5921054.58539873,
)  # fmt: skip
_FAR_ERFC_DOUBLE = (
    0.5641895835477561, -0.28209479177342817, 0.42314218736275516, -1.0578553660158603,
    3.7024729720680187, -16.658458103926947, 91.39723076889199, -581.5899511846181,
    3905.0144655566487, -22650.44794115167, 76113.00912482382,
)  # fmt: skip
#: (R(t) - 1) / t, with R the fourth root of erfc(t sqrt(1/2)), to 5.4, where erfc is under 1e-7.
_GELU_ROOT_SLOPE_SINGLE = (
    -0.19947004318237305, -0.059698253870010376, 0.005536283366382122, 0.004505319520831108,
    -3.6227094824425876e-05, -0.00036761636147275567, 6.98331932653673e-05,
    -4.0693771552469116e-06,
)  # fmt: skip
_FAR = -2.25
_GELU_FAR = -3.182
#: From here on erfc is less than the least normal number: 0, since denormal results take a CPU a
#: hundred times as long.
_FARTHEST = {32: 9.194, 64: 26.543}


def erf1p(x: Expr) -> Expr:
    """1 + erf(x), within 3 units in the last place of 1, and in the far tail of itself."""
    if x.dtype.bits == 64:
        near = ir.Unary("erf", x) + 1.0
    else:
        square = _root_square(fx.clamp(fx.absolute(x), 0.0, 3.8), _ROOT_SLOPE_SINGLE)
        tail = square * square
        near = fx.select(x < 0.0, tail, 2.0 - tail)
    return ir.Rare(x < _FAR, _far_erfc(x), near)


def gelu(x: Expr) -> Expr:
    """x/2 (1 + erf(x sqrt(1/2))), within 3 units in the last place of x; in the far tail as exact
    as the argument of erf."""
    if x.dtype.bits == 64:
        return (x * 0.5) * ir.Unary("erf1p", x * math.sqrt(0.5))
    t = fx.clamp(fx.absolute(x), 0.0, 5.4)
    square = _root_square(t, _GELU_ROOT_SLOPE_SINGLE)
    # A half of it, since the root is nowhere less than 0.01. Everything waits for the units that
    # multiply, so they are spared.
    half = fx.as_float(fx.bits(square) - (1 << 23))
    zero = fx.constant(0.0, x)
    near = fx.fma(-t, square * half, fx.select(zero > x, zero, x))
    return ir.Rare(x < _GELU_FAR, (x * 0.5) * _far_erfc(x * math.sqrt(0.5)), near)


def _root_square(t: Expr, slope: tuple[float, ...]) -> Expr:
    root = fx.fma(fx.polynomial(t, slope), t, 1.0)
    return root * root


def _far_erfc(x: Expr) -> Expr:
    """erfc(-x) for x below -2.2, down to the least normal number."""
    farthest = _FARTHEST[x.dtype.bits]
    t = fx.clamp(fx.absolute(x), 1.0, farthest)
    inverse = 1.0 / t
    square, rest = fx.exact_product(t, t)
    power = exp_sum(-square, -rest)
    if x.dtype.bits == 64:
        middle = fx.polynomial(inverse * inverse - 0.115, _MIDDLE_ERFC_DOUBLE)
        far = fx.polynomial(inverse * inverse, _FAR_ERFC_DOUBLE)
        scaled = fx.select(t < 5.75, middle, far)
    else:
        scaled = fx.polynomial(inverse * inverse, _FAR_ERFC_SINGLE)
    return fx.select(x < -farthest, 0.0, power * (inverse * scaled))


def erf(x: Expr) -> Expr:
    magnitude = fx.absolute(x)
    z = x * x
    if x.dtype.bits == 64:
        is_small = magnitude < 1.0
        small = fx.polynomial(z, _SMALL_DOUBLE)
        y = fx.clamp(magnitude, 0.0, 6.0)
        tail = ir.Unary("exp", -(y * y)) * fx.polynomial(y - 3.5, _SCALED_ERFC_DOUBLE)
    else:
        is_small = magnitude < 1.125
        small = fx.polynomial(z, _SMALL_SINGLE)
        root = fx.polynomial(fx.clamp(magnitude, 0.0, 4.05) - 2.5, _ERFC_ROOT_SINGLE)
        square = root * root
        tail = square * square
    great = fx.with_sign_of(1.0 - tail, x)
    return fx.select(is_small, fx.fma(x, small, x), great)
