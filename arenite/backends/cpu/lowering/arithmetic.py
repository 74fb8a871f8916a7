"""What each op and cast of the loop IR does to values in registers.

In: an op name, operands of one dtype, scalar or vector. Out: the result, by an instruction where
the target has one, else by the function that `codegen/maths` has for it. No instruction here can
trap and none becomes a library call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from arenite.backends.cpu.lowering.access import table
from arenite.backends.cpu.lowering.convert import native_cast, register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import Vec, VType
from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import definitions
from arenite.dtype import DType, Kind


def unary(op: str, x: Vec, dtype: DType) -> Vec:
    """An op of UNARY_OPS on a value of the dtype."""
    if op in ("neg", "not"):
        return -x if op == "neg" else ~x
    if dtype.kind is Kind.FLOAT:
        if op == "isnan":
            return x.is_nan()
        if op in _INTRINSICS or (op in _ROUNDING and x.builder.has_rounding):
            return x.builder.intrinsic(_INTRINSICS.get(op) or _ROUNDING[op], x)
    return _expanded(op, dtype, None, x)


def binary(op: str, a: Vec, b: Vec, dtype: DType) -> Vec:
    """An op of BINARY_OPS on two values of the dtype."""
    if op in ir.COMPARISONS:
        return a.compare(op, b, signed=dtype.kind is Kind.SIGNED)
    native = _BINARY.get(op)
    if native is not None and (op != "div" or dtype.kind is Kind.FLOAT):
        return native(a, b)
    if dtype.kind is Kind.FLOAT:
        return _float_binary(op, a, b, dtype)
    return _integer_binary(op, a, b, dtype)


def cast(x: Vec, source: DType, target: DType, *, fits: bool = False) -> Vec:
    """The value as another dtype, by the rules of the loop IR."""
    if source == target:
        return x
    native = native_cast(x, source, target, fits=fits)
    if native is not None:
        return native
    return apply(definitions(has_fma=x.builder.target.has_fma).cast(source, target), x)


def _expanded(op: str, dtype: DType, constant: int | None, *operands: Vec) -> Vec:
    known = definitions(has_fma=operands[0].builder.target.has_fma)
    function = known.op(op, dtype, constant)
    assert function is not None, f"{op} of {dtype}"
    return apply(function, *operands)


_INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", "copysign": "copysign"}
_ROUNDING = {"round": "roundeven", "floor": "floor", "ceil": "ceil", "trunc": "trunc"}

_BINARY: dict[str, Callable[[Vec, Vec], Vec]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _float_binary(op: str, a: Vec, b: Vec, dtype: DType) -> Vec:
    build, t = a.builder, a.type
    if op in _INTRINSICS:
        return build.intrinsic(_INTRINSICS[op], a, b)
    if op in ("max", "min"):
        if not build.target.is_x86:
            return build.intrinsic(f"{op}imum", a, b)
        # Whether a constant is NaN is known, so it goes where that is asked.
        return _expanded(op, dtype, None, *((b, a) if b.is_constant else (a, b)))
    if op == "ldexp" and build.has_masks and t.bits * t.lanes == 512:
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if t.bits == 32 else 'pd'}.512"
        mask = VType("i", t.lanes, 1)
        to_nearest = build.constant(4, VType("i", 32, 1))  # the current direction of rounding
        return build.call(
            name, t, a, b, build.constant(0.0, t), build.constant(-1, mask), to_nearest
        )
    return _expanded(op, dtype, None, a, b)


def _integer_binary(op: str, a: Vec, b: Vec, dtype: DType) -> Vec:
    is_signed = dtype.kind is Kind.SIGNED
    if op in ("max", "min") and dtype != ir.BOOL:
        return a.builder.intrinsic(f"{'s' if is_signed else 'u'}{op}", a, b)
    if op in ir.SHIFTS:
        return _shift(op, a, b, is_signed)
    if op == "mulhi" and (a.type.bits == 32 or a.type.lanes == 1):
        wide = a.type.of("i", 2 * a.type.bits)
        product = a.convert("zext", wide) * b.convert("zext", wide)
        return product.shr(a.type.bits, signed=False).convert("trunc", a.type)
    constant = _constant(b)
    if op == "div":
        if constant is not None and constant not in (0, -1):
            return a.divide(b, signed=is_signed)
        return _quotient(a, b, is_signed)
    return _expanded(op, dtype, constant if op in ("floordiv", "mod", "fmod") else None, a, b)


def _shift(op: str, a: Vec, b: Vec, is_signed: bool) -> Vec:
    constant = _constant(b)
    if constant is not None and 0 <= constant < a.type.bits:
        return a << b if op == "shift_left" else a.shr(b, signed=is_signed)
    inside = b.compare("lt", a.type.bits, signed=False)
    if op == "shift_left":
        return inside.select(a << b, 0)
    if is_signed:
        return a.shr(inside.select(b, a.type.bits - 1), signed=True)
    return inside.select(a.shr(b, signed=False), 0)


def _constant(b: Vec) -> int | None:
    """The value of a constant that is the same in all lanes, as LLVM's text has it."""
    if not b.is_constant:
        return None
    number = b.text.removesuffix(")").split(" ")[-1]
    return int(number) if number.lstrip("-").isdigit() else None


