"""Tool calls: an answer, as it comes, is parted into text that may be shown and calls of tools."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arenite.serve.tool_styles import Call, Function, ToolStyle

if TYPE_CHECKING:
    from arenite.serve.stream import Chunk

#: Characters of an answer within a call that are read, at the most.
MAX_CALL_LENGTH = 2**20
#: What may stand between two calls.
BETWEEN = " \t\r\n;,"


@dataclass(frozen=True)
class ToolCall:
    """What a model asks its caller to do."""

    name: str
    arguments: dict[str, Any]
    id: str


@dataclass(frozen=True)
class Tools:
    """What a request offers, and how its model calls it."""

    style: ToolStyle
    functions: Sequence[Function]
    markers: dict[int, str]  # control tokens that are part of calls, with their texts
    most: int | None = None  # calls that are told; None: all of them


class CallReader:
    """Parts one answer. Text that might be the beginning of a call is held back until it is one, or
    turns out to be none. Calls are handed out one by one, each when it is complete."""

    def __init__(self, tools: Tools) -> None:
        self._tools, self._style = tools, tools.style
        self._text = ""  # that is neither shown nor called yet
        self._is_call = False
        self._is_start = True  # nothing but blanks has come, or nothing else behind a call
        self._n_tried = 0  # characters of a call in which no end was found
        self._n_calls = 0

    def take(self, chunk: Chunk) -> tuple[str, list[ToolCall]]:
        """What may be shown with a chunk, and the calls that are complete with it."""
        marker = "" if chunk.token is None else self._tools.markers.get(chunk.token, "")
        text, calls = self.push(chunk.text + marker)
        if chunk.finish is None:
            return text, calls
        rest, last = self.finish()
        return text + rest, calls + last

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """What may be shown of the answer now, and the calls that are complete."""
        if len(self._text) < MAX_CALL_LENGTH:
            self._text += text
        shown = ""
        calls: list[ToolCall] = []
        while True:
            if not self._is_call:
                shown += self._shown()
            if not self._is_call or (end := self._end()) < 0:
                return shown, calls
            part = self._text[:end]
            if found := self._style.form.calls(part, self._tools.functions):
                calls += self._told(found)
                self._is_start = True
            elif self._style.closing:  # which may be part of what is called
                self._n_tried = end
                continue
            else:
                shown += part
                self._is_start = False
            self._text = self._text[end:]
            self._is_call, self._n_tried = False, 0

    def finish(self) -> tuple[str, list[ToolCall]]:
        """The text that was held back and is no call, and calls that lack their closing."""
        form, functions = self._style.form, self._tools.functions
        found = form.calls(self._text, functions) if self._is_call else []
        return ("", self._told(found)) if found else (self._text, [])

    def _told(self, found: list[Call]) -> list[ToolCall]:
        most = len(found) if self._tools.most is None else self._tools.most - self._n_calls
        self._n_calls += len(found)
        # Nine letters and digits: templates of Mistral refuse all others.
        return [ToolCall(*call, secrets.token_hex(5)[:9]) for call in found[: max(most, 0)]]

    def _shown(self) -> str:
        """Take the text that comes before any call."""
        if self._n_calls and self._is_start:
            self._text = self._text.lstrip(BETWEEN)
        n_shown = self._n_text()
        shown, self._text = self._text[:n_shown], self._text[n_shown:]
        self._is_start = self._is_start and not shown.strip()
        return shown

    def _n_text(self) -> int:
        """Characters that come before any call; `_is_call` says whether one begins there."""
        bare, opening, begun = self._style.bare, self._style.opening, self._text.lstrip()
        self._is_call = bool(bare) and self._is_start and begun.startswith(bare)
        if self._is_call:
            return 0
        place = self._text.find(opening) if opening else -1
        self._is_call = place >= 0
        if self._is_call:
            return place
        if bare and self._is_start and not begun:
            return 0
        longest = min(len(self._text), len(opening) - 1)
        held = (n for n in range(longest, 0, -1) if self._text.endswith(opening[:n]))
        return len(self._text) - next(held, 0)

    def _end(self) -> int:
        """Where calls may end that were not tried before; -1: nowhere yet."""
        style = self._style
        if style.closing:
            place = self._text.find(style.closing, self._n_tried)
            return place + len(style.closing) if place >= 0 else -1
        is_opened = bool(style.opening) and self._text.startswith(style.opening)
        return style.form.end(self._text, len(style.opening) if is_opened else 0)
