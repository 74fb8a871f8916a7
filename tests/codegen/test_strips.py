"""Lines cut into strips: every pixel once, in order, and exactly the taps outside left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arenite.backends.cpu.conv.strips import Line, are_few, strips


@st.composite
def lines(draw: st.DrawFn) -> Line:
    taps, stride, dilation = (draw(st.integers(1, 5)) for _ in range(3))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    reach = dilation * (taps - 1)
    size = draw(st.integers(max(1, reach + 1 - before - after), 60))
    places = (size + before + after - reach - 1) // stride + 1
    return Line(size, places, taps, stride, dilation, before)


@given(line=lines(), most=st.integers(1, 14))
def test_every_pixel_is_in_one_strip_with_the_taps_it_has(line: Line, most: int) -> None:
    seen: list[set[int]] = []
    for strip in strips(line, most):
        assert strip.first == len(seen)
        assert 1 <= strip.pixels <= most
        for _ in range(strip.count):
            for pixel in range(strip.pixels):
                seen.append({tap for tap in range(line.taps) if (pixel, tap) not in strip.outside})
        assert strip.end == len(seen)
    for pixel, taps in enumerate(seen):
        places = {
            t: pixel * line.stride + t * line.dilation - line.before for t in range(line.taps)
        }
        assert taps == {tap for tap, at in places.items() if 0 <= at < line.size}
    assert len(seen) == line.places


@given(line=lines(), most=st.integers(1, 14))
def test_strips_are_even(line: Line, most: int) -> None:
    pixels = {strip.pixels for strip in strips(line, most)}
    assert max(pixels) - min(pixels) <= 1


def test_a_long_line_has_few_kinds_of_strips() -> None:
    assert are_few(Line(300_000, 300_000, 7, 1, 1, 3))
    assert not are_few(Line(300, 300, 9, 1, 30, 120))
