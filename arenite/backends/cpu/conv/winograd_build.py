"""A conv_winograd of the schedule becomes a micro-kernel.

A block is some lines of tiles of an image, or part of a line, times a chunk of output channels. The
input is read where it lies, zeros around it are made up. Where sizes of images are open, blocks are
cut for images of a usual size.

A convolution of 3x3 taps as sixteen products: its transforms and its meaning.

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
from dataclasses import dataclass

from arenite.backends.cpu.conv.base import ConvLoops, any_var
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE, Conv, Taps
from arenite.backends.cpu.conv.sides import ZERO, Side
from arenite.backends.cpu.conv.winograd_cut import WinogradCut, WinogradSizes, winograd_ways
from arenite.backends.cpu.gemm.blocking import MOST_TILES
from arenite.backends.cpu.gemm.driver import GROUP_START
from arenite.backends.cpu.gemm.kernel import (
    BLOCK,
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SCRATCH,
    SUM,
    TILE,
    K,
    MicroKernel,
    Operand,
    Product,
    in_blocks,
    sum_body,
)
from arenite.backends.cpu.ops import winograd
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.ops.winograd import INPUTS, OUTPUTS, PATCH, POINTS, TAPS
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.ir import Dim, Node, bounds, ceildiv, maximum, minimum
from arenite.schedule.kernel import Kernel

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


#: Elements of a cache line, and what lies between rooms so that they share no set.
LINE = 16
#: Tiles along a side where they are counted later.
LATER_TILES = 16
#: Rows of so many bytes, or half of that, share sets of the cache.
SET_NBYTES = 4096

TILE_LINE, TILE_PIXEL, NUMBER = ir.Name("tile_line"), ir.Name("tile_pixel"), ir.Name("_number")
FIRST_TILES, LAST_TILES = ir.Name("_first_tiles"), ir.Name("_last_tiles")
FIRST_PIXELS, LAST_PIXELS = ir.Name("_first_pixels"), ir.Name("_last_pixels")
CHANNEL = ir.Name("channel")
AT_LINE, AT_PIXEL = ir.Name("patch_line"), ir.Name("patch_pixel")


def build_winograd(kernel: Kernel, target: Target, choice: str = "") -> Built:
    """The kernel as a micro-kernel."""
    return _WinogradBuilder(kernel, kernel.stages[0].node).built(target, choice)


@dataclass(frozen=True, slots=True)
class _Rooms:
    """Where a tile of the launch keeps points, in elements."""

    n_tiles: int  # of outputs, in a block
    row: int  # channels of a tile's point of inputs, and what fills up
    point: int  # from one point of the inputs to the next
    width: int  # channels of a group
    made: int  # where sums begin

    @property
    def made_point(self) -> int:
        return self.n_tiles * self.width + LINE

    @property
    def length(self) -> int:
        return self.made + POINTS * self.made_point


class _WinogradBuilder:
    def __init__(self, kernel: Kernel, node: Node) -> None:
        depth = bounds(node.inputs[0].shape[-1])[1]
        self.conv = ConvLoops(kernel, node, (TAPS, TAPS), 1, node.attr("channels"), depth)
        self.panel = POINTS * depth * PANEL
        self.lines, self.pixels = (
            ceildiv(side.places, winograd.TILE) for side in (self.conv.block, self.conv.line)
        )

    def built(self, target: Target, choice: str = "") -> Built:
        lines, pixels = (
            n if isinstance(n, int) else LATER_TILES for n in (self.lines, self.pixels)
        )
        is_guess = (lines, pixels) != (self.lines, self.pixels)
        sizes = WinogradSizes(lines, pixels, self.conv.depth, self.conv.channels, is_guess)
        ways = winograd_ways(sizes, self.conv.sum_dtype, target)
        cut = ways.get(choice, next(iter(ways.values())))
        rooms = self._rooms(cut)
        n_blocks, place = self._placed(cut)
        # A tile of the launch has room for one block, so there are only so many of them.
        blocks_a_tile = maximum(ceildiv(n_blocks, MOST_TILES), cut.blocks_a_tile)
        n_tiles = minimum(ceildiv(n_blocks, blocks_a_tile), MOST_TILES)
        start = TILE * rooms.length
        made_at = start + rooms.made + POINT * rooms.made_point
        row, total = "_tile", ir.Name(SUM, self.conv.sum_dtype)
        sum_at = (
            made_at + ir.Name(row) * rooms.width + (ir.Name(self.conv.column.name) - GROUP_START)
        )
        made = Product(
            a=Operand(
                SCRATCH,
                self.conv.sum_dtype,
                start + POINT * rooms.point,
                ir.index(rooms.row),
                ir.index(1),
            ),
            b=Operand(self.conv.names[self.conv.w], self.conv.w.dtype, ZERO, ZERO, ir.index(PANEL)),
            sum_dtype=self.conv.sum_dtype,
            row=row,
            column=self.conv.column.name,
            batch=(TILE.name, POINT.name, GROUP_START.name),
            depth=ir.index(self.conv.depth),
            n_columns=ir.index(self.conv.channels),
            blocks=index_expr(n_blocks),
            blocks_a_tile=blocks_a_tile,
            place=place,
            lanes=cut.lanes,
            columns=cut.columns,
            heights=cut.heights,
            epilogue=(ir.Store(SCRATCH, sum_at, total),),
            is_short=True,
        )
        inputs, outputs = self._inputs(rooms), self._outputs(rooms)
        panels_at = GROUP_START // PANEL * self.panel + POINT * (self.conv.depth * PANEL)
        loops = (Taps(ir.index(self.conv.depth), ir.index(1), PANEL),)
        conv = Conv(loops, self.panel, panels_at, POINT.name, (), inputs, outputs=outputs)
        body = meaning(made, inputs, outputs, self.panel)
        scratch = (Scratch(self.conv.sum_dtype, n_tiles * rooms.length),)
        plain = self.conv.loop_kernel(n_tiles, body, scratch)
        if not target.has_fma:
            return plain
        kernel = MicroKernel(*plain.loops.parts, made, conv)
        return Built(kernel, n_tiles, scratch, tuple(ways))

    def _rooms(self, cut: WinogradCut) -> _Rooms:
        n_tiles = cut.block_lines * cut.block_pixels
        row = -(-self.conv.depth // LINE) * LINE
        if row * self.conv.sum_dtype.bits // 8 % (SET_NBYTES // 2) == 0:
            row += LINE
        point = n_tiles * row + LINE
        return _Rooms(n_tiles, row, point, cut.width, POINTS * point)

    def _placed(self, cut: WinogradCut) -> tuple[Dim, ir.Block]:
        """How many blocks there are, and a block's number taken apart; channels vary fastest."""
        [(image, n_images)] = self.conv.images
        n_blocks: Dim = n_images
        rest: ir.Expr = BLOCK
        lets: list[ir.Stmt] = []
        # As evenly as may be, also where tiles are counted later.
        n_parts = maximum(ceildiv(self.pixels, cut.block_pixels), 1)
        for size, length, first, last in (
            (self.conv.channels, cut.block_channels, FIRST_COLUMN, LAST_COLUMN),
            (self.pixels, ceildiv(self.pixels, n_parts), FIRST_PIXELS, LAST_PIXELS),
            (self.lines, cut.block_lines, FIRST_TILES, LAST_TILES),
        ):
            count, step = ceildiv(size, maximum(length, 1)), index_expr(length)
            end = ir.Binary("min", first + step, index_expr(size))
            begin = rest % index_expr(count) * step
            lets += [ir.Let(first.name, begin), ir.Let(last.name, end)]
            rest, n_blocks = rest // index_expr(count), n_blocks * count
        n_rows = (LAST_TILES - FIRST_TILES) * (LAST_PIXELS - FIRST_PIXELS)
        lets += [
            ir.Let(image.name, rest),
            ir.Let(FIRST_LINE.name, ZERO),
            ir.Let(LAST_LINE.name, ir.index(POINTS)),
            ir.Let(FIRST_ROW.name, ZERO),
            ir.Let(LAST_ROW.name, n_rows),
        ]
        return n_blocks, tuple(lets)

    def _of_tiles(self, body: ir.Block) -> ir.Stmt:
        """The body for every tile of the block, with its number."""
        line = (TILE_LINE - FIRST_TILES) * (LAST_PIXELS - FIRST_PIXELS)
        number = ir.Let(NUMBER.name, line + (TILE_PIXEL - FIRST_PIXELS))
        inner = ir.For(TILE_PIXEL.name, FIRST_PIXELS, LAST_PIXELS, (number, *body))
        return ir.For(TILE_LINE.name, FIRST_TILES, LAST_TILES, (inner,))

    # Transforms.

    def _inputs(self, rooms: _Rooms) -> ir.Block:
        """Points of all patches of the block."""
        sides = ((self.conv.block, TILE_LINE, AT_LINE), (self.conv.line, TILE_PIXEL, AT_PIXEL))
        lets: list[ir.Stmt] = []
        inside: ir.Expr = ir.Const(True, ir.BOOL)
        for side, tile, at in sides:
            lets.append(ir.Let(at.name, tile * winograd.TILE - index_expr(side.before)))
            inside = inside & (at >= 0) & (at + PATCH <= index_expr(side.size))
        whole = ir.If(inside, self._points(rooms, False), self._points(rooms, True))
        return (self._of_tiles((*lets, whole)),)

    def _points(self, rooms: _Rooms, is_cut: bool) -> ir.Block:
        """The points of one patch; if it is cut, some of it lies outside and is 0."""
        lets: list[ir.Stmt] = []
        reads: list[list[tuple[Dim, ir.Expr | None]]] = []
        for side, at in ((self.conv.block, AT_LINE), (self.conv.line, AT_PIXEL)):
            own: list[tuple[Dim, ir.Expr | None]] = []
            for k in range(PATCH):
                if not is_cut:
                    own.append((any_var(at.name) + k, None))
                    continue
                last = index_expr(side.size) - 1
                near, is_there = ir.Name(f"{at.name}{k}"), ir.Name(f"{at.name}{k}_is", ir.BOOL)
                here = at + k
                lets.append(ir.Let(is_there.name, (here >= 0) & (here <= last)))
                held = ir.Binary("max", ir.Binary("min", here, last), ZERO)
                lets.append(ir.Let(near.name, held))
                own.append((any_var(near.name), is_there))
            reads.append(own)
        scope = Scope()

        def element(i: int, j: int) -> ir.Expr:
            (line, has_line), (pixel, has_pixel) = reads[0][i], reads[1][j]
            value = self.conv.values.at(
                self.conv.x, self.conv.index([line, pixel], any_var(CHANNEL.name)), scope
            )
            if value.dtype != self.conv.sum_dtype:
                value = ir.Cast(value, self.conv.sum_dtype)
            if has_line is None or has_pixel is None:
                return value
            return ir.Select(has_line & has_pixel, value, ir.Const(0.0, self.conv.sum_dtype))

        named, points = transformed(INPUTS, element, "patch")
        start = TILE * rooms.length + NUMBER * rooms.row + CHANNEL
        stores = [
            ir.Store(SCRATCH, start + k * rooms.point, value) for k, value in enumerate(points)
        ]
        body = (*scope.block, *named, *stores)
        return (
            *lets,
            ir.For(CHANNEL.name, ZERO, ir.index(self.conv.depth), body, vector=True, unroll=1),
        )

    def _outputs(self, rooms: _Rooms) -> ir.Block:
        """The outputs of all tiles of the block, for a group of channels."""
        start = TILE * rooms.length + rooms.made + NUMBER * rooms.width
        column = ir.Name(self.conv.column.name)

        def element(i: int, j: int) -> ir.Expr:
            at = start + (i * PATCH + j) * rooms.made_point + (column - GROUP_START)
            return ir.Load(SCRATCH, at, self.conv.sum_dtype)

        named, made = transformed(OUTPUTS, element, "sums")
        ends: list[ir.Stmt] = []
        places = [(i, j) for i in range(winograd.TILE) for j in range(winograd.TILE)]
        for (i, j), value in zip(places, made, strict=True):
            line, pixel = TILE_LINE * winograd.TILE + i, TILE_PIXEL * winograd.TILE + j
            body: ir.Block = (
                ir.Let(self.conv.block.var.name, line),
                ir.Let(self.conv.line.var.name, pixel),
                ir.Let(SUM, value),
                *self.conv.epilogue(),
            )
            is_there = _is_there(line, self.conv.block, i) & _is_there(pixel, self.conv.line, j)
            ends.append(ir.If(is_there, body))
        last = ir.Binary("min", GROUP_START + rooms.width, LAST_COLUMN)
        columns = ir.For(column.name, GROUP_START, last, (*named, *ends), vector=True, unroll=1)
        return (self._of_tiles((columns,)),)


def _is_there(place: ir.Expr, side: Side, number: int) -> ir.Expr:
    """Whether a place of a tile is one of the output."""
    is_even = isinstance(side.places, int) and side.places % winograd.TILE == 0
    if number == 0 or is_even:
        return ir.Const(True, ir.BOOL)
    return place < index_expr(side.places)


BUILDERS = {"conv_winograd": build_winograd}
