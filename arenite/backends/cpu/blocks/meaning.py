"""What a product of runs and panels computes, element by element, as loops over memory.

This is the meaning of a micro-kernel of blocks, and what runs where a target has no register tiles.
"""

from __future__ import annotations

from arenite.backends.cpu.blocks.panels import PanelReader
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SUM,
    Product,
    in_blocks,
)
from arenite.backends.cpu.ops.block_forms import BLOCK, STEP, form_of
from arenite.backends.cpu.ops.blocks import RUN_WORDS, SCALE_WORD
from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import as_float, number
from arenite.dtype import FLOAT32, INT32, DType

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
        ir.Accumulator(_ACC, ir.Const(0.0, FLOAT32)),
        ir.For(_BLOCK.name, ir.index(0), ir.index(depth // BLOCK), element.block()),
        ir.Let(SUM, ir.Name(_ACC, FLOAT32)),
        *made.epilogue,
    )
    return ir.For(made.column, FIRST_COLUMN, LAST_COLUMN, sums, vector=True)


class _Element:
    """One element of the product: what each block adds to it."""

    def __init__(self, made: Product, weights: DType, depth: int) -> None:
        self.made, self.form = made, form_of(weights)
        self.weights = PanelReader(
            self.form, depth, made.b.array, made.b.base, ir.Name(made.column), _BLOCK
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
                w = ir.Binary("sub", self.weights.number(group, _STEP), number(form.zero))
                steps.append(ir.Accumulate(whole.name, "add", ir.Binary("mul", x, w)))
                steps.append(ir.Accumulate(total.name, "add", x))
            made += [
                ir.Accumulator(whole.name, number(0)),
                ir.Accumulator(total.name, number(0)),
                ir.For(_STEP.name, ir.index(0), ir.index(STEP), tuple(steps)),
            ]
            run = ir.Bitcast(self._word(SCALE_WORD), FLOAT32)
            scale, *least = self.weights.scales(part)
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
