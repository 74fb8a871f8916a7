"""The epilogue of a sum of products: from the finished sum to what is stored.

What an epilogue would add to sums first they may begin with:

    t1 = sum - zeros[column]          sums begin with  0 - zeros[column] + bias[column]
    t2 = t1 + bias[column]
    out[...] = f(t2)                  out[...] = f(sum)

A tile then makes them once for all of its rows.
"""

from __future__ import annotations

from arenite.backends.cpu.gemm.kernel import SUM
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.values import Scope
from arenite.dtype import DType
from arenite.ir import OPS, Node
from arenite.ir.ops.access import is_elementwise

#: What numbers are made with.
_OPS = ("add", "sub", "mul")


def epilogue_of(builder: KernelBuilder, node: Node, sum_dtype: DType) -> ir.Block:
    """What follows on the sum of a node."""
    scope = Scope()
    total: ir.Expr = ir.Name(SUM, sum_dtype)
    if node.dtype != sum_dtype:
        total = ir.Cast(total, node.dtype)
    builder.name_scalar(node, total, scope)
    builder.scalars(scope)
    return scope.block


def epilogue_ops(builder: KernelBuilder) -> int:
    """About how many operations it has."""
    return sum(OPS[node.op].cost for node in builder.inlined() if is_elementwise(node))


def sum_start(epilogue: ir.Block, known: frozenset[str]) -> tuple[ir.Expr | None, ir.Block]:
    """What sums begin with, if not with zero, and the epilogue without it. Numbers are taken that
    are loaded from where the `known` names say, or made of such ones and constants."""
    total = next((e for e in _all(epilogue) if isinstance(e, ir.Name) and e.name == SUM), None)
    start: ir.Expr | None = None
    given = _given(epilogue, known)
    left, last = list(epilogue), SUM
    while total is not None:
        users = [stmt for stmt in left if last in _names(stmt)]
        more = _more(users[0], last) if len(users) == 1 else None
        value = given.get(more[1]) if more is not None else None
        if more is None or value is None:
            break
        if start is None and more[0] == "add":
            start = value
        else:
            start = ir.Binary(more[0], ir.Const(0, total.dtype) if start is None else start, value)
        [user] = users
        assert isinstance(user, ir.Let)
        left.remove(user)
        last = user.name
    if start is None or total is None:
        return None, epilogue
    at = next(k for k, stmt in enumerate(left) if last in _names(stmt))
    return start, _used((*left[:at], ir.Let(last, total), *left[at:]), given)


def _given(epilogue: ir.Block, known: frozenset[str]) -> dict[str, ir.Expr]:
    """Names that are loaded or made as above, with what they stand for."""
    given: dict[str, ir.Expr] = {}
    for stmt in epilogue:
        value = stmt.value if isinstance(stmt, ir.Let) else None
        if isinstance(stmt, ir.Let) and isinstance(value, ir.Load) and _is_given(value, known):
            given[stmt.name] = value
        elif isinstance(stmt, ir.Let) and isinstance(value, ir.Binary) and value.op in _OPS:
            a, b = _part(value.a, given), _part(value.b, given)
            if a is not None and b is not None:
                given[stmt.name] = ir.Binary(value.op, a, b)
    return given


def _part(expr: ir.Expr, given: dict[str, ir.Expr]) -> ir.Expr | None:
    if isinstance(expr, ir.Name):
        return given.get(expr.name)
    return expr if isinstance(expr, ir.Const) else None


def _used(block: ir.Block, given: dict[str, ir.Expr]) -> ir.Block:
    """Without given names that nothing looks at."""
    names: set[str] = set()
    left: list[ir.Stmt] = []
    for stmt in reversed(block):
        if isinstance(stmt, ir.Let) and stmt.name in given and stmt.name not in names:
            continue
        names |= _names(stmt)
        left.append(stmt)
    return tuple(reversed(left))


def _more(stmt: ir.Stmt, name: str) -> tuple[str, str] | None:
    """How and what a statement adds to a name, if that is all it does."""
    value = stmt.value if isinstance(stmt, ir.Let) else None
    if not isinstance(value, ir.Binary) or value.op not in ("add", "sub"):
        return None
    a, b = value.a, value.b
    if value.op == "add" and isinstance(b, ir.Name) and b.name == name:
        a, b = b, a
    is_sum = isinstance(a, ir.Name) and a.name == name
    return (value.op, b.name) if is_sum and isinstance(b, ir.Name) and b.name != name else None


def _is_given(value: ir.Load, known: frozenset[str]) -> bool:
    """Whether a value is loaded from where the known names say."""
    if value.mask is not None:
        return False
    parts = list(ir.walk(value.index))
    names = {part.name for part in parts if isinstance(part, ir.Name)}
    return names <= known and not any(isinstance(part, ir.Load) for part in parts)


def _all(block: ir.Block) -> list[ir.Expr]:
    """The expressions of statements, and of those inside."""
    found: list[ir.Expr] = []
    pending = list(block)
    while pending:
        stmt = pending.pop()
        found += ir.walk(*ir.expressions(stmt))
        pending += [inner for block in ir.blocks(stmt) for inner in block]
    return found


def _names(stmt: ir.Stmt) -> set[str]:
    """What a statement looks at."""
    return {part.name for part in _all((stmt,)) if isinstance(part, ir.Name)}
