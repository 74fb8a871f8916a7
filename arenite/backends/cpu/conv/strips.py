"""Strips: a line of known length cut into runs of pixels, with the taps that lie outside of it.

taps 3, one pixel of padding, strips of 4      . a b c d e f g h .
                                                 └─────┘ └─────┘
                                pixel 0 lacks tap 0      pixel 3 lacks tap 2
"""

from __future__ import annotations

from dataclasses import dataclass

#: Kinds of strips that code is made for, and how many pixels one has, about.
MOST_KINDS = 12
_USUAL = 8


@dataclass(frozen=True, slots=True)
class Strip:
    """`count` times `pixels` from `first` on; (pixel, tap) in `outside` are not there."""

    first: int
    pixels: int
    count: int
    outside: frozenset[tuple[int, int]]

    @property
    def end(self) -> int:
        return self.first + self.count * self.pixels

    @property
    def name(self) -> str:
        """Equal for strips that differ in where they are alone."""
        missing = "_".join(f"{pixel}.{tap}" for pixel, tap in sorted(self.outside))
        return f"strip{self.pixels}_{missing}" if missing else f"strip{self.pixels}"


@dataclass(frozen=True, slots=True)
class Line:
    """Sizes in and out, and how taps walk."""

    size: int
    places: int
    taps: int
    stride: int
    dilation: int
    before: int


def strips(line: Line, most: int) -> tuple[Strip, ...]:
    """Strips of at most so many pixels, as even as may be; equal neighbours made one."""
    n_strips = -(-line.places // most)
    made: list[Strip] = []
    first = number = 0
    while number < n_strips:
        rest, left = line.places - first, n_strips - number
        pixels = -(-rest // left)
        outside = _outside(line, first, pixels)
        # As many at once as are sure to be like this one: a line may be very long.
        count = min(_alike(line, first, pixels), rest % left or left)
        last = made[-1] if made else None
        if last is not None and (last.pixels, last.outside) == (pixels, outside):
            made[-1] = Strip(last.first, pixels, last.count + count, outside)
        else:
            made.append(Strip(first, pixels, count, outside))
        first += count * pixels
        number += count
    return tuple(made)


def _alike(line: Line, first: int, pixels: int) -> int:
    """How many strips of so many pixels, from here on, have all taps inside, or none, as the first
    of them has; 1 where it has some."""
    reach = (line.taps - 1) * line.dilation - line.before
    if _position(line, first, 0) >= line.size:
        return max(1, line.places - first)
    is_before = _position(line, first + pixels - 1, line.taps - 1) < 0
    if not is_before and _position(line, first, 0) < 0:
        return 1
    # The last tap of the last pixel stays below this.
    end = 0 if is_before else line.size
    return max(1, (-(-(end - reach) // line.stride) - first) // pixels)


def _outside(line: Line, first: int, pixels: int) -> frozenset[tuple[int, int]]:
    """Pixels, from the first on, and their taps that are not there."""
    last = _position(line, first + pixels - 1, line.taps - 1)
    if _position(line, first, 0) >= 0 and last < line.size:
        return frozenset()
    return frozenset(
        (pixel, tap)
        for pixel in range(pixels)
        for tap in range(line.taps)
        if not 0 <= _position(line, first + pixel, tap) < line.size
    )


def are_few(line: Line) -> bool:
    """Whether a line has few kinds of strips, so that code for each of them is no burden."""
    return len({strip.outside for strip in strips(line, _USUAL)}) <= MOST_KINDS


def _position(line: Line, pixel: int, tap: int) -> int:
    return pixel * line.stride + tap * line.dilation - line.before
