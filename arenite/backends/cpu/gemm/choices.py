"""Other ways to cut a kernel than the one its cost model takes, to be measured by tuning.

In: what a kernel is cut into, its sizes, a target. Out: cuts by name, the usual one first. A name
has parts, and tuning changes one part at a time:

    tile 14x32, parts 1x8, b copied     rows x columns of a register tile (narrow: of half
                                        vectors), blocks of rows x chunks of columns, whether
                                        those of B are copied side by side (copied ahead: while
                                        others are multiplied)

None of them changes the order in which a sum is added up, so all give the same bits. Like the usual
cut they depend on shapes alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias, TypeVar

from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes
from arenite.backends.cpu.gemm.blocking import (
    MOST_TILES,
    WIDEST,
    Cut,
    Layout,
    as_slices,
)
from arenite.backends.cpu.gemm.rows import any_heights, even_heights
from arenite.backends.cpu.gemm.tile import lanes_of, most_rows
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.dtype import DType
from arenite.ir.dim import Dim, bounds

#: Rows that a tile is cut down to, where its rows may share sets of a cache.
LOW = 8
#: Pixels of a strip of a depthwise convolution.
STRIPS = (2, 4, 6, 8, 12)
#: Columns in the smallest chunk of a product of few rows that is streamed.
STREAMED = 64
#: Kernels whose ways are kept: layers repeat.
KEPT = 64

AnyCut = TypeVar("AnyCut", Cut, ConvCut)
#: A cut with B as it is to be; None where that does not fit.
Copied: TypeAlias = Callable[[Cut], Cut | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A register tile: vectors side by side, and rows at the most."""

    columns: int
    tallest: int


