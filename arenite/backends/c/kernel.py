"""A LoopKernel as a function of C.

    static void name(const f32 *in0, f32 *out0, int64_t size_n, int64_t tile_begin,
                     int64_t tile_end, int *error)

It does the tiles from `tile_begin` on, before `tile_end`; a kernel of one tile has neither. `error`
is there where the kernel has something to require. What is not used of a name is not written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arenite.backends.c.c_types import Names, element_type, suffix, value_type
from arenite.backends.c.expressions import Expressions
from arenite.backends.c.helpers import Helpers
from arenite.codegen import loop_ir as ir
from arenite.codegen import source
from arenite.codegen.check import check
from arenite.dtype import DType, Kind

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
    taken = Names(*(array.name for array in kernel.arrays), "tile_begin", "tile_end")
    write = Expressions(Helpers(), taken=taken)
    out = StatementWriter(kernel.body, write)
    for size in (*kernel.sizes, kernel.tile_var, ir.WORKER.name):
        out.name(size)
        write.bind_size(size)
    has_tiles = kernel.tiles != ir.index(1)
    has_error = any(isinstance(stmt, ir.Require) for stmt in ir.statements(kernel.body))
    sizes = tuple(size for size in kernel.sizes if size in out.used)
    tile = write.name(kernel.tile_var)
    if ir.WORKER.name in out.used:
        out.line("const int64_t worker = 0;")
    if has_tiles:
        head = f"for (int64_t {tile} = tile_begin; {tile} < tile_end; {tile}++)"
        out.braced(head, kernel.body)
    else:
        write.numbers[kernel.tile_var] = 0
        out.block(kernel.body)
    parameters = [
        f"{'const ' if array.role == 'in' else ''}{element_type(array.dtype)} *{array.name}"
        for array in kernel.arrays
    ]
    parameters += [f"int64_t {write.name(s)}" for s in sizes]
    parameters += ["int64_t tile_begin", "int64_t tile_end"] if has_tiles else []
    parameters += ["int *error"] if has_error else []
    head = f"static void {name}("
    body = _without_unused(write.lines)
    named = set(re.findall(r"\w+", " ".join(body)))
    given = [parameter.split(" ")[-1].lstrip("*") for parameter in parameters]
    body = [*(f"    (void){one};" for one in given if one not in named), *body]
    lines = [*wrapped(head, parameters or ["void"], ") {"), *body, "}", ""]
    text = "\n".join(lines)
    return CKernel(name, text, sizes, write.helpers.names, has_tiles, has_error)


def function_source(function: ir.Function, name: str, helpers: Helpers) -> str:
    """A function of scalars, which is called `name`; `helpers` learns what it calls."""
    result = ir.Let("result", function.result)
    writer = StatementWriter((*function.body, result), Expressions(helpers, name))
    parameters = [f"{value_type(p.dtype)} {writer.name(p.name)}" for p in function.parameters]
    writer.body(function)
    head = f"static inline {value_type(function.result.dtype)} {name}({', '.join(parameters)}) {{"
    return "\n".join([head, *_without_unused(writer.write.lines), "}", ""])


def _used(block: ir.Block) -> set[str]:
    """Names that are read."""
    parts = ir.walk(*(e for stmt in ir.statements(block) for e in ir.expressions(stmt)))
    return {part.name for part in parts if isinstance(part, ir.Name)}


class StatementWriter(source.Statements):
    """Statements of C."""

    write: Expressions

    def __init__(self, body: ir.Block, write: Expressions) -> None:
        super().__init__(write)
        self.used = _used(body)

    def name(self, name: str) -> str:
        """Takes a name for a variable."""
        spelled = self.write.taken.take(name)
        if spelled != name:
            self.write.names[name] = spelled
        return spelled

    def block(self, block: ir.Block) -> None:
        with self._scope():
            super().block(block)

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Names that are made inside are forgotten behind it."""
        known, taken = self.write, self.write.taken.copy()
        saved = dict(known.names), set(known.indices), dict(known.positive)
        yield
        known.taken = taken
        known.names, known.indices, known.positive = saved

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(name, value):
                self._let(name, value)
            case ir.Store(array):
                index, text, *masks = self.texts(*ir.expressions(stmt))
                guard = "".join(f"if ({one}) " for one in masks)
                self.line(f"{guard}{array}[{index}] = {text};")
            case ir.For():
                self._loop(stmt)
            case ir.Accumulator(name, init):
                # Not an index, though it may be a whole number: it holds what is accumulated.
                self.write.numbers.pop(name, None)
                [text] = self.texts(init)
                self.line(f"{value_type(init.dtype)} {self.name(name)} = {text};")
            case ir.Accumulate(name, op, value):
                self._accumulate(name, op, value)
            case ir.AccumulateArg():
                self._accumulate_arg(stmt)
            case ir.Require(cond, error):
                condition, code = self.texts(cond, error)
                code = code if code.isalnum() else f"({code})"
                self.line(f"if (!({condition})) *error = (int){code};")
            case _:
                super().statement(stmt)

    def _let(self, name: str, value: ir.Expr) -> None:
        if name not in self.used:
            return
        number = self.write.number_of(value)
        if number is not None:
            self.write.numbers[name] = number
            return
        self.write.numbers.pop(name, None)
        [text] = self.texts(value)
        self.write.bind(name, value)
        self.line(f"const {value_type(value.dtype)} {self.name(name)} = {text};")

    def _loop(self, loop: ir.For) -> None:
        write = self.write
        start, stop = self.texts(loop.start, loop.stop)
        end = stop
        if write.number_of(loop.stop) is None and not isinstance(loop.stop, ir.Name):
            # It stands beside the loop: its name is taken for those that follow, too.
            end = write.taken.take(f"{loop.var}_end")
            self.line(f"const int64_t {end} = {stop};")
        with self._scope():
            write.bind(loop.var, loop.start)
            write.numbers.pop(loop.var, None)
            var = self.name(loop.var)
            sums = _float_sums(loop)
            if sums:
                self._sum_loop(loop, var, start, end, sums)
            else:
                if _is_independent(loop):
                    self.line("INDEPENDENT")
                self.braced(f"for (int64_t {var} = {start}; {var} < {end}; {var}++)", loop.body)

    def _sum_loop(
        self, loop: ir.For, var: str, start: str, end: str, sums: dict[str, DType]
    ) -> None:
        """Sums of floats may be added up in any order: side by side where the compiler is told so,
        and in blocks where there are many terms, which rounds less."""
        write = self.write
        names = [write.name(name) for name in sums]
        count = write.number_of(loop.stop)
        if count is not None and count <= LONG_SUM:
            self.line(f"SIDE_BY_SIDE({', '.join(names)})")
            self.braced(f"for (int64_t {var} = {start}; {var} < {end}; {var}++)", loop.body)
            return
        block, least = write.taken.take(f"{var}_block"), write.helpers.use("min_i64")
        self.line(f"for (int64_t {block} = {start}; {block} < {end}; {block} += {BLOCK}) {{")
        write.depth += 1
        parts = [write.taken.take(f"{name}_part") for name in names]
        for (name, dtype), part in zip(sums.items(), parts, strict=True):
            self.line(f"{value_type(dtype)} {part} = 0;")
            write.names[name] = part
        self.line(f"const int64_t {block}_end = {least}({block} + {BLOCK}, {end});")
        self.line(f"SIDE_BY_SIDE({', '.join(parts)})")
        self.braced(f"for (int64_t {var} = {block}; {var} < {block}_end; {var}++)", loop.body)
        for name, part in zip(names, parts, strict=True):
            self.line(f"{name} += {part};")
        write.depth -= 1
        self.line("}")

    def _accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        dtype, target = value.dtype, self.write.name(name)
        if op != "add" or dtype.kind is not Kind.FLOAT:
            combined = value if op == "set" else ir.Binary(op, ir.Name(name, dtype), value)
            self.line(f"{target} = {self.texts(combined)[0]};")
        elif isinstance(value, ir.Binary) and value.op == "mul":
            helper = self.write.helpers.use(f"multiply_add_{suffix(dtype)}")
            a, b = self.texts(value.a, value.b)
            self.line(f"{target} = {helper}({a}, {b}, {target});")
        else:
            self.line(f"{target} += {self.texts(value)[0]};")

    def _accumulate_arg(self, stmt: ir.AccumulateArg) -> None:
        best, at = (self.write.name(name) for name in (stmt.best, stmt.at))
        value, place = self.write.taken.take("value"), self.write.taken.take("place")
        sign = ">" if stmt.op == "argmax" else "<"
        beats, ties = f"{value} {sign} {best}", f"{value} == {best}"
        if stmt.value.dtype.kind is Kind.FLOAT:  # NaN beats all
            beats += f" || ({value} != {value} && {best} == {best})"
            ties = f"({ties} || ({value} != {value} && {best} != {best}))"
        text, index = self.texts(stmt.value, stmt.index)
        self.line("{")
        self.line(f"    const {value_type(stmt.value.dtype)} {value} = {text};")
        self.line(f"    const int64_t {place} = {index};")
        self.line(f"    if ({beats} || ({ties} && {place} < {at})) {{")
        self.line(f"        {best} = {value};")
        self.line(f"        {at} = {place};")
        self.line("    }")
        self.line("}")


def _is_independent(loop: ir.For) -> bool:
    """Whether the iterations of a loop share nothing at all, and no such loop is inside."""
    if not loop.vector:
        return False
    inside = list(ir.statements(loop.body))
    own = {stmt.name for stmt in inside if isinstance(stmt, ir.Accumulator)}
    is_alone = all(own.issuperset(ir.changed(stmt)) for stmt in inside)
    ordered = (isinstance(s, ir.Require) or (isinstance(s, ir.For) and s.vector) for s in inside)
    return is_alone and not any(ordered)


def _float_sums(loop: ir.For) -> dict[str, DType]:
    """The sums of floats that a vector loop adds to, if it does nothing else."""
    if not loop.vector or not all(isinstance(s, ir.Let | ir.Accumulate) for s in loop.body):
        return {}
    sums = [stmt for stmt in loop.body if isinstance(stmt, ir.Accumulate)]
    is_sum = all(s.op == "add" and s.value.dtype.kind is Kind.FLOAT for s in sums)
    return {stmt.name: stmt.value.dtype for stmt in sums} if is_sum else {}


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
