"""A depthwise_last of the schedule becomes a micro-kernel, where its input lies as it must.

Channels have to lie side by side.
"""

from __future__ import annotations

from math import prod

from arenite.backends.cpu.conv.base import ANY, ConvLoops, InputLayout
from arenite.backends.cpu.conv.cut import (
    LATER_LINES,
    ConvCut,
    ConvSizes,
    even,
    lanes_for,
    last_lanes,
)
from arenite.backends.cpu.conv.depthwise import Depthwise, OpenLine
from arenite.backends.cpu.conv.kernel import Taps
from arenite.backends.cpu.conv.sides import ZERO, Side
from arenite.backends.cpu.conv.strips import are_few, strips
from arenite.backends.cpu.gemm.blocking import MOST_TILES
from arenite.backends.cpu.gemm.choices import depthwise_ways
from arenite.backends.cpu.gemm.driver import GROUP_START
from arenite.backends.cpu.gemm.kernel import MicroKernel, Operand, Product
from arenite.backends.cpu.gemm.prefetch import LINE_NBYTES
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_ops
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import Kind
from arenite.ir import Node, bounds
from arenite.ir.ops.define import INTEGER
from arenite.schedule.kernel import Kernel

#: Taps along a line that are unrolled, at the most.
MOST_TAPS = 16
#: Pixels of a strip, at the most.
MOST_PIXELS = 8
#: Operations up to which an epilogue is done on the sums in registers: there are few of them.
SHORT_OPS = 16
#: Bytes of the output from which on there are two tiles of a launch, and in one of more, at least.
TILE_NBYTES = 1 << 16
#: How many pixels of the input lie between a strip and the one that is asked for beside it, where
#: that is at most one in so many of a tile: what is behind a tile may be another worker's.
AHEAD, OF_A_TILE = 96, 4


