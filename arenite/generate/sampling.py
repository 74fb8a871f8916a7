"""Sampling: how the next token is chosen and when the text ends, as plain checked data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arenite.errors import InvalidArgument

MAX_SEED = 2**64 - 1
#: Under this a second token has no weight left that a float could hold.
LEAST_TEMPERATURE = 1e-6
#: Tokens before the next one that the penalties look at, where nothing else is said.
PENALTY_WINDOW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; the defaults are those that llama.cpp's users know.

    The order in which the fields work on the logits: `logit_bias`, what the grammar allows, the
    penalties, `top_k`, `top_p`, `min_p`, `temperature`. So `top_p` and `min_p` look at the
    probabilities before the temperature flattens or sharpens them.
    """

    temperature: float = 0.8  # 0: always the likeliest token
    top_k: int = 40  # only this many likeliest tokens; 0: all
    top_p: float = 0.95  # only the likeliest that together reach this probability; 1: all
    min_p: float = 0.05  # only those at least this likely relative to the likeliest; 0: all
    repetition_penalty: float = 1.0  # divides what speaks for a recent token; 1: nothing
    presence_penalty: float = 0.0  # taken off the logit of a recent token
    frequency_penalty: float = 0.0  # taken off it for every time it came
    penalty_window: int = PENALTY_WINDOW  # tokens that count as recent; 0: none, -1: all
    seed: int | None = None  # None: another text every time
    stop: Sequence[str] = ()  # texts that end the answer and are not part of it
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # added; -inf bans a token
    max_tokens: int | None = None  # None: up to the end of the context
    json_schema: Mapping[str, Any] | bool | str | None = None  # the text fulfils it; True: JSON
    regex: str | None = None  # the text matches it from end to end
    grammar: str | None = None  # Lark, or GBNF as llama.cpp takes it

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0, math.inf)
        _whole("top_k", self.top_k, 0)
        _number("top_p", self.top_p, 0, 1)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, 1e-6, math.inf)
        _number("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _number("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        _whole("penalty_window", self.penalty_window, -1)
        if self.seed is not None:
            _whole("seed", self.seed, 0, MAX_SEED)
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        for text in stop:
            if not isinstance(text, str) or not text:
                raise InvalidArgument(f"stop: {text!r} is not a text with at least one character")
        object.__setattr__(self, "stop", stop)
        for token, bias in self.logit_bias.items():
            _whole("logit_bias: token", token, 0)
            if bias != -math.inf:
                _number(f"logit_bias of token {token}", bias, -math.inf, math.inf)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        if self.json_schema is not None:
            object.__setattr__(self, "json_schema", _schema_text(self.json_schema))
        shapes = [
            name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None
        ]
        if len(shapes) > 1:
            raise InvalidArgument(f"{' and '.join(shapes)} are given; a text takes one of them")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always the one."""
        return self.temperature < LEAST_TEMPERATURE or self.top_k == 1

    @property
    def penalises(self) -> bool:
        """Whether the tokens before have a say."""
        changes = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return self.penalty_window != 0 and any(changes)


def _number(name: str, value: object, least: float, most: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not least <= value <= most:  # type: ignore[operator]
        raise InvalidArgument(f"{name} is {value!r}; {_bounds('a number', least, most)} is needed")


def _whole(name: str, value: object, least: int, most: float = math.inf) -> None:
    good = isinstance(value, int) and not isinstance(value, bool)
    if not good or not least <= value <= most:  # type: ignore[operator]
        wanted = _bounds("a whole number", least, most)
        raise InvalidArgument(f"{name} is {value!r}; {wanted} is needed")


def _bounds(what: str, least: float, most: float) -> str:
    what += f" from {least}" if least != -math.inf else ""
    return what + (f" to {most}" if most != math.inf else "")


def _schema_text(schema: Mapping[str, Any] | bool | str) -> str:
    """A JSON schema, given as text or as what JSON reads into, as the text of an object."""
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
        if value is True:
            return "{}"
        if isinstance(value, Mapping):
            return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"json_schema is not JSON: {error}") from None
    raise InvalidArgument(f"json_schema is {value!r}; a JSON object, or true, is needed")
