"""ChatTemplate: a conversation as the text, and the tokens, that a model was trained on.

In: messages with roles and contents. Out: what the model's own template makes of them. Control
tokens come from the template alone: what a caller gave stays text, whatever a template does to it.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from arenite.device.cpu import give_back_heap
from arenite.errors import AreniteError, InvalidArgument, InvalidFile, OutOfMemory, printable
from arenite.generate.controls import control_pieces
from arenite.generate.stream import whole_characters

if TYPE_CHECKING:
    from jinja2 import nodes

    from arenite.generate.jinja.meter import Meter
    from arenite.generate.jinja.text import Text
    from arenite.generate.tokenizer import Tokenizer

MAX_LENGTH = 2**16  # characters of a template: a tree of some MiB
MAX_WORD = 1000  # characters of a name or a number in it: matching takes 300 bytes for each
MAX_DEPTH = 32  # of lists and objects in a message
MAX_BITS = 1024  # of a whole number in a message
MAX_KEY_BITS = 63  # of a whole number that is a key
MAX_SHOWN = 300  # characters of what a template says

_WORD = re.compile("[0-9A-Za-z_]+")
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
        from arenite.generate.jinja.meter import Meter

        tree = self._tree
        meter = Meter()
        try:
            return self._rendered(tree, meter, variables, answer, controls)
        finally:
            if meter.is_large:  # what is left of it goes now: the next one may be as large
                gc.collect()
                give_back_heap()

    def _rendered(
        self,
        tree: nodes.Template,
        meter: Meter,
        variables: dict[str, Any],
        answer: bool,
        controls: Sequence[str],
    ) -> Text:
        from jinja2.exceptions import SecurityError

        from arenite.generate.jinja.functions import Refused
        from arenite.generate.jinja.meter import OverBudget
        from arenite.generate.jinja.renderer import Renderer
        from arenite.generate.jinja.text import TEMPLATE, Text
        from arenite.generate.jinja.values import value_of

        is_name = _name_test(controls)
        values = {name: value_of(meter, v, is_name, name) for name, v in variables.items()}
        meter.limit()
        values["bos_token"] = Text.of(self.bos_token, TEMPLATE, meter)
        values["eos_token"] = Text.of(self.eos_token, TEMPLATE, meter)
        values["add_generation_prompt"] = answer
        # What is raised is raised behind the handlers: an error in the hands of a caller would keep
        # all that the template made, by the frames of the one before it.
        problem: AreniteError
        try:
            text = Renderer(tree, meter, values).render()
            text.chars = _HALVES.sub("\N{REPLACEMENT CHARACTER}", text.chars)
            return text
        except Refused as error:
            problem = InvalidArgument(
                f"the chat template of {self.path} refuses these messages: {str(error)[:MAX_SHOWN]}"
            )
        except (OverBudget, SecurityError) as error:
            problem = InvalidFile(f"{self.path}: the chat template {str(error)[:MAX_SHOWN]}")
        except RecursionError:
            problem = InvalidFile(
                f"{self.path}: the chat template nests, or calls itself, too deeply"
            )
        except MemoryError:
            problem = OutOfMemory(
                f"there is no memory left to render the chat template of {self.path}"
            )
        except Exception as error:  # whatever a template does with values it did not expect
            problem = InvalidArgument(
                f"the chat template of {self.path} fails on these messages: "
                f"{type(error).__name__}: {str(error)[:MAX_SHOWN]}"
            )
            problem.__cause__ = error.with_traceback(None)
        values.clear()
        raise problem

    @cached_property
    def _tree(self) -> nodes.Template:
        from jinja2.exceptions import TemplateError, TemplateSyntaxError

        from arenite.generate.jinja.parsing import parse

        if len(self.source) > MAX_LENGTH:
            raise InvalidFile(
                f"{self.path}: the chat template has {len(self.source)} characters; at most "
                f"{MAX_LENGTH} are read"
            )
        if any(len(word[0]) > MAX_WORD for word in _WORD.finditer(self.source)):
            raise InvalidFile(
                f"{self.path}: the chat template can't be used: a word of it has over {MAX_WORD} "
                "characters"
            )
        try:
            return parse(self.source)
        except (TemplateError, SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            what = f"can't be used{line}: {str(error)[:MAX_SHOWN]}"
        except (RecursionError, MemoryError):
            what = "is nested too deeply"
        finally:
            if len(self.source) > MAX_LENGTH // 4:
                gc.collect()
                give_back_heap()
        raise InvalidFile(f"{self.path}: the chat template {what}")

    def __repr__(self) -> str:
        return f"<ChatTemplate of {printable(self.path)}: {len(self.source)} characters>"


def _variables(messages: Sequence[Message], variables: Mapping[str, Any] | None) -> dict[str, Any]:
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    if not is_list or not all(isinstance(message, Mapping) for message in messages):
        raise InvalidArgument(
            'messages are a list of {"role": "user", "content": "..."}, not '
            f"{type(messages).__name__} {messages!r:.80}"
        )
    given = {"tools": None, "documents": None, **(variables or {}), "messages": list(messages)}
    plain: dict[str, Any] = plain_data(given)
    return plain


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
