"""A loop kernel as C-like text, for people: `CachedKernel.code`.

Names are those of the kernel; operators that C has are written as in C, all else as calls. Text is
stable: equal kernels print equally, so it serves as the content of cache keys too.
"""

from __future__ import annotations

from functools import singledispatch
from math import isfinite

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind

_INFIX = {
    "add": ("+", 12),
    "sub": ("-", 12),
    "mul": ("*", 13),
    "div": ("/", 13),
    "shift_left": ("<<", 11),
    "shift_right": (">>", 11),
    "lt": ("<", 10),
    "le": ("<=", 10),
    "gt": (">", 10),
    "ge": (">=", 10),
    "eq": ("==", 9),
    "ne": ("!=", 9),
    "and": ("&", 8),
    "xor": ("^", 7),
    "or": ("|", 6),
}
_TERNARY = 3
_PREFIX = 14
_ATOM = 16


@singledispatch
def kernel_text(kernel: ir.LoopKernel) -> str:
    """The whole kernel, one statement a line; kernels with more to tell register their own."""
    return loop_text(kernel)


def loop_text(kernel: ir.LoopKernel) -> str:
    """The loops of a kernel."""
    arguments = [
        f"{_QUALIFIER[array.role]}{array.dtype} {array.name}[]" for array in kernel.arrays
    ] + [f"{kernel.index_dtype} {size}" for size in kernel.sizes]
    tiles = f"{kernel.index_dtype} {kernel.tile_var} in tiles of {expression_text(kernel.tiles)}"
    lines = [f"void {kernel.name}({', '.join(arguments)})", f"for ({tiles}) {{"]
    if isinstance(kernel, ir.GroupKernel):
        lines[1] = f"for ({tiles}, {kernel.threads} threads each) {{"
        lines += [
            f"    shared {array.dtype} {array.name}[{array.count}];" for array in kernel.shared
        ]
    _block(kernel.body, 1, lines)
    return "\n".join([*lines, "}"]) + "\n"


_QUALIFIER = {"in": "const ", "out": "", "inout": "inout "}


def statement_line(stmt: ir.Stmt) -> str:
    """A statement without what is inside its braces."""
    match stmt:
        case ir.Let(name, value):
            return f"const {value.dtype} {name} = {expression_text(value)};"
        case ir.Store(array, at, value, mask):
            guard = "" if mask is None else f"if ({expression_text(mask)}) "
            return f"{guard}{array}[{expression_text(at)}] = {expression_text(value)};"
        case ir.For(var, start, stop, _, vector, unroll):
            kind = "vector_for" if vector else "for"
            times = f" unroll({unroll})" if unroll else ""
            bounds = f"{expression_text(start)} .. {expression_text(stop)}"
            return f"{kind} ({start.dtype} {var} in {bounds}){times}"
        case ir.While(cond):
            return f"while ({expression_text(cond)})"
        case ir.If(cond):
            return f"if ({expression_text(cond)})"
        case ir.Accumulator(name, init):
            return f"{init.dtype} {name} = {expression_text(init)};"
        case ir.Accumulate(name, op, value):
            return f"{name} {_ASSIGNMENT.get(op, f'{op}=')} {expression_text(value)};"
        case ir.AccumulateArg(best, at, op, value, where):
            return f"({best}, {at}) {op}= ({expression_text(value)}, {expression_text(where)});"
        case ir.Require(cond, error):
            return f"require({expression_text(cond)}, {expression_text(error)});"
        case ir.Barrier():
            return "barrier();"
    raise TypeError(f"{stmt!r} is no loop IR statement")


_ASSIGNMENT = {"add": "+=", "mul": "*=", "and": "&=", "or": "|=", "xor": "^=", "set": "="}


def expression_text(expr: ir.Expr) -> str:
    """One expression, with no more parentheses than it needs."""
    return _expression(expr)[0]


def _block(block: ir.Block, depth: int, lines: list[str]) -> None:
    indent = "    " * depth
    for stmt in block:
        line = indent + statement_line(stmt)
        if isinstance(stmt, ir.For | ir.While | ir.If):
            lines.append(line + " {")
            _block(stmt.then if isinstance(stmt, ir.If) else stmt.body, depth + 1, lines)
            if isinstance(stmt, ir.If) and stmt.else_:
                lines.append(indent + "} else {")
                _block(stmt.else_, depth + 1, lines)
            lines.append(indent + "}")
        else:
            lines.append(line)


def _expression(expr: ir.Expr) -> tuple[str, int]:
    """Text and how tightly its outermost operator binds."""
    match expr:
        case ir.Const(value, dtype):
            return _constant(value, dtype)
        case ir.Name(name):
            return name, _ATOM
        case ir.Load(array, at, _, mask, other):
            text = f"{array}[{_expression(at)[0]}]"
            if mask is None:
                return text, _ATOM
            instead = "0" if other is None else _inside(other, _TERNARY)
            return f"{_inside(mask, _TERNARY + 1)} ? {text} : {instead}", _TERNARY
        case ir.Unary(op, x):
            if op in ("neg", "not"):
                sign = "-" if op == "neg" else "!" if x.dtype == ir.BOOL else "~"
                return sign + _inside(x, _PREFIX + 1), _PREFIX
            return f"{op}({_expression(x)[0]})", _ATOM
        case ir.Binary(op, a, b):
            if op in _INFIX:
                sign, level = _INFIX[op]
                return f"{_inside(a, level)} {sign} {_inside(b, level + 1)}", level
            return f"{op}({_expression(a)[0]}, {_expression(b)[0]})", _ATOM
        case ir.Fma() | ir.Rare() | ir.Iterate():
            parts = ", ".join(_expression(part)[0] for part in ir.children(expr))
            return f"{type(expr).__name__.lower()}({parts})", _ATOM
        case ir.Table(values, at, dtype):
            texts = ", ".join(_constant(value, dtype)[0] for value in values)
            return f"({dtype}[]){{{texts}}}[{_expression(at)[0]}]", _ATOM
        case ir.Select(cond, a, b):
            text = f"{_inside(cond, _TERNARY + 1)} ? {_inside(a, _TERNARY + 1)}"
            return f"{text} : {_inside(b, _TERNARY)}", _TERNARY
        case ir.Cast(x, dtype, fits):
            if fits:
                return f"{dtype}_fits({_expression(x)[0]})", _ATOM
            return f"({dtype}){_inside(x, _PREFIX)}", _PREFIX
        case ir.Bitcast(x, dtype):
            return f"bits_as_{dtype}({_expression(x)[0]})", _ATOM
        case _:
            raise TypeError(f"{expr!r} is no loop IR expression")


def _inside(expr: ir.Expr, level: int) -> str:
    text, own = _expression(expr)
    return text if own >= level else f"({text})"


def _constant(value: bool | int | float, dtype: DType) -> tuple[str, int]:
    if dtype.kind is Kind.BOOL:
        return ("true" if value else "false"), _ATOM
    if dtype.kind is Kind.FLOAT:
        text = repr(float(value))
        if dtype.bits == 32:
            text += "f" if isfinite(value) else ""
        elif dtype.bits < 32:
            text = f"({dtype}){text}"
    else:
        text = str(int(value))
        if dtype != ir.INT64:
            text = f"({dtype}){text}"
    is_signed = text.startswith(("-", "("))
    return text, _PREFIX if is_signed else _ATOM
