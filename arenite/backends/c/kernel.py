"""A LoopKernel as a function of C.

    static void name(const f32 *in0, f32 *out0, int64_t size_n, int64_t tile_begin,
                     int64_t tile_end, int *error)

It does the tiles from `tile_begin` on, before `tile_end`; a kernel of one tile has neither. `error`
is there where the kernel has something to require. What is not used of a name is not written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arenite.backends.c.c_types import Names, element_type, suffix, value_type
from arenite.backends.c.expressions import Expressions
from arenite.backends.c.helpers import Helpers
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check
from arenite.dtype import Kind

_WIDTH = 96


@dataclass(frozen=True, slots=True)
class CKernel:
    """A function: its text, and what a call hands over behind the arrays."""

    name: str
    text: str
    sizes: tuple[str, ...]
    helpers: tuple[str, ...]  # functions that it calls
    has_tiles: bool
    has_error: bool


def kernel_source(kernel: ir.LoopKernel, name: str) -> CKernel:
    """The function of a kernel, which is called `name`."""
    check(kernel)
    return _Writer(kernel, name, Helpers()).write()


def _statements(block: ir.Block) -> Iterator[ir.Stmt]:
    for stmt in block:
        yield stmt
        for inner in ir.blocks(stmt):
            yield from _statements(inner)


def _used(block: ir.Block) -> Counter[str]:
    """How often names and arrays are read or written."""
    found: Counter[str] = Counter()
    for stmt in _statements(block):
        for part in ir.walk(*ir.expressions(stmt)):
            if isinstance(part, ir.Name):
                found[part.name] += 1
            elif isinstance(part, ir.Load):
                found[part.array] += 1
        if isinstance(stmt, ir.Store):
            found[stmt.array] += 1
    return found


class _Writer:
    def __init__(self, kernel: ir.LoopKernel, name: str, helpers: Helpers) -> None:
        self.kernel, self.name = kernel, name
        self.helpers = helpers
        self.expressions = Expressions(helpers)
        self.lines: list[str] = []
        self.depth = 1
        self.n_parts = 0
        self.used = _used(kernel.body)
        self.names = Names(*(array.name for array in kernel.arrays), "tile_begin", "tile_end")
        self.arrays = {array.name: array for array in kernel.arrays}
        for size in (*kernel.sizes, kernel.tile_var, ir.WORKER.name):
            self._name(size)
            self.expressions.bind_size(size)

    def _name(self, name: str) -> str:
        spelled = self.names.take(name)
        if spelled != name:
            self.expressions.names[name] = spelled
        return spelled

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _text(self, expr: ir.Expr) -> str:
        return self.expressions.text(expr)

    def write(self) -> CKernel:
        kernel = self.kernel
        has_tiles = kernel.tiles != ir.index(1)
        has_error = any(isinstance(stmt, ir.Require) for stmt in _statements(kernel.body))
        sizes = tuple(size for size in kernel.sizes if self.used[size])
        tile = self.expressions.names.get(kernel.tile_var, kernel.tile_var)
        for array in kernel.arrays:
            if not self.used[array.name]:
                self._line(f"(void){array.name};")
        if self.used[ir.WORKER.name]:
            self._line("const int64_t worker = 0;")
        if has_tiles:
            self._line(f"for (int64_t {tile} = tile_begin; {tile} < tile_end; {tile}++) {{")
            self.depth += 1
        else:
            self.expressions.numbers[kernel.tile_var] = 0
        self._block(kernel.body)
        if has_tiles:
            self.depth -= 1
            self._line("}")
        parameters = [
            f"{'const ' if array.role == 'in' else ''}{element_type(array.dtype)} *{array.name}"
            for array in kernel.arrays
        ]
        parameters += [f"int64_t {self.expressions.names.get(s, s)}" for s in sizes]
        parameters += ["int64_t tile_begin", "int64_t tile_end"] if has_tiles else []
        parameters += ["int *error"] if has_error else []
        head = f"static void {self.name}("
        body = _without_unused(self.lines)
        lines = [*wrapped(head, parameters or ["void"], ") {"), *body, "}", ""]
        text = "\n".join(lines)
        return CKernel(self.name, text, sizes, self.helpers.names, has_tiles, has_error)

    # Statements.

    def _block(self, block: ir.Block) -> None:
        for stmt in block:
            self._statement(stmt)

    def _statement(self, stmt: ir.Stmt) -> None:
        hoisted = self.expressions.hoisted
        if not (isinstance(stmt, ir.Let) and not self.used[stmt.name]):
            self._hoist(ir.expressions(stmt))
        match stmt:
            case ir.Let(name, value):
                self._let(name, value)
            case ir.Store(array, at, value, mask):
                guard = "" if mask is None else f"if ({self._text(mask)}) "
                self._line(f"{guard}{array}[{self._text(at)}] = {self._text(value)};")
            case ir.For():
                self._loop(stmt)
            case ir.If(cond, then, else_):
                self._if(cond, then, else_)
            case ir.Accumulator(name, init):
                # Not an index, though it may be a whole number: it holds what is accumulated.
                self.expressions.numbers.pop(name, None)
                spelled = self._name(name)
                self._line(f"{value_type(init.dtype)} {spelled} = {self._text(init)};")
                if not self.used[name]:
                    self._line(f"(void){spelled};")
            case ir.Accumulate(name, op, value):
                self._accumulate(self.expressions.names.get(name, name), op, value)
            case ir.AccumulateArg():
                self._accumulate_arg(stmt)
            case ir.Require(cond, error):
                self._line(f"if (!({self._text(cond)})) *error = (int){self._atom(error)};")
        hoisted.clear()

    def _atom(self, expr: ir.Expr) -> str:
        text = self._text(expr)
        return text if text.isalnum() else f"({text})"

    def _hoist(self, roots: tuple[ir.Expr, ...]) -> None:
        """Variables for parts that a statement has in several places."""
        uses: Counter[int] = Counter()
        order: dict[int, ir.Expr] = {}
        for part in ir.walk(*roots):
            uses.update(id(child) for child in ir.children(part))
        uses.update(map(id, roots))
        for part in _inner_first(roots):
            order[id(part)] = part
        for key, part in order.items():
            is_known = self.expressions.number_of(part) is not None
            if uses[key] > 1 and not is_known and not isinstance(part, ir.Name | ir.Const):
                self.n_parts += 1
                name = self.names.take(f"part_{self.n_parts}")
                text = self._text(part)
                self._line(f"const {value_type(part.dtype)} {name} = {text};")
                self.expressions.hoisted[key] = name

    def _let(self, name: str, value: ir.Expr) -> None:
        if not self.used[name]:
            return
        number = self.expressions.number_of(value)
        if number is not None:
            self.expressions.numbers[name] = number
            return
        self.expressions.numbers.pop(name, None)
        text = self._text(value)
        self.expressions.bind(name, value)
        self._line(f"const {value_type(value.dtype)} {self._name(name)} = {text};")

    def _if(self, cond: ir.Expr, then: ir.Block, else_: ir.Block) -> None:
        self._line(f"if ({self._text(cond)}) {{")
        self.expressions.hoisted.clear()
        self._nested(then)
        if else_:
            self._line("} else {")
            self._nested(else_)
        self._line("}")

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Names that are made inside are forgotten behind it."""
        names, known = self.names.copy(), self.expressions
        saved = dict(known.names), set(known.indices), set(known.positive)
        yield
        self.names = names
        known.names, known.indices, known.positive = saved

    def _nested(self, block: ir.Block) -> None:
        self.depth += 1
        with self._scope():
            self._block(block)
        self.depth -= 1

    def _loop(self, loop: ir.For) -> None:
        with self._scope():
            start, stop = self._text(loop.start), self._text(loop.stop)
            self.expressions.bind(loop.var, loop.start)
            self.expressions.hoisted.clear()
            self.expressions.numbers.pop(loop.var, None)
            var = self._name(loop.var)
            first, end = f"int64_t {var} = {start}", stop
            is_known = self.expressions.number_of(loop.stop) is not None
            if not is_known and not isinstance(loop.stop, ir.Name):
                end = self.names.take(f"{var}_end")
                first = f"{first}, {end} = {stop}"
            self._line(f"for ({first}; {var} < {end}; {var}++) {{")
            self._nested(loop.body)
        self._line("}")

    def _accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        dtype = value.dtype
        if dtype.kind is Kind.FLOAT and op == "add":
            if isinstance(value, ir.Binary) and value.op == "mul":
                helper = self.helpers.use(f"multiply_add_{suffix(dtype)}")
                a, b = self._text(value.a), self._text(value.b)
                self._line(f"{name} = {helper}({a}, {b}, {name});")
            else:
                self._line(f"{name} += {self._text(value)};")
        elif op == "set":
            self._line(f"{name} = {self._text(value)};")
        else:
            held = self.names.take("held")
            self.expressions.names[held] = name
            combined = self._text(ir.Binary(op, ir.Name(held, dtype), value))
            self._line(f"{name} = {combined};")

    def _accumulate_arg(self, stmt: ir.AccumulateArg) -> None:
        best, at = (self.expressions.names.get(n, n) for n in (stmt.best, stmt.at))
        value, place = self.names.take("value"), self.names.take("place")
        sign = ">" if stmt.op == "argmax" else "<"
        beats, ties = f"{value} {sign} {best}", f"{value} == {best}"
        if stmt.value.dtype.kind is Kind.FLOAT:  # NaN beats all
            beats += f" || ({value} != {value} && {best} == {best})"
            ties = f"({ties} || ({value} != {value} && {best} != {best}))"
        self._line("{")
        self.depth += 1
        self._line(f"const {value_type(stmt.value.dtype)} {value} = {self._text(stmt.value)};")
        self._line(f"const int64_t {place} = {self._text(stmt.index)};")
        self._line(f"if ({beats} || ({ties} && {place} < {at})) {{")
        self._line(f"    {best} = {value};")
        self._line(f"    {at} = {place};")
        self._line("}")
        self.depth -= 1
        self._line("}")


