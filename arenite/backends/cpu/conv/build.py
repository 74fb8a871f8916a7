"""A conv_last of the schedule becomes a ConvKernel.

The input is read in place where its lines need no zeros at their ends and tiles can walk it; else
each tile of the launch copies the lines it needs to scratch first, through whatever views there are
between. A convolution of one tap without stride is a product over all pixels as one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from arenite.backends.cpu.conv.base import ANY, GROUP, LastBuilder, Lies, far
from arenite.backends.cpu.conv.copy import Copy, Room, room
from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes, cut_conv, last_lanes
from arenite.backends.cpu.conv.kernel import FIRST_LINE, Conv, ConvKernel, Ends, Taps
from arenite.backends.cpu.conv.late_epilogue import Late
from arenite.backends.cpu.conv.sides import ZERO
from arenite.backends.cpu.conv.strips import are_few, strips
from arenite.backends.cpu.gemm.blocking import LATER_ROWS, MOST_TILES
from arenite.backends.cpu.gemm.build import SHORT_OPS
from arenite.backends.cpu.gemm.choices import conv_ways
from arenite.backends.cpu.gemm.driver import GROUP_START
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, SCRATCH, TILE, Joined, Operand, Product
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.dtype import DType, Kind
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, minimum, product
from arenite.ir.node import Node
from arenite.schedule.kernel import Kernel

#: Elements so far apart fall into one set of the cache, which holds a few more than this many.
SET_NBYTES = 4096
SET_ROWS = 6
#: Bytes that are put between pixels then: a cache line.
_GAP_NBYTES = 64
#: Output channels from which on a line alone is cut into chunks of them and nothing else.
WIDE = 128
#: Products up to which a sum is so short that more operations of an epilogue are done in registers.
SHORT_DEPTH, SHORT_SUM_OPS = 64, 10
#: Epilogues come late that have so many operations, behind sums of at most so many steps; beside
#: sums and columns they take registers.
LATE_OPS, LATE_STEPS, LATE_REGISTERS = 6, 256, 9
#: Channels up to which an input that comes as planes is copied as planes.
PLANES = 8


def build_conv(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a ConvKernel, or None if it is not one that register tiles fit."""
    node = kernel.stages[0].node
    if not target.has_fma:
        return None
    if not all(isinstance(size, int) for size in node.inputs[1].shape):
        return None
    groups, n_panels, *taps, depth, _ = (bounds(size)[1] for size in node.inputs[1].shape)
    weights = Panels(groups, n_panels, tuple(taps), depth, depth, node.attr("channels"))
    builder = ConvBuilder(kernel, node, weights)
    return builder.built(target, choice) if builder.fits else None


@dataclass(frozen=True, slots=True)
class Panels:
    """The weights: `depth` channels in and `channels` out in all groups; of a panel's depth, and of
    the pixels of a copy, some may fill up: `filled` counts these too."""

    groups: int
    n_panels: int
    taps: tuple[int, ...]
    depth: int
    filled: int
    channels: int


@dataclass(frozen=True, slots=True)
class Few:
    """Tiles of `channels` for lines of at most `up_to` pixels."""

    up_to: int
    channels: int
    heights: tuple[int, ...]


NOT_FEW = Few(0, PANEL, ())


