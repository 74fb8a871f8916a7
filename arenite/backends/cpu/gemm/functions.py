"""The functions of a micro-kernel that hold register tiles, each with the epilogue behind it.

A function computes one tile of the product and stores what the epilogue makes of it:

    void tile(ptr window, ptr a, ptr b, i64 depth, i64 row, i64 column, i64 rest, i64 batch...)

`a` and `b` point at the first row and the first column; `row` and `column` say which these are in
the product, for the epilogue; `rest` is how many columns there are. They are never inlined, which
keeps the register allocator's problem small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.gemm.kernel import MicroKernel, Operand
from arenite.backends.cpu.gemm.partial_sums import Blocks, blocks_of, summed_in_blocks
from arenite.backends.cpu.gemm.tile import Dot, Summing, Tile
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.codegen import loop_ir as ir

FIXED_ARGUMENTS = ("depth", "row", "column", "rest")


class TileFunction:
    """One function under construction: its arguments, its stack, the lowering of its loop IR."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        self.builder = builder
        self.lowering = Lowering(builder, kernel)
        self.kernel = kernel
        self.product = kernel.product
        for name in self.product.batch:
            self.lowering.bind(name, Vec(builder, f"%batch_{name}", I64))
        self.depth, self.row, self.column, self.rest = (
            Vec(builder, f"%{name}", I64) for name in FIXED_ARGUMENTS
        )
        self.dot = Dot(self.product.a.dtype, self.product.b.dtype, self.product.sum_dtype)

    def nbytes(self, elements: ir.Expr, operand: Operand) -> Vec | int:
        """A distance in elements as bytes."""
        size = operand.dtype.bits // 8
        if isinstance(elements, ir.Const):
            return int(elements.value) * size
        return self.lowering.value(elements, SCALAR) * size

    def in_blocks(self, tile: Tile, counts: Sequence[int | None]) -> Summing | None:
        """How a tile sums in K loops that run so often, or unknown times; None: in one go."""
        blocks = blocks_of(self.product.sum_dtype, counts)
        return None if blocks is None else self.in_such_blocks(tile, blocks)

    def in_such_blocks(self, tile: Tile, blocks: Blocks) -> Summing:
        n_sums = tile.rows * sum(tile.widths)
        kept_at = self.stack(2 * n_sums if blocks.loop else n_sums, "%totals")
        return partial(summed_in_blocks, blocks=blocks, kept_at=kept_at)

    def mask(self, first: int, lanes: int = 0) -> Vec:
        """Which lanes of the column that begins at `first` are among the first `rest`."""
        return self.mask_of(self.rest - first, lanes)

    def mask_of(self, count: Vec, lanes: int = 0) -> Vec:
        """The first `count` lanes; none if it is negative."""
        b, lanes = self.builder, lanes or self.product.lanes
        t = VType("i", self.product.sum_dtype.bits, lanes)
        return b.iota(t).lt(b.broadcast(count.convert("trunc", t.scalar), lanes))

    def masks(self, columns: int, is_masked: bool) -> list[Vec | None]:
        """Those of columns of full vectors; None where all lanes are there."""
        lanes = self.product.lanes
        return [self.mask(column * lanes) if is_masked else None for column in range(columns)]

    def column_start(self, number: int) -> Vec:
        """Where a column of the tile begins in the product."""
        return self.column + number * self.product.lanes

    def stack(self, count: int, name: str = "%kept") -> str:
        """Room for so many sums."""
        t = register_type(self.product.sum_dtype, 1)
        self.builder.allocas[name] = f"{name} = alloca [{count} x {t}], align 64"
        return name

    def keep(self, slot: str, at: int, total: Vec) -> None:
        """Store a vector; it may lie behind another, at a multiple of its own length."""
        size = self.product.sum_dtype.bits // 8
        where = self.builder.offset(slot, at * size)
        align = total.type.lanes * size
        self.builder.store(total, where, align)


def function_text(builder: Builder, kernel: MicroKernel, name: str, more: str = "") -> str:
    """The function of that name, with parameters beside those that all have."""
    numbers = (*FIXED_ARGUMENTS, *(f"batch_{batch}" for batch in kernel.product.batch))
    parameters = ["ptr %window", "ptr %a", "ptr %b", *(f"i64 %{number}" for number in numbers)]
    return (
        f"define internal fastcc void @{name}({', '.join(parameters)}{more}) noinline "
        f"{FUNCTION_ATTRIBUTES} {{\n{builder.body_text()}\n}}\n"
    )
