"""How work is cut is found without a look at every part of it: sizes may be huge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.backends.cpu.conv.strips import Line, strips
from arenite.backends.cpu.conv.winograd_cut import WinogradSizes, winograd_ways
from arenite.backends.cpu.gemm.rows import (
    LIMIT,
    any_heights,
    even_height,
    even_heights,
    last_heights,
    next_heights,
)
from arenite.backends.cpu.ops.winograd import TAPS
from arenite.backends.cpu.passes.winograd import gain
from arenite.backends.cpu.target import AVX512
from arenite.dtype import BY_NAME
from arenite.ir import Node, graph_input, make

FLOAT32 = BY_NAME["float32"]
HUGE = 2**31


@given(st.integers(0, 3000), st.integers(1, 30))
def test_heights_are_those_of_tiles_cut_one_by_one(n_rows: int, most: int) -> None:
    left, found = n_rows, set()
    while left > 0:
        height = most if left >= LIMIT else even_height(left, most)
        found.add(height)
        left -= height
    assert set(even_heights([n_rows], most)) == found


def test_heights_of_a_huge_number_of_rows() -> None:
    assert even_heights([HUGE * 14], 14)[0] == 14
    assert even_heights([HUGE], 14) == even_heights([LIMIT - 14 + (HUGE - LIMIT) % 14], 14)


@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 9))
def test_lower_tiles_of_a_last_group_have_the_same_rows(
    tallest: int, divisor: int, n_full: int
) -> None:
    """Every number of rows that heights can be cut into, without a rest."""
    heights = any_heights(tallest, divisor)
    lower = last_heights(heights, n_full)
    assert sum(lower) <= sum(heights)
    assert lower == heights or (n_full >= 3 and lower[0] <= 6)
    table = next_heights(lower)
    for n_rows in range(divisor, 2 * LIMIT, divisor):
        left = n_rows
        while left > 0:
            left -= table[min(left, LIMIT)]
        assert left == 0


@given(st.data())
def test_strips_cover_a_line_and_know_which_taps_are_outside(data: st.DataObject) -> None:
    size, taps, stride, dilation, before, after, most = (
        data.draw(st.integers(low, high))
        for low, high in ((1, 60), (1, 7), (1, 3), (1, 3), (0, 40), (0, 40), (1, 9))
    )
    places = (size + before + after - (taps - 1) * dilation - 1) // stride + 1
    if places < 1:
        return
    found = [
        (strip.first + k * strip.pixels, strip.pixels, strip.outside)
        for strip in strips(Line(size, places, taps, stride, dilation, before), most)
        for k in range(strip.count)
    ]
    n_strips = -(-places // most)
    assert len(found) == n_strips
    assert {pixels for _, pixels, _ in found} <= {places // n_strips, -(-places // n_strips)}
    at = 0
    for first, pixels, outside in found:
        assert first == at
        positions = {
            (pixel, tap): (first + pixel) * stride + tap * dilation - before
            for pixel in range(pixels)
            for tap in range(taps)
        }
        assert outside == {key for key, one in positions.items() if not 0 <= one < size}
        at += pixels
    assert at == places


def test_strips_of_a_huge_line_are_few() -> None:
    first, inner, last = strips(Line(HUGE, HUGE, 3, 1, 1, 1), 8)
    assert (first.count, inner.count, last.count) == (1, HUGE // 8 - 2, 1)
    around = strips(Line(4, 2 * HUGE + 4, 3, 1, 1, HUGE + 1), 8)
    assert len(around) < 8
    assert sum(strip.count * strip.pixels for strip in around) == 2 * HUGE + 4


@given(st.integers(3, 40), st.integers(0, 5), st.integers(0, 5))
def test_gain_counts_the_taps_that_are_inside(size: int, before: int, after: int) -> None:
    places = size + before + after - TAPS + 1
    taps = sum(0 <= at - before + k < size for at in range(places) for k in range(TAPS))
    # Of as many places, where no tap is outside.
    whole = gain(_conv(size + before + after, 0, 0))
    found = gain(_conv(size, before, after))
    assert found / whole == pytest.approx((taps / (TAPS * places)) ** 2)


def test_a_huge_image_is_cut() -> None:
    assert gain(_conv(HUGE, 1, 1)) > 1
    ways = winograd_ways(WinogradSizes(HUGE // 2, HUGE // 2, 16, 32), FLOAT32, AVX512)
    assert next(iter(ways.values())).block_pixels <= 64


def _conv(size: int, before: int, after: int) -> Node:
    x = graph_input("x", 0, (1, size, size, 16), FLOAT32)
    panels = graph_input("w", 1, (1, 1, TAPS, TAPS, 16, 16), FLOAT32)
    return make(
        "conv_last", x, panels,
        channels=16, strides=(1, 1), dilations=(1, 1),
        padding=((before, after), (before, after)),
    )  # fmt: skip
