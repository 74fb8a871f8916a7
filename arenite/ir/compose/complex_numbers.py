"""Functions of complex numbers, made of functions of their real and imaginary parts.

Each takes a complex node and gives a complex one, but for the absolute value and the angle, which
are real. Signs of zeros count, as in C: they say on which side of a branch cut a number is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from arenite.dtype import BY_NAME, Kind
from arenite.ir.compose.basic import add, binary, cast, div, mul, sub, unary, where
from arenite.ir.node import Node
from arenite.ir.ops import full, make


def parts(x: Node) -> tuple[Node, Node]:
    """The real and the imaginary part."""
    return unary("real", x), unary("imag", x)


def joined(re: Node, im: Node) -> Node:
    return make("complex", re, im)


def is_complex(x: Node) -> bool:
    return x.dtype.kind is Kind.COMPLEX


def conjugate(x: Node) -> Node:
    re, im = parts(x)
    return joined(re, unary("neg", im))


def hypot(a: Node, b: Node) -> Node:
    """sqrt(a*a + b*b), scaled so that nothing overflows on the way."""
    x, y = unary("abs", a), unary("abs", b)
    high, low = make("maximum", x, y), make("minimum", x, y)
    flat = make("or", binary("eq", high, 0.0), unary("isinf", high))
    ratio = make("div", low, where(flat, 1.0, high))
    inside = add(mul(ratio, ratio), 1.0)
    either_inf = make("or", unary("isinf", x), unary("isinf", y))
    scaled = where(flat, high, make("mul", high, unary("sqrt", inside)))
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
    im = where(is_real, at, mul(size, unary("sin", at)))
    return joined(where(is_real, size, mul(size, unary("cos", at))), im)


# What C's Annex G and the array API say of infinities, of what is no number, and of zeros, where
# the formulas below give something else: pairs of a condition and the two parts that hold then.


def _like(x: Node, value: float) -> Node:
    return full(x.shape, value, x.dtype)


def _signed(value: float, sign: Node) -> Node:
    """A number with the sign of another, which may be that of a zero."""
    return where(_is_negative(sign), _like(sign, -value), _like(sign, value))


def _is_wild(x: Node) -> Node:
    """Whether it has no place on a circle."""
    return make("or", unary("isnan", x), unary("isinf", x))


def _except(made: Node, *cases: tuple[Node, Node, Node]) -> Node:
    """The parts of a result, but where a condition holds: of several the last."""
    re, im = parts(made)
    for holds, own_re, own_im in cases:
        re, im = where(holds, own_re, re), where(holds, own_im, im)
    return joined(re, im)


def _both(a: Node, b: Node) -> Node:
    return make("and", a, b)


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
    return _exp_at(_turned(unary("exp", re), im), re, im, 0.0)


def exp2(x: Node) -> Node:
    re, im = parts(x)
    turn = mul(im, math.log(2))
    return _exp_at(_turned(unary("exp2", re), turn), re, im, 0.0)


def expm1(x: Node) -> Node:
    """exp(x) - 1, whose real part is expm1(a) cos b - 2 sin²(b/2): near 0 digits stay."""
    a, b = parts(x)
    is_real = binary("eq", b, 0.0)
    half = unary("sin", mul(b, 0.5))
    less = add(unary("expm1", a), 0.0)  # of -0 too it is 0
    re = sub(mul(less, unary("cos", b)), mul(mul(half, half), 2.0))
    im = mul(unary("exp", a), unary("sin", b))
    made = joined(where(is_real, less, re), where(is_real, b, im))
    return _exp_at(made, a, b, -1.0)


def _log(beyond: Node, re: Node, im: Node) -> Node:
    """The logarithm; near the unit circle of |x|² - 1, which is `beyond`, so that digits stay."""
    size = hypot(re, im)
    is_near = make("and", binary("gt", size, 0.5), binary("lt", size, 2.0))
    near = mul(unary("log1p", where(is_near, beyond, 0.0)), 0.5)
    return joined(where(is_near, near, unary("log", size)), make("atan2", im, re))


def log(x: Node) -> Node:
    re, im = parts(x)
    a, b = unary("abs", re), unary("abs", im)
    high, low = make("maximum", a, b), make("minimum", a, b)
    return _log(add(mul(sub(high, 1.0), add(high, 1.0)), mul(low, low)), re, im)


def log1p(x: Node) -> Node:
    """log(1 + x); |1 + x|² - 1 is a (2 + a) + b², of which near 0 digits stay."""
    a, b = parts(x)
    return _log(add(mul(a, add(a, 2.0)), mul(b, b)), add(a, 1.0), b)


def _log_to(base: float) -> Callable[[Node], Node]:
    """The logarithm to another base: both parts of the natural one, scaled."""

    def apply(x: Node) -> Node:
        re, im = parts(log(x))
        return joined(*(mul(part, 1 / math.log(base)) for part in (re, im)))

    return apply


def sqrt(x: Node) -> Node:
    """The root whose real part is not negative."""
    re, im = parts(x)
    a = unary("abs", re)
    # Of an eighth, so that sums of the largest numbers do not overflow.
    sides = [mul(part, 0.125) for part in (re, im)]
    root = mul(unary("sqrt", add(mul(a, 0.125), hypot(*sides))), 2.0)
    other = div(unary("abs", im), mul(root, 2.0))
    other = where(binary("eq", root, 0.0), 0.0, other)
    is_right = binary("ge", re, 0.0)
    up = where(is_right, other, root)
    signed = where(_is_negative(im), unary("neg", up), up)
    made_re, made_im = where(is_right, root, other), where(unary("isnan", im), im, signed)
    is_inf = unary("isinf", im)
    made = joined(where(is_inf, math.inf, made_re), where(is_inf, im, made_im))
    is_left = _both(binary("eq", re, -math.inf), unary("isnan", im))
    return _except(made, (is_left, im, _like(im, math.inf)))


def _is_negative(x: Node) -> Node:
    """Also -0.0."""
    return binary("lt", make("bitcast", x, dtype=BY_NAME[f"int{x.dtype.bits}"]), 0)


def sinh(x: Node) -> Node:
    a, b = parts(x)
    along, across = unary("sinh", a), unary("cosh", a)
    made = joined(mul(along, unary("cos", b)), mul(across, unary("sin", b)))
    is_far = make("or", unary("isinf", a), binary("eq", a, 0.0))
    return _except(
        made,
        (_both(is_far, _is_wild(b)), a, _like(b, math.nan)),
        (binary("eq", b, 0.0), along, b),
    )


def cosh(x: Node) -> Node:
    a, b = parts(x)
    along, across = unary("cosh", a), unary("sinh", a)
    made = joined(mul(along, unary("cos", b)), mul(across, unary("sin", b)))
    is_wild = _is_wild(b)
    no = _like(b, math.nan)
    # The zero that their product would be, were there no infinities.
    zero = _signed(0.0, mul(_signed(1.0, a), _signed(1.0, b)))
    return _except(
        made,
        (_both(unary("isinf", a), is_wild), unary("abs", a), no),
        (_both(binary("eq", a, 0.0), is_wild), no, zero),
        (binary("eq", b, 0.0), along, zero),
    )


def tanh(x: Node) -> Node:
    """With t = tanh a: (t + i sin b cos b (1 - t²)) / (cos² b + t² sin² b), in which nothing
    overflows."""
    a, b = parts(x)
    t, s, c = unary("tanh", a), unary("sin", b), unary("cos", b)
    short = div(1.0, unary("cosh", a))  # 1 - t² is its square
    bottom = add(mul(c, c), mul(mul(t, t), mul(s, s)))
    made = joined(div(t, bottom), div(mul(mul(s, c), mul(short, short)), bottom))
    return _except(
        made,
        (_both(binary("eq", a, 0.0), _is_wild(b)), a, _like(b, math.nan)),
        (unary("isinf", a), t, _signed(0.0, b)),
        (binary("eq", b, 0.0), t, b),
    )


def _rotated(function: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """-i f(ix): sin of sinh, tan of tanh."""

    def apply(x: Node) -> Node:
        re, im = parts(x)
        made_re, made_im = parts(function(joined(unary("neg", im), re)))
        return joined(made_im, unary("neg", made_re))

    return apply


def cos(x: Node) -> Node:
    """cosh(ix)"""
    re, im = parts(x)
    return cosh(joined(unary("neg", im), re))


def _roots_beside_one(x: Node) -> tuple[Node, Node, Node, Node]:
    """The parts of sqrt(1 - x), then of sqrt(1 + x); the signs of zeros stay."""
    re, im = parts(x)
    below = sqrt(joined(sub(full(re.shape, 1.0, re.dtype), re), unary("neg", im)))
    above = sqrt(joined(add(re, 1.0), im))
    return (*parts(below), *parts(above))


# The inverse functions by the formulas of Kahan, "Branch cuts for complex elementary functions"
# (1987), in which nothing cancels.


def _corner(re: Node) -> Node:
    """The angle of two infinite parts."""
    return where(binary("gt", re, 0.0), _like(re, math.pi / 4), 3 * math.pi / 4)


def _infinite(re: Node, im: Node) -> tuple[Node, Node, Node, Node]:
    """Whether both parts are infinite, one is and the other is no number, either way; and whether
    the real part is 0 and the other no number."""
    re_inf, im_inf, im_nan = unary("isinf", re), unary("isinf", im), unary("isnan", im)
    is_axis = binary("eq", re, 0.0)
    return (
        _both(re_inf, im_inf),
        _both(re_inf, im_nan),
        _both(unary("isnan", re), im_inf),
        _both(is_axis, im_nan),
    )


def acos(x: Node) -> Node:
    a, b, c, d = _roots_beside_one(x)
    made_im = unary("asinh", sub(mul(c, b), mul(d, a)))
    made = joined(mul(make("atan2", a, c), 2.0), made_im)
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
    made_re = make("atan2", unary("real", x), sub(mul(a, c), mul(b, d)))
    made = joined(made_re, unary("asinh", sub(mul(a, d), mul(b, c))))
    re, im = parts(x)
    both, right, up, axis = _infinite(re, im)
    is_right = _both(unary("isinf", re), make("not", _is_wild(im)))
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
    a, b = parts(sqrt(joined(sub(re, 1.0), im)))
    c, d = parts(sqrt(joined(add(re, 1.0), im)))
    made_re = unary("asinh", add(mul(a, c), mul(b, d)))
    made = joined(made_re, mul(make("atan2", b, c), 2.0))
    both, right, up, axis = _infinite(re, im)
    no, far = _like(re, math.nan), _like(re, math.inf)
    return _except(
        made,
        (both, far, mul(_corner(re), _signed(1.0, im))),
        (make("or", right, up), far, no),
        (axis, no, _like(re, math.pi / 2)),
    )


def atanh(x: Node) -> Node:
    """Of large numbers, those whose squares overflow, by their reciprocals."""
    re, im = parts(x)
    far = sub(full(re.shape, 1.0, re.dtype), re)
    apart = add(mul(far, far), mul(im, im))
    made_re = mul(unary("log1p", div(mul(re, 4.0), apart)), 0.25)
    across = sub(mul(far, add(re, 1.0)), mul(im, im))
    made_im = mul(make("atan2", mul(im, 2.0), across), 0.5)
    is_far = make("not", binary("lt", apart, math.inf))
    either = make("or", unary("isnan", re), unary("isnan", im))
    quarter, sided = _signed(math.pi / 2, im), _signed(0.0, re)
    _, right, up, axis = _infinite(re, im)
    return _except(
        joined(made_re, made_im),
        (_both(is_far, make("not", either)), sided, quarter),
        (make("or", right, axis), sided, _like(im, math.nan)),
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
    "reciprocal": lambda x: div(1.0, x),
}


def power(x: Node, exponent: int) -> Node:
    """x to a whole power, by squaring."""
    result: Node | None = None
    base, left = x, abs(exponent)
    while left:
        if left & 1:
            result = base if result is None else mul(result, base)
        left >>= 1
        if left:
            base = mul(base, base)
    if result is None:
        return full(x.shape, 1, x.dtype)
    return result if exponent > 0 else div(1.0, result)


def general_power(x: Node, exponent: Node) -> Node:
    """exp(exponent log x), both complex. Of 0 it is 1 to the power 0, 0 to one whose real part
    is positive, and no number to any other, as in NumPy."""
    dtype = x.dtype
    wide = BY_NAME["float64"]  # the logarithm is multiplied: what it lacks would grow
    (a, b), (c, d) = ([cast(part, wide) for part in parts(one)] for one in (x, exponent))
    size, turn = parts(log(joined(a, b)))
    made = parts(
        _turned(unary("exp", sub(mul(c, size), mul(d, turn))), add(mul(c, turn), mul(d, size)))
    )
    is_zero, has_no_power = (
        make("and", binary("eq", re, 0.0), binary("eq", im, 0.0)) for re, im in ((a, b), (c, d))
    )
    is_vanishing = binary("gt", c, 0.0)
    found = []
    for part, one in zip(made, (1.0, 0.0), strict=True):
        of_zero = where(is_vanishing, full(part.shape, 0.0, wide), math.nan)
        found.append(where(has_no_power, one, where(is_zero, of_zero, part)))
    return cast(joined(*found), dtype)
