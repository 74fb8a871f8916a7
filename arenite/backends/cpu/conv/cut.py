"""How a convolution is cut: lanes and columns of its register tiles, blocks of a launch's tiles.

In: sizes, a target. Out: a `ConvCut`. It depends on shapes alone, never on the number of threads.
A tile of the launch is a block of lines (or of pixels of one line, where there is one line only)
times a chunk of output channels; the two are split such that the fewest bytes are read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from arenite.backends.cpu.gemm.blocking import LATER_ROWS, MOST_TILES, TILE_WORK
from arenite.backends.cpu.gemm.rows import any_heights, even_heights
from arenite.backends.cpu.gemm.tile import lanes_of, most_rows
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.dtype import DType
from arenite.ir.dim import Dim, bounds, known_divisor

#: Columns of a tile at the most.
WIDEST = 8
#: Output channels up to which half vectors are taken, and CPUs on which those are as fast.
NARROW = 40
_HALF_RATE = frozenset({"znver4"})
#: Bytes of weights up to which tiles as wide as all channels pay, which read and write a row once,
#: and what share of the cycles they then take.
NEAR_NBYTES, ONCE = 40 << 10, 0.9
#: What reading a vector of weights costs, in products, where those of a tile don't fit the second
#: cache, from which all tiles of a block would read them but the first.
FAR_PRODUCTS = 2.0
#: What copying a byte costs, beside reading it.
COPY_COST = 4
#: Lines of a block where their number is known only later.
LATER_LINES = 16


@dataclass(frozen=True, slots=True)
class ConvSizes:
    """`lines` of `pixels` each, in every one of `images`; all of them output places."""

    images: Dim
    lines: Dim
    pixels: Dim
    groups: int
    channels: int  # of a group
    depth: int  # products that one output is the sum of
    #: Bytes of the input that a line needs, and lines of input that one block needs beside those
    #: of its own.
    line_nbytes: int
    more_lines: int
    is_copied: bool
    most_pixels: int  # that a tile may have
    is_whole: bool = False  # a line is never cut into blocks
    once_rows: int = 1  # rows from which on a tile that is as wide as all channels pays
    later_pixels: int = LATER_ROWS  # that are taken where they are known only later


@dataclass(frozen=True, slots=True)
class ConvCut:
    """Vectors of `lanes`, tiles of `columns` of them; blocks of lines, pixels and channels."""

    lanes: int
    columns: int
    heights: tuple[int, ...]
    block_lines: int
    block_pixels: Dim
    block_channels: int

    @property
    def width(self) -> int:
        """Channels of a full tile."""
        return self.columns * self.lanes


def cut_conv(sizes: ConvSizes, total: DType, target: Target) -> ConvCut:
    lanes = lanes_for(sizes.channels, total, target)
    pixels = sizes.pixels if isinstance(sizes.pixels, int) else sizes.later_pixels
    columns = _columns(pixels, sizes, lanes, target)
    lines, block, chunk = _blocks(sizes, pixels, columns * lanes, target)
    block_pixels: Dim = sizes.pixels
    if lines == 0:
        lines, block_pixels = 1, block
    tallest = min(most_rows(target, columns), sizes.most_pixels)
    if isinstance(block_pixels, int) and isinstance(sizes.pixels, int):
        heights = even_heights([block_pixels, sizes.pixels % block_pixels], tallest)
    else:
        divisor = gcd(known_divisor(sizes.pixels), known_divisor(block_pixels))
        heights = any_heights(min(tallest, bounds(block_pixels)[1]), divisor)
        if sizes.later_pixels < LATER_ROWS:
            heights = (heights[0], heights[-1]) if len(heights) > 1 else heights
    return ConvCut(lanes, columns, heights, lines, block_pixels, chunk)


def even(n_tiles: int) -> int:
    """As many tiles of a launch as two workers can share evenly; a single one stays that."""
    return n_tiles + n_tiles % 2 if n_tiles > 1 else n_tiles


def lanes_for(channels: int, total: DType, target: Target) -> int:
    """A full vector, or half of one where that leaves fewer lanes empty and costs nothing."""
    lanes = lanes_of(target, total)
    half_is_full = 0 < channels % PANEL <= PANEL // 2
    if lanes == PANEL and channels <= NARROW and half_is_full and target.cpu in _HALF_RATE:
        return lanes // 2
    return lanes


def last_lanes(channels: int, lanes: int, target: Target) -> int:
    """Lanes of the last vector of channels where half a vector is enough and costs half; else 0."""
    is_enough = 0 < channels % lanes <= lanes // 2
    return lanes // 2 if lanes == PANEL and is_enough and target.cpu in _HALF_RATE else 0


def step_cycles(rows: float, columns: int) -> float:
    """Of one step of K: products, or loads, of which there are two in a cycle, or waiting."""
    # A single vector has no partner to share its broadcasts with.
    fed = rows * columns * (1.1 if columns == 1 else 1.0)
    return max(fed, 0.55 * (rows + columns), 4.0) + 0.5


def _columns(pixels: int, sizes: ConvSizes, lanes: int, target: Target) -> int:
    """Vectors side by side: those that take the fewest cycles, by a rough count of them."""
    total = -(-sizes.channels // lanes)
    has_half = last_lanes(sizes.channels, lanes, target) > 0
    is_near = total * lanes * sizes.depth * 4 <= NEAR_NBYTES

    def cycles(columns: int) -> float:
        tallest = min(pixels, most_rows(target, columns), sizes.most_pixels)
        if tallest < 1:
            return float("inf")
        n_tiles = -(-pixels // tallest)
        rows, spent = pixels / n_tiles, 0.0
        for count, own in ((total // columns, columns), (total % columns > 0, total % columns)):
            is_far = n_tiles > 1 and own * lanes * sizes.depth * 4 > target.l2_nbytes
            far = own * FAR_PRODUCTS if is_far else 0.0
            spent += count * n_tiles * (step_cycles(rows, own) + far)
        spent -= n_tiles * rows / 2 if has_half else 0.0
        is_once = columns == total and is_near and tallest >= sizes.once_rows
        return spent * (ONCE if is_once else 1.0)

    usable = [
        columns
        for columns in range(1, min(WIDEST, total) + 1)
        if columns * lanes % PANEL == 0 or columns == total
    ]
    return min(usable or [PANEL // lanes], key=cycles)


def _blocks(sizes: ConvSizes, pixels: int, width: int, target: Target) -> tuple[int, int, int]:
    """Lines of a block (0: it is a block of pixels), pixels, and channels of a chunk."""
    images = max(1, bounds(sizes.images)[1] if isinstance(sizes.images, int) else 1)
    is_line = sizes.lines == 1 and not sizes.is_whole
    units = pixels if is_line else sizes.lines if isinstance(sizes.lines, int) else LATER_LINES
    unit_nbytes = sizes.line_nbytes // pixels if is_line else sizes.line_nbytes
    least = min(units, most_rows(target, 2)) if is_line else 1
    more = 0 if is_line else sizes.more_lines
    n_groups = -(-sizes.channels // width)
    work = units * (1 if is_line else pixels) * sizes.channels * sizes.depth
    wanted = max(1, min(work * images * sizes.groups // TILE_WORK, MOST_TILES))
    wanted = even(-(-wanted // (images * sizes.groups)))
    weights_nbytes = sizes.channels * sizes.depth * 4
    # Weights that stay in L2 are as near in the next block.
    again = 1.0 if weights_nbytes > target.l2_nbytes // 2 else 0.25
    room = target.l2_nbytes // (4 if sizes.is_copied else 2)
    best: tuple[float, int, int] | None = None
    for n_chunks in range(1, n_groups + 1):
        chunk = -(-n_groups // n_chunks)
        if -(-n_groups // chunk) != n_chunks:
            continue
        for n_tiles in (wanted, even(-(-wanted // 2)) if wanted > 2 else wanted):
            block = max(least, -(-units // -(-n_tiles // n_chunks)))
            while block > least and (block + more) * unit_nbytes > room:
                block = max(least, block // 2)
            n_blocks = -(-units // block)
            read = n_chunks * (units + n_blocks * more) * unit_nbytes
            cost = again * n_blocks * weights_nbytes + read * (COPY_COST if sizes.is_copied else 1)
            if 2 * n_blocks * n_chunks < wanted:
                cost *= wanted / (n_blocks * n_chunks)
            cost *= even(n_blocks * n_chunks) / (n_blocks * n_chunks)
            if best is None or cost < best[0]:
                best = (cost, block, chunk)
    assert best is not None
    _, block, chunk = best
    return (0, block, chunk * width) if is_line else (block, pixels, chunk * width)
