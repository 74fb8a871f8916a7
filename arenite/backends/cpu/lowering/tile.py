"""Two vector loops, one directly in the other: square tiles, transposed in registers.

    for i in rows, j in columns:   out[i * n + j] = f(a[i * n + j], b[j * m + i], ...)

Values are vectors along the inner variable. A load that is contiguous in the outer one is done for
the whole tile at once, along that variable, and transposed by exchanging ever smaller blocks. What
is left at the edges runs as loops of one vector variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arenite.backends.cpu.lowering.evaluate import VectorMode
from arenite.backends.cpu.lowering.loops import Loops
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import SCALAR, Binding, Level
from arenite.backends.cpu.lowering.vector import Vec
from arenite.backends.cpu.lowering.vectorize import lanes_of
from arenite.codegen import affine
from arenite.codegen import loop_ir as ir

#: A tile of 16 x 16 vectors fits the registers of the widest target, also with bytes.
MAX_SIDE = 16


class Tiles(Loops):
    """Loops that also know tiles of two vector variables."""

    def tile_loop(self, outer: ir.For, inner: ir.For, start: Vec, stop: Vec) -> None:
        loads = _transposed_loads(outer.var, inner)
        if not loads:
            self.serial_loop(outer.var, start, stop, outer.body, 1)
            return
        target = self.builder.target
        side = min(MAX_SIDE, lanes_of(inner.body, target, {outer.var, inner.var}))
        phases = [Phase(1, side), Phase(1, 1)]

        def rows(phase: Phase, at: Vec) -> None:
            depth = self.scope.depth
            self.scope.bind(outer.var, Binding(ir.INT64, depth, values={SCALAR: at}))
            inner_start = self.value(inner.start, SCALAR)
            inner_stop = self.value(inner.stop, SCALAR)
            if phase.parts == 1:
                self.vector_loop(inner, inner_start, inner_stop)
                return

            def columns(phase: Phase, across: Vec) -> None:
                if phase.parts > 1:
                    self._tile(outer.var, inner, at, across, side, loads)
                else:
                    self._bind(outer.var, at, True, inner.var, across, False)
                    self.vector = VectorMode(outer.var, side, 1, {})
                    self.block(inner.body)
                    self.vector = None

            self.counted_loop(inner_start, inner_stop, phases, inner.body, columns)

        self.counted_loop(start, stop, phases, inner.body, rows)

    def _tile(
        self, i: str, inner: ir.For, at: Vec, across: Vec, side: int, loads: Sequence[ir.Load]
    ) -> None:
        """One full tile whose first element is (at, across)."""
        along_rows: dict[int, list[Vec]] = {id(load): [] for load in loads}
        needed = _names_below(inner.body, [load.index for load in loads])
        for column in range(side):
            self._afresh()
            self._bind(i, at, True, inner.var, across + column, False)
            self.vector = VectorMode(i, side, 1, {})
            for stmt in inner.body:
                if isinstance(stmt, ir.Let) and stmt.name in needed:
                    self.simple(stmt, 0)
            for load in loads:
                along_rows[id(load)].append(self.value(load, 0))
        transposed = {key: transpose(vectors) for key, vectors in along_rows.items()}
        for row in range(side):
            self._afresh()
            self._bind(i, at + row, False, inner.var, across, True)
            self.vector = VectorMode(inner.var, side, 1, {})
            self.transposed = {key: vectors[row] for key, vectors in transposed.items()}
            self.block(inner.body)
        self.transposed = {}
        self.vector = None

    def _afresh(self) -> None:
        """Forgets what the innermost level holds: its variables get other values."""
        level = self.scope.levels[-1]
        self.scope.pop()
        self.scope.push(Level("loop", level.stored, level.accumulated, level.preheader))

    def _bind(self, i: str, at: Vec, i_varies: bool, j: str, across: Vec, j_varies: bool) -> None:
        depth = self.scope.depth
        self.scope.bind(i, Binding(ir.INT64, depth, i_varies, values={SCALAR: at}))
        self.scope.bind(j, Binding(ir.INT64, depth, j_varies, values={SCALAR: across}))


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
