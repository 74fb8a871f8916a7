"""NumPy's everyday functions element by element, on tensors and on whatever becomes one.

Each is the operator or the method of Tensor of its name: `exp(x)` is `asarray(x).exp()`. Like these
they compute nothing yet.
"""

from __future__ import annotations

from typing import Any

from arenite.tensor.creation import asarray, wrap
from arenite.tensor.elementwise import arithmetic
from arenite.tensor.linear import product_of
from arenite.tensor.tensor import Tensor


def abs(x: Any) -> Tensor:  # noqa: A001
    """Without the sign; of complex numbers the magnitude."""
    return asarray(x).abs()


def exp(x: Any) -> Tensor:
    """e to the power of x."""
    return asarray(x).exp()


def exp2(x: Any) -> Tensor:
    """2 to the power of x."""
    return asarray(x).exp2()


def expm1(x: Any) -> Tensor:
    """exp(x) - 1, exact near 0."""
    return asarray(x).expm1()


def log(x: Any) -> Tensor:
    """The natural logarithm."""
    return asarray(x).log()


def log2(x: Any) -> Tensor:
    """The logarithm to base 2."""
    return asarray(x).log2()


def log10(x: Any) -> Tensor:
    """The logarithm to base 10."""
    return asarray(x).log10()


def log1p(x: Any) -> Tensor:
    """log(1 + x), exact near 0."""
    return asarray(x).log1p()


def sqrt(x: Any) -> Tensor:
    """The square root."""
    return asarray(x).sqrt()


def square(x: Any) -> Tensor:
    """x * x, element by element."""
    return asarray(x).square()


def sin(x: Any) -> Tensor:
    """The sine, of radians."""
    return asarray(x).sin()


def cos(x: Any) -> Tensor:
    """The cosine, of radians."""
    return asarray(x).cos()


def tan(x: Any) -> Tensor:
    """The tangent, of radians."""
    return asarray(x).tan()


def arcsin(x: Any) -> Tensor:
    """The inverse sine, in radians."""
    return asarray(x).arcsin()


def arccos(x: Any) -> Tensor:
    """The inverse cosine, in radians."""
    return asarray(x).arccos()


def arctan(x: Any) -> Tensor:
    """The inverse tangent, in radians."""
    return asarray(x).arctan()


def sinh(x: Any) -> Tensor:
    """The hyperbolic sine."""
    return asarray(x).sinh()


def cosh(x: Any) -> Tensor:
    """The hyperbolic cosine."""
    return asarray(x).cosh()


def tanh(x: Any) -> Tensor:
    """The hyperbolic tangent."""
    return asarray(x).tanh()


def sign(x: Any) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    return asarray(x).sign()


def floor(x: Any) -> Tensor:
    """Rounded down."""
    return asarray(x).floor()


def ceil(x: Any) -> Tensor:
    """Rounded up."""
    return asarray(x).ceil()


def trunc(x: Any) -> Tensor:
    """Rounded towards zero."""
    return asarray(x).trunc()


def isnan(x: Any) -> Tensor:
    """Whether each element is NaN."""
    return asarray(x).isnan()


def isinf(x: Any) -> Tensor:
    """Whether each element is infinite."""
    return asarray(x).isinf()


def isfinite(x: Any) -> Tensor:
    """Whether each element is neither NaN nor infinite."""
    return asarray(x).isfinite()


def logical_not(x: Any) -> Tensor:
    """Whether each element is zero, or False."""
    return asarray(x).logical_not()


def round(x: Any, decimals: int = 0) -> Tensor:  # noqa: A001
    """Rounded to so many decimals, half to even."""
    return asarray(x).round(decimals)


def clip(x: Any, min: object = None, max: object = None) -> Tensor:  # noqa: A002
    """x held within limits; either may be None."""
    return asarray(x).clip(min, max)


def add(a: Any, b: object) -> Tensor:
    """`a + b`, element by element; both broadcast."""
    return wrap(arithmetic("add", a, b))


def subtract(a: Any, b: object) -> Tensor:
    """`a - b`, element by element; both broadcast."""
    return wrap(arithmetic("sub", a, b))


def multiply(a: Any, b: object) -> Tensor:
    """`a * b`, element by element; both broadcast."""
    return wrap(arithmetic("mul", a, b))


def divide(a: Any, b: object) -> Tensor:
    """`a / b`, element by element; both broadcast."""
    return wrap(arithmetic("div", a, b))


def floor_divide(a: Any, b: object) -> Tensor:
    """a / b, rounded down."""
    return wrap(arithmetic("floordiv", a, b))


def remainder(a: Any, b: object) -> Tensor:
    """What is left of a // b."""
    return wrap(arithmetic("mod", a, b))


def power(a: Any, b: object) -> Tensor:
    """a to the power of b."""
    return wrap(arithmetic("pow", a, b))


def equal(a: Any, b: object) -> Tensor:
    """`a == b`, element by element; both broadcast."""
    return wrap(arithmetic("eq", a, b))


def not_equal(a: Any, b: object) -> Tensor:
    """`a != b`, element by element; both broadcast."""
    return wrap(arithmetic("ne", a, b))


def less(a: Any, b: object) -> Tensor:
    """`a < b`, element by element; both broadcast."""
    return wrap(arithmetic("lt", a, b))


def less_equal(a: Any, b: object) -> Tensor:
    """`a <= b`, element by element; both broadcast."""
    return wrap(arithmetic("le", a, b))


def greater(a: Any, b: object) -> Tensor:
    """`a > b`, element by element; both broadcast."""
    return wrap(arithmetic("gt", a, b))


def greater_equal(a: Any, b: object) -> Tensor:
    """`a >= b`, element by element; both broadcast."""
    return wrap(arithmetic("ge", a, b))


def matmul(a: Any, b: object) -> Tensor:
    """The matrix product over the last two axes; those before broadcast."""
    return wrap(product_of(a, b))
