"""What all commands have in common: exit codes, errors in one line, tables or JSON, logging.

Standard output carries the result and nothing else; errors, warnings, progress and logs go to
standard error. A traceback is shown with --debug only.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from arenite.errors import AreniteError, DoesNotFit, InvalidArgument
from arenite.memory.tables import printable

EXIT_DONE = 0
EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

EXIT_CODES = """\
Exit codes: 0 done · 1 the answer is no (a plan does not fit) · 2 bad usage or bad input ·
70 a fault in Arenite · 130 interrupted."""

#: How standard output takes what it has no character for: as Python has it, and as we do.
_STRICT, _LENIENT = ("strict", "surrogateescape"), "arenite.lenient"

#: The number in every JSON result; it changes when a field changes its meaning or goes.
JSON_SCHEMA = 1

out = Console()
err = Console(stderr=True)


def print_json(kind: str, fields: Mapping[str, Any]) -> None:
    """A result for programs: one JSON object with the schema number first."""
    print(json.dumps({"schema": JSON_SCHEMA, "kind": f"arenite.{kind}", **fields}, indent=2))


def print_pairs(title: str, rows: Mapping[str, str]) -> None:
    """A result for people: one fact a line."""
    out.print(Text(printable(title), style="italic"), soft_wrap=True)
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        first, *others = _in_lines(printable(value), out.width - width - 3)
        out.print(Text.assemble((f" {name:<{width}}", "bold"), f"  {first}"), soft_wrap=True)
        for line in others:
            out.print(Text(" " * (width + 3) + line), soft_wrap=True)


def _in_lines(text: str, width: int) -> list[str]:
    """Cut between words where a terminal would cut anywhere. A path stays whole: it can be copied;
    and so does all that is read by programs."""
    if not out.is_terminal:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Container[str]
) -> None:
    """A result for people: a table, in which the last column alone takes several lines, or where it
    is too wide a paragraph for each row. Cells under titles in `right` end flush."""
    table = Table(box=None, header_style="bold")
    for title in titles:
        justify: Literal["right", "left"] = "right" if title in right else "left"
        table.add_column(title, justify=justify, no_wrap=title != titles[-1])
    cells = [[printable(cell) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*map(Text, row))
    if table.__rich_measure__(out, out.options).minimum <= out.width:
        out.print(table)
        return
    for name, *others, about in cells:
        out.print(Text(name, style="bold"), soft_wrap=True)
        facts = [f"{title} {cell}" for title, cell in zip(titles[1:], others, strict=False)]
        out.print(Padding(Text(", ".join(facts + [about] * bool(about))), (0, 0, 0, 2)))


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done, on a terminal; nothing elsewhere. What is yielded has it
    say something else."""
    if not err.is_terminal:
        yield lambda text: None
        return

    def line(text: str) -> Padding:
        return Padding(Text(text, no_wrap=True, overflow="ellipsis"), 0)

    with err.status(line(text)) as status:
        yield lambda text: status.update(line(text))


def log_to_stderr(verbosity: int) -> None:
    """Show the logger `arenite`: -v what is done, -vv every detail."""
    if verbosity:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger = logging.getLogger("arenite")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


def prepare_streams() -> None:
    """Have all three standard streams: one that the caller closed is empty, and no file that is
    opened gets its number. What standard output has no character for becomes a question mark; bytes
    of a file's name that are no text stay what they are."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(_LENIENT, _as_can_be)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _STRICT:
        sys.stdout.reconfigure(errors=_LENIENT)


def _as_can_be(error: UnicodeError) -> tuple[bytes, int]:
    """Bytes for what an encoding lacks; Python has strange bytes of a name as U+DC80 to U+DCFF."""
    assert isinstance(error, UnicodeEncodeError)
    codes = map(ord, error.object[error.start : error.end])
    return bytes(one - 0xDC00 if 0xDC80 <= one < 0xDD00 else ord("?") for one in codes), error.end


def check_text(name: str, *texts: str | None) -> None:
    """InvalidArgument where what was typed has bytes that are no text."""
    for text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{name} has bytes that are no text in this locale; write it in UTF-8"
            ) from None


def exit_code_of(command: Callable[[], int], debug: bool) -> int:
    """Run a command; every error becomes one line on standard error and an exit code."""
    try:
        code = command()
        sys.stdout.flush()  # what can't be written is to be known now
        return code
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_NO  # the reader has gone
    except DoesNotFit as error:
        return _fail(error, EXIT_NO, debug)
    except (AreniteError, OSError) as error:
        return _fail(error, EXIT_BAD_INPUT, debug)
    except Exception as error:
        if debug:
            raise
        say(f"a fault in Arenite: {type(error).__name__}: {error}; --debug shows where")
        return EXIT_BUG


def let_go_of_streams() -> None:
    """Drop what can't be written any more: Python would complain once more while it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_file(path: Path, text: str) -> None:
    """OSError names the file, also where it can be opened and not be written to."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        raise error
    say(told(error) if isinstance(error, OSError) else str(error))
    return code


def told(error: OSError) -> str:
    """What the system says, with the file that was meant in front."""
    what = error.strerror or str(error)
    file = error.filename2 or error.filename
    return what if file is None else f"{file}: {what}"


def say(message: str) -> None:
    """An error, in one line; the exit code tells where nobody can read it."""
    with suppress(OSError):
        err.print(Text("error: ", style="bold red") + Text(printable(message)), soft_wrap=True)