@lru_cache(maxsize=KEPT)
def product_ways(usual: Cut, layout: Layout, target: Target) -> Mapping[str, Cut]:
    """Of a product of two float matrices."""
    if not usual.heights:
        return _gemv_ways(usual, layout)
    most = -(-bounds(layout.n_columns)[1] // usual.lanes)
    own = usual.columns
    columns = [c for c in (own, own - 1, own + 1, own + 2) if 1 <= c <= min(most, WIDEST)]
    tops = [(c, most_rows(target, c)) for c in columns]
    low = [(c, LOW) for c, top in tops if top > LOW]
    shapes = [Shape(c, top) for c, top in (*tops, *low) if top >= 1]
    copies: dict[str, Copied] = {"b in place": _in_place, "b copied": _copied}
    copies["b copied ahead"] = partial(as_slices, layout=layout, target=target)
    own_copies = "b in place" if not usual.copies_b else "b copied"
    if usual.slices is not None:
        own_copies = "b copied ahead"
    if layout.b_line != 1:
        copies, own_copies = {"": _copied}, ""
    sizes = (layout.n_rows, layout.n_columns, layout.batch)
    return _matrix_ways(usual, *sizes, shapes, copies, own_copies)


@lru_cache(maxsize=KEPT)
def packed_ways(usual: Cut, n_rows: Dim, n_columns: Dim, batch: Dim) -> Mapping[str, Cut]:
    """Of a product with weights in blocks."""
    tallest = usual.heights[0]
    shapes = [Shape(usual.columns, top) for top in range(tallest, max(0, tallest - 4), -1)]
    return _matrix_ways(usual, n_rows, n_columns, batch, shapes, {"": _in_place}, "")


@lru_cache(maxsize=KEPT)
def conv_ways(
    usual: ConvCut, sizes: ConvSizes, total: DType, target: Target
) -> Mapping[str, ConvCut]:
    """Of a convolution made of register tiles, whose sums are of the type `total`."""
    full = lanes_of(target, total)
    found: list[tuple[str, ConvCut]] = []
    for lanes in (full, full // 2) if full == PANEL else (usual.lanes,):
        n_vectors = -(-sizes.channels // lanes)
        shapes = [
            Shape(columns, min(most_rows(target, columns), sizes.most_pixels))
            for columns in range(1, min(WIDEST, n_vectors) + 1)
            if columns * lanes % PANEL == 0 or columns == n_vectors
        ]
        fitting = [shape for shape in shapes if shape.tallest >= 1]
        note = "" if lanes == full else " narrow"
        found += _image_ways(replace(usual, lanes=lanes), sizes, fitting, note)
    return _named(found, usual, _name(usual.heights[0], usual.width, _own_parts(usual, sizes)))


@lru_cache(maxsize=KEPT)
def depthwise_ways(usual: ConvCut, sizes: ConvSizes, most: int) -> Mapping[str, ConvCut]:
    """Of a depthwise convolution, whose tiles are strips of at most so many pixels."""
    longest = min(bounds(sizes.pixels)[1], most)
    shapes = [Shape(1, strip) for strip in STRIPS if strip <= longest]
    found = _image_ways(usual, sizes, [Shape(1, usual.heights[0]), *shapes])
    ways = [(name, replace(cut, heights=cut.heights[:1])) for name, cut in found]
    return _named(ways, usual, _name(usual.heights[0], usual.width, _own_parts(usual, sizes)))


def _matrix_ways(
    usual: Cut,
    n_rows: Dim,
    n_columns: Dim,
    batch: Dim,
    shapes: Sequence[Shape],
    copies: Mapping[str, Copied],
    own_copies: str,
) -> Mapping[str, Cut]:
    rows, columns = (max(1, bounds(size)[1]) for size in (n_rows, n_columns))
    own = (-(-rows // usual.block_rows), -(-columns // usual.block_columns))
    # Blocks of rows known later end with fewer, which may then be done in another form.
    is_cut = usual.blocks_a_tile == 1 and isinstance(n_rows, int)
    parts = _parts(own, rows, bounds(batch)[1]) if usual.blocks_a_tile == 1 else [own]
    if not is_cut:
        parts = [part for part in parts if part[0] == own[0]]
    found = []
    for note in dict.fromkeys([own_copies, *copies]):
        for part in parts:
            for shape in shapes:
                width = shape.columns * usual.lanes
                if part[1] > -(-columns // width):
                    continue  # too few columns to be cut into so many
                made = copies[note](_matrix_cut(usual, n_rows, columns, shape, part))
                if made is not None:
                    found.append((_name(shape.tallest, width, part, b=note), made))
    own_name = _name(usual.heights[0], usual.columns * usual.lanes, own, b=own_copies)
    return _named(found, usual, own_name)


def _matrix_cut(usual: Cut, n_rows: Dim, columns: int, shape: Shape, part: tuple[int, int]) -> Cut:
    width = shape.columns * usual.lanes
    chunk = _share(columns, width, part[1])
    block_rows, heights = usual.block_rows, any_heights(shape.tallest)
    if isinstance(n_rows, int):
        if usual.blocks_a_tile == 1:
            block_rows = max(1, -(-n_rows // part[0]))
        heights = even_heights([min(n_rows, block_rows), n_rows % block_rows], shape.tallest)
    return replace(
        usual,
        columns=shape.columns,
        heights=heights,
        copied_groups=min(usual.copied_groups, chunk),
        block_rows=block_rows,
        block_columns=chunk * width,
        slices=None,
    )


def _in_place(made: Cut) -> Cut:
    return replace(made, copies_b=False, copied_groups=1)


def _copied(made: Cut) -> Cut:
    return replace(made, copies_b=True)


def _gemv_ways(usual: Cut, layout: Layout) -> Mapping[str, Cut]:
    """Of few rows: chunks of columns alone."""
    columns = max(1, bounds(layout.n_columns)[1])
    unit = STREAMED if usual.gemv.form == "stream" else usual.lanes
    own = -(-columns // usual.block_columns)
    if usual.blocks_a_tile > 1:
        return {}
    found = []
    for _, count in _parts((1, own), 1, bounds(layout.batch)[1]):
        block = _share(columns, unit, count) * unit
        found.append((f"parts 1x{count}", replace(usual, block_columns=block)))
    return _named(found, usual, f"parts 1x{own}")


def _image_ways(
    usual: ConvCut, sizes: ConvSizes, shapes: Sequence[Shape], note: str = ""
) -> list[tuple[str, ConvCut]]:
    """Cuts into vectors as long as the usual one's."""
    along, length = _cut_along(usual, sizes)
    own = _own_parts(usual, sizes)
    units = bounds(along)[1] if isinstance(length, int) else 1
    others = bounds(sizes.images)[1] * sizes.groups
    found = []
    for part in _parts(own, units, others):
        for shape in shapes:
            width = shape.columns * usual.lanes
            if part[1] > -(-sizes.channels // width):
                continue
            made = _image_cut(usual, sizes, shape, part)
            found.append((_name(shape.tallest, width, part, note), made))
    return found


def _is_line(sizes: ConvSizes) -> bool:
    """Whether the pixels of a line are cut, and not lines."""
    return sizes.lines == 1 and not sizes.is_whole


def _cut_along(usual: ConvCut, sizes: ConvSizes) -> tuple[Dim, int | None]:
    """What is cut into blocks, and how long these are if that is known."""
    along = sizes.pixels if _is_line(sizes) else sizes.lines
    length = usual.block_pixels if _is_line(sizes) else usual.block_lines
    return along, length if isinstance(along, int) and isinstance(length, int) else None


def _own_parts(usual: ConvCut, sizes: ConvSizes) -> tuple[int, int]:
    along, length = _cut_along(usual, sizes)
    n_blocks = 1 if length is None else -(-bounds(along)[1] // length)
    return n_blocks, -(-sizes.channels // usual.block_channels)


def _image_cut(usual: ConvCut, sizes: ConvSizes, shape: Shape, part: tuple[int, int]) -> ConvCut:
    width = shape.columns * usual.lanes
    chunk = _share(sizes.channels, width, part[1]) * width
    lines, pixels = usual.block_lines, usual.block_pixels
    along, length = _cut_along(usual, sizes)
    if length is not None:
        block = -(-bounds(along)[1] // part[0])
        lines, pixels = (lines, block) if _is_line(sizes) else (block, pixels)
    if isinstance(pixels, int) and isinstance(sizes.pixels, int):
        heights = even_heights([pixels, sizes.pixels % pixels], shape.tallest)
    else:
        heights = any_heights(min(shape.tallest, bounds(pixels)[1]))
    return replace(
        usual,
        columns=shape.columns,
        heights=heights,
        block_lines=lines,
        block_pixels=pixels,
        block_channels=chunk,
    )


def _parts(own: tuple[int, int], most_rows: int, others: int) -> list[tuple[int, int]]:
    """Blocks of rows and chunks of columns near a pair of them, itself first."""
    rows, columns = own
    near = [
        own,
        (rows, 2 * columns),
        (rows, -(-columns // 2)),
        (2 * rows, columns),
        (2 * rows, -(-columns // 2)),
        (-(-rows // 2), columns),
        (-(-rows // 2), 2 * columns),
        (rows, -(-columns // 4)),
    ]
    most = max(MOST_TILES, rows * columns * others)
    kept = [(r, c) for r, c in near if r <= most_rows and r * c * others <= most]
    return list(dict.fromkeys([own, *kept]))


def _name(rows: int, columns: int, part: tuple[int, int], note: str = "", b: str = "") -> str:
    return f"tile {rows}x{columns}{note}, parts {part[0]}x{part[1]}{', ' * bool(b)}{b}"


def _share(length: int, unit: int, count: int) -> int:
    """Units in each of so many parts of a length."""
    units = -(-length // unit)
    return -(-units // count)


def _named(
    found: Iterable[tuple[str, AnyCut]], usual: AnyCut, usual_name: str
) -> dict[str, AnyCut]:
    """Cuts by name, each once, the usual one first; it has its own name if no other comes to it."""
    names: dict[AnyCut, str] = {}
    for name, made in found:
        names.setdefault(made, name)
    first = names.pop(usual, usual_name)
    others = {name: made for made, name in names.items() if name != first}
    return {first: usual, **others}
