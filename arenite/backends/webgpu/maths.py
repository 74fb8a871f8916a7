"""Functions of the loop IR as WGSL functions: what an op is, spelled out once for all devices.

In: an op, or a cast, and the dtypes it is of. Out: the name of a WGSL function, whose text is kept
with those of all it calls. Fma may be rounded twice here, as WGSL has it.
"""

from __future__ import annotations

from arenite.backends.webgpu.expressions import Expressions, type_of
from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import definitions
from arenite.dtype import DType
from arenite.errors import NotCompiled


class Functions:
    """The functions that one shader needs, by name, in an order in which they can be read."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.helpers: set[str] = set()
        self._definitions = definitions(has_fma=False)

    def op(self, op: str, dtype: DType, constant: int | None = None) -> str:
        """The function of an op on operands of a dtype, the last one constant if that is given."""
        function = self._definitions.op(op, dtype, constant)
        if function is None:
            raise NotCompiled(f"{op} of {dtype} is not done on WebGPU yet")
        return self._written(function)

    def cast(self, source: DType, target: DType) -> str:
        return self._written(self._definitions.cast(source, target))

    def _written(self, function: ir.Function) -> str:
        name = f"{function.name}_"
        if name not in self.texts:
            self.texts[name] = _Writer(function, self).text(name)
        return name


class _Writer:
    """Writes one function."""

    def __init__(self, function: ir.Function, functions: Functions) -> None:
        self.function = function
        self.write = Expressions(frozenset(), lambda name: f"{name}_", functions)
        self.depth = 1

    def text(self, name: str) -> str:
        function = self.function
        parameters = ", ".join(f"{p.name}_: {type_of(p.dtype)}" for p in function.parameters)
        try:
            self.block(function.body)
            [result] = self.expression(function.result)
        except NotCompiled as refusal:
            raise NotCompiled(f"{function.name} is not done on WebGPU yet: {refusal}") from None
        self.line(f"return {result};")
        head = f"fn {name}({parameters}) -> {type_of(function.result.dtype)} {{"
        return "\n".join([head, *self.write.lines, "}"])

    def line(self, text: str) -> None:
        self.write.lines.append("  " * self.depth + text)

    def expression(self, *roots: ir.Expr) -> list[str]:
        return self.write.statement(roots, "  " * self.depth)

    def block(self, block: ir.Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def braced(self, head: str, block: ir.Block) -> None:
        self.line(f"{head} {{")
        self.depth += 1
        self.block(block)
        self.depth -= 1
        self.line("}")

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(name, value):
                [text] = self.expression(value)
                self.write.define(name, value)
                self.line(f"let {name}_ = {text};")
            case ir.Accumulator(name, init):
                [text] = self.expression(init)
                self.line(f"var {name}_: {type_of(init.dtype)} = {text};")
            case ir.Accumulate(name, "set", value):
                [text] = self.expression(value)
                self.line(f"{name}_ = {text};")
            case ir.If(cond, then, else_):
                [text] = self.expression(cond)
                self.braced(f"if ({text})", then)
                if else_:
                    self.braced("else", else_)
            case ir.While(cond, body):
                self.line("loop {")
                self.depth += 1
                [text] = self.expression(cond)
                self.line(f"if (!{text}) {{ break; }}")
                self.block(body)
                self.depth -= 1
                self.line("}")
            case _:
                raise TypeError(f"{stmt!r} is no statement of a function")
