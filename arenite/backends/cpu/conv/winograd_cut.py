"""How a Winograd convolution is cut: lines of tiles of a block, chunks of output channels.

In: sizes, a target. Out: `WinogradCut`s by name. They depend on shapes alone, never on the number
of threads. More blocks read the weights more often, more chunks transform the inputs more often,
and each tile of the launch has scratch of its own; fewer of them leave a worker without work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from math import prod

from arenite.backends.cpu.conv.cut import lanes_for, step_cycles
from arenite.backends.cpu.gemm.blocking import MOST_TILES
from arenite.backends.cpu.gemm.rows import any_heights, even_height, even_heights
from arenite.backends.cpu.gemm.tile import most_rows
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.ops.winograd import POINTS
from arenite.backends.cpu.target import Target
from arenite.dtype import DType

#: Cycles that a vector of a tile takes to be transformed, on its way in and out.
IN_CYCLES, OUT_CYCLES = 110, 70
#: Cycles for a byte of weights that comes from behind the second cache, and what a byte of scratch
#: is worth.
FAR_CYCLES, ROOM_CYCLES = 0.005, 0.2
#: Tiles of outputs in a block, vectors side by side in a register tile, at the most.
BLOCK_TILES = 64
MOST_COLUMNS = 4
#: Chunks of output channels, at the most.
MOST_CHUNKS = 8
#: Blocks up to which each is looked at.
COUNTED_BLOCKS = 1 << 15
#: Layers whose ways are kept: they repeat.
KEPT = 64
#: Numbers of workers that tiles are dealt out to, and how much each counts.
WORKERS = ((1, 1.0), (2, 1.0), (4, 0.1), (8, 0.1))


@dataclass(frozen=True, slots=True)
class WinogradSizes:
    """Of one image: lines of tiles, tiles of a line, channels in and out; whether tiles are counted
    later, so that these are a guess."""

    lines: int
    pixels: int
    depth: int
    channels: int
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class WinogradCut:
    """Register tiles of `heights` x `columns` vectors; a block is `block_lines` of `block_pixels`
    tiles of outputs and a chunk of channels, and a tile of the launch is `blocks_a_tile`."""

    lanes: int
    columns: int
    heights: tuple[int, ...]
    block_lines: int
    block_pixels: int
    block_channels: int
    blocks_a_tile: int

    @property
    def width(self) -> int:
        """Channels of a group."""
        return self.columns * self.lanes

    @property
    def name(self) -> str:
        """As tuning shows it, which changes one part at a time."""
        return (
            f"width {self.width}, lines {self.block_lines}, chunks of {self.block_channels}, "
            f"blocks {self.blocks_a_tile}"
        )


@lru_cache(maxsize=KEPT)
def winograd_ways(sizes: WinogradSizes, total: DType, target: Target) -> Mapping[str, WinogradCut]:
    """Cuts by name, the best by a rough count of cycles first, then some near it: all give the same
    bits, for none changes the order in which a sum is added up."""
    cuts = list(_cuts(sizes, total, target))
    usual = min(cuts, key=lambda cut: _cost(cut, sizes, total, target))
    near = [cut for cut in cuts if _is_near(cut, usual, sizes)]
    return {cut.name: cut for cut in (usual, *near)}


def _is_near(cut: WinogradCut, usual: WinogradCut, sizes: WinogradSizes) -> bool:
    n_chunks = -(-sizes.channels // cut.block_channels)
    n_lines = -(-sizes.lines // cut.block_lines)
    n_blocks = n_chunks * n_lines * -(-sizes.pixels // cut.block_pixels)
    lines, own = cut.block_lines, usual.block_lines
    return (
        n_chunks in (1, 2, 4)
        and lines in (own, 2 * own, max(1, own // 2))
        and n_blocks % cut.blocks_a_tile == 0
    )


def _cuts(sizes: WinogradSizes, total: DType, target: Target) -> Iterator[WinogradCut]:
    lanes = lanes_for(sizes.channels, total, target)
    n_vectors = -(-sizes.channels // lanes)
    block_pixels = -(-sizes.pixels // -(-sizes.pixels // BLOCK_TILES))
    most_lines = min(sizes.lines, BLOCK_TILES // sizes.pixels or 1)
    for columns, block_lines in product(range(1, MOST_COLUMNS + 1), range(1, most_lines + 1)):
        tallest = most_rows(target, columns)
        is_whole = columns * lanes % PANEL == 0 or columns == n_vectors
        if not is_whole or tallest < 1:
            continue
        lines = [length for _, length in _parts(sizes.lines, block_lines)]
        pixels = [length for _, length in _parts(sizes.pixels, block_pixels)]
        counts = [a * b for a in lines for b in pixels]
        heights = any_heights(tallest) if sizes.is_guess else even_heights(counts, tallest)
        n_lines, n_pixels = -(-sizes.lines // block_lines), -(-sizes.pixels // block_pixels)
        n_groups = -(-sizes.channels // (columns * lanes))
        for chunk in {-(-n_groups // n) for n in range(1, min(n_groups, MOST_CHUNKS) + 1)}:
            n_blocks = n_lines * n_pixels * -(-n_groups // chunk)
            for joined in {-(-n_blocks // n) for n in range(1, MOST_TILES + 1)}:
                block = (block_lines, block_pixels, chunk * columns * lanes)
                yield WinogradCut(lanes, columns, heights, *block, joined)


def _cost(cut: WinogradCut, sizes: WinogradSizes, total: DType, target: Target) -> float:
    """Cycles, summed over numbers of workers; what scratch is worth; few tiles, if all is equal."""
    sides = [
        _parts(size, part)
        for size, part in (
            (sizes.lines, cut.block_lines),
            (sizes.pixels, cut.block_pixels),
            (sizes.channels, cut.block_channels),
        )
    ]
    cycles = cache(lambda n_rows, chunk: _block_cycles(cut, n_rows, chunk, sizes, total, target))
    step, n_blocks = cut.blocks_a_tile, prod(sum(n for n, _ in side) for side in sides)
    if n_blocks > COUNTED_BLOCKS:  # tiles are as good as equal
        work = sum(a * b * c * cycles(lines * pixels, chunk)
                   for (a, lines), (b, pixels), (c, chunk) in product(*sides))  # fmt: skip
        n_tiles = -(-n_blocks // step)
        tiles = [work / n_tiles] * n_tiles
    else:
        each = ([length for n, length in side for _ in range(n)] for side in sides)
        blocks = [cycles(lines * pixels, chunk) for lines, pixels, chunk in product(*each)]
        tiles = [sum(blocks[k : k + step]) for k in range(0, len(blocks), step)]
    n_rows = cut.block_lines * cut.block_pixels
    room = POINTS * n_rows * (sizes.depth + cut.width) * total.bits // 8
    spent = sum(weight * n * _finished(tiles, n) for n, weight in WORKERS)
    return spent + len(tiles) * room * ROOM_CYCLES


def _block_cycles(
    cut: WinogradCut,
    n_rows: int,
    channels: int,
    sizes: WinogradSizes,
    total: DType,
    target: Target,
) -> float:
    vectors_in, vectors_out = (-(-n // cut.lanes) for n in (sizes.depth, channels))
    n_groups, rest = divmod(vectors_out, cut.columns)
    steps, left = 0.0, n_rows
    while left > 0:
        height = even_height(left, cut.heights[0])
        steps += n_groups * step_cycles(height, cut.columns)
        steps += step_cycles(height, rest) if rest else 0.0
        left -= height
    transforms = n_rows * (vectors_in * IN_CYCLES + vectors_out * OUT_CYCLES)
    weights_nbytes = POINTS * sizes.depth * channels * total.bits // 8
    is_far = POINTS * sizes.depth * sizes.channels * total.bits // 8 > target.l2_nbytes // 2
    far = weights_nbytes * FAR_CYCLES if is_far else 0.0
    return POINTS * sizes.depth * steps + transforms + far


def _parts(size: int, part: int) -> list[tuple[int, int]]:
    """How often a size is cut into which parts."""
    return [(n, length) for n, length in ((size // part, part), (1, size % part)) if n * length]


def _finished(tiles: list[float], n_workers: int) -> float:
    """When the last of so many workers is done, each taking the next tile when it is free."""
    done = [0.0] * n_workers
    for tile in tiles:
        done[done.index(min(done))] += tile
    return max(done)
