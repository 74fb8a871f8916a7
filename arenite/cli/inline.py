"""Emphasis within a line of Markdown: `**bold**`, `*italic*`, `` `code` ``.

In: a line, or its beginning while the rest is still to come. Out: runs of text with their style, as
far as it is certain. A mark that nothing closes within its line is text, as it was written.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.style import Style

PLAIN = Style()
BOLD, ITALIC, CODE = Style(bold=True), Style(italic=True), Style(color="cyan")

#: Characters that are held back for the end of an emphasis; behind them it is taken for text.
MOST_HELD = 400

_MARK = re.compile(r"`+|\*+|_+|\\[!-/:-@\[-`{-~]?")
_EMPHASIS = {1: ITALIC, 2: BOLD, 3: BOLD + ITALIC}
_NONE, _UNDECIDED = -1, -2


class Run(NamedTuple):
    """Text of one style."""

    text: str
    style: Style


def runs(text: str, style: Style, before: str, is_whole: bool) -> tuple[list[Run], str]:
    """The runs that a text begins with, and what is left of it, whose style depends on what comes.

    `before` is the character in front of it, or nothing; `is_whole`: nothing comes any more.
    """
    styled: list[Run] = []
    at = 0
    while at < len(text):
        mark = _MARK.search(text, at)
        if mark is None:
            styled.append(Run(text[at:], style))
            break
        if mark.start() > at:
            styled.append(Run(text[at : mark.start()], style))
        at = mark.start()
        if mark.end() == len(text) and not is_whole:
            return styled, text[at:]  # the mark may be longer than it is so far
        if mark[0].startswith("\\"):
            styled.append(Run(mark[0][1:] or mark[0], style))
            at = mark.end()
            continue
        closing = _closing(text, mark, text[at - 1] if at else before, is_whole)
        if closing == _UNDECIDED and not is_whole and len(text) - at < MOST_HELD:
            return styled, text[at:]
        if closing < 0:
            styled.append(Run(mark[0], style))
            at = mark.end()
            continue
        inner = text[mark.end() : closing]
        if mark[0].startswith("`"):
            styled.append(Run(inner, style + CODE))
        else:
            styled += runs(inner, style + _EMPHASIS[len(mark[0])], mark[0], True)[0]
        at = closing + len(mark[0])
    return styled, ""


def _closing(text: str, mark: re.Match[str], ahead: str, is_whole: bool) -> int:
    """Where the mark is that closes this one; _NONE where it opens nothing, _UNDECIDED where what
    closes it may still come."""
    kind, start = mark[0], mark.end()
    is_code = kind.startswith("`")
    if not is_code:
        opens = not (text[start : start + 1].isspace() or start == len(text) or ahead.isalnum())
        if len(kind) not in _EMPHASIS or not opens:
            return _NONE
    for closer in re.finditer(re.escape(kind[0]) + "+", text[start : start + MOST_HELD]):
        at, n_marks = start + closer.start(), len(closer[0])
        if at + n_marks == len(text) and not is_whole:
            return _UNDECIDED
        if is_code:
            if n_marks == len(kind):
                return at
            continue
        behind = text[at + n_marks : at + n_marks + 1]
        if text[at - 1].isspace() or (kind[0] == "_" and behind.isalnum()):
            continue
        if n_marks == len(kind) or (n_marks == 3 and len(kind) < 3):
            return at + n_marks - len(kind)
    return _UNDECIDED
