"""NumPy's everyday functions, on tensors and on whatever becomes one.

Each is the operator or the method of Tensor of its name: `exp(x)` is `asarray(x).exp()`, and
`sum(x, 0)` is `asarray(x).sum(0)`. Like these they compute nothing yet. All that is defined here
without an underscore is public.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from arenite.tensor import creation, elementwise, linear
from arenite.tensor.tensor import Tensor
from arenite.tensor.tensor import settle as _settle

_Truth: TypeAlias = bool
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


def _named(
    name: str, method: Callable[[Tensor], Tensor], about: str = ""
) -> Callable[[Any], Tensor]:
    """A method of no arguments as a function of another name."""

    def function(x: Any) -> Tensor:
        return method(creation.asarray(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about or method.__doc__
    return function


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
acos = _named("acos", Tensor.arccos)
asin = _named("asin", Tensor.arcsin)
atan = _named("atan", Tensor.arctan)
acosh = _named("acosh", Tensor.arccosh)
asinh = _named("asinh", Tensor.arcsinh)
atanh = _named("atanh", Tensor.arctanh)
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
reciprocal = _function(Tensor.reciprocal)
conj = _function(Tensor.conj)
negative = _named("negative", Tensor.__neg__, "`-x`, element by element.")
positive = _named("positive", Tensor.__pos__, "`+x`: x itself, of numbers.")
bitwise_invert = _named(
    "bitwise_invert", Tensor.__invert__, "`~x`: every bit of integers turned; of bools, not."
)


def real(x: Any) -> Tensor:
    """The real part; of real numbers they themselves."""
    return creation.asarray(x).real


def imag(x: Any) -> Tensor:
    """The imaginary part; of real numbers zeros."""
    return creation.asarray(x).imag


def signbit(x: Any) -> Tensor:
    """Whether each number has a minus sign, -0.0 and NaNs that have it too."""
    return creation.wrap(elementwise.sign_bit(x))


add = _binary("add", "add", "`a + b`, element by element; both broadcast.")
subtract = _binary("subtract", "sub", "`a - b`, element by element; both broadcast.")
multiply = _binary("multiply", "mul", "`a * b`, element by element; both broadcast.")
divide = _binary("divide", "div", "`a / b`, element by element; both broadcast.")
floor_divide = _binary("floor_divide", "floordiv", "a / b, rounded down.")
remainder = _binary("remainder", "mod", "What is left of a // b.")
power = _binary("power", "pow", "a to the power of b.")
pow = _binary("pow", "pow", "a to the power of b.")  # noqa: A001
equal = _binary("equal", "eq", "`a == b`, element by element; both broadcast.")
not_equal = _binary("not_equal", "ne", "`a != b`, element by element; both broadcast.")
less = _binary("less", "lt", "`a < b`, element by element; both broadcast.")
less_equal = _binary("less_equal", "le", "`a <= b`, element by element; both broadcast.")
greater = _binary("greater", "gt", "`a > b`, element by element; both broadcast.")
greater_equal = _binary("greater_equal", "ge", "`a >= b`, element by element; both broadcast.")
atan2 = _binary("atan2", "atan2", "The angle of the point (b, a) with the first axis, in radians.")
bitwise_and = _binary("bitwise_and", "and", "`a & b`, bit by bit; of bools, both.")
bitwise_or = _binary("bitwise_or", "or", "`a | b`, bit by bit; of bools, one or both.")
bitwise_xor = _binary("bitwise_xor", "xor", "`a ^ b`, bit by bit; of bools, one of both.")
bitwise_left_shift = _binary("bitwise_left_shift", "shift_left", "`a << b`, of integers.")
bitwise_right_shift = _binary("bitwise_right_shift", "shift_right", "`a >> b`, of integers.")


def _of_nodes(
    name: str, made: Callable[[Any, Any], Any], about: str
) -> Callable[[Any, Any], Tensor]:
    def function(a: Any, b: Any) -> Tensor:
        return creation.wrap(made(a, b))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about
    return function


copysign = _of_nodes("copysign", elementwise.copy_sign, "The size of a with the sign of b.")
hypot = _of_nodes("hypot", elementwise.hypot, "sqrt(a*a + b*b), without overflow on the way.")
logaddexp = _of_nodes(
    "logaddexp", elementwise.log_add_exp, "log(exp(a) + exp(b)), without overflow."
)
nextafter = _of_nodes("nextafter", elementwise.next_after, "The next number from a towards b.")
logical_and = _of_nodes(
    "logical_and", lambda a, b: elementwise.logical("and", a, b), "Whether both are true, or not 0."
)
logical_or = _of_nodes(
    "logical_or", lambda a, b: elementwise.logical("or", a, b), "Whether one is true, or not 0."
)
logical_xor = _of_nodes(
    "logical_xor",
    lambda a, b: elementwise.logical("xor", a, b),
    "Whether just one is true, or not 0.",
)
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


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """For each axis where along it the elements are that are not zero. How many there are is found
    while running: at once, but in a function that is being compiled when it runs."""
    places = creation.asarray(x).nonzero()
    _settle(*places)
    return places


count_nonzero = _function(Tensor.count_nonzero)


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


def reshape(x: Any, shape: Any, copy: _Truth | None = None) -> Tensor:
    """The same elements in another shape; one size may be -1. Tensors never change, so `copy` makes
    no difference."""
    return creation.asarray(x).reshape(shape)


def permute_dims(x: Any, axes: Sequence[int]) -> Tensor:
    """All axes in the order given."""
    return creation.asarray(x).transpose(axes)


def matrix_transpose(x: Any) -> Tensor:
    """The last two axes swapped."""
    return creation.asarray(x).mT


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """A tensor for each place along an axis, which goes."""
    return tuple(creation.asarray(x).moveaxis(axis, 0))


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