_CONSTANT = re.compile(r"\s*const \w+ (\w+) = ")


def _without_unused(lines: list[str]) -> list[str]:
    """Without variables that nothing behind them names, since what would have was folded away."""
    named: set[str] = set()
    kept: list[str] = []
    for line in reversed(lines):
        found = _CONSTANT.match(line)
        if found is None or found[1] in named:
            named.update(re.findall(r"\w+", line))
            kept.append(line)
    return kept[::-1]


def _inner_first(roots: Iterable[ir.Expr]) -> list[ir.Expr]:
    """All expressions, each behind those it is made of."""
    done: dict[int, ir.Expr] = {}
    pending: list[tuple[ir.Expr, bool]] = [(root, False) for root in reversed(list(roots))]
    while pending:
        expr, is_ready = pending.pop()
        if id(expr) in done:
            continue
        if is_ready:
            done[id(expr)] = expr
            continue
        pending.append((expr, True))
        pending += [(child, False) for child in ir.children(expr)]
    return list(done.values())


def wrapped(head: str, parts: list[str], tail: str) -> list[str]:
    """`head`, the parts with commas between, and `tail`, in lines that are not too long."""
    lines = [head]
    indent = " " * len(head) if len(head) < 40 else "        "
    for k, part in enumerate(parts):
        text = part + (tail if k == len(parts) - 1 else ",")
        if len(lines[-1]) + len(text) + 1 > _WIDTH and lines[-1].strip():
            lines.append(indent + text)
        else:
            lines[-1] += text if k == 0 else f" {text}"
    return lines
