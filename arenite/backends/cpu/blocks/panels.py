"""Elements of panels as loop-IR expressions: what `block_forms` lays out, read back."""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.cpu.blocks.read import (
    FLOAT16,
    INT32,
    UINT16,
    above,
    as_float,
    bits,
    looked_up,
    number,
)
from arenite.backends.cpu.ops.block_forms import LANES, LINE_NBYTES, PANEL, STEP, Form
from arenite.codegen import loop_ir as ir
from arenite.dtype import uint8


@dataclass(frozen=True, slots=True)
class PanelReader:
    """Block `block` of one column, in panels of a matrix that begin at byte `base` of an array."""

    form: Form
    depth: int
    array: str
    base: ir.Expr
    column: ir.Expr
    block: ir.Expr

    @property
    def lane(self) -> ir.Expr:
        """The column's place in its panel."""
        return self.column % PANEL

    @property
    def shared(self) -> ir.Expr:
        """Where the blocks begin that share their scales with this one."""
        panel = self.base + self.column // PANEL * self.form.panel_nbytes(self.depth)
        return panel + self.block // self.form.blocks * self.form.shared_nbytes

    @property
    def within(self) -> ir.Expr:
        """Where the block begins."""
        own = self.block % self.form.blocks * self.form.block_nbytes
        return self.shared + self.form.halves_nbytes + own

    def number(self, group: int, step: ir.Expr) -> ir.Expr:
        """A whole number of a group of four, before the zero is taken off; int32."""
        value = number(0)
        first, below = 0, 0
        half = self.lane // LANES * self.form.numbers_nbytes
        at = self.within + self.form.codes_nbytes + half + self.lane % LANES * STEP + step
        for plane in self.form.planes:
            vector, piece = divmod(group, 8 // plane)
            byte = self._byte(at + (first + vector) * LINE_NBYTES)
            value = ir.Binary("or", value, above(bits(byte, piece * plane, plane), below))
            first, below = first + plane, below + plane
        if not self.form.has_table:
            return value
        return ir.Binary("add", looked_up(value), number(self.form.zero))

    def scales(self, part: int) -> list[ir.Expr]:
        """What a part's numbers are multiplied with, then what is added; float32."""
        form = self.form
        halves = [
            self._half(self.shared + 2 * PANEL * k + self.lane * 2)
            for k in range(1 + form.has_least)
        ]
        if form.codes == "none":
            return halves
        at = self.within + part * form.code_nbytes
        codes = [self._byte(at + k * PANEL + self.lane) for k in range(form.code_nbytes // PANEL)]
        if form.codes == "nibbles":
            codes = [bits(codes[0], 0, 4), bits(codes[0], 4, 4)]
        if form.codes == "signed":
            codes = [ir.Binary("shift_right", above(code, 24), number(24)) for code in codes]
        made = [
            ir.Binary("mul", half, as_float(code)) for half, code in zip(halves, codes, strict=True)
        ]
        return [made[0], *(ir.Unary("neg", least) for least in made[1:])]

    def element(self, group: int, step: ir.Expr) -> ir.Expr:
        """A weight of a group of four, float32."""
        scale, *least = self.scales(group * STEP // self.form.part)
        whole = ir.Binary("sub", self.number(group, step), number(self.form.zero))
        value = ir.Binary("mul", scale, as_float(whole))
        return ir.Binary("add", value, least[0]) if least else value

    def _byte(self, at: ir.Expr) -> ir.Expr:
        return ir.Cast(ir.Load(self.array, at, uint8), INT32)

    def _half(self, at: ir.Expr) -> ir.Expr:
        low, high = (ir.Cast(ir.Load(self.array, at + k, uint8), UINT16) for k in (0, 1))
        joined = ir.Binary("or", low, ir.Binary("shift_left", high, ir.Const(8, UINT16)))
        return as_float(ir.Bitcast(joined, FLOAT16))
