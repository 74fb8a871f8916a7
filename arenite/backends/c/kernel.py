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
#: Terms of a sum that are added up one after the other, and those of a block where there are more.
LONG_SUM, BLOCK = 512, 256


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
    return _KernelWriter(kernel, name).write()


def function_source(function: ir.Function, name: str, helpers: Helpers) -> str:
    """A function of scalars, which is called `name`; `helpers` learns what it calls."""
    result = ir.Let("result", function.result)
    writer = StatementWriter((*function.body, result), helpers)
    parameters = [f"{value_type(p.dtype)} {writer.name(p.name)}" for p in function.parameters]
    writer.block(function.body)
    body = _without_unused([*writer.lines, f"    return {writer.text(function.result)};"])
    head = f"static inline {value_type(function.result.dtype)} {name}({', '.join(parameters)}) {{"
    return "\n".join([head, *body, "}", ""])


def _used(block: ir.Block) -> Counter[str]:
    """How often names and arrays are read or written."""
    found: Counter[str] = Counter()
    for stmt in ir.statements(block):
        for part in ir.walk(*ir.expressions(stmt)):
            if isinstance(part, ir.Name):
                found[part.name] += 1
            elif isinstance(part, ir.Load):
                found[part.array] += 1
        if isinstance(stmt, ir.Store):
            found[stmt.array] += 1
    return found


class _KernelWriter:
    def __init__(self, kernel: ir.LoopKernel, name: str) -> None:
        self.kernel, self.name = kernel, name
        arrays = [array.name for array in kernel.arrays]
        self.out = StatementWriter(kernel.body, Helpers(), *arrays, "tile_begin", "tile_end")
        for size in (*kernel.sizes, kernel.tile_var, ir.WORKER.name):
            self.out.name(size)
            self.out.expressions.bind_size(size)

    def write(self) -> CKernel:
        kernel, out = self.kernel, self.out
        has_tiles = kernel.tiles != ir.index(1)
        has_error = any(isinstance(stmt, ir.Require) for stmt in ir.statements(kernel.body))
        sizes = tuple(size for size in kernel.sizes if out.used[size])
        tile = out.expressions.names.get(kernel.tile_var, kernel.tile_var)
        if out.used[ir.WORKER.name]:
            out.line("const int64_t worker = 0;")
        if has_tiles:
            out.line(f"for (int64_t {tile} = tile_begin; {tile} < tile_end; {tile}++) {{")
            out.depth += 1
        else:
            out.expressions.numbers[kernel.tile_var] = 0
        out.block(kernel.body)
        if has_tiles:
            out.depth -= 1
            out.line("}")
        parameters = [
            f"{'const ' if array.role == 'in' else ''}{element_type(array.dtype)} *{array.name}"
            for array in kernel.arrays
        ]
        parameters += [f"int64_t {out.expressions.names.get(s, s)}" for s in sizes]
        parameters += ["int64_t tile_begin", "int64_t tile_end"] if has_tiles else []
        parameters += ["int *error"] if has_error else []
        head = f"static void {self.name}("
        body = _without_unused(out.lines)
        named = set(re.findall(r"\w+", " ".join(body)))
        given = [parameter.split(" ")[-1].lstrip("*") for parameter in parameters]
        body = [*(f"    (void){name};" for name in given if name not in named), *body]
        lines = [*wrapped(head, parameters or ["void"], ") {"), *body, "}", ""]
        text = "\n".join(lines)
        return CKernel(self.name, text, sizes, out.helpers.names, has_tiles, has_error)


