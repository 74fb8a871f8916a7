"""What a product of runs and panels computes, element by element, as loops over memory.

This is the meaning of a BlocksKernel, and what runs where a target has no register tiles.
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.blocks_read import (
    FLOAT16,
    INT32,
    UINT16,
    above,
    as_float,
    bits,
    looked_up,
    number,
)
from arenite.codegen.micro.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SUM,
    Product,
    in_blocks,
)
from arenite.dtype import DType, float32, uint8
from arenite.ir.ops.block_forms import BLOCK, LANES, LINE_NBYTES, PANEL, STEP, form_of
from arenite.ir.ops.blocks import RUN_WORDS, SCALE_WORD

_BLOCK, _STEP = ir.Name("_run"), ir.Name("_step")
_ACC, _WHOLE, _RUN_SUM = "_acc", "_whole", "_run_sum"


def tile_body(made: Product, weights: DType, depth: int) -> ir.Block:
    """What a tile of the kernel computes."""
    columns = columns_of_row(made, weights, depth)
    return in_blocks(made, (ir.For(made.row, FIRST_ROW, LAST_ROW, (columns,)),))


def columns_of_row(made: Product, weights: DType, depth: int) -> ir.Stmt:
    """What a block computes for one row."""
    element = _Element(made, weights, depth)
    sums: ir.Block = (
        ir.Accumulator(_ACC, ir.Const(0.0, float32)),
        ir.For(_BLOCK.name, ir.index(0), ir.index(depth // BLOCK), element.block()),
        ir.Let(SUM, ir.Name(_ACC, float32)),
        *made.epilogue,
    )
    return ir.For(made.column, FIRST_COLUMN, LAST_COLUMN, sums, vector=True)


class _Element:
    """One element of the product: what each block adds to it."""

    def __init__(self, made: Product, weights: DType, depth: int) -> None:
        self.made, self.form = made, form_of(weights)
        column = ir.Name(made.column)
        self.lane = column % PANEL
        panel = made.b.base + column // PANEL * self.form.panel_nbytes(depth)
        self.shared = panel + _BLOCK // self.form.blocks * self.form.shared_nbytes
        self.within = (
            self.shared
            + self.form.halves_nbytes
            + _BLOCK % self.form.blocks * self.form.block_nbytes
        )

    def block(self) -> ir.Block:
        form, made = self.form, []
        for part in range(form.parts):
            names = [f"{name}{part}" for name in (_WHOLE, _RUN_SUM)]
            whole, total = (ir.Name(name, INT32) for name in names)
            groups = form.part // STEP
            steps: list[ir.Stmt] = []
            for group in range(part * groups, (part + 1) * groups):
                x = self._signed_byte(self._word(group))
                w = ir.Binary("sub", self._number(group), number(form.zero))
                steps.append(ir.Accumulate(whole.name, "add", ir.Binary("mul", x, w)))
                steps.append(ir.Accumulate(total.name, "add", x))
            made += [
                ir.Accumulator(whole.name, number(0)),
                ir.Accumulator(total.name, number(0)),
                ir.For(_STEP.name, ir.index(0), ir.index(STEP), tuple(steps)),
            ]
            run = ir.Bitcast(self._word(SCALE_WORD), float32)
            scale, *least = self._scales(part)
            scaled = ir.Binary("mul", as_float(whole), ir.Binary("mul", scale, run))
            made.append(ir.Accumulate(_ACC, "add", scaled))
            for value in least:
                sum_of_run = ir.Binary("mul", run, as_float(total))
                made.append(ir.Accumulate(_ACC, "add", ir.Binary("mul", value, sum_of_run)))
        return tuple(made)

    def _word(self, at: int) -> ir.Expr:
        place = self.made.a.at(ir.Name(self.made.row), ir.index(0))
        return ir.Load(self.made.a.array, place + _BLOCK * RUN_WORDS + at, INT32)

    def _signed_byte(self, word: ir.Expr) -> ir.Expr:
        up = ir.Cast(_STEP * -8 + 24, INT32)
        high = ir.Binary("shift_left", word, up)
        return ir.Binary("shift_right", high, number(24))

    def _byte(self, at: ir.Expr) -> ir.Expr:
        return ir.Cast(ir.Load(self.made.b.array, at, uint8), INT32)

    def _number(self, group: int) -> ir.Expr:
        """The number of this column and step in a group of four."""
        value = number(0)
        first, below = 0, 0
        half = self.lane // LANES * self.form.numbers_nbytes
        at = self.within + self.form.codes_nbytes + half + self.lane % LANES * STEP + _STEP
        for plane in self.form.planes:
            vector, piece = divmod(group, 8 // plane)
            byte = self._byte(at + (first + vector) * LINE_NBYTES)
            value = ir.Binary("or", value, above(bits(byte, piece * plane, plane), below))
            first, below = first + plane, below + plane
        if not self.form.has_table:
            return value
        return ir.Binary("add", looked_up(value), number(self.form.zero))

    def _scales(self, part: int) -> list[ir.Expr]:
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

    def _half(self, at: ir.Expr) -> ir.Expr:
        low, high = (ir.Cast(ir.Load(self.made.b.array, at + k, uint8), UINT16) for k in (0, 1))
        joined = ir.Binary("or", low, ir.Binary("shift_left", high, ir.Const(8, UINT16)))
        return as_float(ir.Bitcast(joined, FLOAT16))
