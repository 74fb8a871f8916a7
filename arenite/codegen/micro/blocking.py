"""How a product is cut: the shape of its register tiles, its blocks, and the tiles of a launch.

In: sizes, how the operands lie, a target. Out: a `Cut`. It depends on shapes alone, never on the
number of threads. Columns are split before rows, for splitting rows copies B more than once.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen.micro import dots
from arenite.codegen.micro.rows import even_heights
from arenite.codegen.micro.tile import lanes_of, most_columns, most_rows
from arenite.codegen.target import Target
from arenite.dtype import DType
from arenite.ir.dim import Dim, bounds

#: Multiplications in one tile of a launch, at least, where there are two: some 20 microseconds.
#: Reading an element of B counts as so many of them.
TILE_WORK = 1 << 20
ELEMENT_WORK = 12
#: Tiles of a launch at the most, for each of which scratch may be needed.
MOST_TILES = 32

#: Rows up to which row dots are faster than copying B into panels.
DOT_ROWS = 32
#: Rows from which on columns of B that lie apart are copied side by side, and how far apart.
COPY_ROWS = 96
COPY_STEP_NBYTES = 2048
#: Rows of A that are this far apart fall into one set of the cache, which has eight places.
SET_NBYTES = 4096
SET_ROWS = 6
#: Of a number of rows that is known only later: blocks, and heights that all numbers are cut into.
LATER_ROWS = 168
LATER_HEIGHTS = (14, 12, 8, 6, 4, 2, 1)
WIDEST = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, and the distances between elements of A and B, in elements."""

    batch: Dim
    n_rows: Dim
    n_columns: Dim
    depth: Dim
    a_line: Dim
    a_step: Dim
    b_line: Dim
    b_step: Dim


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks of `block_rows` x `block_columns`; the rest is as in `kernel.Product`."""

    lanes: int
    columns: int
    heights: tuple[int, ...]
    dot_heights: tuple[int, ...]
    dots_up_to: int
    copies_b: bool
    block_rows: int
    block_columns: int
    blocks_a_tile: int


def cut(layout: Layout, a: DType, b: DType, total: DType, target: Target) -> Cut:
    """The shape of everything."""
    lanes = lanes_of(target, total)
    least, most = bounds(layout.n_rows)
    can_dot = layout.a_step == 1 and layout.b_step == 1 and lanes >= dots.FOLDED
    dots_up_to = DOT_ROWS if can_dot else 0
    in_place = layout.b_line == 1
    step = layout.b_step
    is_far = isinstance(step, int) and step * b.bits // 8 >= COPY_STEP_NBYTES
    copies = not in_place or (least >= COPY_ROWS and is_far)
    columns = _columns(layout, lanes, target)
    tallest = most_rows(target, columns)
    line = layout.a_line
    if isinstance(line, int) and line and line * a.bits // 8 % SET_NBYTES == 0:
        tallest = min(tallest, SET_ROWS)
    width = columns * lanes if most > dots_up_to else lanes
    block_rows, block_columns, blocks_a_tile = _blocks(layout, width, tallest)
    return Cut(
        lanes,
        columns,
        _heights(layout.n_rows, block_rows, tallest) if most > dots_up_to else (),
        _heights(layout.n_rows, block_rows, dots.most_rows(target)) if least <= dots_up_to else (),
        dots_up_to,
        copies and most > dots_up_to,
        block_rows,
        block_columns,
        blocks_a_tile,
    )


def _columns(layout: Layout, lanes: int, target: Target) -> int:
    """Vectors side by side: two (three short ones), or more where there are few rows."""
    usual = 2 if lanes >= 8 else 3
    rows, size = bounds(layout.n_rows)[1], bounds(layout.n_columns)[1]
    columns = usual
    if rows < most_rows(target, usual):
        columns = max(usual, min(WIDEST, most_columns(target, max(1, rows))))
    return max(1, min(columns, -(-size // lanes)))


def _heights(n_rows: Dim, block_rows: int, tallest: int) -> tuple[int, ...]:
    if isinstance(n_rows, int):
        last = n_rows % block_rows
        return even_heights([min(n_rows, block_rows), last], tallest)
    lower = [height for height in LATER_HEIGHTS if height < min(tallest, bounds(n_rows)[1])]
    return (min(tallest, bounds(n_rows)[1]), *lower)


def _blocks(layout: Layout, width: int, tallest: int) -> tuple[int, int, int]:
    """Rows and columns of a block, and blocks in a tile."""
    is_known = isinstance(layout.n_rows, int)
    rows = max(1, min(bounds(layout.n_rows)[1], 10**9 if is_known else LATER_ROWS))
    columns = max(1, bounds(layout.n_columns)[1])
    depth = bounds(layout.depth)[1]
    batch = max(1, bounds(layout.batch)[1])
    work = (rows + ELEMENT_WORK) * columns * depth
    if work * 2 <= TILE_WORK or batch >= MOST_TILES:
        return rows, -(-columns // width) * width, max(1, min(TILE_WORK // work, batch))
    wanted = max(1, min(work // TILE_WORK, -(-MOST_TILES // batch)))
    wanted += wanted % 2 if wanted > 1 else 0
    groups = -(-columns // width)
    chunk = -(-groups // min(wanted, groups))
    n_chunks = -(-groups // chunk)
    n_blocks = -(-wanted // n_chunks)
    if n_blocks > 1 and is_known:
        rows = -(-rows // (n_blocks * tallest)) * tallest
    return rows, chunk * width, 1