def build_depthwise(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a micro-kernel, or None if it does not fit one."""
    node = kernel.stages[0].node
    if not target.has_fma:
        return None
    if not all(isinstance(size, int) for size in node.inputs[1].shape):
        return None
    builder = _DepthwiseBuilder(kernel, node)
    layout = builder.layout
    return builder.built(layout, target, choice) if builder.fits and layout is not None else None


class _DepthwiseBuilder:
    def __init__(self, kernel: Kernel, node: Node) -> None:
        *taps, channels = (bounds(size)[1] for size in node.inputs[1].shape)
        self.conv = ConvLoops(kernel, node, taps, 1, channels, channels)
        self.taps = taps
        self.layout = self.conv.layout()
        self.fits = (
            channels > 0
            and self.conv.w in self.conv.names
            and self.conv.w.dtype.kind in (Kind.FLOAT, *INTEGER)
            and self.conv.sum_dtype.bits >= 32
            and all(side.is_always_inside for _, side in self.conv.clipped)
            and self.conv.line.taps <= MOST_TAPS
            and self.layout is not None
            and self.layout.is_whole
            and self.layout.channel == 1
            and isinstance(self.layout.pixel, int)
        )

    def built(self, layout: InputLayout, target: Target, choice: str = "") -> Built:
        conv = self.conv
        usual = self._cut(target)
        ways = depthwise_ways(usual, self._sizes(), self._most_pixels(target))
        cut = ways.get(choice, usual)
        n_tiles, place = conv.place(cut)
        line = conv.line
        pixel = bounds(layout.pixel)[1]
        before = index_expr(line.before)
        loops, below = [], conv.channels * prod(self.taps)
        weights_at: ir.Expr = GROUP_START
        for (name, side), step in zip(conv.clipped, layout.lines, strict=True):
            below //= side.taps
            if side.taps > 1:
                count = ir.Name(f"{name}_taps") if side.is_padded else ir.index(side.taps)
                loops.append(Taps(count, index_expr(step * side.dilation), below))
            if side.is_padded:
                weights_at = weights_at + ir.Name(f"{name}_first") * below
        start, epilogue = conv.sum_start()
        made = Product(
            a=Operand(
                layout.array,
                layout.dtype,
                conv.line_start(layout) + (GROUP_START - before * pixel),
                ir.index(pixel * line.stride),
                ir.index(1),
            ),
            b=Operand(conv.names[conv.w], conv.w.dtype, ZERO, ZERO, ir.index(1)),
            sum_dtype=conv.sum_dtype,
            row=line.var.name,
            column=conv.column.name,
            batch=conv.batch,
            depth=ZERO,
            n_columns=ir.index(conv.channels),
            blocks=index_expr(n_tiles),
            place=place,
            lanes=cut.lanes,
            columns=1,
            heights=cut.heights,
            epilogue=epilogue,
            is_short=epilogue_ops(self.conv) <= SHORT_OPS,
        )
        depthwise = Depthwise(
            (
                strips(line.fixed, cut.heights[0])
                if line.fixed is not None and are_few(line.fixed)
                else _open(line)
            ),
            cut.heights[0],
            tuple(loops),
            line.taps,
            line.stride,
            line.dilation,
            pixel,
            conv.channels,
            weights_at,
            conv.block.var.name,
            conv.on_line(),
            conv.block.taps,
            self._new_lines(layout, target),
            min(AHEAD // line.stride, cut.block_lines * bounds(line.places)[1] // OF_A_TILE),
            last_lanes(conv.channels, cut.lanes, target),
            start,
        )
        plain = conv.loop_kernel(n_tiles, conv.meaning(made)).loops
        kernel = MicroKernel(*plain.parts, made, depthwise)
        return Built(kernel, n_tiles, choices=tuple(ways))

    def _new_lines(self, layout: InputLayout, target: Target) -> int:
        """Lines to ask for ahead, where all of the input does not stay in the second cache and
        every pixel is a line of it of its own at least."""
        conv = self.conv
        size = layout.dtype.bits // 8
        nbytes = bounds(conv.block.size * conv.line.size)[1] * conv.channels * size
        is_far = nbytes > target.l2_nbytes and bounds(layout.pixel)[1] * size >= LINE_NBYTES
        is_far &= conv.block.taps > 1 and not conv.deep
        return min(conv.block.stride, conv.block.taps) if is_far else 0

    def _most_pixels(self, target: Target) -> int:
        """Pixels of a strip whose sums fit the registers."""
        return max(2, target.n_vector_registers - 2 - self.conv.line.taps)

    def _sizes(self) -> ConvSizes:
        conv = self.conv
        lines, pixels = conv.block.places, conv.line.places
        sizes = (conv.n_images, lines, pixels, 1, conv.channels, 1)
        return ConvSizes(*sizes, 0, 0, False, ANY, is_whole=True)

    def _cut(self, target: Target) -> ConvCut:
        """Blocks of lines, then chunks of channels, of enough bytes each."""
        lanes = lanes_for(self.conv.channels, self.conv.sum_dtype, target)
        pixels = bounds(self.conv.line.places)[1]
        lines = self.conv.block.places if isinstance(self.conv.block.places, int) else LATER_LINES
        images = self.conv.n_images if isinstance(self.conv.n_images, int) else 1
        nbytes = images * lines * pixels * self.conv.channels * self.conv.sum_dtype.bits // 8
        least = 2 if nbytes > TILE_NBYTES and images == 1 else 1
        wanted = even(max(least, min(nbytes // TILE_NBYTES, MOST_TILES) // max(1, images)))
        n_vectors = -(-self.conv.channels // lanes)
        plane = bounds(self.conv.block.size * self.conv.line.size)[1] + lines * pixels
        is_near = plane * lanes * self.conv.sum_dtype.bits // 8 <= target.l1d_nbytes
        block, n_chunks = _blocks(lines, n_vectors, wanted, is_near)
        strip = max(1, min(MOST_PIXELS, self._most_pixels(target), pixels))
        chunk = -(-n_vectors // n_chunks) * lanes
        return ConvCut(lanes, 1, (strip,), block, self.conv.line.places, chunk)


def _blocks(lines: int, n_vectors: int, wanted: int, is_near: bool) -> tuple[int, int]:
    """Lines of a block and chunks of channels: about so many, that two workers share evenly; few
    blocks if the first cache has room for all lines of a vector of channels."""
    block = -(-lines // min(wanted, lines))
    if wanted > 1 and lines < 2 * wanted and n_vectors >= wanted:
        return lines, wanted
    while wanted > 1 and block > 1 and -(-lines // block) % 2:
        block -= 1
    # Blocks of as many lines each, which are not much longer.
    lengths = range(block, min(lines, 4 * block) + 1)
    for whole in lengths[::-1] if is_near and lines % block else lengths:
        n_blocks = lines // whole
        n_chunks = max(1, round(wanted / n_blocks))
        is_even = n_blocks * n_chunks % 2 == lines % whole == n_vectors % n_chunks == 0
        if is_even:
            return whole, n_chunks
    return block, max(1, min(n_vectors, wanted // -(-lines // block)))


def _open(line: Side) -> OpenLine:
    pixel, places = ir.Name(line.var.name), index_expr(line.places)
    outside = index_expr(line.before) + (line.stride - 1)
    first = ir.Binary("min", outside // line.stride, places)
    inside = index_expr(line.size) + index_expr(line.before) - (line.reach + 1)
    last = ir.Binary("min", inside // line.stride + 1, places)
    return OpenLine(
        pixel.name,
        places,
        first,
        ir.Binary("max", last, first),
        line.first_tap(pixel),
        line.last_tap(pixel),
    )


BUILDERS = {"depthwise_last": build_depthwise}
