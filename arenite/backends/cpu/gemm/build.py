"""A matmul of the schedule becomes a MicroKernel, where its operands lie as that needs.

Both factors must be values in memory, seen through views that keep positions sums of loop variables
times sizes; everything else is left to plain loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.gemm.blocking import Cut, Layout, cut
from arenite.backends.cpu.gemm.choices import product_ways
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    BlockNumber,
    Details,
    Joined,
    MicroKernel,
    Operand,
    Product,
    tile_body,
)
from arenite.backends.cpu.gemm.slices import Sliced
from arenite.backends.cpu.gemm.stream import is_far
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_of, epilogue_ops
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.loops import Axis
from arenite.codegen.kernels.values import compute_dtype, index_expr
from arenite.dtype import Kind
from arenite.ir.dim import Dim, LoopVar, bounds, ceildiv, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import Source, coefficient, is_view, linear, sources, space_vars
from arenite.schedule.kernel import Kernel, Role

#: Operations up to which an epilogue is done on the sums in registers.
SHORT_OPS = 6
#: Last caches that a program may fill of which much is still there when it runs again.
CACHES_OF_SMALL = 2
#: Axes that stand for a size of 1.
NO_ROW = Axis(LoopVar("_one_row", 0, 0), 1, False)
NO_COLUMN = Axis(LoopVar("_one_column", 0, 0), 1, False)


def build_product(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a MicroKernel, or None if it is not one that register tiles fit."""
    if not target.has_fma:
        return None
    builder = _ProductBuilder(kernel)
    return builder.built(target, choice) if builder.fits else None


@dataclass(frozen=True, slots=True)
class Factor:
    """A value in memory and its position in the loops' variables."""

    node: Node
    position: Dim

    def along(self, axis: Axis | None) -> Dim:
        step = 0 if axis is None else coefficient(self.position, axis.var)
        assert step is not None
        return step


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """The row axis moves A alone, the column axis B alone; K is summed over, all others are
    batch."""

    row: Axis
    column: Axis
    batch: Sequence[Axis]
    k: Axis | None

    @property
    def n_batch(self) -> Dim:
        return product([axis.size for axis in self.batch])

    def operand(self, array: str, factor: Factor, line: Dim, step: Dim) -> Operand:
        moving = [axis for axis in (self.row, self.column, self.k) if axis is not None]
        base = substitute(factor.position, {axis.var: 0 for axis in moving})
        lines = map(index_expr, (base, line, step))
        return Operand(array, factor.node.dtype, *lines)

    def place(self, shape: Cut) -> tuple[Dim, ir.Block]:
        """How many blocks there are, and a block's number taken apart: batch axes, rows, and
        columns, which vary fastest."""
        n_rows = ceildiv(self.row.size, shape.block_rows)
        n_chunks = ceildiv(self.column.size, shape.block_columns)
        number = BlockNumber()
        chunk, block = number.digit(n_chunks), number.digit(n_rows)
        lets: list[ir.Let] = []
        for k, axis in reversed(list(enumerate(self.batch))):
            lets.append(ir.Let(axis.var.name, number.digit(axis.size) if k else number.rest))
        return self.n_batch * n_rows * n_chunks, (
            *reversed(lets),
            *_range(FIRST_ROW, LAST_ROW, block, shape.block_rows, self.row.size),
            *_range(FIRST_COLUMN, LAST_COLUMN, chunk, shape.block_columns, self.column.size),
        )


