"""How a product is cut: the shape of its register tiles, its blocks, and the tiles of a launch.

In: sizes, how the operands lie, a target. Out: a `Cut`. It depends on shapes alone, never on the
number of threads. Columns are split before rows, for splitting rows copies B more than once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from arenite.backends.cpu.gemm import row_dots
from arenite.backends.cpu.gemm.kernel import GemvForm
from arenite.backends.cpu.gemm.partial_sums import ONE_BLOCK, block_length
from arenite.backends.cpu.gemm.rows import LIMIT, any_heights, even_heights
from arenite.backends.cpu.gemm.stream import is_far
from arenite.backends.cpu.gemm.tile import lanes_of, most_columns, most_rows
from arenite.backends.cpu.target import Target
from arenite.dtype import DType
from arenite.ir.dim import Dim, bounds, known_divisor

#: Multiplications in one tile of a launch, at least, where there are two: some 20 microseconds.
#: Reading an element of B counts as so many of them.
TILE_WORK = 1 << 20
ELEMENT_WORK = 12
#: Tiles of a launch at the most, for each of which scratch may be needed.
MOST_TILES = 32
#: Tiles from which on columns alone are split: each block of rows copies B anew.
ENOUGH_TILES = 12

#: Rows up to which row dots are faster than copying B into panels; fewer where K is short, for
#: every dot ends with adding up lanes.
DOT_ROWS = 96
DOT_DEPTH = 8
#: Vectors of columns at a time with one row.
ONE_ROW_COLUMNS = 8
#: B is streamed, where its rows lie far apart, with a row for so many registers; the sums of a
#: stream take so many bytes in all, and so many columns are worth a stream of their own. Of a B
#: that a cache holds so many are done at a time, whose sums stay in the first cache.
STREAM_REGISTERS = 4
STREAM_NBYTES = 1 << 14
STREAM_RUN = 2048
STREAM_COLUMNS = 2048
APART_NBYTES = 2048
#: Rows from which on columns of B are copied side by side if they don't fit the cache as they lie.
COPY_ROWS = 64
#: Groups of columns copied at a time where B lies along its columns, so that more is read in a row.
COPIED_GROUPS = 4
#: Where B is copied while it is multiplied: bytes of a row in a stripe, the part of the second
#: cache that the panels of one take. That is faster for so many rows; from fewer on if B takes more
#: than this part of the last cache; up to more if it is too deep for many groups to be copied at a
#: time.
STRIPE_NBYTES = 256
SLICE_SHARE = 8
SLICED_ROWS = (48, 256)
SLICED_ROWS_LARGE = 16
SLICED_ROWS_DEEP = 512
LARGE_SHARE = 3
#: Tiles of such a launch, and stripes times slices in one of them: the first is copied beforehand.
LEAST_SLICED_TILES = 6
MOST_SLICED_TILES = 16
LEAST_PIECES = 4
#: Bytes of all sums of such a launch at the most: they have scratch of their own.
SLICED_NBYTES = 1 << 23
#: Steps of K after which a row is copied; as many as leave enough turns for all rows.
CHUNKS = (16, 8, 4)
#: Places in each set of the second cache.
WAYS = 8
#: Rows of A that are this far apart fall into one set of the cache, which has eight places.
SET_NBYTES = 4096
SET_ROWS = 8
#: Of a number of rows that is known only later: blocks, and heights of few of them.
LATER_ROWS = 168
LATER_FEW_HEIGHTS = (3, 1)
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
class GemvCut:
    """The form for blocks of at most `up_to` rows, and how many of them it takes at once."""

    up_to: int
    form: GemvForm
    columns: int
    tallest: int


@dataclass(frozen=True, slots=True)
class Slices:
    """So many elements of K at a time; a row of the columns of B that come next is copied after
    each `chunk` of them."""

    depth: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks of `block_rows` x `block_columns`; the rest is as in `kernel.Product`. With `slices`
    groups of columns are copied while others are multiplied, so many at a time, all of them whole.
    """

    lanes: int
    columns: int
    heights: tuple[int, ...]
    block_rows: int
    block_columns: int
    blocks_a_tile: int = 1
    gemv: GemvCut = GemvCut(0, "stream", 1, 1)
    gemv_heights: tuple[int, ...] = ()
    copies_b: bool = False
    copied_groups: int = 1
    slices: Slices | None = None


