"""How rows are cut into tiles: all of them, once, and as evenly as the heights allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arenite.backends.cpu.gemm.rows import LIMIT, any_heights, even_heights, next_heights


def cut(rows: int, heights: tuple[int, ...]) -> list[int]:
    """The heights that the table gives one after the other, as the driver reads it."""
    table = next_heights(heights)
    assert len(table) == LIMIT + 1
    found = []
    while rows > 0:
        height = table[min(rows, LIMIT)]
        found.append(height)
        rows -= height
    assert rows == 0
    return found


@given(st.integers(1, 3000), st.integers(1, 14))
def test_even_heights_are_few_and_differ_little(rows: int, most: int) -> None:
    found = cut(rows, even_heights([rows], most))
    assert len(found) == -(-rows // most)
    if rows < LIMIT:
        assert max(found) - min(found) <= 1


@given(st.lists(st.integers(1, 600), min_size=1, max_size=3), st.integers(1, 14))
def test_every_number_asked_for_is_covered(counts: list[int], most: int) -> None:
    heights = even_heights(counts, most)
    assert max(heights) <= most
    for rows in counts:
        assert sum(cut(rows, heights)) == rows


@given(st.integers(1, 1000), st.sets(st.integers(2, 14), min_size=1))
def test_with_a_height_of_one_all_numbers_are_covered(rows: int, others: set[int]) -> None:
    heights = tuple(sorted({*others, 1}, reverse=True))
    assert sum(cut(rows, heights)) == rows


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 30))
def test_heights_for_later_cover_all_numbers_with_a_divisor(
    n: int, divisor: int, tallest: int
) -> None:
    heights = any_heights(tallest, divisor)
    assert heights[0] == tallest
    assert sum(cut(n * divisor, heights)) == n * divisor


def test_a_divisor_saves_heights() -> None:
    found = [any_heights(14, divisor) for divisor in (1, 2, 4, 8, 28)]
    assert [len(one) for one in found] == [5, 4, 3, 2, 1]


def test_128_rows_of_at_most_14() -> None:
    assert cut(128, even_heights([128], 14)) == [13] * 8 + [12] * 2
