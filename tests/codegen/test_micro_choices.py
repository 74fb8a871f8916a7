"""Ways to cut products and convolutions: whatever the sizes, each is one that a kernel can take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.codegen.micro.blocking import MOST_TILES, Cut, Layout, cut
from arenite.codegen.micro.choices import conv_ways, depthwise_ways, product_ways
from arenite.codegen.micro.conv_cut import ConvSizes, cut_conv
from arenite.codegen.target import AVX2, AVX512, NEON, Target
from arenite.dtype import float32
from arenite.ir.dim import Dim, Var
from arenite.ir.ops.convolution import PANEL

TARGETS = [AVX2, AVX512, NEON]
SIZES = st.one_of(st.integers(1, 40), st.integers(1, 3000))


def reachable(heights: tuple[int, ...], rows: int) -> bool:
    """Whether tiles of these heights can make up so many rows exactly."""
    sums = {0}
    for total in range(1, rows + 1):
        if any(total - height in sums for height in heights):
            sums.add(total)
    return rows in sums


def check_tile(columns: int, heights: tuple[int, ...], target: Target) -> None:
    assert columns >= 1
    assert min(heights) >= 1
    # Sums, the columns of B and a number of A are in registers at once.
    assert columns * (max(heights) + 1) + 1 <= target.n_vector_registers


def check_product(shape: Cut, layout: Layout, usual: Cut, target: Target) -> None:
    width = shape.columns * shape.lanes
    rows = layout.n_rows if isinstance(layout.n_rows, int) else 300
    assert isinstance(layout.n_columns, int)
    assert isinstance(layout.batch, int)
    if shape.heights:
        check_tile(shape.columns, shape.heights, target)
        assert shape.block_columns % width == 0
        for block in {min(rows, shape.block_rows), rows % shape.block_rows}:
            assert block == 0 or reachable(shape.heights, block), (shape, rows)
        if layout.b_line != 1:
            assert shape.copies_b
    assert 1 <= shape.copied_groups <= max(1, -(-shape.block_columns // width))
    assert shape.blocks_a_tile == usual.blocks_a_tile

    columns, batch = layout.n_columns, layout.batch
    n_blocks = [
        batch * -(-columns // one.block_columns) * -(-rows // one.block_rows)
        for one in (shape, usual)
    ]
    assert n_blocks[0] <= max(MOST_TILES, n_blocks[1])


@given(
    rows=st.one_of(SIZES, st.just(Var("rows", 1, 300))),
    columns=SIZES,
    depth=SIZES,
    batch=st.integers(1, 40),
    b_lies_along_depth=st.booleans(),
    target=st.sampled_from(TARGETS),
)
@settings(max_examples=300, deadline=None)
def test_products_can_be_cut_in_all_ways(
    rows: Dim, columns: int, depth: int, batch: int, b_lies_along_depth: bool, target: Target
) -> None:
    b_line, b_step = (depth, 1) if b_lies_along_depth else (1, columns)
    layout = Layout(batch, rows, columns, depth, depth, 1, b_line, b_step)
    usual = cut(layout, float32, float32, float32, target)
    ways = product_ways(usual, layout, target)
    assert next(iter(ways.values()), usual) == usual
    assert len(set(ways.values())) == len(ways)
    for shape in ways.values():
        check_product(shape, layout, usual, target)


@given(
    images=st.integers(1, 8),
    lines=st.integers(1, 60),
    pixels=SIZES,
    groups=st.integers(1, 4),
    channels=st.integers(1, 400),
    depth=st.integers(1, 1000),
    is_copied=st.booleans(),
    is_whole=st.booleans(),
    target=st.sampled_from(TARGETS),
)
@settings(max_examples=300, deadline=None)
def test_convolutions_can_be_cut_in_all_ways(
    images: int,
    lines: int,
    pixels: int,
    groups: int,
    channels: int,
    depth: int,
    is_copied: bool,
    is_whole: bool,
    target: Target,
) -> None:
    sizes = ConvSizes(
        images, lines, pixels, groups, channels, depth, 4 * depth, 2, is_copied, 10**6, is_whole
    )
    usual = cut_conv(sizes, float32, target)
    ways = conv_ways(usual, sizes, target)
    assert next(iter(ways.values())) == usual
    for shape in ways.values():
        check_tile(shape.columns, shape.heights, target)
        assert isinstance(shape.block_pixels, int)
        for block in {min(pixels, shape.block_pixels), pixels % shape.block_pixels}:
            assert block == 0 or reachable(shape.heights, block)
        # A chunk begins where a panel of weights does.
        assert shape.block_channels % PANEL == 0 or shape.block_channels >= channels
        assert 1 <= shape.block_lines <= lines
        if is_whole:
            assert shape.block_pixels == pixels
    strip = replace(usual, columns=1, heights=(2,))
    for shape in depthwise_ways(strip, replace(sizes, is_whole=True, groups=1), 12).values():
        assert len(shape.heights) == 1
        assert 1 <= shape.heights[0] <= 12


@pytest.mark.parametrize("target", TARGETS)
def test_large_products_have_several_ways(target: Target) -> None:
    layout = Layout(1, 128, 3072, 768, 768, 1, 1, 3072)
    names = list(product_ways(cut(layout, float32, float32, float32, target), layout, target))
    parts = [name.split(", ") for name in names]
    assert all(len({part[k] for part in parts}) > 1 for k in range(3))