class StatementWriter:
    """Statements, one a line; `taken` are names that none of theirs may be."""

    def __init__(self, body: ir.Block, helpers: Helpers, *taken: str) -> None:
        self.helpers = helpers
        self.expressions = Expressions(helpers)
        self.lines: list[str] = []
        self.depth = 1
        self.n_parts = 0
        self.used = _used(body)
        self.names = Names(*taken)

    def name(self, name: str) -> str:
        spelled = self.names.take(name)
        if spelled != name:
            self.expressions.names[name] = spelled
        return spelled

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def text(self, expr: ir.Expr) -> str:
        return self.expressions.text(expr)

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self._statement(stmt)

    def _statement(self, stmt: ir.Stmt) -> None:
        hoisted = self.expressions.hoisted
        # The condition of a loop is computed in every round.
        is_unused = isinstance(stmt, ir.Let) and not self.used[stmt.name]
        if not is_unused and not isinstance(stmt, ir.While):
            self._hoist(ir.expressions(stmt))
        match stmt:
            case ir.Let(name, value):
                self._let(name, value)
            case ir.Store(array, at, value, mask):
                guard = "" if mask is None else f"if ({self.text(mask)}) "
                self.line(f"{guard}{array}[{self.text(at)}] = {self.text(value)};")
            case ir.For():
                self._loop(stmt)
            case ir.If(cond, then, else_):
                self._if(cond, then, else_)
            case ir.While(cond, body):
                self.line(f"while ({self.text(cond)}) {{")
                self._nested(body)
                self.line("}")
            case ir.Accumulator(name, init):
                # Not an index, though it may be a whole number: it holds what is accumulated.
                self.expressions.numbers.pop(name, None)
                text = self.text(init)
                self.line(f"{value_type(init.dtype)} {self.name(name)} = {text};")
            case ir.Accumulate(name, op, value):
                self._accumulate(self.expressions.names.get(name, name), op, value)
            case ir.AccumulateArg():
                self._accumulate_arg(stmt)
            case ir.Require(cond, error):
                self.line(f"if (!({self.text(cond)})) *error = (int){self._atom(error)};")
        hoisted.clear()

    def _atom(self, expr: ir.Expr) -> str:
        text = self.text(expr)
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
                text = self.text(part)
                self.line(f"const {value_type(part.dtype)} {name} = {text};")
                self.expressions.hoisted[key] = name

    def _let(self, name: str, value: ir.Expr) -> None:
        if not self.used[name]:
            return
        number = self.expressions.number_of(value)
        if number is not None:
            self.expressions.numbers[name] = number
            return
        self.expressions.numbers.pop(name, None)
        text = self.text(value)
        self.expressions.bind(name, value)
        self.line(f"const {value_type(value.dtype)} {self.name(name)} = {text};")

    def _if(self, cond: ir.Expr, then: ir.Block, else_: ir.Block) -> None:
        self.line(f"if ({self.text(cond)}) {{")
        self.expressions.hoisted.clear()
        self._nested(then)
        if else_:
            self.line("} else {")
            self._nested(else_)
        self.line("}")

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
            self.block(block)
        self.depth -= 1

    def _loop(self, loop: ir.For) -> None:
        with self._scope():
            start, stop = self.text(loop.start), self.text(loop.stop)
            self.expressions.bind(loop.var, loop.start)
            self.expressions.hoisted.clear()
            self.expressions.numbers.pop(loop.var, None)
            var = self.name(loop.var)
            first, end = f"int64_t {var} = {start}", stop
            is_known = self.expressions.number_of(loop.stop) is not None
            if not is_known and not isinstance(loop.stop, ir.Name):
                end = self.names.take(f"{var}_end")
                self.line(f"const int64_t {end} = {stop};")
            sums = _float_sums(loop)
            if sums:
                self._sum_loop(loop, first, end, [self.expressions.names.get(n, n) for n in sums])
            else:
                if _is_independent(loop):
                    self.line("INDEPENDENT")
                self.line(f"for ({first}; {var} < {end}; {var}++) {{")
                self._nested(loop.body)
                self.line("}")

    def _sum_loop(self, loop: ir.For, first: str, end: str, sums: list[str]) -> None:
        """Sums of floats may be added up in any order: side by side where the compiler is told so,
        and in blocks where there are many terms, which rounds less."""
        var = self.expressions.names.get(loop.var, loop.var)
        stop = self.expressions.number_of(loop.stop)
        is_short = stop is not None and stop <= LONG_SUM
        if is_short:
            self.line(f"SIDE_BY_SIDE({', '.join(sums)})")
            self.line(f"for ({first}; {var} < {end}; {var}++) {{")
            self._nested(loop.body)
            self.line("}")
            return
        block, least = self.names.take(f"{var}_block"), self.helpers.use("min_i64")
        outer = first.replace(f"int64_t {var} =", f"int64_t {block} =", 1)
        self.line(f"for ({outer}; {block} < {end}; {block} += {BLOCK}) {{")
        self.depth += 1
        parts = [self.names.take(f"{name}_part") for name in sums]
        kinds = {s.name: s.value.dtype for s in loop.body if isinstance(s, ir.Accumulate)}
        for (name, dtype), part in zip(kinds.items(), parts, strict=True):
            self.line(f"{value_type(dtype)} {part} = 0;")
            self.expressions.names[name] = part
        self.line(f"const int64_t {block}_end = {least}({block} + {BLOCK}, {end});")
        self.line(f"SIDE_BY_SIDE({', '.join(parts)})")
        self.line(f"for (int64_t {var} = {block}; {var} < {block}_end; {var}++) {{")
        self._nested(loop.body)
        self.line("}")
        for name, part in zip(sums, parts, strict=True):
            self.line(f"{name} += {part};")
        self.depth -= 1
        self.line("}")

    def _accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        dtype = value.dtype
        if dtype.kind is Kind.FLOAT and op == "add":
            if isinstance(value, ir.Binary) and value.op == "mul":
                helper = self.helpers.use(f"multiply_add_{suffix(dtype)}")
                a, b = self.text(value.a), self.text(value.b)
                self.line(f"{name} = {helper}({a}, {b}, {name});")
            else:
                self.line(f"{name} += {self.text(value)};")
        elif op == "set":
            self.line(f"{name} = {self.text(value)};")
        else:
            held = self.names.take("held")
            self.expressions.names[held] = name
            combined = self.text(ir.Binary(op, ir.Name(held, dtype), value))
            self.line(f"{name} = {combined};")

    def _accumulate_arg(self, stmt: ir.AccumulateArg) -> None:
        best, at = (self.expressions.names.get(n, n) for n in (stmt.best, stmt.at))
        value, place = self.names.take("value"), self.names.take("place")
        sign = ">" if stmt.op == "argmax" else "<"
        beats, ties = f"{value} {sign} {best}", f"{value} == {best}"
        if stmt.value.dtype.kind is Kind.FLOAT:  # NaN beats all
            beats += f" || ({value} != {value} && {best} == {best})"
            ties = f"({ties} || ({value} != {value} && {best} != {best}))"
        self.line("{")
        self.depth += 1
        self.line(f"const {value_type(stmt.value.dtype)} {value} = {self.text(stmt.value)};")
        self.line(f"const int64_t {place} = {self.text(stmt.index)};")
        self.line(f"if ({beats} || ({ties} && {place} < {at})) {{")
        self.line(f"    {best} = {value};")
        self.line(f"    {at} = {place};")
        self.line("}")
        self.depth -= 1
        self.line("}")


