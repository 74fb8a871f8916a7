"""How a Winograd convolution is cut: lines of tiles of a block, chunks of output channels.

In: sizes, a target. Out: a `WinogradCut`. It depends on shapes alone, never on the number of
threads. More blocks read the weights more often, more chunks transform the inputs more often, and
each tile of the launch writes to scratch of its own; fewer of them leave a worker without work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arenite.codegen.micro.blocking import MOST_TILES
from arenite.codegen.micro.conv_cut import ConvSizes, cut_conv
from arenite.codegen.micro.rows import LIMIT, even_height, even_heights
from arenite.codegen.micro.tile import most_rows
from arenite.codegen.target import Target
from arenite.dtype import DType
from arenite.ir.ops.winograd import POINTS

#: Cycles that a vector of a tile takes to be transformed, on its way in and out.
IN_CYCLES, OUT_CYCLES = 110, 70
#: Cycles for a byte of weights, or of scratch, that comes from behind the second cache.
FAR_CYCLES = 0.03
#: Tiles of outputs in a block, at the most, if it is not one line.
BLOCK_TILES = 128
#: Chunks of output channels, at the most.
MOST_CHUNKS = 8
#: Numbers of workers that tiles are dealt out to, and how much each counts.
WORKERS = ((1, 1.0), (2, 1.0), (4, 0.1), (8, 0.1))


@dataclass(frozen=True, slots=True)
class WinogradSizes:
    """Of one image: lines of tiles, tiles of a line, channels in and out."""

    lines: int
    pixels: int
    depth: int
    channels: int


@dataclass(frozen=True, slots=True)
class WinogradCut:
    """Register tiles of `heights` x `columns` vectors; a block is `block_lines` of tiles and a
    chunk of channels, and a tile of the launch takes `blocks_a_tile` of an image."""

    lanes: int
    columns: int
    heights: tuple[int, ...]
    block_lines: int
    block_channels: int
    blocks_a_tile: int

    @property
    def width(self) -> int:
        """Channels of a group."""
        return self.columns * self.lanes


def cut_winograd(sizes: WinogradSizes, total: DType, target: Target) -> WinogradCut:
    return min(_cuts(sizes, total, target), key=lambda cut: _cost(cut, sizes, total, target))


def _cuts(sizes: WinogradSizes, total: DType, target: Target) -> Iterator[WinogradCut]:
    most = max(1, min(sizes.lines, BLOCK_TILES // sizes.pixels))
    for block_lines in range(1, most + 1):
        n_rows = block_lines * sizes.pixels
        given = ConvSizes(
            1, 1, n_rows, 1, sizes.channels, sizes.depth, 0, 0, False, n_rows, is_whole=True
        )
        usual = cut_conv(given, total, target)
        tallest = most_rows(target, usual.columns)
        counts = [n_rows, sizes.lines % block_lines * sizes.pixels]
        heights = even_heights(counts, tallest)
        n_groups = -(-sizes.channels // usual.width)
        for chunk in sorted({-(-n_groups // n) for n in range(1, min(n_groups, MOST_CHUNKS) + 1)}):
            n_blocks = -(-sizes.lines // block_lines) * -(-n_groups // chunk)
            for joined in sorted({-(-n_blocks // n) for n in range(1, MOST_TILES + 1)}):
                yield WinogradCut(
                    usual.lanes, usual.columns, heights, block_lines, chunk * usual.width, joined
                )


def _cost(cut: WinogradCut, sizes: WinogradSizes, total: DType, target: Target) -> float:
    """Cycles, summed over numbers of workers."""
    blocks: list[float] = []
    for n_lines, lines in _parts(sizes.lines, cut.block_lines):
        row: list[float] = []
        for n_chunks, chunk in _parts(sizes.channels, cut.block_channels):
            row += n_chunks * [
                _block_cycles(cut, lines * sizes.pixels, chunk, sizes, total, target)
            ]
        blocks += n_lines * row
    step = cut.blocks_a_tile
    tiles = [sum(blocks[k : k + step]) for k in range(0, len(blocks), step)]
    room = POINTS * cut.block_lines * sizes.pixels * (sizes.depth + cut.width) * total.bits // 8
    if len(tiles) * room > target.l2_nbytes // 2:
        tiles = [tile + room * FAR_CYCLES for tile in tiles]
    return sum(weight * n * _finished(tiles, n) for n, weight in WORKERS)


def _block_cycles(
    cut: WinogradCut,
    n_rows: int,
    channels: int,
    sizes: WinogradSizes,
    total: DType,
    target: Target,
) -> float:
    vectors_in, vectors_out = (-(-n // cut.lanes) for n in (sizes.depth, channels))
    rows, left = 0.0, n_rows
    while left > 0:
        height = even_height(left, cut.heights[0]) if left < LIMIT else cut.heights[0]
        rows += max(height * cut.columns, 4.0) + 0.5
        left -= height
    n_groups = -(-vectors_out // cut.columns)
    products = POINTS * sizes.depth * n_groups * rows
    transforms = n_rows * (vectors_in * IN_CYCLES + vectors_out * OUT_CYCLES)
    weights_nbytes = POINTS * sizes.depth * channels * total.bits // 8
    is_far = POINTS * sizes.depth * sizes.channels * total.bits // 8 > target.l2_nbytes // 2
    return products + transforms + (weights_nbytes * FAR_CYCLES if is_far else 0.0)


def _parts(size: int, part: int) -> list[tuple[int, int]]:
    """How often a size is cut into which parts."""
    return [(n, length) for n, length in ((size // part, part), (1, size % part)) if n * length]


def _finished(tiles: list[float], n_workers: int) -> float:
    """When the last of so many workers is done, each taking the next tile when it is free."""
    done = [0.0] * n_workers
    for tile in tiles:
        done[done.index(min(done))] += tile
    return max(done)
