"""Messages as people type them: one line, or several, with the lines before at hand.

A paste is one message however many lines it has. A line that ends with a backslash goes on with the
next; three quotes open a message of many lines and three quotes close it.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from arenite.cli import output
from arenite.errors import InvalidArgument

QUOTES = '"""'
PROMPT, MORE = "> ", ". "
MAX_MESSAGES = 1000  # kept in the history file
MOST_HISTORY_NBYTES = 16 * 2**20
MOST_CHARACTERS = 64 * 2**20  # of a line that comes through a pipe
#: Where a terminal does not say what is pasted: lines that follow each other so soon are.
PASTE_SECONDS = 0.03
#: Terminals that can't tell a paste from typing.
_PLAIN_TERMINALS = ("", "dumb", "unknown")

_MARK_PASTES, _NO_MARKS = "\x1b[?2004h", "\x1b[?2004l"

#: What may stand in place of the word that is being typed, given all in front of it.
Complete = Callable[[str, str], list[str]]


class Message(NamedTuple):
    """What was typed, and whether it is a command: one line that begins with a slash."""

    text: str
    is_command: bool


class Lines:
    """What comes from standard input, message by message."""

    def __init__(self, complete: Complete | None = None) -> None:
        self.is_terminal = sys.stdin.isatty()
        # Where answers go elsewhere there is no editor: it would write its prompt among them.
        self._is_edited = self.is_terminal and sys.stdout.isatty()
        self._readline = _line_editor() if self._is_edited else None
        self._is_ended = False
        self._is_begun = False  # whether some lines of the message are there
        self._marks_pastes = False
        if self._readline is not None:
            self._marks_pastes = _bind(self._readline, complete)

    def read_message(self) -> Message:
        """The next message; EOFError where no more come."""
        if self._is_ended:
            raise EOFError
        self._is_begun = False
        text = self._read_line(PROMPT)
        self._is_begun = True
        if text.lstrip().startswith(QUOTES):
            text = text.lstrip()[len(QUOTES) :]
            while not text.rstrip().endswith(QUOTES):
                text += "\n" + self._read_line(MORE)
            text = text.rstrip()[: -len(QUOTES)].strip("\n")
            return self._remembered(Message(text, is_command=False))
        if not text.startswith("/"):
            text = self._with_pasted(text)
        while text.endswith("\\"):
            text = text[:-1] + "\n" + self._read_line(MORE)
        text = text.rstrip("\n")
        return self._remembered(Message(text, text.startswith("/") and "\n" not in text))

    def took_text(self) -> bool:
        """Whether an interrupt just now took something with it that was typed, as far as that can
        be known."""
        if self._readline is None:
            return True
        return self._is_begun or bool(self._readline.get_line_buffer())

    def _with_pasted(self, text: str) -> str:
        """A line with those that were pasted with it, where the terminal has not told so itself."""
        if not self.is_terminal or self._marks_pastes:
            return text
        while select.select([sys.stdin], [], [], PASTE_SECONDS)[0]:
            try:
                text += "\n" + self._read_line("")
            except EOFError:
                self._is_ended = True
                break
        return text

    def _remembered(self, message: Message) -> Message:
        """Also where it is one message of many lines."""
        if self._readline is not None and message.text.strip():
            self._readline.add_history(message.text)
        return message

    def _read_line(self, prompt: str) -> str:
        try:
            if self.is_terminal and not self._is_edited:
                print(prompt, end="", file=sys.stderr, flush=True)
            line = input(prompt) if self._is_edited else _piped_line()
            line.encode()  # some locales let bytes that are no text through
            return line
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise InvalidArgument(f"what was typed is not UTF-8: {error.reason}") from None
        finally:
            self.mark_pastes(True)  # the editor ends it with every line

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Inside, what is typed is not shown, and waits to be read: it would stand in an answer."""
        if not self.is_terminal:
            yield
            return
        import termios

        before = termios.tcgetattr(sys.stdin)
        quiet = [*before]
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    def mark_pastes(self, is_on: bool) -> None:
        """Have the terminal mark what is pasted, also while nobody reads: it waits, marked."""
        if self._marks_pastes:
            output.out.file.write(_MARK_PASTES if is_on else _NO_MARKS)
            output.out.file.flush()


def _piped_line() -> str:
    line = sys.stdin.readline(MOST_CHARACTERS + 1)
    if not line:
        raise EOFError
    if len(line) > MOST_CHARACTERS:
        raise OSError(f"standard input has a line of more than {MOST_CHARACTERS} characters")
    return line.removesuffix("\n")


# The line editor, and what it keeps.


@contextmanager
def open_lines(history: Path, complete: Complete | None = None) -> Iterator[Lines]:
    """Lines from standard input. On a terminal those typed inside are kept in a file for the next
    time."""
    lines = Lines(complete)
    lines.mark_pastes(True)
    try:
        with _remembered(lines._readline, history):
            yield lines
    finally:
        lines.mark_pastes(False)


@contextmanager
def _remembered(editor: ModuleType | None, history: Path) -> Iterator[None]:
    if editor is None:
        yield
        return
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.touch(mode=0o600)
        _read_history(editor, history)
    except (OSError, ValueError) as error:
        output.warn(f"messages from before are not at hand, and none are kept: {history}: {error}")
        yield
        return
    try:
        yield
    finally:
        _write_history(editor, history)


def _line_editor() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # a Python without it still reads lines
        return None
    return readline


def _bind(editor: ModuleType, complete: Complete | None) -> bool:
    """Set up the editor: completion, pastes as a whole. Whether it can tell what is pasted."""
    is_gnu = "libedit" not in (editor.__doc__ or "")
    editor.set_auto_history(False)
    if complete is not None:
        editor.set_completer_delims(" \t\n")
        editor.set_completer(_completer(editor, complete))
        editor.parse_and_bind("tab: complete" if is_gnu else "bind ^I rl_complete")
    if not is_gnu or os.environ.get("TERM", "") in _PLAIN_TERMINALS:
        return False
    editor.parse_and_bind("set enable-bracketed-paste on")  # which Python turns off
    return True


def _completer(editor: ModuleType, complete: Complete) -> Callable[[str, int], str | None]:
    def completion(word: str, number: int) -> str | None:
        before = editor.get_line_buffer()[: editor.get_begidx()]
        candidates = complete(before, word)
        return candidates[number] if number < len(candidates) else None

    return completion


def _read_history(editor: ModuleType, file: Path) -> None:
    with file.open("rb") as opened:
        content = opened.read(MOST_HISTORY_NBYTES)
    editor.clear_history()
    for line in content.decode(errors="replace").split("\n"):
        if line:
            editor.add_history(_unescape(line))


def _write_history(editor: ModuleType, file: Path) -> None:
    """A message a line, whatever it has."""
    last = editor.get_current_history_length()
    kept = [editor.get_history_item(k) for k in range(max(last - MAX_MESSAGES, 0) + 1, last + 1)]
    text = "".join(_escape(message) + "\n" for message in kept if message is not None)
    output.write_file(file, text)


def _escape(message: str) -> str:
    return message.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _unescape(line: str) -> str:
    meant = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}
    return re.sub(r"\\[\\nr]", lambda found: meant[found[0]], line)