class _ProductBuilder(KernelBuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.node = next(s.node for s in kernel.stages if s.role is Role.REDUCE)
        self.sum_dtype = compute_dtype(self.node.dtype)
        reduced = self.nest.reduced
        self.k_axis = reduced[0] if reduced else None
        self.depth: Dim = self.k_axis.size if self.k_axis is not None else 1
        factors = (
            [self._factor(s) for s in self.reduction(self.node).factors(space_vars(kernel.space))]
            if self.node.op == "matmul"
            else []
        )
        in_memory = [factor for factor in factors if factor is not None]
        self.fits = (
            len(in_memory) == 2
            and len(reduced) <= 1
            and self.sum_dtype.kind is Kind.FLOAT
            and bounds(self.depth)[0] >= 1
            and all(bounds(axis.size)[1] >= 1 for axis in self.nest.outer)
            and all(_is_even(factor, self.k_axis) for factor in in_memory)
        )
        if self.fits:
            self.a, self.b = in_memory
            self.axes = self._choose_axes()

    def _factor(self, source: Source) -> Factor | None:
        """The value in memory that a factor shows, if views are all there is between."""
        while source.node not in self.names:
            if not is_view(source.node) or source.guards:
                return None
            inner = sources(source.node, source.index)
            if len(inner) != 1:
                return None
            [source] = inner
        if source.guards or source.node.dtype.kind is not Kind.FLOAT:
            return None
        position = linear(source.index, source.node.shape)
        return Factor(source.node, substitute(position, self.nest.position))

    def _choose_axes(self) -> ProductAxes:
        own: dict[int, list[Axis]] = {0: [], 1: []}
        for axis in self.nest.outer:
            steps = [coefficient(x.position, axis.var) for x in (self.a, self.b)]
            if None not in steps and (steps[0] == 0) != (steps[1] == 0):
                own[0 if steps[1] == 0 else 1].append(axis)
        if not own[1] and own[0]:
            # A column vector on the right: the same as a row on the left of the transposed matrix.
            self.a, self.b = self.b, self.a
            own = {0: [], 1: own[0]}
        row = own[0][-1] if own[0] else NO_ROW
        column = own[1][-1] if own[1] else NO_COLUMN
        batch = [axis for axis in self.nest.outer if axis not in (row, column)]
        return ProductAxes(row, column, batch, self.k_axis)

    def built(self, target: Target, choice: str = "") -> Built:
        axes = self.axes
        layout = Layout(
            axes.n_batch,
            axes.row.size,
            axes.column.size,
            self.depth,
            self.a.along(axes.row),
            self.a.along(axes.k),
            self.b.along(axes.column),
            self.b.along(axes.k),
        )
        usual = cut(layout, self.a.node.dtype, self.b.node.dtype, self.sum_dtype, target)
        ways = product_ways(usual, layout, target)
        shape = ways.get(choice, usual)
        blocks, place = axes.place(shape)
        names, a, b = self.names, self.a, self.b
        made = Product(
            a=axes.operand(names[a.node], a, layout.a_line, layout.a_step),
            b=axes.operand(names[b.node], b, layout.b_line, layout.b_step),
            sum_dtype=self.sum_dtype,
            row=axes.row.var.name,
            column=axes.column.var.name,
            batch=tuple(axis.var.name for axis in axes.batch),
            depth=index_expr(self.depth),
            n_columns=index_expr(axes.column.size),
            blocks=index_expr(blocks),
            blocks_a_tile=shape.blocks_a_tile,
            place=place,
            lanes=shape.lanes,
            columns=shape.columns,
            heights=shape.heights,
            copies_b=shape.copies_b,
            gemv_up_to=shape.gemv.up_to,
            gemv_form=shape.gemv.form,
            gemv_columns=shape.gemv.columns,
            gemv_heights=shape.gemv_heights,
            epilogue=epilogue_of(self, self.node, self.sum_dtype),
            is_short=epilogue_ops(self) <= SHORT_OPS,
            copied_groups=shape.copied_groups,
            joined=self._joined(shape),
            stays=shape.gemv.form == "dots" and self._stays(target),
        )
        tiles = ceildiv(blocks, shape.blocks_a_tile)
        details, scratch = Details(), tuple[Scratch, ...]()
        if shape.slices is not None:
            blocks_of = (shape.slices, shape.block_rows, shape.block_columns)
            details = sliced = Sliced(*blocks_of, made.width, made.copied_groups)
            scratch = (Scratch(self.sum_dtype, tiles * sliced.scratch_count),)
        elif shape.copies_b:
            count = tiles * self.depth * (made.width * made.copied_groups)
            scratch = (Scratch(self.sum_dtype, count),)
        plain = self.loop_kernel(tiles, tile_body(made), scratch).loops
        loops = MicroKernel(*plain.parts, made, details)
        return Built(loops, tiles, scratch, tuple(ways))

    def _joined(self, shape: Cut) -> Joined | None:
        """Tiles that differ in their columns alone, where longer runs of these are faster."""
        is_streamed = not shape.heights and shape.gemv.form == "stream"
        if not is_streamed or self.axes.batch or shape.blocks_a_tile > 1:
            return None
        size = index_expr(self.axes.column.size)
        return Joined(FIRST_COLUMN.name, LAST_COLUMN.name, shape.block_columns, size)

    def _stays(self, target: Target) -> bool:
        """Whether B is narrow and large, in a program of which the last cache keeps much."""
        b, sizes = self.b.node.dtype, (self.depth, self.axes.column.size)
        is_small = self.kernel.given_nbytes <= CACHES_OF_SMALL * target.l3_nbytes
        return b != self.sum_dtype and is_far(target, sizes, b) and is_small


def _is_even(factor: Factor, axis: Axis | None) -> bool:
    """Whether the elements of a factor are even steps apart along an axis."""
    return axis is None or coefficient(factor.position, axis.var) is not None


def _range(
    first: ir.Name, last: ir.Name, number: ir.Expr, length: int, size: Dim
) -> Sequence[ir.Let]:
    """The elements of part `number` of an axis cut into parts of a length."""
    begin = number * length
    end = begin + length
    if not (isinstance(size, int) and size % length == 0):
        end = ir.Binary("min", end, index_expr(size))
    return (ir.Let(first.name, begin), ir.Let(last.name, end))