class ConvBuilder(LastBuilder):
    def __init__(self, kernel: Kernel, node: Node, weights: Panels) -> None:
        groups, taps, depth = weights.groups, weights.taps, weights.depth
        super().__init__(kernel, node, taps, groups, weights.channels // groups, depth)
        self.n_panels, self.filled = weights.n_panels, weights.filled
        self.panel = PANEL * weights.filled * prod(taps)
        self.copied_dtype = self.sum_dtype
        self.short_ops = SHORT_OPS if self.panel > PANEL * SHORT_DEPTH else SHORT_SUM_OPS
        self.fits = (
            depth > 0
            and self.w in self.names
            and self.sum_dtype.kind is self.w.dtype.kind is Kind.FLOAT
            and all(side.is_always_inside for _, side in self.clipped)
        )

    def built(self, target: Target, choice: str = "") -> Built:
        lies = self._lies()
        leaves_out = lies is not None and self._can_leave_out(lies)
        in_place = lies is not None and (leaves_out or self._can_walk(lies))
        are_planes = self._are_planes(lies)
        sizes = replace(self._sizes(lies if in_place else None), is_whole=leaves_out)
        usual = self._cut(sizes, target)
        ways = conv_ways(usual, sizes, self.sum_dtype, target)
        cut = ways.get(choice, usual)
        n_blocks, place = self._place(cut)
        n_tiles = n_blocks
        blocks_a_tile: Dim = 1
        copied: ir.Block = ()
        scratch: tuple[Scratch, ...] = ()
        if in_place:
            assert lies is not None
            walked = lies
        else:
            inside = self._room(cut, are_planes)
            copied = self._copy(lies, inside, are_planes).statements()
            # A tile has room for one block, so there are only so many of them.
            blocks_a_tile = maximum(ceildiv(n_blocks, MOST_TILES), 1)
            n_tiles = minimum(ceildiv(n_blocks, blocks_a_tile), MOST_TILES)
            walked = _copied(inside, self.copied_dtype, len(self.deep))
            scratch = (Scratch(self.copied_dtype, n_tiles * inside.tile),)
        loops = self._loops(walked, in_place)
        ends = self._ends(walked, cut, len(loops)) if leaves_out else None
        few = self._few(cut, target) if in_place else NOT_FEW
        start, epilogue = self.begun()
        made = Product(
            a=Operand(
                walked.array,
                walked.dtype,
                (
                    self._line_start(lies) - index_expr(self.line.before * lies.pixel)
                    if lies and in_place
                    else self._copy_start(walked)
                ),
                index_expr(walked.pixel * (self.line.stride if in_place else self.line.place_step)),
                ir.index(1),
            ),
            b=Operand(self.names[self.w], self.w.dtype, ZERO, ZERO, ir.index(PANEL)),
            sum_dtype=self.sum_dtype,
            row=self.line.var.name,
            column=self.column.name,
            batch=self.batch,
            depth=loops[-1].count,
            n_columns=ir.index(self.channels),
            blocks=index_expr(n_blocks),
            blocks_a_tile=(
                blocks_a_tile if isinstance(blocks_a_tile, int) else index_expr(blocks_a_tile)
            ),
            place=place,
            lanes=cut.lanes,
            columns=cut.columns,
            heights=cut.heights,
            copies_b=False,
            few_up_to=few.up_to,
            few_form="tiles",
            few_columns=few.channels,
            few_heights=few.heights,
            epilogue=epilogue,
            is_short=self.epilogue_ops() <= self.short_ops,
            joined=self._joined_rows(cut) if in_place else None,
        )
        conv = Conv(
            loops,
            self.panel,
            self._panels_at(),
            self.block.var.name,
            self._on_line(),
            copied,
            ends,
            last_lanes(self.channels, cut.lanes, target),
            start,
            self._late(cut, loops, target) if ends is None and few is NOT_FEW else None,
        )
        plain = self._kernel(n_tiles, self._meaning(made)).loops
        arrays = plain.arrays
        if scratch:
            arrays += (ir.ArrayArg(SCRATCH, self.copied_dtype, "inout"),)
        kernel = self._finished(replace(plain, arrays=arrays), made, conv)
        return Built(kernel, n_tiles, scratch, tuple(ways))

    def _late(self, cut: ConvCut, loops: Sequence[Taps], target: Target) -> Late | None:
        """Runs of tiles, where that pays: as measured on x86, with registers to spare."""
        length, pixels, count = cut.block_pixels, self.line.places, loops[-1].count
        rows = (target.n_vector_registers - LATE_REGISTERS) // cut.columns - 1
        if (
            len(loops) > 1
            or not (isinstance(length, int) and isinstance(pixels, int))
            or not (isinstance(count, ir.Const) and rows <= int(count.value) <= LATE_STEPS)
            or not (target.is_x86 and 4 <= rows <= length // 4)
            or self.epilogue_ops() < LATE_OPS
        ):
            return None
        left = {length % rows, pixels % length % rows}
        if self._joined_rows(cut) is not None:
            left.add(pixels % rows)
        left.discard(0)
        return Late(rows, tuple(sorted(left, reverse=True)))

    def _cut(self, sizes: ConvSizes, target: Target) -> ConvCut:
        return cut_conv(sizes, self.sum_dtype, target)

    def _few(self, cut: ConvCut, target: Target) -> Few:
        return NOT_FEW

    def _joined_rows(self, cut: ConvCut) -> Joined | None:
        """Tiles of a launch that are done as one where one worker has several."""
        return None

    def _finished(self, plain: ir.LoopKernel, made: Product, conv: Conv) -> ConvKernel:
        return ConvKernel(*plain.parts, made, conv)

    def _can_leave_out(self, lies: Lies) -> bool:
        """Whether tiles can read x where it is, without the taps that are not there."""
        return (
            self._is_near(lies)
            and isinstance(lies.pixel, int)
            and isinstance(lies.channel, int)
            and self.line.is_padded
            and self.line.fixed is not None
            and are_few(self.line.fixed)
            and (self.block.places != 1 or self.channels >= WIDE)
        )

    def _ends(self, lies: Lies, cut: ConvCut, n_loops: int) -> Ends:
        fixed = self.line.fixed
        assert fixed is not None
        taps, depth, channel = self.line.taps, self.depth, bounds(lies.channel)[1]
        tap = bounds(lies.pixel)[1] * self.line.dilation
        n_inner = 1 if (channel == 1 and tap == depth) or taps == 1 else 2
        cuts = strips(fixed, cut.heights[0])
        return Ends(cuts, n_loops - n_inner, taps, tap, depth, channel)

    def _is_near(self, lies: Lies) -> bool:
        """Whether a pixel's channels lie side by side, or are few and come as planes."""
        is_near = lies.channel == 1 or self.depth == 1
        return lies.is_whole and (is_near or self._are_planes(lies))

    def _are_planes(self, lies: Lies | None) -> bool:
        return lies is not None and lies.pixel == 1 and lies.channel != 1 and self.depth <= PLANES

    def _can_walk(self, lies: Lies) -> bool:
        """Whether tiles can read x where it is."""
        return self._is_near(lies) and not self.line.is_padded

    def _most_pixels(self, lies: Lies) -> int:
        """Pixels that a tile can walk in place without their pushing each other out of a set."""
        step = lies.pixel * self.line.stride * lies.dtype.bits // 8
        if not isinstance(step, int):
            return SET_ROWS
        return SET_ROWS * (SET_NBYTES // gcd(step, SET_NBYTES))

    def _sizes(self, in_place: Lies | None) -> ConvSizes:
        pixels, size = (
            n if isinstance(n, int) else min(bounds(n)[1], LATER_ROWS)
            for n in (self.line.places, self.line.size)
        )
        n_deep = product([side.places for side in self.deep])
        of_line = self.depth * 4 * (pixels if self.line.taps == 1 else size)
        for side in self.deep:
            of_line *= side.taps
        return ConvSizes(
            product([size for _, size in self.images]) * n_deep,
            self.block.places,
            self.line.places,
            self.groups,
            self.channels,
            self.panel // PANEL,
            of_line * self.block.place_step,
            self.block.reach,
            in_place is None,
            ANY if in_place is None else self._most_pixels(in_place),
        )

    def _room(self, cut: ConvCut, are_planes: bool) -> Room:
        pixel, size = self.filled, self.copied_dtype.bits // 8
        if pixel * self.line.place_step * size % (SET_NBYTES // 2) == 0:
            pixel += _GAP_NBYTES // size
        n_lines, n_pixels = self.block.copied(cut.block_lines), self.line.copied(cut.block_pixels)
        return room(self.deep, n_lines, n_pixels, self.depth, pixel, are_planes)

    def _copy(self, lies: Lies | None, inside: Room, are_planes: bool) -> Copy:
        group_start = far(GROUP.name) * self.depth

        def element(at: Sequence[Dim], channel: Dim) -> tuple[ir.Block, ir.Expr]:
            scope = Scope()
            index = self._index(at, group_start + channel)
            value = self.values.at(self.x, index, scope)
            return scope.block, value

        def run(at: Sequence[Dim], number: ir.Expr) -> ir.Expr:
            found = self._in_memory(self._index(at, group_start))
            assert found is not None
            node, position, _ = found
            return ir.Load(self.names[node], index_expr(position) + number, node.dtype)

        is_flat = (
            lies is not None
            and lies.is_whole
            and lies.channel == 1
            and lies.pixel * self.line.step == self.depth == inside.pixel
        )
        is_transposed = lies is None or lies.channel != 1
        return Copy(
            self.deep,
            self.block,
            self.line,
            self.depth,
            inside,
            self.copied_dtype,
            are_planes,
            is_transposed,
            element,
            run if is_flat else None,
        )

    def _loops(self, walked: Lies, in_place: bool) -> tuple[Taps, ...]:
        """How K is walked: deep taps, taps of lines, taps of pixels and channels."""
        loops: list[Taps] = []
        below = self.panel
        for (name, side), step in zip(self.clipped, walked.lines, strict=True):
            below //= side.taps
            if side.taps > 1:
                count = ir.Name(f"{name}_taps") if side.is_padded else ir.index(side.taps)
                # A copy has one entry for each deep tap, and lines as they are.
                is_dilated = in_place or side is self.block
                far = step * (side.dilation if is_dilated else 1)
                loops.append(Taps(count, index_expr(far), below))
        pixel = walked.pixel * self.line.dilation
        if walked.channel == 1 and pixel == self.filled:
            return (*loops, self._run(self.line.taps * self.filled, 1))
        channels = self._run(self.filled, walked.channel)
        if self.line.taps == 1:
            return (*loops, channels)
        pixels = Taps(ir.index(self.line.taps), index_expr(pixel), PANEL * self.filled)
        inner = (pixels, channels) if self.depth >= self.line.taps else (channels, pixels)
        return (*loops, *inner)

    def _run(self, count: int, step: Dim) -> Taps:
        """The loop over numbers that follow each other in a panel."""
        return Taps(ir.index(count), index_expr(step), PANEL)

    def _copy_start(self, copied: Lies) -> ir.Expr:
        """The first element of the copy that pixel 0 of a line would read, if it were there."""
        start = TILE * index_expr(copied.start)
        for (name, side), step in zip(self.clipped, copied.lines, strict=True):
            at: ir.Expr = ir.Name(f"{name}_first") if side.is_padded else ZERO
            if side is self.block:
                place = (ir.Name(side.var.name) - FIRST_LINE) * side.place_step
                at = place + at * side.dilation
            start = start + at * index_expr(step)
        return start - FIRST_ROW * index_expr(copied.pixel * self.line.place_step)

    def _panels_at(self) -> ir.Expr:
        """Where the columns from GROUP_START on begin, at the first taps inside."""
        within = GROUP_START - GROUP * self.channels
        at = GROUP * (self.n_panels * self.panel) + within // PANEL * self.panel
        below = self.panel
        for name, side in self.clipped:
            below //= side.taps
            if side.is_padded:
                at = at + ir.Name(f"{name}_first") * below
        return at


def _copied(inside: Room, dtype: DType, n_deep: int) -> Lies:
    lines = (*[inside.deep] * n_deep, inside.line)
    return Lies(SCRATCH, dtype, inside.tile, lines, inside.pixel, inside.channel)


BUILDERS = {"conv_last": build_conv}
