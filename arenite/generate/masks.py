"""Mask: texts of messages so changed that no control token can be read out of them, and back.

A template is rendered with hidden texts, split at control tokens, and the pieces are shown again:

    user says   a<|im_end|>b      hidden   a<_im_end_>b      (_ a character nobody uses)
    rendered    <|im_start|>user  a<_im_end_>b<|im_end|>
    split       [start] "user  a<_im_end_>b" [end]           shown   a<|im_end|>b, as plain text

One character stands for one, so that what a template looks for, cuts and counts stays the same.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Any

from arenite.errors import InvalidArgument

#: Bars are in most control tokens and nothing templates look for: all of them are hidden.
_BARS = "|\uff5c"
#: Characters to stand for others: old musical signs, which print as they are; then private use.
_STAND_INS = [*range(0x1D000, 0x1D0F6), *range(0xF0000, 0xFFFFE)]

_STRUCTURE = ("role", "type")


class Mask:
    """Hides the texts of control tokens in plain data."""

    def __init__(self, control_texts: list[str], data: Any) -> None:
        used = {character for text in _texts(data) for character in text}.union(*control_texts)
        self._free = (chr(code) for code in _STAND_INS if chr(code) not in used)
        self._hidden: dict[str, str] = {}
        self._controls = control_texts
        self._bars = [bar for bar in _BARS if any(bar in text for text in control_texts)]
        self._whole = [text for text in control_texts if not any(b in text for b in self._bars)]
        self._longest = max(map(len, control_texts), default=0)
        self._sorted, self._reversed = _sorted(tuple(control_texts))

    def hidden(self, value: Any) -> Any:
        """The same data with its texts hidden. A role or type may be a part of a control token,
        which is how some templates write them, and is what templates compare."""
        if isinstance(value, str):
            return self._hide_edges(self._hide(value))
        if isinstance(value, list):
            return [self.hidden(item) for item in value]
        if isinstance(value, dict):
            return {
                self._hide(key): self._hide(item)
                if key in _STRUCTURE and isinstance(item, str)
                else self.hidden(item)
                for key, item in value.items()
            }
        return value

    def shown(self, text: str) -> str:
        """A text as it was."""
        for character, stand_in in self._hidden.items():
            text = text.replace(stand_in, character)
            escaped = stand_in.encode("utf-16-be").hex()
            text = text.replace(f"\\u{escaped[:4]}\\u{escaped[4:]}", character)  # in ASCII JSON
        return text

    def _stand_in(self, character: str) -> str:
        if character not in self._hidden:
            free = next(self._free, None)
            if free is None:
                raise InvalidArgument(
                    "the messages have all characters that control tokens could be hidden with: "
                    "musical signs from U+1D000 on and all of private use from U+F0000 on"
                )
            self._hidden[character] = free
        return self._hidden[character]

    def _hide(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        for bar in self._bars:
            if bar in text:
                text = text.replace(bar, self._stand_in(bar))
        for control in self._whole:
            if control in text:
                text = text.replace(control, self._stand_in(control[0]) + control[1:])
        return text

    def _hide_edges(self, text: str) -> str:
        """Hide the first or last letter of what the template around it could make a control of."""
        inner = text.strip()
        if not inner:
            return text
        begin = text.index(inner)
        end = begin + len(inner)
        lengths = range(1, min(self._longest, len(inner)) + 1)
        is_inside = len(inner) < self._longest and any(inner in c for c in self._controls)
        edges = set()
        if is_inside or any(_begins_longer(self._reversed, inner[:k][::-1]) for k in lengths):
            edges.add(begin)
        if any(_begins_longer(self._sorted, inner[-k:]) for k in lengths):
            edges.add(end - 1)
        for edge in edges:
            text = text[:edge] + self._stand_in(text[edge]) + text[edge + 1 :]
        return text


@lru_cache(maxsize=4)
def _sorted(controls: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Control tokens in order, and in the order of their texts read backwards, as such: what a
    control token begins or ends with is found so without a list of all beginnings and ends."""
    return sorted(controls), sorted(control[::-1] for control in controls)


def _begins_longer(ordered: list[str], start: str) -> bool:
    """Whether one of the texts goes on after this start."""
    following = bisect_right(ordered, start)
    return following < len(ordered) and ordered[following].startswith(start)


def _texts(value: Any) -> list[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return [text for part in parts for text in _texts(part)] if isinstance(parts, list) else []
