"""A matmul of the schedule becomes a MicroKernel, where its operands lie as that needs.

Both factors must be values in memory, seen through views that keep positions sums of loop variables
times sizes; everything else is left to plain loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.backends.cpu.gemm.blocking import Cut, Layout, cut
from arenite.backends.cpu.gemm.choices import product_ways
from arenite.backends.cpu.gemm.kernel import (
    BLOCK,
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SCRATCH,
    Joined,
    MicroKernel,
    Operand,
    Product,
    tile_body,
)
from arenite.backends.cpu.gemm.slices import SlicedKernel
from arenite.backends.cpu.gemm.stream import is_far
from arenite.backends.cpu.gemm.sums import SumBuilder
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.loops import Axis
from arenite.codegen.kernels.values import compute_dtype, index_expr
from arenite.dtype import Kind
from arenite.ir.dim import Dim, LoopVar, Var, bounds, ceildiv, maximum, product
from arenite.ir.node import Node
from arenite.ir.ops.access import (
    Source,
    coefficient,
    is_view,
    linear,
    sources,
    space_vars,
    substitute,
)
from arenite.schedule.kernel import Kernel, Role

#: Operations up to which an epilogue is done on the sums in registers.
SHORT_OPS = 6
#: Last caches that a program may fill of which much is still there when it runs again.
CACHES_OF_SMALL = 2
#: Axes that stand for a size of 1.
_NO_ROW = Axis(LoopVar("_one_row", 0, 0), 1, False)
_NO_COLUMN = Axis(LoopVar("_one_column", 0, 0), 1, False)


def build_product(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a MicroKernel, or None if it is not one that register tiles fit."""
    if not target.has_fma:
        return None
    builder = _ProductBuilder(kernel)
    return builder.built(target, choice) if builder.fits else None


class _Factor:
    """A value in memory and its position in the loops' variables."""

    def __init__(self, node: Node, position: Dim) -> None:
        self.node = node
        self.position = position

    def along(self, axis: Axis | None) -> Dim:
        found = 0 if axis is None else coefficient(self.position, axis.var)
        assert found is not None
        return found