def _quotient(a: Vec, b: Vec, is_signed: bool) -> Vec:
    """Towards zero; 0 for a divisor of 0, and the least by -1 wraps to itself."""
    if a.type.lanes > 1 and a.type.bits <= 32:
        # Exact in a float of twice the width: the quotient is never within one rounding of the
        # next integer. Vector integer division would be done lane by lane.
        wide = a.type.of("f", 64 if a.type.bits == 32 else 32)
        op = "sitofp" if is_signed else "uitofp"
        safe = b.eq(0).select(1, b)
        ratio = a.convert(op, wide) / safe.convert(op, wide)
        whole = wide.of("i", wide.bits if a.type.bits == 32 and not is_signed else 32)
        quotient = ratio.convert("fptosi", whole)
        if is_signed and a.type.bits == 32:
            # The least by -1 does not fit; negate instead.
            quotient = b.eq(-1).select(-a, quotient)
        quotient = quotient.convert("trunc", a.type)
        return b.eq(0).select(0, quotient)
    unsafe = b.eq(0) | b.eq(-1) if is_signed else b.eq(0)
    quotient = a.divide(unsafe.select(1, b), signed=is_signed)
    if is_signed:
        quotient = b.eq(-1).select(-a, quotient)
    return b.eq(0).select(0, quotient)


def operation(expr: ir.Expr, value: Callable[[ir.Expr], Vec]) -> Vec:
    """One operation of the loop IR; `value` gives its operands."""
    match expr:
        case ir.Binary(op, a, b):
            return binary(op, value(a), value(b), a.dtype)
        case ir.Fma(a, b, c):
            return fma(value(a), value(b), value(c))
        case ir.Select(cond, a, b):
            first, second = value(a), value(b)
            return value(cond).select(first, second)
        case ir.Unary(op, x):
            return unary(op, value(x), x.dtype)
        case ir.Bitcast(x, dtype):
            bits = value(x)
            return bits.convert("bitcast", register_type(dtype, bits.type.lanes))
        case ir.Cast(x, dtype, fits):
            return cast(value(x), x.dtype, dtype, fits=fits)
        case ir.Table(values, at, dtype):
            return table(values, value(at), register_type(dtype, 1))
    raise AssertionError(f"{expr!r} is no operation")


def apply(function: ir.Function, *operands: Vec) -> Vec:
    """The instructions of a function; what is rare is branched over if no lane needs it."""
    names = (parameter.name for parameter in function.parameters)
    writer = _FunctionWriter(operands[0], dict(zip(names, operands, strict=True)))
    writer.block(function.body)
    return writer.value(function.result)


class _FunctionWriter:
    """The values of names while a function is written out."""

    def __init__(self, model: Vec, values: dict[str, Vec]) -> None:
        self.builder = model.builder
        self.lanes = model.type.lanes
        self.values = values

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            match stmt:
                case ir.Let(name, value) | ir.Accumulator(name, value):
                    self.values[name] = self.value(value)
                case ir.Accumulate(name, "set", value):
                    self.values[name] = self.value(value)
                case ir.If(cond, then, ()):
                    self._branch(cond, then)
                case ir.While(cond, body):
                    self._loop(cond, body)
                case _:
                    raise AssertionError(f"{stmt!r} can't be part of a function")

    def value(self, expr: ir.Expr) -> Vec:
        if isinstance(expr, ir.Name):
            return self.values[expr.name]
        if isinstance(expr, ir.Const):
            return self.builder.constant(expr.value, register_type(expr.dtype, self.lanes))
        return operation(expr, self.value)

    def _branch(self, cond: ir.Expr, then: ir.Block) -> None:
        mask, outside = self.value(cond), self.values
        names = _changed(then)

        def inside() -> list[Vec]:
            self.values = dict(outside)
            self.block(then)
            return [mask.select(self.values[name], outside[name]) for name in names]

        new = self.builder.if_any(mask, inside, [outside[name] for name in names])
        self.values = outside | dict(zip(names, new, strict=True))

    def _loop(self, cond: ir.Expr, body: ir.Block) -> None:
        b, outside = self.builder, self.values
        some = b.any(self.value(cond))
        front, head, after = b.block, b.new_block("turn"), b.new_block("turned")
        front.end = f"br i1 {some.text}, label %{head.name}, label %{after.name}"
        b.block = head
        current = {name: Vec(b, b.new_name(), outside[name].type) for name in _changed(body)}
        self.values = outside | current
        mask = self.value(cond)
        self.block(body)
        new = {name: mask.select(self.values[name], old) for name, old in current.items()}
        self.values = outside | new
        again = b.any(self.value(cond))
        latch = b.block
        latch.end = f"br i1 {again.text}, label %{head.name}, label %{after.name}"
        sources = {name: [(outside[name], front), (new[name], latch)] for name in new}
        for name, value in current.items():
            b.set_phi(head, value.text, sources[name])
        b.block = after
        self.values = outside | {name: b.phi(after, pair) for name, pair in sources.items()}


def _changed(block: ir.Block) -> list[str]:
    return [stmt.name for stmt in block if isinstance(stmt, ir.Accumulate)]
