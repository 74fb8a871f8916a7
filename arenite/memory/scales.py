"""Scales of pictures: from bytes and ticks to pixels, with marks at round numbers."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers [low, high] on pixels [first, last]."""

    low: int
    high: int
    first: float
    last: float

    def __call__(self, number: float) -> float:
        share = (number - self.low) / max(1, self.high - self.low)
        return self.first + share * (self.last - self.first)


def round_step(span: int, most: int) -> int:
    """The least 1, 2 or 5 times a power of ten of which at most `most` go into the span."""
    power = 1
    while True:
        for step in _STEPS:
            if step * power * most >= span:
                return step * power
        power *= 10


def byte_marks(high: int, most: int) -> list[tuple[int, str]]:
    """Round amounts from 0 to `high` with their texts, all in one unit."""
    size, unit = next((one for one in _UNITS if high >= 2 * one[0]), _UNITS[-1])
    step = round_step(-(-high // size), most)
    return [(k * size, f"{k} {unit}" if k else "0") for k in range(0, high // size + 1, step)]


def tick_marks(low: int, high: int, most: int) -> list[int]:
    """Round ticks within [low, high]."""
    step = round_step(high - low, most)
    return [*range(-(-low // step) * step, high + 1, step)]
