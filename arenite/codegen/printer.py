"""A loop kernel as C-like text, for people: `CachedKernel.code`.

Names are those of the kernel; operators that C has are written as in C, all else as calls. Text is
stable: equal kernels print equally, so it serves as the content of cache keys too.
"""

from __future__ import annotations

from functools import singledispatch

from arenite.codegen import loop_ir as ir
from arenite.codegen.source import Expressions, Statements


@singledispatch
def kernel_text(kernel: ir.LoopKernel) -> str:
    """The whole kernel, one statement a line; kernels with more to tell register their own."""
    return loop_text(kernel)


def loop_text(kernel: ir.LoopKernel) -> str:
    """The loops of a kernel."""
    arguments = [
        f"{_QUALIFIER[array.role]}{array.dtype} {array.name}[]" for array in kernel.arrays
    ] + [f"{ir.size_dtype(kernel, size)} {size}" for size in kernel.sizes]
    tiles = f"{kernel.index_dtype} {kernel.tile_var} in tiles of {expression_text(kernel.tiles)}"
    lines = [f"void {kernel.name}({', '.join(arguments)})", f"for ({tiles}) {{"]
    if isinstance(kernel, ir.GroupKernel):
        lines[1] = f"for ({tiles}, {kernel.threads} threads each) {{"
        lines += [
            f"    shared {array.dtype} {array.name}[{array.count}]"
            f"{f'[{array.width}]' if array.width > 1 else ''};"
            for array in kernel.shared
        ]
    inside = _Lines(Expressions())
    inside.block(kernel.body)
    text = "\n".join([*lines, *inside.write.lines, "}"]) + "\n"
    if isinstance(kernel, ir.GroupKernel):
        is_checked = f"checked by the device, for {kernel.unproven}"
        text = f"// accesses: {is_checked if kernel.unproven else 'proven'}\n{text}"
        if kernel.following is not None:
            text += f"then\n{loop_text(kernel.following)}"
        for size, most, other in kernel.smaller:
            text += f"where {size} <= {most}, instead\n{loop_text(other)}"
    return text


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
        case ir.Foreign(text, _, reads, writes, functions=functions):
            head = f"foreign({', '.join(reads)} -> {', '.join(writes)}) {{"
            return "\n".join(part for part in (head, functions, text, "}") if part)
    raise TypeError(f"{stmt!r} is no loop IR statement")


_ASSIGNMENT = {"add": "+=", "mul": "*=", "and": "&=", "or": "|=", "xor": "^=", "set": "="}


def expression_text(expr: ir.Expr) -> str:
    """One expression, with no more parentheses than it needs."""
    return _EXPRESSIONS.text(expr)


class _Lines(Statements):
    """Statements of a kernel, as people read them."""

    def statement(self, stmt: ir.Stmt) -> None:
        line, blocks = statement_line(stmt), ir.blocks(stmt)
        if blocks:
            self.braced(line, blocks[0], *filter(None, blocks[1:]))
        else:
            self.line(line)


_EXPRESSIONS = Expressions()
