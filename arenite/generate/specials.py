"""Splitting a text at tokens that stand for themselves: control tokens and a user's own.

In: a text. Out: its pieces in order, a `str` of plain text or the id of a token. Longer tokens are
looked for first, all over the text, then shorter ones in what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SPACES = " \t\n\v\f\r"


@dataclass(frozen=True)
class Specials:
    """Texts of tokens and their ids, longest first; `controls` are matched when asked for only;
    `swallowing` are those that take the spaces and line ends after them along."""

    tokens: tuple[tuple[str, int], ...]
    controls: frozenset[int]
    swallowing: frozenset[int]

    @classmethod
    def of(
        cls, ids: Mapping[str, int], controls: Iterable[int], swallowing: Iterable[int] = ()
    ) -> Specials:
        by_length = sorted(ids.items(), key=lambda item: len(item[0].encode()), reverse=True)
        tokens = tuple((text, token) for text, token in by_length if text)
        return cls(tokens, frozenset(controls), frozenset(swallowing))

    @property
    def control_texts(self) -> list[str]:
        return [text for text, token in self.tokens if token in self.controls]

    def split(self, text: str, *, controls: bool) -> list[str | int]:
        """The pieces of a text; none is an empty text."""
        pieces: list[str | int] = [text] if text else []
        characters = set(text)
        for special, token in self.tokens:
            if special[0] not in characters or (token in self.controls and not controls):
                continue
            if special in text:
                pieces = _split_at(pieces, special, token, token in self.swallowing)
        return pieces


def _split_at(pieces: list[str | int], special: str, token: int, swallows: bool) -> list[str | int]:
    found: list[str | int] = []
    for piece in pieces:
        if isinstance(piece, int) or special not in piece:
            found.append(piece)
            continue
        first, *others = piece.split(special)
        found += [first] if first else []
        for other in (text.lstrip(_SPACES) for text in others) if swallows else others:
            found += [token, other] if other else [token]
    return found
