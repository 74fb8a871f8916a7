"""Messages as people type them: one line, or several, with the lines before at hand.

A line that ends with a backslash goes on with the next; three quotes open a message of many lines
and three quotes close it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arenite.cli import manner
from arenite.errors import InvalidArgument

QUOTES = '"""'
PROMPT, MORE = "> ", ". "
MAX_LINES = 1000  # kept in the history file
MOST_CHARACTERS = 64 * 2**20  # of a line that comes through a pipe


def read_message() -> str:
    """The next message; EOFError where no more come."""
    text = _read_line(PROMPT)
    if text.lstrip().startswith(QUOTES):
        text = text.lstrip()[len(QUOTES) :]
        while not text.rstrip().endswith(QUOTES):
            text += "\n" + _read_line(MORE)
        return text.rstrip()[: -len(QUOTES)].strip("\n")
    while text.endswith("\\"):
        text = text[:-1] + "\n" + _read_line(MORE)
    return text


@contextmanager
def remembered(file: Path) -> Iterator[None]:
    """Lines typed inside are kept in a file for the next time, where there is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    try:
        import readline
    except ImportError:  # a Python without it still reads lines
        yield
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        readline.read_history_file(file)
    except OSError as error:
        manner.say(f"lines typed before are not at hand, and none are kept: {file}: {error}")
        yield
        return
    readline.set_history_length(MAX_LINES)
    try:
        yield
    finally:
        readline.write_history_file(file)


def _read_line(prompt: str) -> str:
    try:
        line = input(prompt) if sys.stdin.isatty() else _piped_line()
        line.encode()  # some locales let bytes that are no text through
        return line
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"what was typed is not UTF-8: {error.reason}") from None


def _piped_line() -> str:
    line = sys.stdin.readline(MOST_CHARACTERS + 1)
    if not line:
        raise EOFError
    if len(line) > MOST_CHARACTERS:
        raise OSError(f"standard input has a line of more than {MOST_CHARACTERS} characters")
    return line.removesuffix("\n")