def _is_independent(loop: ir.For) -> bool:
    """Whether the iterations of a loop share nothing at all, and no such loop is inside."""
    if not loop.vector:
        return False
    inside = list(ir.statements(loop.body))
    own = {stmt.name for stmt in inside if isinstance(stmt, ir.Accumulator)}
    for stmt in inside:
        match stmt:
            case ir.Accumulate(name) | ir.AccumulateArg(best=name) if name not in own:
                return False
            case ir.Require() | ir.For(vector=True):
                return False
    return True


def _float_sums(loop: ir.For) -> list[str]:
    """The sums of floats that a vector loop adds to, if it does nothing else."""
    if not loop.vector or not all(isinstance(s, ir.Let | ir.Accumulate) for s in loop.body):
        return []
    sums = [stmt for stmt in loop.body if isinstance(stmt, ir.Accumulate)]
    is_sum = all(s.op == "add" and s.value.dtype.kind is Kind.FLOAT for s in sums)
    return list(dict.fromkeys(stmt.name for stmt in sums)) if is_sum else []


_DECLARED = re.compile(r"(\s*)(?:const )?(?:u?int\d+_t|float|double|bool) (\w+) = ")
_ASSIGNED = re.compile(r"\s*(\w+) \+?= ")


def _without_unused(lines: list[str]) -> list[str]:
    """Without variables that nothing behind them names, since what would have was folded away; with
    a word to the compiler where one is changed and not read."""
    named: set[str] = set()
    read: set[str] = set()
    kept: list[str] = []
    for line in reversed(lines):
        declared, assigned = _DECLARED.match(line), _ASSIGNED.match(line)
        words = set(re.findall(r"\w+", line))
        if declared is not None:
            if declared[2] not in named:
                continue
            if declared[2] not in read:
                kept.append(f"{declared[1]}(void){declared[2]};")
        named |= words
        read |= words - {assigned[1]} if assigned is not None else words
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
