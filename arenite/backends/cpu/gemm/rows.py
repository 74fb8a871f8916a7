"""How rows are cut into tiles: as evenly as may be, never as full tiles and a small rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd

#: While this many rows or more are left, the next tile is the tallest.
LIMIT = 255

#: Heights below the tallest that numbers of rows are cut into which are known only later: few, for
#: every height is compiled. Fewer do for numbers that 8, 4 or 2 divides.
_LATER_HEIGHTS = ((), (8,), (8, 4), (10, 6, 2), (10, 6, 3, 1))

#: The tallest tile of a last group of columns that is not full: for numbers of rows that are known
#: only later, which need more than so many heights, behind so many full groups or more, where lower
#: tiles cost next to nothing.
_LAST_HEIGHT, _FEW_HEIGHTS, _LAST_AFTER = 6, 3, 3

#: What a tile costs beside its rows, and the rows that a lower tile is no faster than.
_CALL_ROWS = 2
_LEAST_ROWS = 4


def even_heights(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """The heights that cutting these numbers of rows evenly needs, tallest first."""
    found: set[int] = set()
    for left in counts:
        if left >= LIMIT:
            found.add(most)
            left -= ((left - LIMIT) // most + 1) * most  # until fewer than LIMIT are left
        while left > 0:
            height = even_height(left, most)
            found.add(height)
            left -= height
    return tuple(sorted(found, reverse=True))


def even_height(left: int, most: int) -> int:
    """The height of the next tile when all that are left become as equal as may be."""
    n_tiles = -(-left // most)
    return -(-left // n_tiles)


def any_heights(tallest: int, divisor: int = 1) -> tuple[int, ...]:
    """Heights of tiles for a number of rows that is known only later, but for a divisor."""
    some = ((tallest, *(h for h in lower if h < tallest)) for lower in _LATER_HEIGHTS)
    return next(heights for heights in some if any(divisor % h == 0 for h in heights))


def last_heights(heights: Sequence[int], n_full: int) -> tuple[int, ...]:
    """Heights of the tiles of a last group of columns, behind so many full ones: fewer, where there
    are many for numbers of rows that are known only later."""
    if len(heights) <= _FEW_HEIGHTS or n_full < _LAST_AFTER:
        return tuple(heights)
    return any_heights(min(_LAST_HEIGHT, heights[0]), gcd(*heights))


@cache
def next_heights(heights: tuple[int, ...]) -> tuple[int, ...]:
    """For each number of rows that may be left, up to LIMIT, the height of the next tile.

    Of all ways to cut the rows with these heights it begins the cheapest one; where none fits
    exactly the entry is the least height, and is never looked at.
    """
    costs: list[float] = [0.0]
    table = [heights[-1]]
    for left in range(1, LIMIT):
        choices = [
            (costs[left - height] + max(height, _LEAST_ROWS) + _CALL_ROWS, -height)
            for height in heights
            if height <= left
        ]
        cost, height = min(choices, default=(float("inf"), -heights[-1]))
        costs.append(cost)
        table.append(-height)
    return (*table, heights[0])
