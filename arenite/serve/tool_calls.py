"""Tool calls: how a model's chat template writes them, found in the template, read from answers.

In: a template's source and the tools of a request. Out: the markers around a call, a grammar that
holds the model to one, and a reader that parts an answer into text and calls.

    style     what the model writes
    tagged    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once or more
    listed    [{"name": ..., "arguments": {...}}], the whole answer, after a control token
    bare      {"name": ..., "parameters": {...}}, the whole answer
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

#: Characters of an answer within calls that are read, at the most.
MAX_CALLS_LENGTH = 2**20
#: Brackets that may turn out to begin no JSON, each of which costs a look at all that follows.
MAX_FAILED = 64


@dataclass(frozen=True)
class ToolStyle:
    """How calls stand in an answer."""

    opening: str  # before a call
    closing: str  # after it
    arguments: str  # the name that the arguments have
    is_whole: bool = False  # the answer begins with the call, or has none

    def grammar(self, tools: list[dict[str, Any]]) -> str:
        """A Lark grammar for an answer that is one call of one of these tools."""
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool["name"]},
                    self.arguments: tool.get("parameters") or {"type": "object"},
                },
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for tool in tools
        ]
        # A brace that opens a call is part of its JSON.
        around = ["", ""] if self.opening == "{" else [self.opening, self.closing]
        opening, closing = (json.dumps(text) if text else "" for text in around)
        return f"start: {opening} call {closing}\ncall: %json {json.dumps({'anyOf': calls})}\n"


@dataclass(frozen=True)
class ToolCall:
    """What a model asks its caller to do."""

    name: str
    arguments: dict[str, Any]
    id: str


#: What tells a style in the source of a template, the first that is found.
STYLES = {
    "<tool_call>": ToolStyle("<tool_call>", "</tool_call>", "arguments"),
    "[TOOL_CALLS]": ToolStyle("[", "]", "arguments", is_whole=True),
    "<|python_tag|>": ToolStyle("{", "}", "parameters", is_whole=True),
}


def style_of(template: str) -> ToolStyle | None:
    """How the model of a chat template calls tools; None where it knows none."""
    if "tools" not in template:
        return None
    return next((style for mark, style in STYLES.items() if mark in template), None)


class CallReader:
    """Parts an answer, as it comes, into text that may be shown and calls. Text that might be the
    beginning of a call is held back; what turns out to be none is shown at the end."""

    def __init__(self, style: ToolStyle) -> None:
        self._style = style
        self._text = ""  # that was not shown yet
        self._is_call = False
        self._is_start = True

    def push(self, text: str) -> str:
        """What may be shown of the answer now."""
        if len(self._text) < MAX_CALLS_LENGTH:
            self._text += text
        if self._is_call:
            return ""
        n_shown = self._n_text()
        self._is_start = self._is_start and not self._text[:n_shown].strip()
        shown, self._text = self._text[:n_shown], self._text[n_shown:]
        return shown

    def finish(self) -> tuple[str, list[ToolCall]]:
        """The text that was held back and is no call, and the calls."""
        calls = self._calls(self._text) if self._is_call else []
        return ("", calls) if calls else (self._text, [])

    def _n_text(self) -> int:
        """Characters, of those that were not shown, that come before any call."""
        opening = self._style.opening
        if self._style.is_whole:
            begun = self._text.lstrip()
            self._is_call = self._is_start and begun.startswith(opening)
            return 0 if self._is_call or (self._is_start and not begun) else len(self._text)
        place = self._text.find(opening)
        self._is_call = place >= 0
        if self._is_call:
            return place
        longest = min(len(self._text), len(opening) - 1)
        held = (n for n in range(longest, 0, -1) if self._text.endswith(opening[:n]))
        return len(self._text) - next(held, 0)

    def _calls(self, text: str) -> list[ToolCall]:
        decoder = json.JSONDecoder()
        found: list[ToolCall] = []
        at = 0
        n_failed = 0
        while n_failed < MAX_FAILED and (at := _first_of("{[", text, at)) >= 0:
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                at += 1
                n_failed += 1
                continue
            for call in value if isinstance(value, list) else [value]:
                if (one := self._call(call)) is not None:
                    found.append(one)
        return found

    def _call(self, value: object) -> ToolCall | None:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                return None
        if not isinstance(arguments, dict):
            return None
        return ToolCall(value["name"], arguments, f"call_{secrets.token_hex(12)}")


def _first_of(characters: str, text: str, start: int) -> int:
    places = [text.find(one, start) for one in characters]
    return min((place for place in places if place >= 0), default=-1)
