"""WinogradKernel: a convolution of 3x3 taps as sixteen products; its transforms and its driver.

    for block of tiles                  T tiles of 2x2 outputs, some lines of an image
        points of inputs                V[16][T][C]: each patch of 4x4, transformed, to scratch
        for group of output channels
            for each of 16 points       M[16][T][group] = V[point] times a panel: register tiles
            outputs of points           2x2 of each tile, then the epilogue, to where they belong

The products are those of a ConvKernel whose lines are points and whose pixels are tiles. Transforms
are loop IR, and so is what the products mean: the body of the kernel is what is compiled, but for
the order in which lanes go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE, ConvDriver, ConvKernel
from arenite.backends.cpu.gemm.driver import GROUP_START, Emit
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SUM,
    K,
    Product,
    in_blocks,
)
from arenite.backends.cpu.lowering.vector import Builder
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.ops.winograd import INPUTS, OUTPUTS, PATCH
from arenite.codegen import loop_ir as ir

POINT = ir.Name("point")
_GROUP = ir.Name("_group")


@dataclass(frozen=True, slots=True)
class WinogradKernel(ConvKernel):
    outputs: ir.Block  # what a group of channels ends with


class WinogradDriver(ConvDriver):
    """The function of a WinogradKernel."""

    def __init__(self, builder: Builder, kernel: WinogradKernel) -> None:
        super().__init__(builder, kernel)
        self.outputs = kernel.outputs

    def _groups(
        self,
        width: int,
        body: ir.Block,
        first: ir.Expr = FIRST_COLUMN,
        last: ir.Expr = LAST_COLUMN,
    ) -> ir.Block:
        outputs = Emit(lambda: self.block(self.outputs))
        return super()._groups(width, (*body, outputs), first, last)


def meaning(made: Product, inputs: ir.Block, outputs: ir.Block, panel: int) -> ir.Block:
    """What a tile of the launch computes, the products element by element."""
    row, column = ir.Name(made.row), ir.Name(made.column)
    weight_at = column // PANEL * panel + POINT * (panel // PATCH**2) + K * PANEL + column % PANEL
    factors = [
        ir.Load(made.a.array, made.a.at(row, K), made.a.dtype),
        ir.Load(made.b.array, weight_at, made.b.dtype),
    ]
    wide = [x if x.dtype == made.sum_dtype else ir.Cast(x, made.sum_dtype) for x in factors]
    sums: ir.Block = (
        ir.Accumulator("_acc", ir.Const(0.0, made.sum_dtype)),
        ir.For(
            K.name,
            ir.index(0),
            made.depth,
            (ir.Accumulate("_acc", "add", ir.Binary("mul", *wide)),),
        ),
        ir.Let(SUM, ir.Name("_acc", made.sum_dtype)),
        *made.epilogue,
    )
    last = ir.Binary("min", GROUP_START + made.width, LAST_COLUMN)
    columns = ir.For(made.column, GROUP_START, last, sums, vector=True)
    rows = ir.For(made.row, FIRST_ROW, LAST_ROW, (columns,))
    group: ir.Block = (
        ir.Let(GROUP_START.name, FIRST_COLUMN + _GROUP * made.width),
        ir.For(POINT.name, FIRST_LINE, LAST_LINE, (rows,)),
        *outputs,
    )
    n_groups = (LAST_COLUMN - FIRST_COLUMN + (made.width - 1)) // made.width
    groups = ir.For(_GROUP.name, ir.index(0), n_groups, group)
    return in_blocks(made, (*inputs, groups))


def input_points(at: Callable[[int, int], ir.Expr], name: str) -> tuple[ir.Block, list[ir.Expr]]:
    """The points of a patch, one after the other, and what has to be named for them."""
    return _transformed(INPUTS, at, name)


def output_places(at: Callable[[int, int], ir.Expr], name: str) -> tuple[ir.Block, list[ir.Expr]]:
    """The 2x2 outputs of sixteen points."""
    return _transformed(OUTPUTS, at, name)


def _transformed(
    sides: Sequence[Sequence[int]],
    at: Callable[[int, int], ir.Expr],
    name: str,
) -> tuple[ir.Block, list[ir.Expr]]:
    """Numbers of a square summed along its lines, then along its pixels, with factors of 1, -1."""
    named: list[ir.Stmt] = []

    def let(label: str, value: ir.Expr) -> ir.Expr:
        named.append(ir.Let(f"{name}{label}", value))
        return ir.Name(f"{name}{label}", value.dtype)

    size = range(PATCH)
    given = [[let(f"_in{i}{j}", at(i, j)) for j in size] for i in size]
    halfway = [
        [let(f"_mid{i}{j}", _signed_sum(factors, [line[j] for line in given])) for j in size]
        for i, factors in enumerate(sides)
    ]
    made = [_signed_sum(factors, line) for line in halfway for factors in sides]
    return tuple(named), made


def _signed_sum(factors: Sequence[int], values: Sequence[ir.Expr]) -> ir.Expr:
    """From left to right, beginning with one that is added."""
    pairs = [(sign, x) for sign, x in zip(factors, values, strict=True) if sign]
    first = next(k for k, (sign, _) in enumerate(pairs) if sign > 0)
    _, total = pairs.pop(first)
    for sign, value in pairs:
        total = ir.Binary("add" if sign > 0 else "sub", total, value)
    return total