class _ProductBuilder(SumBuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.node = next(s.node for s in kernel.stages if s.role is Role.REDUCE)
        self.sum_dtype = compute_dtype(self.node.dtype)
        reduced = self.nest.reduced
        self.k_axis = reduced[0] if reduced else None
        self.depth: Dim = self.k_axis.size if self.k_axis is not None else 1
        factors = (
            [self._factor(s) for s in self._reduction(self.node).factors(space_vars(kernel.space))]
            if self.node.op == "matmul"
            else []
        )
        found = [factor for factor in factors if factor is not None]
        self.fits = (
            len(found) == 2
            and len(reduced) <= 1
            and self.sum_dtype.kind is Kind.FLOAT
            and bounds(self.depth)[0] >= 1
            and all(bounds(axis.size)[1] >= 1 for axis in self.nest.outer)
            and all(self._is_even(factor, self.k_axis) for factor in found)
        )
        if self.fits:
            self.a, self.b = found
            self._choose_axes()

    def _factor(self, source: Source) -> _Factor | None:
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
        return _Factor(source.node, substitute(position, self.nest.position))

    def _is_even(self, factor: _Factor, axis: Axis | None) -> bool:
        return axis is None or coefficient(factor.position, axis.var) is not None

    def _choose_axes(self) -> None:
        """The row axis moves A alone, the column axis B alone; all others are batch."""
        own: dict[int, list[Axis]] = {0: [], 1: []}
        for axis in self.nest.outer:
            steps = [coefficient(x.position, axis.var) for x in (self.a, self.b)]
            if None not in steps and (steps[0] == 0) != (steps[1] == 0):
                own[0 if steps[1] == 0 else 1].append(axis)
        if not own[1] and own[0]:
            # A column vector on the right: the same as a row on the left of the transposed matrix.
            self.a, self.b = self.b, self.a
            own = {0: [], 1: own[0]}
        self.row = own[0][-1] if own[0] else _NO_ROW
        self.column = own[1][-1] if own[1] else _NO_COLUMN
        self.batch = [x for x in self.nest.outer if x not in (self.row, self.column)]

    def built(self, target: Target, choice: str = "") -> Built:
        batch = product([axis.size for axis in self.batch])
        layout = Layout(
            batch,
            self.row.size,
            self.column.size,
            self.depth,
            self.a.along(self.row),
            self.a.along(self.k_axis),
            self.b.along(self.column),
            self.b.along(self.k_axis),
        )
        usual = cut(layout, self.a.node.dtype, self.b.node.dtype, self.sum_dtype, target)
        ways = product_ways(usual, layout, target)
        shape = ways.get(choice, usual)
        n_row_blocks = ceildiv(self.row.size, shape.block_rows)
        n_chunks = ceildiv(self.column.size, shape.block_columns)
        blocks = batch * n_row_blocks * n_chunks
        epilogue = self.epilogue()
        made = Product(
            a=self._operand(self.a, layout.a_line, layout.a_step),
            b=self._operand(self.b, layout.b_line, layout.b_step),
            sum_dtype=self.sum_dtype,
            row=self.row.var.name,
            column=self.column.var.name,
            batch=tuple(axis.var.name for axis in self.batch),
            depth=index_expr(self.depth),
            n_columns=index_expr(self.column.size),
            blocks=index_expr(blocks),
            blocks_a_tile=shape.blocks_a_tile,
            place=self._place(n_row_blocks, n_chunks, shape),
            lanes=shape.lanes,
            columns=shape.columns,
            heights=shape.heights,
            copies_b=shape.copies_b,
            few_up_to=shape.few.up_to,
            few_form=shape.few.form,
            few_columns=shape.few.columns,
            few_heights=shape.few_heights,
            epilogue=epilogue,
            is_short=self.epilogue_ops() <= SHORT_OPS,
            copied_groups=shape.copied_groups,
            joined=self._joined(shape),
            stays=shape.few.form == "dots" and self._stays(target),
        )
        tiles = ceildiv(blocks, shape.blocks_a_tile)
        plain = self._kernel(tiles, tile_body(made)).loops
        arrays = plain.arrays
        scratch: tuple[Scratch, ...] = ()
        if shape.copies_b:
            arrays += (ir.ArrayArg(SCRATCH, self.sum_dtype, "inout"),)
            count = tiles * self.depth * (made.width * made.copied_groups)
            scratch = (Scratch(self.sum_dtype, count),)
        parts = (plain.name, arrays, plain.sizes, plain.tiles, plain.tile_var, plain.body, made)
        loops = MicroKernel(*parts)
        if shape.slices is not None:
            loops = SlicedKernel(*parts, shape.slices, shape.block_rows, shape.block_columns)
            scratch = (Scratch(self.sum_dtype, tiles * loops.scratch_count),)
        return Built(loops, tiles, scratch, tuple(ways))

    def _joined(self, shape: Cut) -> Joined | None:
        """Tiles that differ in their columns alone, where longer runs of these are faster."""
        is_streamed = not shape.heights and shape.few.form == "stream"
        if not is_streamed or self.batch or shape.blocks_a_tile > 1:
            return None
        size = index_expr(self.column.size)
        return Joined(FIRST_COLUMN.name, LAST_COLUMN.name, shape.block_columns, size)

    def _stays(self, target: Target) -> bool:
        """Whether B is narrow and large, in a program of which the last cache keeps much."""
        b, sizes = self.b.node.dtype, (self.depth, self.column.size)
        is_small = self.kernel.given_nbytes <= CACHES_OF_SMALL * target.l3_nbytes
        return b != self.sum_dtype and is_far(target, sizes, b) and is_small

    def _operand(self, factor: _Factor, line: Dim, step: Dim) -> Operand:
        moving = [axis for axis in (self.row, self.column, self.k_axis) if axis is not None]
        start: dict[Var, Dim] = {axis.var: 0 for axis in moving}
        base = substitute(factor.position, start)
        return Operand(
            self.names[factor.node],
            factor.node.dtype,
            index_expr(base),
            index_expr(line),
            index_expr(step),
        )

    def _place(self, n_row_blocks: Dim, n_chunks: Dim, shape: Cut) -> ir.Block:
        """A block's number taken apart: batch axes, rows, and columns, which vary fastest."""
        rest: ir.Expr = BLOCK
        lets: list[ir.Let] = []

        def taken(size: Dim) -> ir.Expr:
            nonlocal rest
            if size == 1:
                return ir.index(0)
            count = index_expr(maximum(size, 1))
            part, rest = rest % count, rest // count
            return part

        chunk, block = taken(n_chunks), taken(n_row_blocks)
        for k, axis in reversed(list(enumerate(self.batch))):
            part = taken(axis.size) if k else rest
            lets.append(ir.Let(axis.var.name, part))
        return (
            *reversed(lets),
            *_range(FIRST_ROW, LAST_ROW, block, shape.block_rows, self.row.size),
            *_range(FIRST_COLUMN, LAST_COLUMN, chunk, shape.block_columns, self.column.size),
        )


def _range(
    first: ir.Name, last: ir.Name, number: ir.Expr, length: int, size: Dim
) -> Sequence[ir.Let]:
    """The elements of part `number` of an axis cut into parts of a length."""
    begin = number * length
    end = begin + length
    if not (isinstance(size, int) and size % length == 0):
        end = ir.Binary("min", end, index_expr(size))
    return (ir.Let(first.name, begin), ir.Let(last.name, end))
