"""Which kernels need no check of each access: those whose indices are made of loop variables, sizes
and constants alone. These stay within their arrays by how builders make them, as C's and LLVM's
kernels rely on too; an index that comes from data may be anything.

WGSL checks every access, and counts the turns of every loop, unless a module is made without.
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir


def is_proven(kernel: ir.GroupKernel) -> bool:
    """Whether no index depends on what is read; text of the device's own says so itself."""
    if kernel.is_proven:
        return True
    data: set[str] = set()
    for stmt in ir.statements(kernel.body):
        reads_table = any(isinstance(one, ir.Table) for one in ir.walk(*ir.expressions(stmt)))
        if isinstance(stmt, ir.Foreign | ir.While) or reads_table:
            return False
        if any(_is_of_data(index, data) for index in _indices(stmt)):
            return False
        match stmt:
            case ir.Let(name, value) if _is_of_data(value, data):
                data.add(name)
            case ir.Accumulator(name):
                data.add(name)
            case ir.For(var, start, stop) if _is_of_data(start, data) or _is_of_data(stop, data):
                data.add(var)
    return True


def _indices(stmt: ir.Stmt) -> list[ir.Expr]:
    """Of all elements that a statement itself reads and writes."""
    loads = [one for one in ir.walk(*ir.expressions(stmt)) if isinstance(one, ir.Load)]
    return [*(one.index for one in loads), *([stmt.index] if isinstance(stmt, ir.Store) else [])]


def _is_of_data(expr: ir.Expr, data: set[str]) -> bool:
    return any(
        isinstance(one, ir.Load) or (isinstance(one, ir.Name) and one.name in data)
        for one in ir.walk(expr)
    )
