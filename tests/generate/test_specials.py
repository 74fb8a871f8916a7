"""Splitting texts at special tokens, judged by doing it one token after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arenite.generate.specials import Specials

SPACES = " \t\n\v\f\r"
TOKENS = st.lists(st.text("<ab é\n", min_size=1, max_size=5), max_size=8, unique=True)


def judged(specials: Specials, text: str, controls: bool) -> list[str | int]:
    pieces: list[str | int] = [text]
    for special, token in specials.tokens:
        if token in specials.controls and not controls:
            continue
        split: list[str | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                split.append(piece)
                continue
            first, *others = piece.split(special)
            split.append(first)
            for other in others:
                split += [token, other.lstrip(SPACES) if token in specials.swallowing else other]
        pieces = split
    return [piece for piece in pieces if piece != ""]


@given(
    TOKENS, st.text("<ab é\n", max_size=30), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7))
)
def test_longer_tokens_come_first_all_over_a_text(
    tokens: list[str], text: str, controls: set[int], swallowing: set[int]
) -> None:
    ids = {token: number for number, token in enumerate(tokens)}
    specials = Specials.of(ids, controls & {*ids.values()}, swallowing & {*ids.values()})
    for asked in (False, True):
        assert specials.split(text, controls=asked) == judged(specials, text, asked)


def test_tokens_that_begin_alike_are_not_tried_one_by_one() -> None:
    """Texts that are compared are counted: few more for a hundred times as many tokens."""

    class Counted(str):
        n_compared = 0

        def __gt__(self, other: str) -> bool:
            Counted.n_compared += 1
            return str.__gt__(self, other)

    def n_compared(n_tokens: int) -> int:
        specials = Specials.of({f"<token {k}>": k for k in range(n_tokens)}, ())
        order = specials._order
        vars(specials)["_order"] = order._replace(texts=[*map(Counted, order.texts)])
        Counted.n_compared = 0
        assert len(specials.split("x <token 7> y <token> " * 20, controls=True)) == 41
        return Counted.n_compared

    assert 0 < n_compared(20_000) < 3 * n_compared(200)