def cut(layout: Layout, a: DType, b: DType, total: DType, target: Target) -> Cut:
    """The shape of everything."""
    lanes = lanes_of(target, total)
    least, most = bounds(layout.n_rows)
    is_apart = isinstance(layout.b_step, int) and layout.b_step * b.bits // 8 >= APART_NBYTES
    gemv = _gemv(layout, b, total, is_apart, target)
    columns = _columns(layout, lanes, target)
    tallest = most_rows(target, columns)
    line = layout.a_line
    if isinstance(line, int) and line and line * a.bits // 8 % SET_NBYTES == 0:
        tallest = min(tallest, SET_ROWS)
    if most > gemv.up_to:
        block_rows, block_columns, blocks_a_tile = _blocks(layout, columns * lanes, tallest)
    else:
        block_rows, block_columns, blocks_a_tile = _gemv_blocks(layout, gemv, lanes)
    copies_b = most > gemv.up_to and (
        layout.b_line != 1 or (least >= COPY_ROWS and _crowds(layout, b, target))
    )
    n_groups = -(-block_columns // (columns * lanes))
    usual = Cut(
        lanes,
        columns,
        _heights(layout.n_rows, block_rows, gemv, tallest) if most > gemv.up_to else (),
        block_rows,
        block_columns,
        blocks_a_tile,
        gemv,
        _gemv_heights(layout.n_rows, gemv),
        copies_b,
        _copied_groups(layout, columns, n_groups, target) if copies_b else 1,
    )
    fits = a == total and _crowds(layout, b, target)
    return (_sliced(usual, layout, b, tallest, target) if fits else None) or usual


def as_slices(cut: Cut, layout: Layout, target: Target) -> Cut | None:
    """The same tiles with B copied while it is multiplied, where all sizes are known and can be cut
    evenly; chunks of columns become whole stripes."""
    rows, columns, depth = layout.n_rows, layout.n_columns, layout.depth
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(depth, int)):
        return None
    if cut.blocks_a_tile > 1 or layout.a_step != 1 or layout.b_line != 1:
        return None
    row_nbytes, width = _row_nbytes(cut.columns, target), cut.columns * cut.lanes
    widest = max(1, STRIPE_NBYTES // row_nbytes)
    groups = next((n for n in range(widest, 0, -1) if columns % (n * width) == 0), 0)
    if groups == 0:
        return None
    stripe = groups * width
    fewest = min(cut.block_rows, rows % cut.block_rows or rows)
    chunks = [n for n in CHUNKS if n * cut.heights[0] <= groups * fewest]
    most = target.l2_nbytes // SLICE_SHARE // (groups * row_nbytes)
    depths = [n for n in range(most, most // 4, -1) if depth % n == 0]
    # Sums are added up in blocks, of which a slice has whole ones, and these whole chunks.
    block = block_length(depth) if depth > ONE_BLOCK else None
    found = [
        (n, chunk)
        for chunk in chunks
        for n in depths
        if (block or n) % chunk == 0 and n % (block or chunk) == 0
    ]
    if not found:
        return None
    return replace(
        cut,
        copies_b=True,
        copied_groups=groups,
        block_columns=-(-cut.block_columns // stripe) * stripe,
        slices=Slices(*found[0]),
    )


def _sliced(usual: Cut, layout: Layout, b: DType, tallest: int, target: Target) -> Cut | None:
    """All rows in slices, where that is faster, and leaves tiles for some threads."""
    rows, columns, batch = (bounds(x)[1] for x in (layout.n_rows, layout.n_columns, layout.batch))
    fewest, most = SLICED_ROWS
    if columns * bounds(layout.depth)[1] * b.bits // 8 > target.l3_nbytes // LARGE_SHARE:
        fewest = SLICED_ROWS_LARGE
    if _fitting_groups(layout, usual.columns, target) < COPIED_GROUPS:
        most = SLICED_ROWS_DEEP
    sums_nbytes = batch * rows * columns * (target.vector_bits // usual.lanes // 8)
    if not usual.heights or not fewest <= rows <= most or sums_nbytes > SLICED_NBYTES:
        return None
    whole = replace(usual, block_rows=rows, heights=even_heights([rows], tallest))
    made = as_slices(whole, layout, target)
    if made is None or made.slices is None:
        return None
    stripe = made.copied_groups * made.columns * made.lanes
    n_stripes, n_slices = columns // stripe, bounds(layout.depth)[1] // made.slices.depth
    shares = [
        (n_tiles % 2, n_stripes // n_tiles)
        for n_tiles in range(1, n_stripes + 1)
        if n_stripes % n_tiles == 0
        and n_tiles * batch >= LEAST_SLICED_TILES
        and n_tiles <= max(1, MOST_SLICED_TILES // batch)
        and n_stripes // n_tiles * n_slices >= LEAST_PIECES
    ]
    return replace(made, block_columns=min(shares)[1] * stripe) if shares else None


def _copied_groups(layout: Layout, columns: int, n_groups: int, target: Target) -> int:
    """Groups that are copied at a time where a block has so many."""
    if layout.b_line != 1:
        return 1
    return max(1, min(COPIED_GROUPS, _fitting_groups(layout, columns, target), n_groups))


def _fitting_groups(layout: Layout, columns: int, target: Target) -> int:
    """Groups of so many vectors, as deep as B is, that half the second cache holds."""
    return target.l2_nbytes // 2 // (_row_nbytes(columns, target) * bounds(layout.depth)[1])


def _row_nbytes(columns: int, target: Target) -> int:
    """Bytes in a row of a panel."""
    return columns * target.vector_bits // 8


def _crowds(layout: Layout, b: DType, target: Target) -> bool:
    """Whether the rows of B in a group of columns fall into too few sets of the cache to stay."""
    if not isinstance(layout.b_step, int) or not isinstance(layout.depth, int):
        return True
    way_nbytes = target.l2_nbytes // WAYS
    return layout.depth > WAYS * way_nbytes // gcd(layout.b_step * b.bits // 8, way_nbytes)


def _gemv(layout: Layout, b: DType, total: DType, is_apart: bool, target: Target) -> GemvCut:
    lanes = lanes_of(target, total)
    if layout.a_step == 1 and layout.b_step == 1 and lanes >= row_dots.FOLDED:
        up_to = min(DOT_ROWS, bounds(layout.depth)[1] // DOT_DEPTH)
        columns = ONE_ROW_COLUMNS if layout.n_rows == 1 else 1
        return GemvCut(up_to, "dots", columns * lanes, row_dots.most_rows(target))
    tallest = target.n_vector_registers // STREAM_REGISTERS
    rows = max(1, min(tallest, bounds(layout.n_rows)[1]))
    columns = STREAM_NBYTES * 8 // (total.bits * rows)
    if not is_far(target, (layout.depth, layout.n_columns), b):
        columns = min(columns, STREAM_COLUMNS)
    up_to = tallest if layout.b_line == 1 and is_apart else 0
    return GemvCut(up_to, "stream", columns // 64 * 64, tallest)


def _columns(layout: Layout, lanes: int, target: Target) -> int:
    """Vectors side by side: two (three short ones), or more where there are few rows."""
    usual = 2 if lanes >= 8 else 3
    rows, size = bounds(layout.n_rows)[1], bounds(layout.n_columns)[1]
    columns = usual
    if rows < most_rows(target, usual):
        columns = max(usual, min(WIDEST, most_columns(target, max(1, rows))))
    return max(1, min(columns, -(-size // lanes)))


def _heights(n_rows: Dim, block_rows: int, gemv: GemvCut, tallest: int) -> tuple[int, ...]:
    """Heights of tiles for blocks of more rows than the form for few takes."""
    if isinstance(n_rows, int):
        return even_heights([min(n_rows, block_rows), n_rows % block_rows], tallest)
    even = even_heights(range(gemv.up_to + 1, min(block_rows, LIMIT + tallest) + 1), tallest)
    return min(even, any_heights(tallest, gcd(known_divisor(n_rows), block_rows)), key=len)


def _gemv_heights(n_rows: Dim, gemv: GemvCut) -> tuple[int, ...]:
    """Heights for blocks of few rows; the last block may be one whatever the number of rows is."""
    if gemv.up_to == 0 or (isinstance(n_rows, int) and n_rows > gemv.up_to):
        return ()
    if isinstance(n_rows, int):
        return even_heights([n_rows], gemv.tallest)
    tallest = min(gemv.tallest, bounds(n_rows)[1])
    return (tallest, *(height for height in LATER_FEW_HEIGHTS if height < tallest))


def _blocks(layout: Layout, width: int, tallest: int) -> tuple[int, int, int]:
    """Rows and columns of a block, and blocks in a tile."""
    is_known = isinstance(layout.n_rows, int)
    all_rows, columns, depth, batch = (
        max(1, bounds(size)[1])
        for size in (layout.n_rows, layout.n_columns, layout.depth, layout.batch)
    )
    rows = all_rows if is_known else min(all_rows, LATER_ROWS)
    work = (rows + ELEMENT_WORK) * columns * depth
    groups = -(-columns // width)
    if work * 2 <= TILE_WORK:
        return rows, groups * width, TILE_WORK // work
    if batch >= MOST_TILES:
        return all_rows, groups * width, 1
    wanted = max(1, min(work // TILE_WORK, -(-MOST_TILES // batch)))
    wanted += wanted % 2 if wanted > 1 else 0
    chunk = -(-groups // min(wanted, groups))
    n_chunks = -(-groups // chunk)
    if not is_known:
        # Every tile has scratch, so their number does not grow with the rows without end.
        n_blocks = max(1, MOST_TILES // (n_chunks * batch))
        rows = max(rows, -(-all_rows // n_blocks))
    elif n_chunks < ENOUGH_TILES:
        n_blocks = min(-(-wanted // n_chunks), rows // (2 * tallest))
        rows = -(-rows // max(1, n_blocks))
    return rows, chunk * width, 1


def _gemv_blocks(layout: Layout, gemv: GemvCut, lanes: int) -> tuple[int, int, int]:
    """All rows, and columns enough to make reading them worth while."""
    rows, columns, depth, batch = (
        max(1, bounds(size)[1])
        for size in (layout.n_rows, layout.n_columns, layout.depth, layout.batch)
    )
    work = (rows + ELEMENT_WORK) * columns * depth
    if work * 2 <= TILE_WORK:
        return rows, columns, TILE_WORK // work
    if batch >= MOST_TILES:
        return rows, columns, 1
    wanted = max(2, min(work // TILE_WORK, -(-MOST_TILES // batch)))
    unit = lanes
    if gemv.form == "stream":
        unit = 64
        wanted = max(2, min(wanted, columns // STREAM_RUN))
    units = -(-columns // unit)
    return rows, _even_share(units, wanted) * unit, 1


def _even_share(units: int, wanted: int) -> int:
    """Units in each part, of which there are about as many as wanted, and an even number: with an
    odd one, one of two threads would have nothing to do while the other does the last."""
    usual = -(-units // wanted)
    shares = range(-(-usual // 2), min(2 * usual, units) + 1)
    return min(shares, key=lambda share: (-(-units // share) % 2, abs(-(-units // share) - wanted)))
