"""The loop IR, executed one scalar at a time by NumPy: slow, plain, and the judge of the lowering.

It shares no code with the lowering. Vector loops run as serial ones; accumulators in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind

Array = np.ndarray[Any, Any]
Scalar = Any


def _sigmoid(x: Scalar, times: Scalar) -> Scalar:
    return (np.longdouble(times) / (1 + np.exp(-np.longdouble(x)))).astype(x.dtype)


MATHS: dict[str, Callable[..., Any]] = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": math.erf,
    "erf1p": lambda x: math.erfc(-x),
    "gelu": lambda x: x / 2 * math.erfc(-x * math.sqrt(0.5)),
    "sigmoid": lambda x: _sigmoid(x, np.float64(1)),
    "abs": np.abs,
    "sign": np.sign,
    "neg": np.negative,
    "round": np.rint,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "reciprocal": lambda x: x.dtype.type(1) / x,
}

FLOAT_BINARY: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "atan2": np.arctan2,
    "times_sigmoid": lambda a, x: _sigmoid(x, a),
    "copysign": np.copysign,
    "ldexp": lambda a, b: np.ldexp(a, int(b)) if np.isfinite(b) else a * b,
    "product_error": lambda a, b: fma(a, b, -(a * b)),
}

COMPARISONS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def run(
    kernel: ir.LoopKernel,
    arrays: dict[str, Array],
    sizes: dict[str, int],
    tiles: int = 1,
) -> int:
    """Executes the kernel on flat arrays, in place; returns the error word."""
    machine = _Machine(arrays)
    names: dict[str, Scalar] = {name: np.int64(value) for name, value in sizes.items()}
    with np.errstate(all="ignore"):
        for tile in range(tiles):
            machine.block(kernel.body, {**names, kernel.tile_var: np.int64(tile), "worker": 0})
    return machine.error


def call(function: ir.Function, *arguments: Scalar, fused: bool = True) -> Scalar:
    """The value of a function of scalars, on a device that has `fma` or not."""
    names = dict(zip((name.name for name in function.parameters), arguments, strict=True))
    machine = _Machine({}, fused)
    with np.errstate(all="ignore"):
        for stmt in function.body:
            machine.statement(stmt, names)
        return machine.value(function.result, names)


class _Machine:
    def __init__(self, arrays: dict[str, Array], fused: bool = True) -> None:
        self.arrays = arrays
        self.fused = fused
        self.error = 0

    def block(self, block: ir.Block, around: dict[str, Scalar]) -> None:
        """Runs statements; what they declare ends with the block, what they change stays."""
        names = dict(around)
        for stmt in block:
            self.statement(stmt, names)
        for name in around:
            around[name] = names[name]

    def statement(self, stmt: ir.Stmt, names: dict[str, Scalar]) -> None:
        match stmt:
            case ir.Let(name, value) | ir.Accumulator(name, value):
                names[name] = self.value(value, names)
            case ir.Store(array, at, value, mask):
                if mask is None or self.value(mask, names):
                    self.arrays[array][self.value(at, names)] = self.value(value, names)
            case ir.For(var, start, stop, body):
                for i in range(int(self.value(start, names)), int(self.value(stop, names))):
                    inside = {**names, var: np.int64(i)}
                    self.block(body, inside)
                    for name in names:
                        names[name] = inside[name]
            case ir.While(cond, body):
                while self.value(cond, names):
                    self.block(body, names)
            case ir.If(cond, then, else_):
                self.block(then if self.value(cond, names) else else_, names)
            case ir.Accumulate(name, op, value):
                new = self.value(value, names)
                names[name] = new if op == "set" else binary(op, names[name], new, value.dtype)
            case ir.AccumulateArg(best, at, op, value, where):
                new, place = self.value(value, names), self.value(where, names)
                old = names[best]
                wins = new > old if op == "argmax" else new < old
                wins = wins or (np.isnan(new) and not np.isnan(old))
                ties = new == old or (np.isnan(new) and np.isnan(old))
                if wins or (ties and place < names[at]):
                    names[best], names[at] = new, place
            case ir.Require(cond, error):
                if not self.value(cond, names) and self.error == 0:
                    self.error = int(self.value(error, names))

    def value(self, expr: ir.Expr, names: dict[str, Scalar]) -> Scalar:
        match expr:
            case ir.Const(value, dtype):
                return np.array(value, dtype.to_numpy())[()]
            case ir.Name(name):
                return names[name]
            case ir.Load(array, at, dtype, mask, other):
                if mask is not None and not self.value(mask, names):
                    empty = np.zeros((), dtype.to_numpy())[()]
                    return empty if other is None else self.value(other, names)
                place = int(self.value(at, names))
                assert place >= 0, "a load in front of its array"
                return self.arrays[array][place]
            case ir.Unary(op, x):
                return unary(op, self.value(x, names), x.dtype)
            case ir.Binary(op, a, b):
                return binary(op, self.value(a, names), self.value(b, names), a.dtype)
            case ir.Fma(a, b, c):
                x, y, z = (self.value(part, names) for part in (a, b, c))
                return fma(x, y, z) if self.fused else x * y + z
            case ir.Table(values, at, dtype):
                place = int(self.value(at, names))
                assert place >= 0, "an index in front of its table"
                return np.array(values[place], dtype.to_numpy())[()]
            case ir.Select(cond, a, b):
                return self.value(a if self.value(cond, names) else b, names)
            case ir.Cast(x, dtype):  # one that fits is no different where it does
                return cast(self.value(x, names), x.dtype, dtype)
            case ir.Bitcast(x, dtype):
                return np.asarray(self.value(x, names)).reshape(1).view(dtype.to_numpy())[0]
        raise AssertionError(expr)


def fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """In exact arithmetic, rounded at the end; zeros and what is not finite as they come."""
    plain = a * b + c
    if not np.isfinite([a * b, c]).all():
        return plain
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return plain.dtype.type(float(exact)) if exact else plain


def unary(op: str, x: Scalar, dtype: DType) -> Scalar:
    if op == "not":
        return np.invert(x)
    result = (MATHS.get(op) or getattr(np, op))(x)
    return result if op in ("isnan", "isinf") else np.asarray(result).astype(dtype.to_numpy())[()]


def binary(op: str, a: Scalar, b: Scalar, dtype: DType) -> Scalar:
    if op in COMPARISONS:
        return COMPARISONS[op](a, b)
    if op in ("and", "or", "xor"):
        return getattr(np, f"bitwise_{op}")(a, b)
    if dtype.kind is Kind.FLOAT or op in ("add", "sub", "mul", "max", "min"):
        return FLOAT_BINARY[op](a, b)
    return _wrapped(_integer(op, int(a), int(b), dtype), dtype)


def _integer(op: str, a: int, b: int, dtype: DType) -> int:
    """In unbounded integers; the caller wraps."""
    if op in ("shift_left", "shift_right"):
        inside = 0 <= b < dtype.bits
        if op == "shift_left":
            return a << b if inside else 0
        return a >> (b if inside else dtype.bits)
    if op == "pow":
        if b < 0:
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return pow(a, b, 1 << dtype.bits)
    if b == 0:  # also of mulhi
        return 0
    toward_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {
        "mulhi": a * b >> dtype.bits,
        "div": toward_zero,
        "fmod": a - b * toward_zero,
        "floordiv": a // b,
        "mod": a % b,
    }[op]


def _wrapped(value: int, dtype: DType) -> Scalar:
    value &= (1 << dtype.bits) - 1
    return np.array(value, f"uint{dtype.bits}").astype(dtype.to_numpy())[()]


def cast(x: Scalar, source: DType, target: DType) -> Scalar:
    numpy = target.to_numpy()
    if target.kind is Kind.BOOL:
        return np.bool_(x != 0)
    if source.kind is Kind.FLOAT and target.kind in (Kind.SIGNED, Kind.UNSIGNED):
        wide = float(x)
        limits = np.iinfo(numpy)
        if math.isnan(wide):
            return numpy.type(0)
        if math.isinf(wide):
            return numpy.type(limits.max if wide > 0 else limits.min)
        return numpy.type(min(max(int(wide), limits.min), limits.max))
    is_single = source.kind is Kind.FLOAT and source.bits >= 32
    if target.kind is Kind.FLOAT and target.bits < 32 and not is_single:
        return np.asarray(x).astype(np.float32).astype(numpy)[()]
    return np.asarray(x).astype(numpy)[()]
