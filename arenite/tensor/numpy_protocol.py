"""NumPy's functions on tensors: `np.add(t, a)` and `np.concatenate([t, u])` stay lazy.

What has no lazy form says so, rather than computing behind the user's back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arenite import tensor
from arenite.errors import NotSupported
from arenite.ir.compose import basic
from arenite.ir.node import Node
from arenite.tensor import creation, elementwise
from arenite.tensor.base import node_of
from arenite.tensor.creation import wrap
from arenite.tensor.elementwise import arithmetic, floating, logical
from arenite.tensor.promote import float_dtype
from arenite.tensor.tensor import Tensor


def _arithmetic(op: str) -> Callable[[Any, Any], Node]:
    return lambda a, b: arithmetic(op, a, b)


def _method(name: str) -> Callable[[Any], Node]:
    def call(x: Any) -> Node:
        result: Tensor = getattr(creation.asarray(x), name)()
        return result.node

    return call


def _scaled(factor: float) -> Callable[[Any], Node]:
    return lambda x: floating_node(x) * factor


#: Those that are functions of ours too, under the same name.
_OWN_UFUNCS = (
    "add arccos arcsin arctan ceil cos cosh divide equal exp exp2 expm1 floor floor_divide greater "
    "greater_equal isfinite isinf isnan less less_equal log log10 log1p log2 logical_not matmul "
    "maximum minimum multiply not_equal power remainder sign sin sinh sqrt square subtract tan "
    "tanh trunc"
).split()
_UFUNCS: dict[str, Callable[..., Node]] = {
    "fmod": _arithmetic("fmod"),
    "bitwise_and": _arithmetic("and"),
    "bitwise_or": _arithmetic("or"),
    "bitwise_xor": _arithmetic("xor"),
    "left_shift": _arithmetic("shift_left"),
    "right_shift": _arithmetic("shift_right"),
    "arctan2": _arithmetic("atan2"),
    "fmax": lambda a, b: elementwise.ignoring_nan("maximum", a, b),
    "fmin": lambda a, b: elementwise.ignoring_nan("minimum", a, b),
    "hypot": elementwise.hypot,
    "copysign": elementwise.copy_sign,
    "logaddexp": elementwise.log_add_exp,
    "logical_and": lambda a, b: logical("and", a, b),
    "logical_or": lambda a, b: logical("or", a, b),
    "logical_xor": lambda a, b: logical("xor", a, b),
    "arcsinh": _method("arcsinh"),
    "arccosh": _method("arccosh"),
    "arctanh": _method("arctanh"),
    "rint": lambda x: floating("round", x),
    "absolute": elementwise.absolute,
    "conjugate": _method("conj"),
    "fabs": lambda x: abs(floating_node(x)),
    "negative": _method("__neg__"),
    "positive": _method("__pos__"),
    "reciprocal": _method("reciprocal"),
    "invert": _method("__invert__"),
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
    if name in _OWN_UFUNCS:
        result: Tensor = getattr(tensor, name)(*inputs)
        return result
    if name not in _UFUNCS:
        raise NotSupported(f"numpy.{name} has no lazy form; use numpy.{name}(t.numpy())")
    return wrap(_UFUNCS[name](*inputs))


#: Functions of ours under the same name. One truth value is Python's, so `allclose` computes.
_OWN_FUNCTIONS = (
    "all allclose any argmax argmin argsort array_equal broadcast_arrays broadcast_to clip "
    "concatenate cumprod cumsum diagonal diff dot einsum expand_dims flip full_like hstack inner "
    "isclose max mean median meshgrid min moveaxis nan_to_num nonzero ones_like outer pad prod "
    "ravel repeat reshape roll round sort split squeeze stack std sum swapaxes take "
    "take_along_axis tensordot tile transpose tril triu var vdot vstack where zeros_like"
).split()
#: Methods or properties of a tensor, some of another name; the last answer questions about types.
_METHODS = {"amax": "max", "amin": "min", "around": "round"}
_METHODS |= {n: n for n in "angle count_nonzero imag ndim ptp real shape size trace".split()}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fliplr": lambda x: creation.asarray(x).flip(1),
    "flipud": lambda x: creation.asarray(x).flip(0),
}


def call_function(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = function.__name__
    given = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **given)
    if name in _OWN_FUNCTIONS:
        return getattr(tensor, name)(*args, **given)
    if name in _METHODS and args:
        attribute = getattr(creation.asarray(args[0]), _METHODS[name])
        return attribute(*args[1:], **given) if callable(attribute) else attribute
    raise NotSupported(f"numpy.{name} has no lazy form; call it on t.numpy()")
