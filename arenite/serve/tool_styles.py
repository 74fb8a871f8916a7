"""Tool styles: how models write calls of tools, found in the source of their chat templates.

In: a template, and the functions of a request. Out: a `ToolStyle`: what stands around a call, a
form that reads the calls of a piece of text, and a Lark grammar that holds an answer to one call.

    form       what stands between opening and closing
    Objects    {"name": "f", "arguments": {"a": 1}}, one, several, or a list of them
    Named      f, something, {"a": 1}
    Keyed      f, then for each argument its name and its value, as tags
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from arenite.generate.grammar import JSON_BLANKS

#: A function of a request: its name, a description, and a schema of its parameters.
Function: TypeAlias = Mapping[str, Any]
#: A name and arguments.
Call: TypeAlias = tuple[str, dict[str, Any]]
#: A text as a grammar has it.
Literal: TypeAlias = Callable[[str], str]

#: Brackets that may turn out to begin no JSON, each of which costs a look at all that follows.
MAX_FAILED = 64
NAME = r"[\w.-]+"

_decoder = json.JSONDecoder()


class Form(ABC):
    """How a call is written."""

    @property
    def literal(self) -> str:
        """All that stands around names and arguments: control tokens in it are part of a call."""
        return ""

    def end(self, text: str, start: int) -> int:
        """Where a call ends, from `start` on, that nothing closes; -1: not yet, or never."""
        at = _first_bracket(text, start)
        return _value_at(text, at)[1] if at >= 0 else -1

    @abstractmethod
    def calls(self, text: str, functions: Iterable[Function]) -> list[Call]:
        """The calls in a text that is one, or several."""

    @abstractmethod
    def grammar(self, function: Function, literal: Literal) -> str:
        """What a call of a function looks like, as the right side of a rule in Lark."""


@dataclass(frozen=True)
class Objects(Form):
    """Objects of JSON with a name and arguments."""

    arguments: str = "arguments"  # their name in it
    is_list: bool = False

    def calls(self, text: str, functions: Iterable[Function]) -> list[Call]:
        found: list[Call] = []
        for value in _values(text):
            for one in value if isinstance(value, list) else [value]:
                if (call := _call(one)) is not None:
                    found.append(call)
        return found

    def grammar(self, function: Function, literal: Literal) -> str:
        call: dict[str, Any] = {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                self.arguments: _schema(function),
            },
            "required": ["name", self.arguments],
            "additionalProperties": False,
        }
        if self.is_list:
            call = {"type": "array", "items": call, "minItems": 1, "maxItems": 1}
        return _json(call)


@dataclass(frozen=True)
class Named(Form):
    """A name, and arguments as JSON behind it."""

    before: str  # the name
    between: str  # name and arguments
    after: str = ""
    number: str = ""  # what stands before a number of the call, which may come behind the name

    @property
    def literal(self) -> str:
        return self.before + self.number + self.between + self.after

    @property
    def _head(self) -> re.Pattern[str]:
        before, between, number = map(re.escape, (self.before, self.between, self.number))
        return re.compile(rf"{before}({NAME})(?:{number}\w+)?{between}\s*")

    def end(self, text: str, start: int) -> int:
        match = self._head.search(text, start)
        return _value_at(text, match.end())[1] if match else -1

    def calls(self, text: str, functions: Iterable[Function]) -> list[Call]:
        found: list[Call] = []
        at = 0
        while match := self._head.search(text, at):
            at = match.end()
            value, end = _value_at(text, at)
            if isinstance(value, dict):
                found.append((match[1], value))
                at = end
        return found

    def grammar(self, function: Function, literal: Literal) -> str:
        head = literal(self.before + function["name"] + self.between)
        return f"{head} {_json(_schema(function))} {literal(self.after)}"


@dataclass(frozen=True)
class Keyed(Form):
    """A name, and each argument between tags; what is no text is JSON."""

    before: str  # the name
    behind: str
    key: str  # what stands before the name of an argument,
    value: str  # before the argument,
    value_end: str  # and after it
    after: str = ""  # all of them

    def calls(self, text: str, functions: Iterable[Function]) -> list[Call]:
        types = {one["name"]: _types(one) for one in functions}
        before, behind, key, value, value_end = map(
            _loosely, (self.before, self.behind, self.key, self.value, self.value_end)
        )
        head = re.compile(rf"{before or '(?<=>)'}\s*({NAME})\s*{behind}(?=\s*(?:<|$))")
        pair = re.compile(rf"\s*{key}([^<>\n]+){value}\n?(.*?)\n?{value_end}", re.DOTALL)
        found: list[Call] = []
        at = 0
        while match := head.search(text, at):
            at, kinds = match.end(), types.get(match[1], {})
            arguments: dict[str, Any] = {}
            while one := pair.match(text, at):
                at, arguments[one[1]] = one.end(), _typed(one[2], kinds.get(one[1]))
            found.append((match[1], arguments))
        return found

    def grammar(self, function: Function, literal: Literal) -> str:
        schema = _schema(function)
        parts = [literal(self.before + function["name"] + self.behind)]
        for name, one in (schema.get("properties") or {}).items():
            start, end = literal(self.key + name + self.value), literal(self.value_end)
            value = _json(one)
            if _types(function).get(name) == "string":
                choices = [text for text in one.get("enum", ()) if isinstance(text, str)]
                value = " | ".join(map(literal, choices)) or "/[^<]*/"
            part = f"{start} ({value}) {end}"
            parts.append(part if name in schema.get("required", ()) else f"({part})?")
        return " ".join([*parts, literal(self.after)])


@dataclass(frozen=True)
class ToolStyle:
    """How calls stand in an answer."""

    marks: tuple[str, ...]  # that tell it, all of them in a template
    form: Form
    opening: str = ""  # before calls
    closing: str = ""  # after them; none: they end with their JSON
    bare: str = ""  # what an answer begins with that is a call without its opening
    inner: str = ""  # between opening and call, and between call and closing
    takes_text: bool = False  # templates want the arguments of earlier calls as text

    def markers(self, controls: Iterable[tuple[str, int]]) -> dict[int, str]:
        """Those control tokens, of which text shows nothing, that are part of calls."""
        written = self.opening + self.form.literal + self.closing
        return {token: text for text, token in controls if text in written}

    def grammar(self, functions: Iterable[Function], markers: Mapping[int, str]) -> str:
        """A Lark grammar for an answer that is one call of one of these functions."""
        splitter = "|".join(re.escape(text) for text in markers.values())
        numbers = {text: token for token, text in markers.items()}

        def literal(text: str) -> str:
            parts = re.split(f"({splitter})", text) if splitter else [text]
            return " ".join(
                f"<[{numbers[part]}]>" if part in numbers else json.dumps(part)
                for part in parts
                if part
            )

        calls = [self.form.grammar(function, literal) for function in functions]
        opening, closing = self.opening + self.inner, self.inner + self.closing
        rules = [f"call_{number}: {call}" for number, call in enumerate(calls)]
        either = " | ".join(f"call_{number}" for number in range(len(calls)))
        start = f"start: {literal(opening)} ({either}) {literal(closing if self.closing else '')}"
        return "\n".join([start, *rules, ""])


FUNCTION = Keyed("<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>")
BAR = "\N{FULLWIDTH VERTICAL LINE}"
#: DeepSeek's words: all calls, each call, and what stands between its parts.
CALLS, CALLS_END, CALL, CALL_END, SEPARATOR = (
    f"<{BAR}tool▁{part}{BAR}>"
    for part in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
)
#: The first whose marks a template has: those that need more marks stand before those with fewer.
STYLES = (
    # Qwen3-Coder, Seed-OSS
    ToolStyle(("<seed:tool_call>",), FUNCTION, "<seed:tool_call>", "</seed:tool_call>", inner="\n"),
    ToolStyle(("<tool_call>", "<function="), FUNCTION, "<tool_call>", "</tool_call>", inner="\n"),
    # GLM from 4.5 on
    ToolStyle(
        ("<tool_call>", "<arg_key>"),
        Keyed("", "\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
        "<tool_call>",
        "</tool_call>",
    ),
    # Apriel
    ToolStyle(("<tool_calls>[",), Objects(is_list=True), "<tool_calls>", "</tool_calls>"),
    # Hermes, Qwen 2.5 and 3, SmolLM2 and many others
    ToolStyle(("<tool_call>",), Objects(), "<tool_call>", "</tool_call>", inner="\n"),
    # Mistral from Small 3.2 and Magistral on
    ToolStyle(("[TOOL_CALLS]", "[ARGS]"), Named("", "[ARGS]", number="[CALL_ID]"), "[TOOL_CALLS]"),
    # Mistral before
    ToolStyle(("[TOOL_CALLS]",), Objects(is_list=True), "[TOOL_CALLS]", bare="["),
    # DeepSeek R1 and V3, then V3.1
    ToolStyle(
        (CALLS, "```json"),
        Named(f"{CALL}function{SEPARATOR}", "\n```json\n", f"\n```{CALL_END}"),
        CALLS,
        CALLS_END,
        takes_text=True,
    ),
    ToolStyle((CALLS,), Named(CALL, SEPARATOR, CALL_END), CALLS, CALLS_END, takes_text=True),
    # Nemotron
    ToolStyle(("<TOOLCALL>",), Objects(is_list=True), "<TOOLCALL>", "</TOOLCALL>"),
    # Phi 4 mini, then Granite 3
    ToolStyle(
        ("<|tool_call|>", "<|/tool_call|>"),
        Objects(is_list=True),
        "<|tool_call|>",
        "<|/tool_call|>",
    ),
    ToolStyle(("<|tool_call|>",), Objects(is_list=True), "<|tool_call|>"),
    # Functionary for Llama 3.1
    ToolStyle(("<function=",), Named("", ">"), "<function=", "</function>"),
    # Llama 3.1, 3.2, 3.3
    ToolStyle(("<|python_tag|>",), Objects("parameters"), "<|python_tag|>", bare="{"),
    ToolStyle(('"parameters": dictionary',), Objects("parameters"), bare="{"),
)


def style_of(template: str) -> ToolStyle | None:
    """How the model of a chat template calls tools; None where it knows none."""
    if "tools" not in template:
        return None
    return next((one for one in STYLES if all(mark in template for mark in one.marks)), None)


def _values(text: str) -> Iterable[Any]:
    """The lists and objects of JSON in a text."""
    at = n_failed = 0
    while n_failed < MAX_FAILED and (at := _first_bracket(text, at)) >= 0:
        value, end = _value_at(text, at)
        if end < 0:
            at, n_failed = at + 1, n_failed + 1
            continue
        yield value
        at = end


def _value_at(text: str, at: int) -> tuple[Any, int]:
    """A value of JSON and where it ends; -1 where there is none."""
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, -1


def _first_bracket(text: str, start: int) -> int:
    places = [text.find(one, start) for one in "{["]
    return min((place for place in places if place >= 0), default=-1)


def _call(value: object) -> Call | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _value_at(arguments, 0)[0]
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def _schema(function: Function) -> dict[str, Any]:
    """Of its parameters; it has none where it says nothing of them."""
    none = {"type": "object", "properties": {}, "additionalProperties": False}
    return function.get("parameters") or none


def _loosely(part: str) -> str:
    """A pattern for what stands around names and values, whatever blanks a model leaves out."""
    return r"\s*".join(map(re.escape, part.split()))


def _json(schema: Mapping[str, Any]) -> str:
    """JSON of a schema, in a grammar."""
    blanks = {"x-guidance": {"whitespace_pattern": JSON_BLANKS}}
    return f"%json {json.dumps({**schema, **blanks})}"


def _types(function: Function) -> dict[str, Any]:
    """The type that the schema of a function has for each parameter."""
    properties = _schema(function).get("properties")
    found = properties.items() if isinstance(properties, dict) else ()
    return {key: one.get("type") for key, one in found if isinstance(one, dict)}


def _typed(value: str, kind: object) -> Any:
    """An argument that was written as text."""
    if kind == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
