"""ChatTemplate: a conversation as the text, and the tokens, that a model was trained on.

In: messages with roles and contents. Out: what the model's own template makes of them. Control
tokens come from the template alone: what a caller gave stays text, whatever a template does to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidArgument, InvalidFile, OutOfMemory
from arenite.generate.controls import control_pieces
from arenite.generate.stream import whole_characters

if TYPE_CHECKING:
    from jinja2 import nodes

    from arenite.generate.jinja.text import Text
    from arenite.generate.tokenizer import Tokenizer

MAX_LENGTH = 2**18  # characters of a template
MAX_DEPTH = 32  # of lists and objects in a message
MAX_BITS = 1024  # of a whole number in a message
MAX_KEY_BITS = 63  # of a whole number that is a key
MAX_SHOWN = 300  # characters of what a template says

_HALVES = re.compile("[\ud800-\udfff]")  # of characters, which a template can write

Message = Mapping[str, Any]


class ChatTemplate:
    """A Jinja template from a model's files; it is parsed when it is first used, and evaluated with
    a bound on its steps and on its memory."""

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
        return self._render(_variables(messages, variables), answer, []).chars

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        answer: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The conversation as tokens, as `render` has it."""
        specials = tokenizer.specials
        text = self._render(_variables(messages, variables), answer, specials.control_texts)
        tokens = tokenizer.encode_pieces(control_pieces(text.chars, text.origins, specials))
        needs_bos = tokenizer.adds_bos and tokens[:1] != [tokenizer.bos]
        return [*tokenizer.prefix, *tokens] if needs_bos else tokens

    def _render(self, variables: dict[str, Any], answer: bool, controls: Sequence[str]) -> Text:
        from jinja2.exceptions import SecurityError

        from arenite.generate.jinja.functions import Refused
        from arenite.generate.jinja.meter import Meter, OverBudget
        from arenite.generate.jinja.renderer import Renderer
        from arenite.generate.jinja.text import TEMPLATE, Text
        from arenite.generate.jinja.values import value_of

        tree = self._tree
        meter = Meter()
        is_name = _name_test(controls)
        values = {name: value_of(meter, v, is_name, name) for name, v in variables.items()}
        meter.limit()
        values["bos_token"] = Text.of(self.bos_token, TEMPLATE, meter)
        values["eos_token"] = Text.of(self.eos_token, TEMPLATE, meter)
        values["add_generation_prompt"] = answer
        try:
            text = Renderer(tree, meter, values).render()
            text.chars = _HALVES.sub("\N{REPLACEMENT CHARACTER}", text.chars)
            return text
        except Refused as error:
            raise InvalidArgument(
                f"the chat template of {self.path} refuses these messages: {str(error)[:MAX_SHOWN]}"
            ) from None
        except (OverBudget, SecurityError) as error:
            raise InvalidFile(f"{self.path}: the chat template {str(error)[:MAX_SHOWN]}") from None
        except RecursionError:
            raise InvalidFile(
                f"{self.path}: the chat template nests, or calls itself, too deeply"
            ) from None
        except MemoryError:
            raise OutOfMemory(
                f"there is no memory left to render the chat template of {self.path}"
            ) from None
        except Exception as error:  # whatever a template does with values it did not expect
            raise InvalidArgument(
                f"the chat template of {self.path} fails on these messages: "
                f"{type(error).__name__}: {str(error)[:MAX_SHOWN]}"
            ) from error

    @cached_property
    def _tree(self) -> nodes.Template:
        from jinja2.exceptions import TemplateError, TemplateSyntaxError

        from arenite.generate.jinja.parsing import parse

        if len(self.source) > MAX_LENGTH:
            raise InvalidFile(
                f"{self.path}: the chat template has {len(self.source)} characters; at most "
                f"{MAX_LENGTH} are read"
            )
        try:
            return parse(self.source)
        except (TemplateError, SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise InvalidFile(
                f"{self.path}: the chat template can't be used{line}: {str(error)[:MAX_SHOWN]}"
            ) from None
        except (RecursionError, MemoryError):
            raise InvalidFile(f"{self.path}: the chat template is nested too deeply") from None

    def __repr__(self) -> str:
        return f"<ChatTemplate of {self.path}: {len(self.source)} characters>"


def _variables(messages: Sequence[Message], variables: Mapping[str, Any] | None) -> dict[str, Any]:
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    if not is_list or not all(isinstance(message, Mapping) for message in messages):
        raise InvalidArgument(
            'messages are a list of {"role": "user", "content": "..."}, not '
            f"{type(messages).__name__} {messages!r:.80}"
        )
    given = {"tools": None, "documents": None, **(variables or {}), "messages": list(messages)}
    found: dict[str, Any] = plain_data(given)
    return found


def _name_test(controls: Sequence[str]) -> Callable[[str], bool]:
    """Whether a role may be part of a control token, which is how some templates write them: a word
    that has none in it."""

    @cache  # roles are few
    def is_name(text: str) -> bool:
        is_word = re.fullmatch(r"[\w .-]{1,100}", text) is not None
        return is_word and not any(control in text for control in controls)

    return is_name


def plain_data(value: Any, depth: int = 0) -> Any:
    """Messages as plain lists, dicts, texts and numbers: nothing with methods of its own."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"a message nests over {MAX_DEPTH} lists and objects")
    if isinstance(value, str):
        return whole_characters(str(value))
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise InvalidArgument(f"a message holds a number of over {MAX_BITS} bits")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str | int | float | None) or (
                isinstance(key, int) and key.bit_length() > MAX_KEY_BITS
            ):
                raise InvalidArgument(
                    f"a message has a key that is no text: {type(key).__name__} {key!r:.80}"
                )
        return {plain_data(k, depth + 1): plain_data(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, depth + 1) for item in value]
    raise InvalidArgument(
        f"a message holds a {type(value).__name__}; texts, numbers, lists and dicts go"
    )
