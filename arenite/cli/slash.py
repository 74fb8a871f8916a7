"""What can be typed in a chat besides messages: commands that begin with a slash."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from arenite.cli import output, plan
from arenite.cli.completion import paths
from arenite.cli.options import Choosing, sampling_of, spelled
from arenite.errors import InvalidArgument, InvalidFile

if TYPE_CHECKING:
    from arenite.cli.chat import Talk

#: Each with what follows it, and what it does.
COMMANDS = {
    "/help": ("", "this"),
    "/plan": ("", "what fills the memory of the model"),
    "/stats": ("", "what the last answer took"),
    "/set": ("[NAME VALUE]", "how tokens are chosen; the value `default` takes a change back"),
    "/system": ("[TEXT]", "what the model is told first"),
    "/reset": ("", "forget what was said"),
    "/save": ("FILE", "write what was said as JSON; `/save! FILE` replaces a file"),
    "/load": ("FILE", "go on with what was saved"),
    "/quit": ("", "leave; so does Ctrl-D, or Ctrl-C twice at an empty line"),
}
OTHERWISE = {"/exit": "/quit", "/bye": "/quit"}
HINTS = (
    "",
    "A paste is one message. A line that ends with a backslash goes on with the next; "
    '""" opens a message of many lines and """ closes it.',
    "Tab completes commands. Ctrl-C ends an answer.",
)
#: What can be set: as on the command line, and how answers are shown.
NAMES = [*(field.name.replace("_", "-") for field in fields(Choosing)), "markdown"]
DEFAULT = "default"
ROLES = ("system", "user", "assistant")
MOST_NBYTES = 64 * 2**20  # of a file that is loaded


def complete(before: str, word: str) -> list[str]:
    """What the word may become that is typed behind `before`."""
    first, *others = before.split() or [""]
    if not before:
        return [f"{name} " for name in COMMANDS if name.startswith(word)] if word else []
    if first == "/set" and not others:
        return [f"{name} " for name in NAMES if name.startswith(word)]
    if first in ("/save", "/save!", "/load") and not others:
        return paths(word)
    return []


class Slash:
    """The commands of one talk."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def do(self, line: str) -> bool:
        """Do what a line says; whether to leave."""
        talk = self._talk
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match OTHERWISE.get(name, name):
            case "/quit":
                return True
            case "/help":
                forms = {f"{name} {given}": about for name, (given, about) in COMMANDS.items()}
                width = max(map(len, forms)) + 1
                output.note(*(f"{form:<{width}} {about}" for form, about in forms.items()))
                output.note(*HINTS)
            case "/plan":
                plan.print_memory(output.err, talk.model.plan)
            case "/stats":
                output.note("nothing was said yet" if talk.stats is None else str(talk.stats))
            case "/set":
                self._set(rest)
            case "/system":
                self._tell(rest)
            case "/reset":
                talk.conversation.clear()
                talk.n_left_out = 0
                output.note("all is forgotten")
            case "/save" | "/save!":
                self._save(rest, is_forced=name.endswith("!"))
            case "/load":
                self._load(rest)
            case _:
                output.note(
                    f"{name} is none of {' '.join(COMMANDS)}; a message that begins with a slash "
                    'stands between """ and """'
                )
        return False

    # Settings.

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        name, value = name.removeprefix("--").replace("_", "-"), value.strip()
        if not name:
            output.note(*(f"{name:<20}{self._value(name)}" for name in NAMES))
        elif name not in NAMES:
            output.note(f"{name} can't be set; there are {', '.join(NAMES)}")
        elif not value:
            output.note(f"{name}  {self._value(name)}")
        else:
            self._change(name, value)
            output.note(f"{name}  {self._value(name)}")

    def _value(self, name: str) -> str:
        if name == "markdown":
            return "on" if self._talk.markdown else "off"
        field = name.replace("-", "_")
        value = getattr(sampling_of(self._talk.chosen), field)
        shown = " ".join(map(repr, value)) if isinstance(value, tuple) else str(value)
        is_default = field not in self._talk.chosen
        return f"{shown if value not in (None, ()) else 'none'}{' (default)' * is_default}"

    def _change(self, name: str, value: str) -> None:
        if name == "markdown":
            if value not in ("on", "off", DEFAULT):
                raise InvalidArgument(f"markdown is on or off, not {value!r}")
            self._talk.markdown = value != "off"
            return
        field = name.replace("-", "_")
        chosen = {k: v for k, v in self._talk.chosen.items() if k != field}
        if value != DEFAULT:
            chosen[field] = _parsed(name, value)
        with spelled({field: name}):
            sampling_of(chosen)
        self._talk.chosen = chosen

    def _tell(self, text: str) -> None:
        conversation = self._talk.conversation
        if text:
            before, conversation.system = conversation.system, text
            try:
                self._talk.model.chat_tokens(
                    [*conversation.messages, {"role": "user", "content": "?"}]
                )
            except BaseException:
                conversation.system = before
                raise
        output.note(f"the model is told first: {conversation.system or 'nothing'}")

    # Files.

    def _save(self, name: str, *, is_forced: bool) -> None:
        if not name:
            output.note("/save needs the name of a file")
            return
        file = Path(name).expanduser()
        messages = self._talk.conversation.messages
        said = {"model": self._talk.name, "messages": messages}
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
        try:
            output.write_file(file, text, is_new=not is_forced)
        except FileExistsError:
            output.note(f"{file} is there already; `/save! {name}` writes in its place")
            return
        except OSError as error:
            output.say(output.told(error))
            return
        output.note(f"{len(messages)} messages are in {file}")

    def _load(self, name: str) -> None:
        from arenite.generate.history import Conversation

        if not name:
            output.note("/load needs the name of a file")
            return
        talk, file = self._talk, Path(name).expanduser()
        try:
            messages = _read_messages(file)
        except OSError as error:
            output.say(output.told(error))
            return
        is_told = bool(messages) and messages[0]["role"] == "system"
        system = messages.pop(0)["content"] if is_told else None
        is_asked = bool(messages) and messages[-1]["role"] == "user"  # and was not answered
        asked = messages.pop()["content"] if is_asked else None
        loaded = Conversation(system)
        loaded.turns += messages
        talk.model.chat_tokens([*loaded.messages, {"role": "user", "content": asked or "?"}])
        talk.conversation, talk.n_left_out = loaded, 0
        output.note(f"{len(loaded.messages) + (asked is not None)} messages are loaded from {file}")
        if asked is not None:
            output.note(f"> {asked}")
            talk.answer(asked)


