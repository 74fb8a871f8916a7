"""NumPy's functions on tensors: `np.add(t, a)` and `np.concatenate([t, u])` stay lazy.

What has no lazy form says so, rather than computing behind the user's back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arenite.errors import NotSupported
from arenite.ir.compose import basic
from arenite.ir.node import Node
from arenite.ir.ops import make
from arenite.tensor import creation, elementwise, numpy_functions
from arenite.tensor.base import node_of
from arenite.tensor.creation import wrap
from arenite.tensor.elementwise import arithmetic, floating, logical, rounding, truth
from arenite.tensor.linear import product_of
from arenite.tensor.promote import float_dtype
from arenite.tensor.tensor import Tensor


def _binary(op: str) -> Callable[[Any, Any], Node]:
    return lambda a, b: arithmetic(op, a, b)


def _floating(op: str) -> Callable[[Any], Node]:
    return lambda x: floating(op, x)


def _rounding(op: str) -> Callable[[Any], Node]:
    return lambda x: rounding(op, x)


def _method(name: str) -> Callable[..., Node]:
    return lambda x, *args: _result(getattr(creation.asarray(x), name)(*args))


def _result(tensor: Tensor) -> Node:
    return tensor.node


def _scaled(factor: float) -> Callable[[Any], Node]:
    def apply(x: Any) -> Node:
        node = node_of(x)
        return basic.mul(basic.cast(node, float_dtype(node.dtype)), factor)

    return apply


_UFUNCS: dict[str, Callable[..., Node]] = {
    "add": _binary("add"),
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _binary("div"),
    "floor_divide": _binary("floordiv"),
    "remainder": _binary("mod"),
    "fmod": _binary("fmod"),
    "power": _binary("pow"),
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "bitwise_and": _binary("and"),
    "bitwise_or": _binary("or"),
    "bitwise_xor": _binary("xor"),
    "left_shift": _binary("shift_left"),
    "right_shift": _binary("shift_right"),
    "equal": _binary("eq"),
    "not_equal": _binary("ne"),
    "less": _binary("lt"),
    "less_equal": _binary("le"),
    "greater": _binary("gt"),
    "greater_equal": _binary("ge"),
    "arctan2": _binary("atan2"),
    "fmax": lambda a, b: elementwise.ignoring_nan("maximum", a, b),
    "fmin": lambda a, b: elementwise.ignoring_nan("minimum", a, b),
    "hypot": elementwise.hypot,
    "copysign": elementwise.copy_sign,
    "logaddexp": elementwise.log_add_exp,
    "logical_and": lambda a, b: logical("and", a, b),
    "logical_or": lambda a, b: logical("or", a, b),
    "logical_xor": lambda a, b: logical("xor", a, b),
    "logical_not": lambda x: make("not", truth(x)),
    "matmul": product_of,
    "exp": _floating("exp"),
    "exp2": _floating("exp2"),
    "expm1": _floating("expm1"),
    "log": _floating("log"),
    "log2": _floating("log2"),
    "log10": _method("log10"),
    "log1p": _floating("log1p"),
    "sqrt": _floating("sqrt"),
    "sin": _floating("sin"),
    "cos": _floating("cos"),
    "tan": _floating("tan"),
    "arcsin": _floating("asin"),
    "arccos": _floating("acos"),
    "arctan": _floating("atan"),
    "sinh": _floating("sinh"),
    "cosh": _floating("cosh"),
    "tanh": _floating("tanh"),
    "arcsinh": _floating("asinh"),
    "arccosh": _floating("acosh"),
    "arctanh": _floating("atanh"),
    "rint": _floating("round"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "absolute": elementwise.absolute,
    "conjugate": _method("conj"),
    "fabs": lambda x: basic.unary("abs", floating_node(x)),
    "negative": _method("__neg__"),
    "positive": _method("__pos__"),
    "sign": _method("sign"),
    "square": _method("square"),
    "reciprocal": _method("reciprocal"),
    "invert": _method("__invert__"),
    "isnan": elementwise.is_nan,
    "isinf": elementwise.is_inf,
    "isfinite": elementwise.is_finite,
    "signbit": elementwise.sign_bit,
    "deg2rad": _scaled(math.pi / 180),
    "radians": _scaled(math.pi / 180),
    "rad2deg": _scaled(180 / math.pi),
    "degrees": _scaled(180 / math.pi),
}


def floating_node(x: Any) -> Node:
    node = node_of(x)
    return basic.cast(node, float_dtype(node.dtype))


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Tensor | tuple[Tensor, ...]:
    name = ufunc.__name__
    if method != "__call__":
        raise NotSupported(
            f"numpy.{name}.{method} has no lazy form; use a method of Tensor (sum, cumsum, outer, "
            "set) or t.numpy()"
        )
    if kwargs:
        what = ", ".join(sorted(kwargs))
        raise NotSupported(f"numpy.{name} on tensors takes no {what}; tensors are never written to")
    if name == "divmod":
        return wrap(arithmetic("floordiv", *inputs)), wrap(arithmetic("mod", *inputs))
    if name not in _UFUNCS:
        raise NotSupported(f"numpy.{name} has no lazy form; use numpy.{name}(t.numpy())")
    return wrap(_UFUNCS[name](*inputs))


#: Functions that are a method of the first argument with the same arguments.
_METHODS = (
    "all any argmax argmin argsort broadcast_to clip count_nonzero cumprod cumsum diagonal dot "
    "expand_dims flip max mean min moveaxis nonzero outer pad prod ptp ravel repeat reshape roll "
    "round sort split squeeze std sum swapaxes take take_along_axis tensordot tile trace "
    "transpose tril triu var"
).split()

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    # One truth value is Python's, so these compute.
    "allclose": numpy_functions.allclose,
    "array_equal": numpy_functions.array_equal,
    "amax": lambda x, *args, **kwargs: creation.asarray(x).max(*args, **kwargs),
    "amin": lambda x, *args, **kwargs: creation.asarray(x).min(*args, **kwargs),
    "angle": lambda x: creation.asarray(x).angle(),
    "around": lambda x, *args, **kwargs: creation.asarray(x).round(*args, **kwargs),
    "broadcast_arrays": creation.broadcast_arrays,
    "concatenate": creation.concatenate,
    "diff": numpy_functions.diff,
    "einsum": creation.einsum,
    "fliplr": lambda x: creation.asarray(x).flip(1),
    "flipud": lambda x: creation.asarray(x).flip(0),
    "full_like": creation.full_like,
    "hstack": creation.hstack,
    "imag": lambda x: creation.asarray(x).imag,
    "inner": numpy_functions.inner,
    "isclose": numpy_functions.isclose,
    "median": numpy_functions.median,
    "meshgrid": creation.meshgrid,
    "nan_to_num": numpy_functions.nan_to_num,
    "ones_like": creation.ones_like,
    "real": lambda x: creation.asarray(x).real,
    "stack": creation.stack,
    "vdot": numpy_functions.vdot,
    "vstack": creation.vstack,
    "where": creation.where,
    "zeros_like": creation.zeros_like,
    # Questions about the type, answered without computing.
    "ndim": lambda x: creation.asarray(x).ndim,
    "shape": lambda x: creation.asarray(x).shape,
    "size": lambda x: creation.asarray(x).size,
}


def call_function(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = function.__name__
    given = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **given)
    if name in _METHODS and args:
        return getattr(creation.asarray(args[0]), name)(*args[1:], **given)
    raise NotSupported(f"numpy.{name} has no lazy form; call it on t.numpy()")
