"""The register tiles of attention: products whose columns are queries, with sums kept in scratch.

    void tile(ptr a, ptr b, ptr c, ptr factor, i64 depth, i64 line, i64 step)

`a` points at numbers, rows `line` bytes apart and K `step` bytes; `b` and `c` at panels. The sums
are stored to `c`, or added to what is there times the factor of each column's lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen.access import load_contiguous, store_contiguous
from arenite.codegen.convert import register_type
from arenite.codegen.llvm import FUNCTION_ATTRIBUTES
from arenite.codegen.micro.tile import Dot, KLoop, Tile, multiply
from arenite.codegen.numeric import fma
from arenite.codegen.vector import I64, Builder, Vec
from arenite.dtype import DType

_PARAMETERS = "ptr %a, ptr %b, ptr %c, ptr %factor, i64 %depth, i64 %line, i64 %step"


@dataclass(frozen=True, slots=True)
class PanelTile:
    """A function: rows of A times a panel. Numbers that are known are constants in it."""

    rows: int
    columns: int
    lanes: int
    dtype: DType
    depth: int | None
    line: int | None  # bytes
    step: int | None
    adds: bool  # to what `c` holds, times the factor

    @property
    def name(self) -> str:
        known = [str(part) for part in (self.depth, self.line, self.step)]
        shape = f"{self.rows}x{self.columns}x{self.lanes}_{self.dtype}"
        return f"{'mix' if self.adds else 'scores'}{shape}_{'_'.join(known)}".replace("-", "m")

    def emit(self, b: Builder, name: str) -> str:
        """Its text."""
        tile = Tile(self.rows, self.columns, self.lanes)
        nbytes = self.dtype.bits // 8
        vector = self.lanes * nbytes
        panel = self.columns * vector
        line = _known(b, "line", self.line)
        step = _known(b, "step", self.step)
        depth = Vec(b, "%depth", I64) if self.depth is None else b.constant(self.depth, I64)
        sums = multiply(
            b,
            tile,
            Dot(self.dtype, self.dtype, self.dtype),
            "%a",
            "%b",
            lambda row: line * row,
            lambda column: column * vector,
            [KLoop(depth, step, panel)],
            [None] * self.columns,
        )
        t = register_type(self.dtype, self.lanes)
        factors = [
            load_contiguous(b, b.offset("%factor", column * vector), t, None)
            for column in range(self.columns if self.adds else 0)
        ]
        for row, own in enumerate(sums):
            for column, total in enumerate(own):
                where = b.offset("%c", row * panel + column * vector)
                if self.adds:
                    total = fma(load_contiguous(b, where, t, None), factors[column], total)
                store_contiguous(b, where, total, None)
        b.block.end = "ret void"
        return (
            f"define internal fastcc void @{name}({_PARAMETERS}) noinline "
            f"{FUNCTION_ATTRIBUTES} {{\n{b.body_text()}\n}}\n"
        )


def _known(b: Builder, name: str, value: int | None) -> Vec | int:
    return Vec(b, f"%{name}", I64) if value is None else value
