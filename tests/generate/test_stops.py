"""Stop strings: the same text however it is cut into pieces, against the plain definition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from arenite.generate.continuation import StopText

TEXTS = st.text("abc", max_size=14)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


def by_definition(text: str, stops: list[str]) -> tuple[str, bool]:
    """Read character by character until what was read ends with a stop string."""
    for end in range(1, len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[: end - max(map(len, met))], True
    return text, False


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 14)))
def test_text_ends_before_the_stop_string_that_is_complete_first(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    stopped = StopText(stops)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = ""
    for start, end in pairwise(places):
        shown += stopped.push(text[start:end])
        expected = by_definition(text, stops)[0]
        assert expected.startswith(shown), "text was shown that a stop string takes back"
    assert (shown + stopped.finish(), stopped.stopped) == by_definition(text, stops)


@given(text=TEXTS, stops=STOPS)
def test_no_more_is_held_back_than_needed(text: str, stops: list[str]) -> None:
    stopped = StopText(stops)
    shown = "".join(map(stopped.push, text))
    if not stopped.stopped and shown != text:
        held = text[len(shown) :]
        assert any(stop.startswith(held) for stop in stops)
