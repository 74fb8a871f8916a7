"""Elements of panels as loop-IR expressions: what `block_forms` lays out, read back."""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.cpu.ops.block_forms import LANES, LINE_NBYTES, PANEL, STEP, Form
from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import above, as_float, bits, float_at, looked_up, number
from arenite.dtype import INT32, UINT8


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
        return self.shared + self.form.floats_nbytes + own

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
        if not self.form.table:
            return value
        # Added here, so that what takes it off again cancels it.
        meant = tuple(entry - self.form.zero for entry in self.form.table)
        return ir.Binary("add", looked_up(value, meant, INT32), number(self.form.zero))

    def scales(self, part: int) -> list[ir.Expr]:
        """What a part's numbers are multiplied with, then what is added; float32."""
        form = self.form
        own, nbytes = part % form.floats, form.scale.bits // 8
        floats = [
            self.shared + (k * form.floats + own) * form.float_nbytes + self.lane * nbytes
            for k in range(1 + form.has_least)
        ]
        scales = [as_float(float_at(self.array, at, form.scale)) for at in floats]
        if form.codes != "none":
            scales = [
                ir.Binary("mul", scale, as_float(code))
                for scale, code in zip(scales, self._codes(part), strict=True)
            ]
        if form.is_least_negative:
            scales[1] = ir.Unary("neg", scales[1])
        return scales

    def _codes(self, part: int) -> list[ir.Expr]:
        """The whole numbers that scale a part, int32."""
        form = self.form
        at = self.within + part * form.code_nbytes
        codes = [self._byte(at + k * PANEL + self.lane) for k in range(form.code_nbytes // PANEL)]
        if form.codes == "nibbles":
            codes = [bits(codes[0], 0, 4), bits(codes[0], 4, 4)]
        if form.codes == "signed":
            codes = [ir.Binary("shift_right", above(code, 24), number(24)) for code in codes]
        return codes

    def element(self, group: int, step: ir.Expr) -> ir.Expr:
        """A weight of a group of four, float32."""
        scale, *least = self.scales(group * STEP // self.form.part)
        whole = ir.Binary("sub", self.number(group, step), number(self.form.zero))
        value = ir.Binary("mul", scale, as_float(whole))
        return ir.Binary("add", value, least[0]) if least else value

    def _byte(self, at: ir.Expr) -> ir.Expr:
        return ir.Cast(ir.Load(self.array, at, UINT8), INT32)
