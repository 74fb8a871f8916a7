"""Operators on elements: arithmetic, functions, activations, comparisons, logic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add

import numpy as np

from arenite.dtype import BOOL, FLOAT32, FLOAT64, INT64, DType, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Handler, Result, operator
from arenite.frontends.onnx.structure import aligned
from arenite.frontends.onnx.values import Value
from arenite.ir import Node, full, make
from arenite.ir.compose import basic, neural
from arenite.ir.compose.basic import Operand, binary, cast, computing, reshape, where
from arenite.ir.element import widened
from arenite.ir.ops.define import INTEGER

#: Operators of one input to ops of the IR.
UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}

#: Operators of two inputs that broadcast.
BINARY = {
    "Add": "add",
    "Mul": "mul",
    "Sub": "sub",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
}

#: Activations without attributes.
ACTIVATIONS = {
    "HardSwish": neural.hard_swish,
    "Mish": neural.mish,
    "Sigmoid": neural.sigmoid,
    "Softplus": neural.softplus,
    "Softsign": neural.softsign,
}


def _unary(op: str) -> Handler:
    return lambda call: make(op, call.node(0))


def _binary(op: str) -> Handler:
    return lambda call: binary(op, *aligned(call, call.node(0), call.node(1)))


def _activation(function: Callable[[Node], Node]) -> Handler:
    return lambda call: function(call.node(0))


for _name, _op in UNARY.items():
    operator(_name)(_unary(_op))
for _name, _op in BINARY.items():
    operator(_name, since=7)(_binary(_op))
for _name, _function in ACTIVATIONS.items():
    operator(_name)(_activation(_function))


# Arithmetic.


@operator("Div", since=7)
def division(call: Call) -> Result:
    """Of integers towards zero."""
    a, b = basic.operands("Div", *aligned(call, call.node(0), call.node(1)))
    if a.dtype.kind is Kind.SIGNED:
        return (a - make("fmod", a, b)) // b
    return make("floordiv" if a.dtype.kind is Kind.UNSIGNED else "div", a, b)


@operator("Mod", since=10)
def remainder(call: Call) -> Result:
    x = call.node(0)
    is_c = bool(call.attr("fmod", 0))
    if x.dtype.kind is Kind.FLOAT and not is_c and call.version < 28:
        call.fail("Mod of floats needs the attribute fmod = 1")
    return binary("fmod" if is_c else "mod", x, call.node(1))


@operator("Pow", since=7)
def power(call: Call) -> Result:
    """The type is the base's, whatever the exponent's."""
    base, exponent = call.node(0), call.value(1)
    if base.dtype.kind is Kind.FLOAT:
        simple = _simple_power(base, exponent)
        if simple is not None:
            return simple
        # Whole numbers beyond what the base's type counts have no place in it.
        is_wide = exponent.dtype.kind in INTEGER and exponent.dtype.bits > 16
        known = exponent.known if is_wide else None
        is_small = known is not None and bool((np.abs(known.astype(np.float64)) < 2**10).all())
        dtype = FLOAT64 if is_wide and not is_small else base.dtype
        if exponent.dtype.kind is Kind.FLOAT and exponent.dtype.bits > base.dtype.bits:
            dtype = exponent.dtype
    elif exponent.dtype.kind is Kind.FLOAT:
        dtype = FLOAT64
    else:
        dtype = base.dtype if exponent.dtype == base.dtype else INT64
    return cast(binary("pow", cast(base, dtype), cast(exponent.node, dtype)), base.dtype)


def _simple_power(base: Node, exponent: Value) -> Node | None:
    """By products, or a root."""
    if exponent.ndim > base.ndim or any(size != 1 for size in exponent.shape):
        return None
    known = exponent.known
    if known is None:
        return None
    number = float(known.reshape(()))
    if number == 1:
        return base
    wide = computing(base)
    if number == 2:
        return cast(wide * wide, base.dtype)
    if number == 3:
        return cast(wide * wide * wide, base.dtype)
    if number == 0.5:
        # The root of a negative zero is one; of minus infinity it is no number.
        root = make("sqrt", wide + 0.0)
        infinite = binary("eq", wide, float("-inf"))
        return cast(where(infinite, float("inf"), root), base.dtype)
    return None


def _folded(op: str) -> Handler:
    """Of any number of inputs."""
    return lambda call: reduce(lambda a, b: binary(op, a, b), aligned(call, *call.nodes))


for _name, _op in {"Max": "maximum", "Min": "minimum"}.items():
    operator(_name)(_folded(_op))


@operator("Sum", "Mean")
def total(call: Call) -> Result:
    nodes = call.nodes
    if not nodes:
        call.fail("it needs an input")
    made = reduce(add, map(computing, nodes))
    if call.op == "Mean":
        made = made / float(len(nodes))
    return cast(made, nodes[0].dtype)


@operator("BitShift", since=11)
def bit_shift(call: Call) -> Result:
    """By less than 0, or by the width or more, nothing is left but the sign."""
    direction = call.need_attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        call.fail(f"direction {direction!r} is neither LEFT nor RIGHT")
    x, amount = basic.operands("BitShift", call.node(0), call.node(1))
    bits = x.dtype.bits
    too_far = amount >= bits
    if x.dtype.kind is Kind.SIGNED:
        too_far = too_far | (amount < 0)
    within = where(too_far, bits - 1, amount)
    if direction == "LEFT":
        return where(too_far, 0, x << within)
    right = x >> within
    return right if x.dtype.kind is Kind.SIGNED else where(too_far, 0, right)


@operator("BitwiseNot", since=18)
def bitwise_not(call: Call) -> Result:
    x = call.node(0)
    ones = -1 if x.dtype.kind is Kind.SIGNED else (1 << x.dtype.bits) - 1
    return x ^ ones


@operator("Not")
def logical_not(call: Call) -> Result:
    return call.node(0) ^ True


@operator("Where", since=9)
def choice(call: Call) -> Result:
    made = where(*aligned(call, call.node(0), call.node(1), call.node(2)))
    return Value.of(made, is_string=call.value(1).is_string)


@operator("IsInf", since=10)
def is_infinite(call: Call) -> Result:
    x = call.node(0)
    positive, negative = call.attr("detect_positive", 1), call.attr("detect_negative", 1)
    if positive and negative:
        return make("isinf", x)
    if not positive and not negative:
        return full(x.shape, False, BOOL)
    sign = make("gt" if positive else "lt", x, full(x.shape, 0.0, x.dtype))
    return make("isinf", x) & sign


# Activations.


def _attr(call: Call, name: str, default: float) -> float:
    return float(call.attr(name, default))


@operator("Relu")
def relu(call: Call) -> Result:
    return binary("maximum", call.node(0), 0)


@operator("Clip", since=6)
def clip_by_attributes(call: Call) -> Result:
    low, high = call.attr("min"), call.attr("max")
    return neural.clip(call.node(0), low, high)


@operator("Clip", since=11)
def clip(call: Call) -> Result:
    """Bounds are numbers; the upper one wins where they cross."""
    return neural.clip(call.node(0), _scalar(call, 1), _scalar(call, 2))


def _scalar(call: Call, index: int) -> Operand | None:
    """A number, if it is known."""
    if not call.has(index):
        return None
    value = call.value(index)
    if any(size != 1 for size in value.shape):
        call.fail(f"input {index} is one number, not of shape {value.shape}")
    known = value.known
    if known is None:
        return reshape(value.node, ())
    number: int | float = widened(known, value.dtype).reshape(()).item()
    return number


@operator("Elu", "Celu", "Selu")
def elu(call: Call) -> Result:
    x = call.node(0)
    if call.op == "Selu":
        alpha = _attr(call, "alpha", 1.6732631921768188)
        return neural.elu(x, alpha, _attr(call, "gamma", 1.0507010221481323))
    alpha = _attr(call, "alpha", 1.0)
    return neural.elu(x, alpha, beta=alpha if call.op == "Celu" else 1.0)


@operator("Gelu", since=20)
def gelu(call: Call) -> Result:
    approximate = call.attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        call.fail(f"approximate is 'none' or 'tanh', not {approximate!r}")
    return (neural.gelu if approximate == "none" else neural.gelu_tanh)(call.node(0))


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Result:
    x = call.node(0)
    line = computing(x) * _attr(call, "alpha", 0.2) + _attr(call, "beta", 0.5)
    return cast(neural.clip(line, 0.0, 1.0), x.dtype)


@operator("LeakyRelu")
def leaky_relu(call: Call) -> Result:
    x = call.node(0)
    return cast(neural.leaky_relu(computing(x), _attr(call, "alpha", 0.01)), x.dtype)


@operator("PRelu", since=7)
def prelu(call: Call) -> Result:
    x = call.node(0)
    slope = basic.broadcast_to(call.node(1), x.shape)
    return where(x < 0, x * slope, x)


@operator("Swish", since=24)
def swish(call: Call) -> Result:
    return _swish(call.node(0), _attr(call, "alpha", 1.0))


@operator("SwiGLU", since=28)
def swiglu(call: Call) -> Result:
    gate, value = call.node(0), call.node(1)
    if gate.shape != value.shape:
        call.fail(f"its inputs have shapes {gate.shape} and {value.shape}, which are to be one")
    return _swish(gate, _attr(call, "alpha", 1.0)) * value


def _swish(x: Node, alpha: float) -> Node:
    if alpha == 1:
        return neural.silu(x)
    wide = computing(x)
    return cast(wide * neural.sigmoid(wide * alpha), x.dtype)


@operator("Shrink", since=9)
def shrink(call: Call) -> Result:
    """Numbers near zero become zero, the others come nearer by `bias`."""
    x = call.node(0)
    wide = cast(x, _shrunk_in(x.dtype))
    edge, bias = _attr(call, "lambd", 0.5), _attr(call, "bias", 0.0)
    above = where(wide > edge, wide - bias, 0.0)
    return cast(where(wide < -edge, wide + bias, above), x.dtype)


def _shrunk_in(dtype: DType) -> DType:
    if dtype.kind is not Kind.FLOAT:
        return FLOAT64
    return FLOAT32 if dtype.bits < 32 else dtype


@operator("ThresholdedRelu", since=10)
def thresholded_relu(call: Call) -> Result:
    x = call.node(0)
    return where(x > _attr(call, "alpha", 1.0), x, 0.0)
