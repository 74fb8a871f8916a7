"""Loop IR as text of a language with C's operators and braces: what people read, C and WGSL have in
common.

In: expressions and statements. Out: text, and lines before it for parts that a statement has in
several places. Here is the form for people; a language has a class of its own that writes what
differs in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind

#: Text, and how tightly its outermost operator binds.
Bound: TypeAlias = tuple[str, int]

INFIX = {
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
TERNARY, COMPARED, PREFIX, ATOM = 3, 10, 14, 16


class Expressions:
    """Writes expressions, with no more parentheses than they need."""

    indent = "    "

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self._uses: Mapping[int, int] = {}
        self._parts: dict[int, str] = {}

    def line(self, text: str) -> None:
        self.lines.append(self.indent * self.depth + text)

    def texts(self, *roots: ir.Expr) -> list[str]:
        """The expressions of a statement; parts that they share are written once, before them."""
        uses = Counter(id(part) for expr in ir.walk(*roots) for part in ir.children(expr))
        uses.update(map(id, roots))
        self._uses, self._parts = uses, {}
        texts = [self.text(root) for root in roots]
        self._uses, self._parts = {}, {}
        return texts

    def text(self, expr: ir.Expr) -> str:
        return self.bound(expr)[0]

    def inside(self, expr: ir.Expr, level: int) -> str:
        """An expression as an operand of something that binds so tightly."""
        return parenthesised(*self.bound(expr), level)

    def bound(self, expr: ir.Expr) -> Bound:
        known = self._parts.get(id(expr))
        if known is not None:
            return known, ATOM
        text, level = self.expression(expr)
        if self._uses.get(id(expr), 0) > 1 and not self.is_short(expr):
            self._parts[id(expr)] = text = self.part(expr, text)
            level = ATOM
        return text, level

    def is_short(self, expr: ir.Expr) -> bool:
        """Whether a part is as well written twice."""
        return isinstance(expr, ir.Const | ir.Name)

    def part(self, expr: ir.Expr, text: str) -> str:
        """Declares a variable for a part, and names it."""
        raise NotImplementedError

    def expression(self, expr: ir.Expr) -> Bound:
        match expr:
            case ir.Const(value, dtype):
                return self.constant(value, dtype)
            case ir.Name(name):
                return self.name(name), ATOM
            case ir.Load():
                return self.load(expr)
            case ir.Unary(op, x):
                return self.unary(op, x)
            case ir.Binary(op, a, b):
                return self.binary(op, a, b)
            case ir.Table(values, at, dtype):
                return self.table([self.constant(v, dtype)[0] for v in values], at, dtype)
            case ir.Rare(cond, a, b):
                return self.rare(cond, a, b)
            case ir.Iterate():
                return self.called("iterate", *ir.children(expr))
            case ir.Fma(a, b, c):
                return self.fma(a, b, c)
            case ir.Select(cond, a, b):
                return self.select(cond, a, b)
            case ir.Cast(x, dtype, fits):
                return self.cast(x, dtype, fits)
            case ir.Bitcast(x, dtype):
                return self.bitcast(x, dtype)
        raise TypeError(f"{expr!r} is no loop IR expression")

    def called(self, name: str, *parts: ir.Expr) -> Bound:
        return f"{name}({', '.join(map(self.text, parts))})", ATOM

    def infix(self, sign: str, level: int, a: ir.Expr, b: ir.Expr) -> Bound:
        return f"{self.inside(a, level)} {sign} {self.inside(b, level + 1)}", level

    # What languages write in ways of their own.

    def name(self, name: str) -> str:
        return name

    def constant(self, value: bool | int | float, dtype: DType) -> Bound:
        if dtype.kind is Kind.BOOL:
            return ("true" if value else "false"), ATOM
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
        return text, PREFIX if is_signed else ATOM

    def load(self, load: ir.Load) -> Bound:
        text = f"{load.array}[{self.text(load.index)}]"
        if load.mask is None:
            return text, ATOM
        instead = "0" if load.other is None else self.inside(load.other, TERNARY)
        return f"{self.inside(load.mask, TERNARY + 1)} ? {text} : {instead}", TERNARY

    def unary(self, op: str, x: ir.Expr) -> Bound:
        if op in ("neg", "not"):
            sign = "-" if op == "neg" else "!" if x.dtype == ir.BOOL else "~"
            return sign + self.inside(x, PREFIX + 1), PREFIX
        return self.called(op, x)

    def binary(self, op: str, a: ir.Expr, b: ir.Expr) -> Bound:
        return self.infix(*INFIX[op], a, b) if op in INFIX else self.called(op, a, b)

    def table(self, values: list[str], at: ir.Expr, dtype: DType) -> Bound:
        return f"({dtype}[]){{{', '.join(values)}}}[{self.text(at)}]", ATOM

    def fma(self, a: ir.Expr, b: ir.Expr, c: ir.Expr) -> Bound:
        return self.called("fma", a, b, c)

    def select(self, cond: ir.Expr, a: ir.Expr, b: ir.Expr) -> Bound:
        text = f"{self.inside(cond, TERNARY + 1)} ? {self.inside(a, TERNARY + 1)}"
        return f"{text} : {self.inside(b, TERNARY)}", TERNARY

    def rare(self, cond: ir.Expr, a: ir.Expr, b: ir.Expr) -> Bound:
        return self.called("rare", cond, a, b)

    def cast(self, x: ir.Expr, dtype: DType, fits: bool) -> Bound:
        if fits:
            return self.called(f"{dtype}_fits", x)
        return f"({dtype}){self.inside(x, PREFIX)}", PREFIX

    def bitcast(self, x: ir.Expr, dtype: DType) -> Bound:
        return self.called(f"bits_as_{dtype}", x)


class Statements:
    """Writes statements, one a line; `write` has the lines, and writes the expressions."""

    def __init__(self, write: Expressions) -> None:
        self.write = write
        self.line, self.texts = write.line, write.texts

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def braced(self, head: str, *blocks: ir.Block) -> None:
        """A block in braces, or one and another that is done instead."""
        for number, block in enumerate(blocks):
            self.line("} else {" if number else f"{head} {{".lstrip())
            self.write.depth += 1
            self.block(block)
            self.write.depth -= 1
        self.line("}")

    def statement(self, stmt: ir.Stmt) -> None:
        """What is written alike by all; languages have the rest."""
        match stmt:
            case ir.If(cond, then, else_):
                [text] = self.texts(cond)
                self.braced(f"if ({text})", then, *((else_,) if else_ else ()))
            case ir.While(cond, body):
                # Computed in every round: no part of it has a variable.
                self.braced(f"while ({self.write.text(cond)})", body)
            case _:
                raise TypeError(f"{stmt!r} is no statement of this language")

    def body(self, function: ir.Function) -> None:
        """The lines of a function."""
        for stmt in function.body:
            self.statement(stmt)
        [result] = self.texts(function.result)
        self.line(f"return {result};")


def parenthesised(text: str, own: int, level: int) -> str:
    return text if own >= level else f"({text})"
