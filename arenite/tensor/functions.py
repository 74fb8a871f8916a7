"""NumPy's everyday functions, on tensors and on whatever becomes one.

Each is the operator or the method of Tensor of its name: `exp(x)` is `asarray(x).exp()`, and
`sum(x, 0)` is `asarray(x).sum(0)`. Like these they compute nothing yet. All that is defined here
without an underscore is public.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from arenite.tensor import creation, elementwise, linear
from arenite.tensor.tensor import Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")

_X = inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY, annotation="Any")


def _function(method: Callable[Concatenate[Tensor, _P], _R]) -> Callable[Concatenate[Any, _P], _R]:
    """A method as a function, with its arguments and its docstring."""

    def function(x: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(creation.asarray(x), *args, **kwargs)

    signature = inspect.signature(method)
    function.__name__ = function.__qualname__ = method.__name__
    function.__doc__ = method.__doc__
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[_X, *[*signature.parameters.values()][1:]],
        return_annotation=str(signature.return_annotation).replace("Self", "Tensor"),
    )
    return function


def _binary(name: str, op: str, about: str) -> Callable[[Any, object], Tensor]:
    def function(a: Any, b: object) -> Tensor:
        return creation.wrap(elementwise.arithmetic(op, a, b))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about
    return function


# Element by element.


def abs(x: Any) -> Tensor:  # noqa: A001
    """Without the sign; of complex numbers the magnitude."""
    return creation.asarray(x).abs()


exp = _function(Tensor.exp)
exp2 = _function(Tensor.exp2)
expm1 = _function(Tensor.expm1)
log = _function(Tensor.log)
log2 = _function(Tensor.log2)
log10 = _function(Tensor.log10)
log1p = _function(Tensor.log1p)
sqrt = _function(Tensor.sqrt)
square = _function(Tensor.square)
sin = _function(Tensor.sin)
cos = _function(Tensor.cos)
tan = _function(Tensor.tan)
arcsin = _function(Tensor.arcsin)
arccos = _function(Tensor.arccos)
arctan = _function(Tensor.arctan)
sinh = _function(Tensor.sinh)
cosh = _function(Tensor.cosh)
tanh = _function(Tensor.tanh)
sign = _function(Tensor.sign)
floor = _function(Tensor.floor)
ceil = _function(Tensor.ceil)
trunc = _function(Tensor.trunc)
round = _function(Tensor.round)  # noqa: A001
clip = _function(Tensor.clip)
isnan = _function(Tensor.isnan)
isinf = _function(Tensor.isinf)
isfinite = _function(Tensor.isfinite)
logical_not = _function(Tensor.logical_not)

add = _binary("add", "add", "`a + b`, element by element; both broadcast.")
subtract = _binary("subtract", "sub", "`a - b`, element by element; both broadcast.")
multiply = _binary("multiply", "mul", "`a * b`, element by element; both broadcast.")
divide = _binary("divide", "div", "`a / b`, element by element; both broadcast.")
floor_divide = _binary("floor_divide", "floordiv", "a / b, rounded down.")
remainder = _binary("remainder", "mod", "What is left of a // b.")
power = _binary("power", "pow", "a to the power of b.")
equal = _binary("equal", "eq", "`a == b`, element by element; both broadcast.")
not_equal = _binary("not_equal", "ne", "`a != b`, element by element; both broadcast.")
less = _binary("less", "lt", "`a < b`, element by element; both broadcast.")
less_equal = _binary("less_equal", "le", "`a <= b`, element by element; both broadcast.")
greater = _binary("greater", "gt", "`a > b`, element by element; both broadcast.")
greater_equal = _binary("greater_equal", "ge", "`a >= b`, element by element; both broadcast.")
maximum = _binary("maximum", "maximum", "The larger of two, element by element; NaN where one is.")
minimum = _binary("minimum", "minimum", "The smaller of two, element by element; NaN where one is.")

# Over axes.

sum = _function(Tensor.sum)  # noqa: A001
prod = _function(Tensor.prod)
mean = _function(Tensor.mean)
max = _function(Tensor.max)  # noqa: A001
min = _function(Tensor.min)  # noqa: A001
any = _function(Tensor.any)  # noqa: A001
all = _function(Tensor.all)  # noqa: A001
std = _function(Tensor.std)
var = _function(Tensor.var)
argmax = _function(Tensor.argmax)
argmin = _function(Tensor.argmin)
cumsum = _function(Tensor.cumsum)
cumprod = _function(Tensor.cumprod)
sort = _function(Tensor.sort)
argsort = _function(Tensor.argsort)
nonzero = _function(Tensor.nonzero)


def matmul(a: Any, b: object) -> Tensor:
    """The matrix product over the last two axes; those before broadcast."""
    return creation.wrap(linear.product_of(a, b))


def dot(a: Any, b: Any) -> Tensor:
    """Sums of products: the last axis of a with the last but one of b."""
    return creation.asarray(a).dot(b)


def outer(a: Any, b: Any) -> Tensor:
    """Each element of a with each of b."""
    return creation.asarray(a).outer(b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sums of products over axes of both."""
    return creation.asarray(a).tensordot(b, axes)


# Shapes and places.

ravel = _function(Tensor.ravel)
swapaxes = _function(Tensor.swapaxes)
moveaxis = _function(Tensor.moveaxis)
expand_dims = _function(Tensor.expand_dims)
squeeze = _function(Tensor.squeeze)
flip = _function(Tensor.flip)
roll = _function(Tensor.roll)
repeat = _function(Tensor.repeat)
split = _function(Tensor.split)
take = _function(Tensor.take)
take_along_axis = _function(Tensor.take_along_axis)
diagonal = _function(Tensor.diagonal)
tril = _function(Tensor.tril)
triu = _function(Tensor.triu)


def reshape(x: Any, shape: Any) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    return creation.asarray(x).reshape(shape)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Axes in the order given, or backwards."""
    return creation.asarray(x).transpose(axes)


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """Stretched to a shape."""
    return creation.asarray(x).broadcast_to(shape)


def tile(x: Any, reps: Any) -> Tensor:
    """The whole again and again."""
    return creation.asarray(x).tile(reps)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """With a border of a value; widths as numpy.pad has them."""
    return creation.asarray(x).pad(pad_width, constant_values, mode)
