"""Sampling: how the next token is chosen and when the text ends, as plain checked data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from arenite.errors import InvalidArgument
from arenite.generate.bounds import number, whole

MAX_SEED = 2**64 - 1
MAX_TOKEN = 2**31
#: What is added to a logit or divides it: more says nothing more.
MAX_NUMBER = 1e9
#: Under this a second token has no weight left that a float could hold.
LEAST_TEMPERATURE = 1e-6
#: Tokens before the next one that the penalties look at, where nothing else is said.
PENALTY_WINDOW = 64


#: A JSON schema as JSON reads it, as text, or True for any JSON.
JsonSchema: TypeAlias = Mapping[str, Any] | bool | str


class SamplingOptions(TypedDict, total=False):
    """The keyword arguments of `generate`, `chat` and `pieces`; `Sampling` says what each means and
    what it is where it is left out."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    seed: int | None
    stop: str | Sequence[str]
    logit_bias: Mapping[int, float]
    max_tokens: int | None
    json_schema: JsonSchema | None
    regex: str | None
    grammar: str | None


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
    stop: str | Sequence[str] = ()  # texts that end the answer and are not part of it
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # added; -inf bans a token
    max_tokens: int | None = None  # None: up to the end of the context
    json_schema: JsonSchema | None = None  # the text fulfils it; True: JSON
    regex: str | None = None  # the text matches it from end to end
    grammar: str | None = None  # Lark, or GBNF as llama.cpp takes it

    def __post_init__(self) -> None:
        for name, least, most in (
            ("temperature", 0, math.inf),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("repetition_penalty", 1e-6, MAX_NUMBER),
            ("presence_penalty", -MAX_NUMBER, MAX_NUMBER),
            ("frequency_penalty", -MAX_NUMBER, MAX_NUMBER),
        ):
            self._keep(name, number(name, getattr(self, name), least, most))
        self._keep("top_k", whole("top_k", self.top_k, 0))
        self._keep("penalty_window", whole("penalty_window", self.penalty_window, -1))
        if self.seed is not None:
            self._keep("seed", whole("seed", self.seed, 0, MAX_SEED))
        if self.max_tokens is not None:
            self._keep("max_tokens", whole("max_tokens", self.max_tokens, 1))
        self._keep("stop", _texts("stop", self.stop))
        self._keep("logit_bias", _biases(self.logit_bias))
        for name in ("regex", "grammar"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidArgument(f"{name} is {getattr(self, name)!r}; a text is needed")
        if self.json_schema is not None:
            self._keep("json_schema", _schema_text(self.json_schema))
        shapes = [
            name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None
        ]
        if len(shapes) > 1:
            raise InvalidArgument(f"{' and '.join(shapes)} are given; a text takes one of them")

    def _keep(self, name: str, value: object) -> None:
        """Put a checked value in the place of what was given."""
        object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always the one."""
        return self.temperature < LEAST_TEMPERATURE or self.top_k == 1

    @property
    def penalises(self) -> bool:
        """Whether the tokens before have a say."""
        changes = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return self.penalty_window != 0 and any(changes)


def _texts(name: str, value: object) -> tuple[str, ...]:
    """One text or several, none of them empty."""
    given = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for text in given:
        if not isinstance(text, str) or not text:
            raise InvalidArgument(f"{name}: {text!r} is not a text with at least one character")
    return given


def _biases(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"logit_bias is {value!r}; a dict of tokens to numbers is needed")
    return {
        whole("logit_bias: token", token, 0, MAX_TOKEN): -math.inf
        if bias == -math.inf
        else number(f"logit_bias of token {token}", bias, -MAX_NUMBER, MAX_NUMBER)
        for token, bias in value.items()
    }


def _schema_text(schema: JsonSchema) -> str:
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
