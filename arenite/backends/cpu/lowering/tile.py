"""Two vector loops, one directly in the other: square tiles, transposed in registers.

    for i in rows, j in columns:   out[i * n + j] = f(a[i * n + j], b[j * m + i], ...)

Values are vectors along the inner variable. A load that is contiguous in the outer one is done for
the whole tile at once, along that variable, and transposed by exchanging ever smaller blocks. What
is left at the edges runs as loops of one vector variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from arenite.backends.cpu.lowering.evaluate import VectorMode
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.vector import Vec
from arenite.backends.cpu.lowering.vectorize import lanes_of
from arenite.codegen import affine
from arenite.codegen import loop_ir as ir

if TYPE_CHECKING:
    from arenite.backends.cpu.lowering.loops import Lowering

#: A tile of 16 x 16 vectors fits the registers of the widest target, also with bytes.
MAX_SIDE = 16


def tile_loop(lowering: Lowering, outer: ir.For, inner: ir.For, start: Vec, stop: Vec) -> None:
    """Two vector loops, one directly in the other."""
    loads = _transposed_loads(outer.var, inner)
    if not loads:
        lowering.serial_loop(outer.var, start, stop, outer.body, 1)
        return
    target = lowering.builder.target
    side = min(MAX_SIDE, lanes_of(inner.body, target, {outer.var, inner.var}))
    phases = [Phase(1, side), Phase(1, 1)]

    def rows(phase: Phase, at: Vec) -> None:
        lowering.bind(outer.var, at)
        inner_start = lowering.value(inner.start, SCALAR)
        inner_stop = lowering.value(inner.stop, SCALAR)
        if phase.parts == 1:
            lowering.vector_loop(inner, inner_start, inner_stop)
            return

        def columns(phase: Phase, across: Vec) -> None:
            if phase.parts > 1:
                _tile(lowering, outer.var, inner, at, across, side, loads)
            else:
                lowering.bind(outer.var, at, varying=True)
                lowering.bind(inner.var, across)
                lowering.vector = VectorMode(outer.var, side, 1, {})
                lowering.block(inner.body)
                lowering.vector = None

        lowering.counted_loop(inner_start, inner_stop, phases, inner.body, columns)

    lowering.counted_loop(start, stop, phases, inner.body, rows)


def _tile(
    lowering: Lowering,
    i: str,
    inner: ir.For,
    at: Vec,
    across: Vec,
    side: int,
    loads: Sequence[ir.Load],
) -> None:
    """One full tile whose first element is (at, across)."""
    along_rows: dict[int, list[Vec]] = {id(load): [] for load in loads}
    needed = _names_below(inner.body, [load.index for load in loads])
    for column in range(side):
        lowering.scope.renew()
        lowering.bind(i, at, varying=True)
        lowering.bind(inner.var, across + column)
        lowering.vector = VectorMode(i, side, 1, {})
        for stmt in inner.body:
            if isinstance(stmt, ir.Let) and stmt.name in needed:
                lowering.statements.simple(stmt, 0)
        for load in loads:
            along_rows[id(load)].append(lowering.value(load, 0))
    transposed = {key: transpose(vectors) for key, vectors in along_rows.items()}
    for row in range(side):
        lowering.scope.renew()
        lowering.bind(i, at + row)
        lowering.bind(inner.var, across, varying=True)
        lowering.vector = VectorMode(inner.var, side, 1, {})
        lowering.transposed = {key: vectors[row] for key, vectors in transposed.items()}
        lowering.block(inner.body)
    lowering.transposed = {}
    lowering.vector = None


def transpose(rows: list[Vec]) -> list[Vec]:
    """Vectors of a square: lane c of row r becomes lane r of row c."""
    b, side, bits = rows[0].builder, len(rows), rows[0].type.bits
    rows = list(rows)
    distance = side // 2
    last = 4 if bits == 32 and side >= 4 else 1
    while distance >= last:
        lanes = range(side)
        keep = [lane if not lane & distance else side + lane - distance for lane in lanes]
        swap = [lane + distance if not lane & distance else side + lane for lane in lanes]
        for r in range(side):
            if not r & distance:
                upper, lower = rows[r], rows[r + distance]
                rows[r] = b.shuffle(upper, lower, keep)
                rows[r + distance] = b.shuffle(upper, lower, swap)
        distance //= 2
    if last == 4:
        for r in range(0, side, 4):
            rows[r : r + 4] = quarter(rows[r : r + 4])
    return rows


def quarter(rows: list[Vec]) -> list[Vec]:
    """4 x 4 blocks within groups of four lanes, by interleaving twice: one instruction each."""
    b, side = rows[0].builder, rows[0].type.lanes

    def interleave(x: Vec, y: Vec, picks: Sequence[int]) -> Vec:
        return b.shuffle(x, y, [base + pick for base in range(0, side, 4) for pick in picks])

    low, high = (0, side, 1, side + 1), (2, side + 2, 3, side + 3)
    first, second = (0, 1, side, side + 1), (2, 3, side + 2, side + 3)
    w, x, y, z = rows
    wx_low, wx_high = interleave(w, x, low), interleave(w, x, high)
    yz_low, yz_high = interleave(y, z, low), interleave(y, z, high)
    return [
        interleave(wx_low, yz_low, first),
        interleave(wx_low, yz_low, second),
        interleave(wx_high, yz_high, first),
        interleave(wx_high, yz_high, second),
    ]


def _transposed_loads(i: str, inner: ir.For) -> list[ir.Load]:
    """Loads that are contiguous in the outer variable and not in the inner one."""
    lets = {stmt.name: stmt.value for stmt in inner.body if isinstance(stmt, ir.Let)}
    found = {}
    for load in _loads(inner.body):
        if load.mask is None and not any(_loads_in(load.index)):
            down = _coefficient(load.index, i, lets)
            if down == 1 and _coefficient(load.index, inner.var, lets) not in (0, 1):
                found[id(load)] = load
    return list(found.values())


def _names_below(block: ir.Block, roots: Sequence[ir.Expr]) -> set[str]:
    """The names that expressions are made of, through what a block lets them stand for."""
    lets = {stmt.name: stmt.value for stmt in block if isinstance(stmt, ir.Let)}
    found: set[str] = set()
    pending = list(roots)
    while pending:
        names = {x.name for x in ir.walk(pending.pop()) if isinstance(x, ir.Name)} - found
        found |= names
        pending += [lets[name] for name in names if name in lets]
    return found


def _coefficient(expr: ir.Expr, variable: str, lets: dict[str, ir.Expr]) -> int | None:
    """Of a variable in an index; None if it is not a constant."""

    def depends(at: ir.Expr) -> bool:
        names = [inner.name for inner in ir.walk(at) if isinstance(inner, ir.Name)]
        return any(x == variable or (x in lets and depends(lets[x])) for x in names)

    form = affine.split(expr, affine.Surroundings(variable, depends, lets.get))
    return None if form is None or form.strides else form.coefficient


def _loads(block: ir.Block) -> Iterator[ir.Load]:
    for stmt in block:
        yield from _loads_in(*ir.expressions(stmt))


def _loads_in(*roots: ir.Expr) -> Iterator[ir.Load]:
    return (expr for expr in ir.walk(*roots) if isinstance(expr, ir.Load))