def _read_messages(file: Path) -> list[dict[str, str]]:
    """Messages as /save writes them, checked."""
    with output.regular_file(file) as opened:
        content = opened.read(MOST_NBYTES + 1)
    if len(content) > MOST_NBYTES:
        raise InvalidFile(f"{file} has more than the {MOST_NBYTES} bytes that are read")
    try:
        said = json.loads(content)
        messages = said["messages"]
        plain = [{"role": one["role"], "content": one["content"]} for one in messages]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidFile(
            f"{file} is no conversation: /save writes one, a JSON object with messages, each with "
            "a role and its content"
        ) from None
    for k, one in enumerate(plain):
        is_text = all(isinstance(part, str) and _is_text(part) for part in one.values())
        if not is_text or one["role"] not in ROLES or (one["role"] == "system" and k):
            raise InvalidFile(
                f"{file}: message {k + 1} has no text from one of {', '.join(ROLES)}; the "
                "system's comes first"
            )
    return plain


def _is_text(text: str) -> bool:
    """Whether a text is free of halves of characters, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parsed(name: str, value: str) -> Any:
    """A value as the option of that name has it."""
    hint = get_type_hints(Choosing)[name.replace("-", "_")]
    kind = get_args(hint)
    if float in kind or int in kind:
        try:
            return float(value) if float in kind else int(value)
        except ValueError:
            wanted = "a number" if float in kind else "a whole number"
            raise InvalidArgument(f"{name} is {wanted}, not {value!r}") from None
    return [value]
