"""A convolution of 3x3 taps as sixteen products: its transforms and its meaning.

    for block of tiles                  T tiles of 2x2 outputs, some lines of an image
        points of inputs                V[16][T][C]: each patch of 4x4, transformed, to scratch
        for group of output channels
            for each of 16 points       M[16][T][group] = V[point] times a panel: register tiles
            outputs of points           2x2 of each tile, then the epilogue, to where they belong

The products are those of a Conv whose lines are points and whose pixels are tiles. Transforms
are loop IR, and so is what the products mean: the body of the kernel is what is compiled, but for
the order in which lanes go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE
from arenite.backends.cpu.gemm.driver import GROUP_START
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    K,
    Product,
    in_blocks,
    sum_body,
)
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.ops.winograd import PATCH
from arenite.codegen import loop_ir as ir

POINT = ir.Name("point")
_GROUP = ir.Name("_group")


def meaning(product: Product, inputs: ir.Block, outputs: ir.Block, panel: int) -> ir.Block:
    """What a tile of the launch computes, the products element by element."""
    column = ir.Name(product.column)
    weight_at = column // PANEL * panel + POINT * (panel // PATCH**2) + K * PANEL + column % PANEL
    sums = sum_body(product, weight_at)
    last = ir.Binary("min", GROUP_START + product.width, LAST_COLUMN)
    columns = ir.For(product.column, GROUP_START, last, sums, vector=True)
    rows = ir.For(product.row, FIRST_ROW, LAST_ROW, (columns,))
    group: ir.Block = (
        ir.Let(GROUP_START.name, FIRST_COLUMN + _GROUP * product.width),
        ir.For(POINT.name, FIRST_LINE, LAST_LINE, (rows,)),
        *outputs,
    )
    n_groups = (LAST_COLUMN - FIRST_COLUMN + (product.width - 1)) // product.width
    groups = ir.For(_GROUP.name, ir.index(0), n_groups, group)
    return in_blocks(product, (*inputs, groups))


def transformed(
    sides: Sequence[Sequence[int]], at: Callable[[int, int], ir.Expr], name: str
) -> tuple[ir.Block, list[ir.Expr]]:
    """Numbers of a square summed along its lines, then along its pixels, with factors of 1, -1: the
    points of a patch, or the outputs of sixteen points. What has to be named for them, and they,
    one after the other."""
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
