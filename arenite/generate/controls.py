"""Control tokens in a rendered conversation: those that the template wrote, and no others.

    rendered    <|im_start|>user hi</s><|im_end|>        origins  000...0  1111111  000...0
    searched    <|im_start|>user ?<|im_end|>             ? for all that was given
    pieces      [start] "user hi</s>" [end]

A sign that is in no token stands for everything between the template's own texts, so no token is
found over a border, or in what was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from arenite.generate.specials import Specials

_SPACES = " \t\n\v\f\r"
_SPACE = re.compile(f"[{_SPACES}]*")

#: Runs of origins: the template's, given ones, and each insertion for itself.
_RUNS = re.compile(rb"\x00+|\x01+|[\x02\x03]\x03*")


def control_pieces(chars: str, origins: bytes, specials: Specials) -> list[str | int]:
    """The pieces of a rendered text: plain text, and tokens that stand for themselves."""
    border = _border(chars, specials)
    searched: list[str] = []
    hidden: list[str] = []
    for run in _RUNS.finditer(origins):
        text = chars[slice(*run.span())]
        is_given = run[0][0] == 1
        searched.append("" if is_given else text)
        hidden.append(text if is_given else "")
        searched.append(border)
    return _pieces("".join(searched), border, hidden, specials)


def _pieces(
    searched: str, border: str, hidden: Sequence[str], specials: Specials
) -> list[str | int]:
    """The pieces of a text, what is hidden behind borders shown again. Tokens that are no control
    tokens may lie across borders, so they are looked for again."""
    names = {token: text for text, token in specials.tokens}
    shown = iter(hidden)
    pieces: list[str | int] = []
    plain: list[str] = []

    def flush() -> None:
        text = "".join(plain)
        if pieces and pieces[-1] in specials.swallowing:
            text = text.lstrip(_SPACES)
        pieces.extend(specials.split(text, controls=False))
        plain.clear()

    at = 0
    for piece in specials.split(searched, controls=True):
        end = at + len(piece if isinstance(piece, str) else names[piece])
        if isinstance(piece, int) and piece in specials.swallowing:
            space = _SPACE.match(searched, end)
            end = end if space is None else space.end()
        if isinstance(piece, int) and piece in specials.controls:
            flush()
            pieces.append(piece)
        else:
            first, *others = searched[at:end].split(border)
            plain.append(first)
            for other in others:
                plain += [next(shown), other]
        at = end
    flush()
    return pieces


def _border(chars: str, specials: Specials) -> str:
    """A character that is in no token and not in the text: one of those that stand for no character
    in Unicode, or where all of them are used, half a character, which no text has."""
    for border in map(chr, range(0xFDD0, 0xFDF0)):
        if border not in chars and not any(border in text for text, _ in specials.tokens):
            return border
    return "\ud800"
