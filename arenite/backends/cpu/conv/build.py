"""A conv_last of the schedule becomes a micro-kernel.

The input is read in place where its lines need no zeros at their ends and tiles can walk it; else
each tile of the launch copies the lines it needs to scratch first, through whatever views there are
between. A convolution of one tap without stride is a product over all pixels as one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from arenite.backends.cpu.conv.base import ANY, GROUP, ConvLoops, InputLayout
from arenite.backends.cpu.conv.copy import Copy, Room
from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes, cut_conv, last_lanes
from arenite.backends.cpu.conv.kernel import FIRST_LINE, Conv, Ends, Late, Taps
from arenite.backends.cpu.conv.sides import ZERO
from arenite.backends.cpu.conv.strips import are_few, strips
from arenite.backends.cpu.gemm.blocking import LATER_ROWS, MOST_TILES
from arenite.backends.cpu.gemm.build import SHORT_OPS
from arenite.backends.cpu.gemm.choices import conv_ways
from arenite.backends.cpu.gemm.driver import GROUP_START
from arenite.backends.cpu.gemm.kernel import (
    FIRST_ROW,
    SCRATCH,
    TILE,
    Joined,
    MicroKernel,
    Operand,
    Product,
)
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_ops
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import DType, Kind
from arenite.ir import Dim, Node, bounds, ceildiv, maximum, minimum, product
from arenite.schedule.kernel import Kernel

#: Elements so far apart fall into one set of the first cache. Of its places these many are left to
#: what else a tile reads.
SET_NBYTES = 4096
OTHER_PLACES = 2
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
    """The kernel as a micro-kernel, or None if it is not one that register tiles fit."""
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
class LowTiles:
    """Tiles of `channels` for lines of at most `up_to` pixels."""

    up_to: int
    channels: int
    heights: tuple[int, ...]


NO_LOW_TILES = LowTiles(0, PANEL, ())


class ConvBuilder:
    def __init__(self, kernel: Kernel, node: Node, weights: Panels) -> None:
        groups, taps, depth = weights.groups, weights.taps, weights.depth
        self.conv = ConvLoops(kernel, node, taps, groups, weights.channels // groups, depth)
        self.n_panels, self.filled = weights.n_panels, weights.filled
        self.panel = PANEL * weights.filled * prod(taps)
        self.copied_dtype = self.conv.sum_dtype
        self.bytes_left: int | None = None
        self.short_ops = SHORT_OPS if self.panel > PANEL * SHORT_DEPTH else SHORT_SUM_OPS
        self.fits = (
            depth > 0
            and self.conv.w in self.conv.names
            and self.conv.sum_dtype.kind is self.conv.w.dtype.kind is Kind.FLOAT
            and all(side.is_always_inside for _, side in self.conv.clipped)
        )

    def built(self, target: Target, choice: str = "") -> Built:
        conv = self.conv
        layout = conv.layout()
        leaves_out = layout is not None and self._can_leave_out(layout)
        in_place = layout is not None and (leaves_out or self._can_walk(layout))
        are_planes = self._are_planes(layout)
        sizes = replace(self._sizes(layout if in_place else None, target), is_whole=leaves_out)
        usual = self._cut(sizes, target)
        ways = conv_ways(usual, sizes, conv.sum_dtype, target)
        cut = ways.get(choice, usual)
        n_blocks, place = conv.place(cut)
        n_tiles = n_blocks
        blocks_a_tile: Dim = 1
        copied: ir.Block = ()
        scratch: tuple[Scratch, ...] = ()
        if in_place:
            assert layout is not None
            walked = layout
        else:
            inside = self._room(cut, are_planes)
            copied = self._copy(layout, inside, are_planes).statements()
            # A tile has room for one block, so there are only so many of them.
            blocks_a_tile = maximum(ceildiv(n_blocks, MOST_TILES), 1)
            n_tiles = minimum(ceildiv(n_blocks, blocks_a_tile), MOST_TILES)
            walked = _copied(inside, self.copied_dtype, len(conv.deep))
            scratch = (Scratch(self.copied_dtype, n_tiles * inside.tile),)
        loops = self._loops(walked, in_place)
        ends = self._ends(walked, cut, len(loops)) if leaves_out else None
        low = self._low_tiles(cut, target) if in_place else NO_LOW_TILES
        start, epilogue = conv.sum_start()
        made = Product(
            a=Operand(
                walked.array,
                walked.dtype,
                (
                    conv.line_start(layout) - index_expr(conv.line.before * layout.pixel)
                    if layout and in_place
                    else self._copy_start(walked)
                ),
                index_expr(walked.pixel * (conv.line.stride if in_place else conv.line.place_step)),
                ir.index(1),
            ),
            b=Operand(conv.names[conv.w], conv.w.dtype, ZERO, ZERO, ir.index(PANEL)),
            sum_dtype=conv.sum_dtype,
            row=conv.line.var.name,
            column=conv.column.name,
            batch=conv.batch,
            depth=loops[-1].count,
            n_columns=ir.index(conv.channels),
            blocks=index_expr(n_blocks),
            blocks_a_tile=blocks_a_tile,
            place=place,
            lanes=cut.lanes,
            columns=cut.columns,
            heights=cut.heights,
            gemv_up_to=low.up_to,
            gemv_form="tiles",
            gemv_columns=low.channels,
            gemv_heights=low.heights,
            epilogue=epilogue,
            is_short=epilogue_ops(self.conv) <= self.short_ops,
            joined=self._joined_rows(cut) if in_place else None,
        )
        details = Conv(
            loops,
            self.panel,
            self._panels_at(),
            conv.block.var.name,
            conv.on_line(),
            copied,
            ends,
            last_lanes(conv.channels, cut.lanes, target),
            start,
            self._late(cut, loops, target) if ends is None and low is NO_LOW_TILES else None,
            bytes_left=self.bytes_left,
            group_rows=self._group_rows(cut),
        )
        plain = conv.loop_kernel(n_tiles, conv.meaning(made), scratch).loops
        kernel = MicroKernel(*plain.parts, made, details)
        return Built(kernel, n_tiles, scratch, tuple(ways))

    def _late(self, cut: ConvCut, loops: Sequence[Taps], target: Target) -> Late | None:
        """Runs of tiles, where that pays: as measured on x86, with registers to spare."""
        length, pixels, count = cut.block_pixels, self.conv.line.places, loops[-1].count
        rows = (target.n_vector_registers - LATE_REGISTERS) // cut.columns - 1
        if (
            len(loops) > 1
            or not (isinstance(length, int) and isinstance(pixels, int))
            or not (isinstance(count, ir.Const) and rows <= int(count.value) <= LATE_STEPS)
            or not (target.is_x86 and 4 <= rows <= length // 4)
            or epilogue_ops(self.conv) < LATE_OPS
        ):
            return None
        left = {length % rows, pixels % length % rows}
        if self._joined_rows(cut) is not None:
            left.add(pixels % rows)
        left.discard(0)
        return Late(rows, tuple(sorted(left, reverse=True)))

    def _group_rows(self, cut: ConvCut) -> int:
        """Rows that a group of columns is multiplied with; as many as is usual if that is open."""
        if self.conv.block.places != 1:
            return 0
        return cut.block_pixels if isinstance(cut.block_pixels, int) else LATER_ROWS

    def _cut(self, sizes: ConvSizes, target: Target) -> ConvCut:
        return cut_conv(sizes, self.conv.sum_dtype, target)

    def _low_tiles(self, cut: ConvCut, target: Target) -> LowTiles:
        return NO_LOW_TILES

    def _joined_rows(self, cut: ConvCut) -> Joined | None:
        """Tiles of a launch that are done as one where one worker has several."""
        return None

    def _can_leave_out(self, layout: InputLayout) -> bool:
        """Whether tiles can read x where it is, without the taps that are not there."""
        conv = self.conv
        return (
            self._is_near(layout)
            and isinstance(layout.pixel, int)
            and isinstance(layout.channel, int)
            and conv.line.is_padded
            and conv.line.fixed is not None
            and are_few(conv.line.fixed)
            and (conv.block.places != 1 or conv.channels >= WIDE)
        )

    def _ends(self, layout: InputLayout, cut: ConvCut, n_loops: int) -> Ends:
        fixed = self.conv.line.fixed
        assert fixed is not None
        taps, depth, channel = self.conv.line.taps, self.conv.depth, bounds(layout.channel)[1]
        tap = bounds(layout.pixel)[1] * self.conv.line.dilation
        n_inner = 1 if (channel == 1 and tap == depth) or taps == 1 else 2
        cuts = strips(fixed, cut.heights[0])
        return Ends(cuts, n_loops - n_inner, taps, tap, depth, channel)

    def _is_near(self, layout: InputLayout) -> bool:
        """Whether a pixel's channels lie side by side, or are few and come as planes."""
        is_near = layout.channel == 1 or self.conv.depth == 1
        return layout.is_whole and (is_near or self._are_planes(layout))

    def _are_planes(self, layout: InputLayout | None) -> bool:
        return (
            layout is not None
            and layout.pixel == 1
            and layout.channel != 1
            and self.conv.depth <= PLANES
        )

    def _can_walk(self, layout: InputLayout) -> bool:
        """Whether tiles can read x where it is."""
        return self._is_near(layout) and not self.conv.line.is_padded

    def _most_pixels(self, layout: InputLayout, target: Target) -> int:
        """Pixels that a tile can walk in place without their pushing each other out of a set."""
        step = layout.pixel * self.conv.line.stride * layout.dtype.bits // 8
        most = target.l1d_ways - OTHER_PLACES
        return most * (SET_NBYTES // gcd(step, SET_NBYTES)) if isinstance(step, int) else most

    def _sizes(self, in_place: InputLayout | None, target: Target) -> ConvSizes:
        conv = self.conv
        pixels, size = (
            n if isinstance(n, int) else min(bounds(n)[1], LATER_ROWS)
            for n in (conv.line.places, conv.line.size)
        )
        of_line = conv.depth * 4 * (pixels if conv.line.taps == 1 else size)
        for side in conv.deep:
            of_line *= side.taps
        return ConvSizes(
            conv.n_images,
            conv.block.places,
            conv.line.places,
            conv.groups,
            conv.channels,
            self.panel // PANEL,
            of_line * conv.block.place_step,
            conv.block.reach,
            in_place is None,
            ANY if in_place is None else self._most_pixels(in_place, target),
            later_pixels=conv.later_pixels,
        )

    def _room(self, cut: ConvCut, are_planes: bool) -> Room:
        conv = self.conv
        pixel, size = self.filled, self.copied_dtype.bits // 8
        if pixel * conv.line.place_step * size % (SET_NBYTES // 2) == 0:
            pixel += _GAP_NBYTES // size
        return self._room_of(pixel, cut, are_planes)

    def _room_of(self, pixel: int, cut: ConvCut, are_planes: bool) -> Room:
        """Room for a block, whose pixels are so far apart."""
        conv = self.conv
        n_pixels = conv.line.copied(cut.block_pixels)
        line = n_pixels * (conv.depth if are_planes else pixel)
        whole = conv.block.copied(cut.block_lines) * line
        n_deep = product([side.taps for side in conv.deep])
        steps = (1, n_pixels) if are_planes else (pixel, 1)
        return Room(n_deep * whole, whole, line, *steps)

    def _copy(self, layout: InputLayout | None, inside: Room, are_planes: bool) -> Copy:
        conv, dtype = self.conv, self.copied_dtype
        is_flat = (
            layout is not None
            and layout.is_whole
            and layout.channel == 1
            and layout.pixel * conv.line.step == conv.depth == inside.pixel
        )
        is_transposed = layout is None or layout.channel != 1
        return Copy(conv, conv.deep, conv.block, inside, dtype, are_planes, is_transposed, is_flat)

    def _loops(self, walked: InputLayout, in_place: bool) -> tuple[Taps, ...]:
        """How K is walked: deep taps, taps of lines, taps of pixels and channels."""
        conv = self.conv
        loops: list[Taps] = []
        below = self.panel
        for (name, side), step in zip(conv.clipped, walked.lines, strict=True):
            below //= side.taps
            if side.taps > 1:
                count = ir.Name(f"{name}_taps") if side.is_padded else ir.index(side.taps)
                # A copy has one entry for each deep tap, and lines as they are.
                is_dilated = in_place or side is conv.block
                far = step * (side.dilation if is_dilated else 1)
                loops.append(Taps(count, index_expr(far), below))
        pixel = walked.pixel * conv.line.dilation
        if walked.channel == 1 and pixel == self.filled:
            return (*loops, self._run(conv.line.taps * self.filled, 1))
        channels = self._run(self.filled, walked.channel)
        if conv.line.taps == 1:
            return (*loops, channels)
        pixels = Taps(ir.index(conv.line.taps), index_expr(pixel), PANEL * self.filled)
        inner = (pixels, channels) if conv.depth >= conv.line.taps else (channels, pixels)
        return (*loops, *inner)

    def _run(self, count: int, step: Dim) -> Taps:
        """The loop over numbers that follow each other in a panel."""
        return Taps(ir.index(count), index_expr(step), PANEL)

    def _copy_start(self, copied: InputLayout) -> ir.Expr:
        """The first element of the copy that pixel 0 of a line would read, if it were there."""
        start = TILE * index_expr(copied.start)
        for (name, side), step in zip(self.conv.clipped, copied.lines, strict=True):
            at: ir.Expr = ir.Name(f"{name}_first") if side.is_padded else ZERO
            if side is self.conv.block:
                place = (ir.Name(side.var.name) - FIRST_LINE) * side.place_step
                at = place + at * side.dilation
            start = start + at * index_expr(step)
        return start - FIRST_ROW * index_expr(copied.pixel * self.conv.line.place_step)

    def _panels_at(self) -> ir.Expr:
        """Where the columns from GROUP_START on begin, at the first taps inside."""
        within = GROUP_START - GROUP * self.conv.channels
        at = GROUP * (self.n_panels * self.panel) + within // PANEL * self.panel
        below = self.panel
        for name, side in self.conv.clipped:
            below //= side.taps
            if side.is_padded:
                at = at + ir.Name(f"{name}_first") * below
        return at


def _copied(inside: Room, dtype: DType, n_deep: int) -> InputLayout:
    lines = (*[inside.deep] * n_deep, inside.line)
    return InputLayout(SCRATCH, dtype, inside.tile, lines, inside.pixel, inside.channel)


BUILDERS = {"conv_last": build_conv}
