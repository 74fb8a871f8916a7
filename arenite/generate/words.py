"""Cutting a text into words by the patterns of a family of models.

Patterns are written with Unicode's categories, which Python's `re` does not know. So a text is
matched by its shape, a text of the same length in which every character beyond ASCII is replaced by
the sign of its category; what is found there is taken from the text.

    text    "Übung macht 12½ €"
    shape   "Ubung macht 12N S"   where U, N and S stand for signs that are in no text
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

#: Categories that patterns name; each has a sign in shapes. The last two are spaces and the rest.
_CATEGORIES = ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "space", "other")
_SIGNS = {category: chr(0x80 + index) for index, category in enumerate(_CATEGORIES)}
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
#: Characters of Unicode 15.1, by which models' words are cut, that Python 3.11 does not have.
_YOUNG = {
    "Ll": "1df25-1df2a",
    "Lm": "1e030-1e06d 1e4eb-1e4eb",
    "Lo": "1123f-11240 11f02-11f02 11f04-11f10 11f12-11f33 1342f-1342f 13441-13446 1b132-1b132 "
    "1b155-1b155 1e4d0-1e4ea 2b739-2b739 2ebf0-2ee5d 31350-323af",
    "M": "cf3-cf3 ece-ece 10efd-10eff 11241-11241 11f00-11f01 11f03-11f03 11f34-11f3a 11f3e-11f42 "
    "13440-13440 13447-13455 1e08f-1e08f 1e4ec-1e4ef",
    "N": "11f50-11f59 1d2c0-1d2d3 1e4f0-1e4f9",
    "P": "11b00-11b09 11f43-11f4f",
    "S": "2ffc-2fff 31ef-31ef 1f6dc-1f6dc 1f774-1f776 1f77b-1f77f 1f7d9-1f7d9 1fa75-1fa77 "
    "1fa87-1fa88 1faad-1faaf 1fabb-1fabd 1fabf-1fabf 1face-1facf 1fada-1fadb 1fae8-1fae8 "
    "1faf7-1faf8",
}


def category(character: str) -> str:
    """Which of the categories a character belongs to."""
    if character in _SPACES:
        return "space"
    name = unicodedata.category(character)
    if name == "Cn":
        return _young(ord(character))
    if name.startswith("L"):
        return name
    return name[0] if name[0] in "MNPS" else "other"


def _young(code: int) -> str:
    for name, spans in _YOUNG.items():
        for first, last in (span.split("-") for span in spans.split()):
            if int(first, 16) <= code <= int(last, 16):
                return name
    return "other"


class _Shapes(dict[int, str]):
    """The sign of each character by its code, found when it is met; ASCII stays as it is."""

    def __missing__(self, code: int) -> str:
        sign = chr(code) if code < 0x80 else _SIGNS[category(chr(code))]
        if len(self) >= 2**12:
            self.clear()
        self[code] = sign
        return sign


class WordCutter:
    """Cuts texts by patterns, one after the other, each in the pieces that those before it left.
    What a pattern does not match stays together."""

    def __init__(self, patterns: Iterable[str]) -> None:
        # A pattern that names characters beyond ASCII is for the text itself.
        self._steps = [(_compiled(pattern), pattern.isascii()) for pattern in patterns]
        self._shapes = _Shapes()

    def words(self, text: str) -> Iterator[str]:
        shape = text if text.isascii() else text.translate(self._shapes)
        spans: Iterator[tuple[int, int]] = iter([(0, len(text))])
        for pattern, is_for_shapes in self._steps:
            spans = _cut(pattern, shape if is_for_shapes else text, spans)
        return (text[start:end] for start, end in spans)


def _cut(
    pattern: re.Pattern[str], text: str, spans: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    for start, end in spans:
        for match in pattern.finditer(text, start, end):
            first, last = match.span()
            if first > start:
                yield start, first
            yield first, last
            start = last
        if start < end:
            yield start, end


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    r"""A pattern with \p{...}, \s and \S written out for shapes, or for texts."""
    spaces = _members("space") if pattern.isascii() else re.escape(_SPACES)

    def members(found: re.Match[str]) -> str:
        return spaces if found[0] == r"\s" else _members(found[1])

    def written(found: re.Match[str]) -> str:
        part = found[0]
        if part == r"\S":
            return f"[^{spaces}]"
        inside = re.sub(r"\\p\{(\w+)\}|\\s", members, part)
        return inside if part.startswith("[") else f"[{inside}]"

    return re.compile(re.sub(r"\[(?:\\.|[^\]\\])*\]|\\p\{\w+\}|\\s|\\S", written, pattern))


def _members(name: str) -> str:
    """What is in a category or in all that begin with a letter, for within brackets."""
    ascii_members = [chr(code) for code in range(0x80) if category(chr(code)).startswith(name)]
    signs = [sign for known, sign in _SIGNS.items() if known.startswith(name)]
    return re.escape("".join(ascii_members)) + "".join(signs)
