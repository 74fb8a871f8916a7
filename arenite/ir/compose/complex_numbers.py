"""Functions of complex numbers, made of functions of their real and imaginary parts.

Each takes a complex node and gives a complex one, but for the absolute value and the angle, which
are real. Signs of zeros count, as in C: they say on which side of a branch cut a number is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from arenite.dtype import BY_NAME, FLOAT64, Kind
from arenite.ir.compose.basic import binary, cast, where
from arenite.ir.node import Node
from arenite.ir.ops import full, make


def parts(x: Node) -> tuple[Node, Node]:
    """The real and the imaginary part."""
    return make("real", x), make("imag", x)


def joined(re: Node, im: Node) -> Node:
    return make("complex", re, im)


def is_complex(x: Node) -> bool:
    return x.dtype.kind is Kind.COMPLEX


def conjugate(x: Node) -> Node:
    re, im = parts(x)
    return joined(re, -im)


def hypot(a: Node, b: Node) -> Node:
    """sqrt(a*a + b*b), scaled so that nothing overflows on the way."""
    x, y = abs(a), abs(b)
    high, low = make("maximum", x, y), make("minimum", x, y)
    flat = binary("eq", high, 0.0) | make("isinf", high)
    ratio = low / where(flat, 1.0, high)
    inside = ratio * ratio + 1.0
    either_inf = make("isinf", x) | make("isinf", y)
    scaled = where(flat, high, high * make("sqrt", inside))
    return where(either_inf, math.inf, scaled)


def magnitude(x: Node) -> Node:
    """The absolute value."""
    return hypot(*parts(x))


def angle(x: Node) -> Node:
    re, im = parts(x)
    return make("atan2", im, re)


def _turned(size: Node, at: Node) -> Node:
    """size * (cos at, sin at); on the real line exactly, however large."""
    is_real = binary("eq", at, 0.0)
    im = where(is_real, at, size * make("sin", at))
    return joined(where(is_real, size, size * make("cos", at)), im)


# What C's Annex G and the array API say of infinities, of what is no number, and of zeros, where
# the formulas below give something else: pairs of a condition and the two parts that hold then.


def _like(x: Node, value: float) -> Node:
    return full(x.shape, value, x.dtype)


def _signed(value: float, sign: Node) -> Node:
    """A number with the sign of another, which may be that of a zero."""
    return where(_is_negative(sign), _like(sign, -value), _like(sign, value))


def _is_wild(x: Node) -> Node:
    """Whether it has no place on a circle."""
    return make("isnan", x) | make("isinf", x)


def _except(made: Node, *cases: tuple[Node, Node, Node]) -> Node:
    """The parts of a result, but where a condition holds: of several the last."""
    re, im = parts(made)
    for holds, own_re, own_im in cases:
        re, im = where(holds, own_re, re), where(holds, own_im, im)
    return joined(re, im)


def _both(a: Node, b: Node) -> Node:
    return a & b


def _exp_at(made: Node, a: Node, b: Node, least: float) -> Node:
    """exp, and exp - 1, of infinities; `least` is what they are far on the left."""
    is_wild = _is_wild(b)
    return _except(
        made,
        (_both(binary("eq", a, -math.inf), is_wild), _like(a, least), _signed(0.0, b)),
        (_both(binary("eq", a, math.inf), is_wild), a, _like(b, math.nan)),
    )


def exp(x: Node) -> Node:
    re, im = parts(x)
    return _exp_at(_turned(make("exp", re), im), re, im, 0.0)


def exp2(x: Node) -> Node:
    re, im = parts(x)
    turn = im * math.log(2)
    return _exp_at(_turned(make("exp2", re), turn), re, im, 0.0)


def expm1(x: Node) -> Node:
    """exp(x) - 1, whose real part is expm1(a) cos b - 2 sin²(b/2): near 0 digits stay."""
    a, b = parts(x)
    is_real = binary("eq", b, 0.0)
    half = make("sin", b * 0.5)
    less = make("expm1", a) + 0.0  # of -0 too it is 0
    re = less * make("cos", b) - half * half * 2.0
    im = make("exp", a) * make("sin", b)
    made = joined(where(is_real, less, re), where(is_real, b, im))
    return _exp_at(made, a, b, -1.0)


def _log(beyond: Node, re: Node, im: Node) -> Node:
    """The logarithm; near the unit circle of |x|² - 1, which is `beyond`, so that digits stay."""
    size = hypot(re, im)
    is_near = (size > 0.5) & (size < 2.0)
    near = make("log1p", where(is_near, beyond, 0.0)) * 0.5
    return joined(where(is_near, near, make("log", size)), make("atan2", im, re))


def log(x: Node) -> Node:
    re, im = parts(x)
    a, b = abs(re), abs(im)
    high, low = make("maximum", a, b), make("minimum", a, b)
    return _log((high - 1.0) * (high + 1.0) + low * low, re, im)


def log1p(x: Node) -> Node:
    """log(1 + x); |1 + x|² - 1 is a (2 + a) + b², of which near 0 digits stay."""
    a, b = parts(x)
    return _log(a * (a + 2.0) + b * b, a + 1.0, b)


def _log_to(base: float) -> Callable[[Node], Node]:
    """The logarithm to another base: both parts of the natural one, scaled."""

    def apply(x: Node) -> Node:
        re, im = parts(log(x))
        return joined(*(part * (1 / math.log(base)) for part in (re, im)))

    return apply


def sqrt(x: Node) -> Node:
    """The root whose real part is not negative."""
    re, im = parts(x)
    a = abs(re)
    # Of an eighth, so that sums of the largest numbers do not overflow.
    sides = [part * 0.125 for part in (re, im)]
    root = make("sqrt", a * 0.125 + hypot(*sides)) * 2.0
    other = abs(im) / (root * 2.0)
    other = where(binary("eq", root, 0.0), 0.0, other)
    is_right = re >= 0.0
    up = where(is_right, other, root)
    signed = where(_is_negative(im), -up, up)
    made_re, made_im = where(is_right, root, other), where(make("isnan", im), im, signed)
    is_inf = make("isinf", im)
    made = joined(where(is_inf, math.inf, made_re), where(is_inf, im, made_im))
    is_left = _both(binary("eq", re, -math.inf), make("isnan", im))
    return _except(made, (is_left, im, _like(im, math.inf)))


def _is_negative(x: Node) -> Node:
    """Also -0.0."""
    return make("bitcast", x, dtype=BY_NAME[f"int{x.dtype.bits}"]) < 0


def sinh(x: Node) -> Node:
    a, b = parts(x)
    along, across = make("sinh", a), make("cosh", a)
    made = joined(along * make("cos", b), across * make("sin", b))
    is_far = make("isinf", a) | binary("eq", a, 0.0)
    return _except(
        made,
        (_both(is_far, _is_wild(b)), a, _like(b, math.nan)),
        (binary("eq", b, 0.0), along, b),
    )


def cosh(x: Node) -> Node:
    a, b = parts(x)
    along, across = make("cosh", a), make("sinh", a)
    made = joined(along * make("cos", b), across * make("sin", b))
    is_wild = _is_wild(b)
    no = _like(b, math.nan)
    # The zero that their product would be, were there no infinities.
    zero = _signed(0.0, _signed(1.0, a) * _signed(1.0, b))
    return _except(
        made,
        (_both(make("isinf", a), is_wild), abs(a), no),
        (_both(binary("eq", a, 0.0), is_wild), no, zero),
        (binary("eq", b, 0.0), along, zero),
    )


def tanh(x: Node) -> Node:
    """With t = tanh a: (t + i sin b cos b (1 - t²)) / (cos² b + t² sin² b), in which nothing
    overflows."""
    a, b = parts(x)
    t, s, c = make("tanh", a), make("sin", b), make("cos", b)
    short = 1.0 / make("cosh", a)  # 1 - t² is its square
    bottom = c * c + t * t * (s * s)
    made = joined(t / bottom, s * c * (short * short) / bottom)
    return _except(
        made,
        (_both(binary("eq", a, 0.0), _is_wild(b)), a, _like(b, math.nan)),
        (make("isinf", a), t, _signed(0.0, b)),
        (binary("eq", b, 0.0), t, b),
    )


def _rotated(function: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """-i f(ix): sin of sinh, tan of tanh."""

    def apply(x: Node) -> Node:
        re, im = parts(x)
        made_re, made_im = parts(function(joined(-im, re)))
        return joined(made_im, -made_re)

    return apply


def cos(x: Node) -> Node:
    """cosh(ix)"""
    re, im = parts(x)
    return cosh(joined(-im, re))


def _roots_beside_one(x: Node) -> tuple[Node, Node, Node, Node]:
    """The parts of sqrt(1 - x), then of sqrt(1 + x); the signs of zeros stay."""
    re, im = parts(x)
    below = sqrt(joined(full(re.shape, 1.0, re.dtype) - re, -im))
    above = sqrt(joined(re + 1.0, im))
    return (*parts(below), *parts(above))


# The inverse functions by the formulas of Kahan, "Branch cuts for complex elementary functions"
# (1987), in which nothing cancels.


def _corner(re: Node) -> Node:
    """The angle of two infinite parts."""
    return where(re > 0.0, _like(re, math.pi / 4), 3 * math.pi / 4)


def _infinite(re: Node, im: Node) -> tuple[Node, Node, Node, Node]:
    """Whether both parts are infinite, one is and the other is no number, either way; and whether
    the real part is 0 and the other no number."""
    re_inf, im_inf, im_nan = make("isinf", re), make("isinf", im), make("isnan", im)
    is_axis = binary("eq", re, 0.0)
    return (
        _both(re_inf, im_inf),
        _both(re_inf, im_nan),
        _both(make("isnan", re), im_inf),
        _both(is_axis, im_nan),
    )


def acos(x: Node) -> Node:
    a, b, c, d = _roots_beside_one(x)
    made_im = make("asinh", c * b - d * a)
    made = joined(make("atan2", a, c) * 2.0, made_im)
    re, im = parts(x)
    both, right, up, axis = _infinite(re, im)
    no, far = _like(re, math.nan), _signed(-math.inf, im)
    return _except(
        made,
        (both, _corner(re), far),
        (right, no, _like(re, math.inf)),
        (up, no, far),
        (axis, _like(re, math.pi / 2), no),
    )


def asin(x: Node) -> Node:
    a, b, c, d = _roots_beside_one(x)
    made_re = make("atan2", make("real", x), a * c - b * d)
    made = joined(made_re, make("asinh", a * d - b * c))
    re, im = parts(x)
    both, right, up, axis = _infinite(re, im)
    is_right = _both(make("isinf", re), ~_is_wild(im))
    no, far = _like(re, math.nan), _signed(math.inf, im)
    return _except(
        made,
        (is_right, _signed(math.pi / 2, re), far),
        (both, _signed(math.pi / 4, re), far),
        (right, no, _like(re, math.inf)),
        (up, no, far),
        (axis, re, no),
    )


def acosh(x: Node) -> Node:
    re, im = parts(x)
    a, b = parts(sqrt(joined(re - 1.0, im)))
    c, d = parts(sqrt(joined(re + 1.0, im)))
    made_re = make("asinh", a * c + b * d)
    made = joined(made_re, make("atan2", b, c) * 2.0)
    both, right, up, axis = _infinite(re, im)
    no, far = _like(re, math.nan), _like(re, math.inf)
    return _except(
        made,
        (both, far, _corner(re) * _signed(1.0, im)),
        (right | up, far, no),
        (axis, no, _like(re, math.pi / 2)),
    )


def atanh(x: Node) -> Node:
    """Of large numbers, those whose squares overflow, by their reciprocals."""
    re, im = parts(x)
    far = full(re.shape, 1.0, re.dtype) - re
    apart = far * far + im * im
    made_re = make("log1p", re * 4.0 / apart) * 0.25
    across = far * (re + 1.0) - im * im
    made_im = make("atan2", im * 2.0, across) * 0.5
    is_far = ~(apart < math.inf)
    either = make("isnan", re) | make("isnan", im)
    quarter, sided = _signed(math.pi / 2, im), _signed(0.0, re)
    _, right, up, axis = _infinite(re, im)
    return _except(
        joined(made_re, made_im),
        (_both(is_far, ~either), sided, quarter),
        (right | axis, sided, _like(im, math.nan)),
        (up, sided, quarter),
    )


#: By the name of the op that does the same to floats.
FUNCTIONS: dict[str, Callable[[Node], Node]] = {
    "abs": magnitude,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "log2": _log_to(2),
    "log10": _log_to(10),
    "sqrt": sqrt,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "sin": _rotated(sinh),
    "cos": cos,
    "tan": _rotated(tanh),
    "acos": acos,
    "asin": asin,
    "atan": _rotated(atanh),
    "acosh": acosh,
    "asinh": _rotated(asin),
    "atanh": atanh,
    "reciprocal": lambda x: 1.0 / x,
}


def power(x: Node, exponent: int) -> Node:
    """x to a whole power, by squaring."""
    result: Node | None = None
    base, left = x, abs(exponent)
    while left:
        if left & 1:
            result = base if result is None else result * base
        left >>= 1
        if left:
            base = base * base
    if result is None:
        return full(x.shape, 1, x.dtype)
    return result if exponent > 0 else 1.0 / result


def general_power(x: Node, exponent: Node) -> Node:
    """exp(exponent log x), both complex. Of 0 it is 1 to the power 0, 0 to one whose real part
    is positive, and no number to any other, as in NumPy."""
    dtype = x.dtype
    wide = FLOAT64  # the logarithm is multiplied: what it lacks would grow
    (a, b), (c, d) = ([cast(part, wide) for part in parts(one)] for one in (x, exponent))
    size, turn = parts(log(joined(a, b)))
    made = parts(_turned(make("exp", c * size - d * turn), c * turn + d * size))
    is_zero, has_no_power = (
        binary("eq", re, 0.0) & binary("eq", im, 0.0) for re, im in ((a, b), (c, d))
    )
    is_vanishing = c > 0.0
    found = []
    for part, one in zip(made, (1.0, 0.0), strict=True):
        of_zero = where(is_vanishing, full(part.shape, 0.0, wide), math.nan)
        found.append(where(has_no_power, one, where(is_zero, of_zero, part)))
    return cast(joined(*found), dtype)
