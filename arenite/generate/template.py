"""ChatTemplate: a conversation as the text, and the tokens, that a model was trained on.

In: messages with roles and contents. Out: what the model's own template makes of them. Control
tokens come from the template alone: a text in a message that reads like one stays text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from arenite.errors import InvalidArgument, InvalidFile
from arenite.generate.masks import Mask
from arenite.generate.stream import whole_characters

if TYPE_CHECKING:
    from jinja2 import Template

    from arenite.generate.tokenizer import Tokenizer

MAX_LENGTH = 2**18  # characters of a template
MAX_DEPTH = 32  # of lists and objects in a message

Message = Mapping[str, Any]


class ChatTemplate:
    """A Jinja template from a model's files; it is compiled when it is first used, and runs in a
    sandbox with a bound on its steps and on its memory."""

    def __init__(self, source: str, path: str, *, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self.path = path
        self.bos_token = bos_token
        self.eos_token = eos_token

    def render(
        self,
        messages: Sequence[Message],
        *,
        answer: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as text; `answer`: with what comes before the model's answer.
        `variables` are further ones that the template knows, such as tools."""
        return self._render(self._variables(messages, variables), answer)

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        answer: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The conversation as tokens, as `render` has it."""
        plain = self._variables(messages, variables)
        mask = Mask(tokenizer.specials.control_texts, [self.source, plain])
        text = self._render(mask.hidden(plain), answer)
        pieces: list[str | int] = []
        for piece in tokenizer.specials.split(text, controls=True):
            if isinstance(piece, int):
                pieces.append(piece)
            else:
                pieces += tokenizer.specials.split(mask.shown(piece), controls=False)
        tokens = tokenizer.encode_pieces(pieces)
        needs_bos = tokenizer.adds_bos and tokens[:1] != [tokenizer.bos]
        return [*tokenizer.prefix, *tokens] if needs_bos else tokens

    def _variables(
        self, messages: Sequence[Message], variables: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
        if not is_list or not all(isinstance(message, Mapping) for message in messages):
            raise InvalidArgument(
                'messages are a list of {"role": "user", "content": "..."}, not '
                f"{type(messages).__name__} {messages!r:.80}"
            )
        given = {"tools": None, "documents": None, **(variables or {}), "messages": list(messages)}
        found: dict[str, Any] = plain_data(given)
        return found

    def _render(self, variables: dict[str, Any], answer: bool) -> str:
        from jinja2.exceptions import SecurityError

        from arenite.generate.priced import OverBudget, budget_for, size_of

        template = self._template
        try:
            with budget_for(size_of(variables)):
                return template.render(
                    bos_token=self.bos_token,
                    eos_token=self.eos_token,
                    add_generation_prompt=answer,
                    **variables,
                )
        except _Refused as error:
            raise InvalidArgument(
                f"the chat template of {self.path} refuses these messages: {error}"
            ) from None
        except (OverBudget, SecurityError) as error:
            raise InvalidFile(f"{self.path}: the chat template {error}") from None
        except (RecursionError, MemoryError):
            raise InvalidFile(f"{self.path}: the chat template calls itself too deeply") from None
        except Exception as error:  # whatever a template does with values it did not expect
            raise InvalidArgument(
                f"the chat template of {self.path} fails on these messages: "
                f"{type(error).__name__}: {error}"
            ) from error

    @cached_property
    def _template(self) -> Template:
        from jinja2 import Template
        from jinja2.exceptions import TemplateError, TemplateSyntaxError

        from arenite.generate.bounded import BoundedEnvironment
        from arenite.generate.priced import OverBudget, budget_for

        if len(self.source) > MAX_LENGTH:
            raise InvalidFile(
                f"{self.path}: the chat template has {len(self.source)} characters; at most "
                f"{MAX_LENGTH} are read"
            )
        environment = BoundedEnvironment()
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _date}
        try:
            with budget_for(len(self.source)):
                code = environment.compile(environment.bounded(self.source))
                return Template.from_code(environment, code, environment.globals)
        except (TemplateError, OverBudget, SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise InvalidFile(
                f"{self.path}: the chat template can't be used{line}: {error}"
            ) from None
        except (RecursionError, MemoryError):
            raise InvalidFile(f"{self.path}: the chat template is nested too deeply") from None

    def __repr__(self) -> str:
        return f"<ChatTemplate of {self.path}: {len(self.source)} characters>"


class _Refused(Exception):
    """What a template says about messages it does not take."""


def _refuse(message: object) -> NoReturn:
    raise _Refused(message)


def _date(form: str) -> str:
    if len(form) > 100 or re.search(r"%[^A-Za-z%-]", form):
        raise ValueError(f"no way to write a date: {form[:100]!r}")
    return datetime.now().strftime(form)


def plain_data(value: Any, depth: int = 0) -> Any:
    """Messages as plain lists, dicts, texts and numbers: nothing with methods of its own."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"a message nests over {MAX_DEPTH} lists and objects")
    if isinstance(value, str):
        return whole_characters(str(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain_data(k, depth + 1): plain_data(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, depth + 1) for item in value]
    raise InvalidArgument(
        f"a message holds a {type(value).__name__}; texts, numbers, lists and dicts go"
    )
