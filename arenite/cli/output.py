"""What all commands have in common: exit codes, messages in one line, tables or JSON, logging.

Standard output carries the result and nothing else; errors, warnings, progress and logs go to
standard error. A traceback is shown with --debug only.

The one way to the terminal: whatever a file or a model says, it is shown and never obeyed.

    Screen            a console; every string in what it prints is escaped, its own styles are not
    guard_streams()   sys.stdout and sys.stderr for all others: print, logging, warnings, libraries

So nothing needs to be remembered where something is printed: a string reaches a terminal through
one of the two. Standard output into a pipe is for programs, and stays as it is.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import stat
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from arenite.errors import AreniteError, DoesNotFit, InvalidArgument, escaped, is_acting, printable


class Screen(Console):
    """A console on which strings are text: no markup, no emoji codes, no escape sequences."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

    @property
    def file(self) -> IO[str]:
        """Past the guard, which would take our own styles for somebody else's."""
        stream = Console.file.fget(self)  # type: ignore[attr-defined]
        return stream.unguarded if isinstance(stream, GuardedStream) else cast(IO[str], stream)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        Console.file.fset(self, stream)  # type: ignore[attr-defined]

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """All that is printed passes here, as text with styles or as moves of the cursor, which
        are the console's own. A link of a style would carry an address past us."""
        given = _escaped_text(renderable) if isinstance(renderable, Text) else renderable
        for segment in super().render(given, options):
            if segment.is_control:
                yield segment
            else:
                style = segment.style
                style = style.update_link(None) if style is not None and style.link else style
                yield Segment(escaped(segment.text), style)


def _escaped_text(text: Text) -> Text:
    """Before lines are broken: what is spelled out takes more place."""
    acting = [at for at, character in enumerate(text.plain) if is_acting(character)]
    if not acting:
        return text
    copy = text.blank_copy()
    for part in text.divide(sorted({*acting, *(at + 1 for at in acting)})):
        part.plain = escaped(part.plain)
        copy.append_text(part)
    return copy


class GuardedStream:
    """A text stream that escapes what is written to it: always, or where a terminal shows it."""

    def __init__(self, stream: TextIO, always: bool) -> None:
        self.unguarded = stream
        self._always = always

    def write(self, text: str) -> int:
        stream = self.unguarded
        stream.write(escaped(text) if self._always or stream.isatty() else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_streams() -> None:
    """Put guards before the standard streams, once. Messages are escaped wherever they go; results
    only where a terminal shows them."""
    if not isinstance(sys.stdout, GuardedStream):
        sys.stdout = cast(TextIO, GuardedStream(sys.stdout, always=False))
    if not isinstance(sys.stderr, GuardedStream):
        sys.stderr = cast(TextIO, GuardedStream(sys.stderr, always=True))


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

#: A first word with two spaces or more behind it: what comes then is a column.
_COLUMNS = re.compile(r"\S+(?: \S+)*\s{2,}")

out: Console = Screen()
err: Console = Screen(stderr=True)


def print_json(kind: str, fields: Mapping[str, Any]) -> None:
    """A result for programs: one JSON object with the schema number first."""
    print(json.dumps({"schema": JSON_SCHEMA, "kind": f"arenite.{kind}", **fields}, indent=2))


def print_pairs(title: str, rows: Mapping[str, str]) -> None:
    """A result for people: one fact a line."""
    out.print(Text(printable(title), style="italic"), soft_wrap=True)
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        first, *others = _in_lines(printable(value), out, width + 3)
        out.print(Text.assemble((f" {name:<{width}}", "bold"), f"  {first}"), soft_wrap=True)
        for line in others:
            out.print(Text(" " * (width + 3) + line), soft_wrap=True)


def _in_lines(text: str, console: Console, indent: int = 0) -> list[str]:
    """Cut between words where a terminal would cut anywhere; what begins with spaces goes on below
    its second column. A path stays whole: it can be copied; and so does all that programs read."""
    if not console.is_terminal or cell_len(text) <= console.width - indent:
        return [text]
    column = _COLUMNS.match(text)
    hang = " " * (column.end() if column and column.end() < console.width // 2 else 0)
    width = max(console.width - indent, len(hang) + 1)
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Container[str],
    console: Console | None = None,
) -> None:
    """A result for people: a table, in which the last column alone takes several lines, or where it
    is too wide a paragraph for each row. Cells under titles in `right` end flush."""
    shown = out if console is None else console
    table = Table(box=None, header_style="bold")
    for title in titles:
        justify: Literal["right", "left"] = "right" if title in right else "left"
        table.add_column(title, justify=justify, no_wrap=title != titles[-1])
    cells = [[printable(cell) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*map(Text, row))
    if _table_width([titles, *cells]) <= shown.width:
        shown.print(table)
        return
    for name, *others, about in cells:
        shown.print(Text(name, style="bold"), soft_wrap=True)
        facts = [f"{title} {cell}" for title, cell in zip(titles[1:], others, strict=False)]
        shown.print(Padding(Text(", ".join(facts + [about] * bool(about))), (0, 0, 0, 2)))


def _table_width(rows: Sequence[Sequence[str]]) -> int:
    """Columns that a table needs: cells are whole, but for those of its last column, whose words
    are."""
    *columns, last = zip(*rows, strict=True)
    words = [word for cell in last for word in cell.split()]
    needed = [max(map(cell_len, cells), default=0) for cells in (*columns, words)]
    return sum(needed) + 2 * len(needed)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done, on a terminal; nothing elsewhere. What is yielded has it
    say something else."""
    if not err.is_terminal:
        yield lambda text: None
        return

    def line(text: str) -> Padding:
        return Padding(Text(text, no_wrap=True, overflow="ellipsis"), 0)

    spinner = Spinner("dots", line(text))
    # What others print goes where it is meant to: standard output is none of this console.
    with Live(
        spinner,
        console=err,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=12.5,
    ):
        yield lambda text: spinner.update(text=line(text))


class _Log(logging.Handler):
    """Each record a line on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            warn(record.getMessage())
        else:
            note(f"{record.name}: {record.getMessage()}")


def log_to_stderr(verbosity: int) -> None:
    """Show the logger `arenite`: warnings, with -v what is done, with -vv every detail."""
    logger = logging.getLogger("arenite")
    if not any(isinstance(handler, _Log) for handler in logger.handlers):
        logger.addHandler(_Log())
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])


def show_warnings() -> None:
    """Python's warnings in one line each, as errors are; where they arose helps no user."""

    def show(message: Warning | str, *where: object, **beside: object) -> None:
        warn(str(message))

    warnings.showwarning = cast(Any, show)


def prepare_streams() -> None:
    """Have all three standard streams: one that the caller closed is empty, and no file that is
    opened gets its number. What standard output has no character for becomes a question mark; bytes
    of a file's name that are no text stay what they are. A terminal gets nothing to act on."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    codecs.register_error(_LENIENT, _as_can_be)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _STRICT:
        sys.stdout.reconfigure(errors=_LENIENT)
    guard_streams()
    show_warnings()


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
    """Run a command; every error becomes one line on standard error and an exit code. With `debug`
    the line comes after a traceback."""
    try:
        code = command()
        sys.stdout.flush()  # what can't be written is to be known now
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED, debug)
    except BrokenPipeError:
        return EXIT_NO  # the reader has gone
    except DoesNotFit as error:
        return _fail(str(error), EXIT_NO, debug)
    except AreniteError as error:
        return _fail(str(error), EXIT_BAD_INPUT, debug)
    except OSError as error:
        return _fail(told(error), EXIT_BAD_INPUT, debug)
    except Exception as error:
        hint = "" if debug else "; --debug shows where"
        what = f"a fault in Arenite: {type(error).__name__}: {error}{hint}"
        return _fail(what, EXIT_BUG, debug)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        with suppress(OSError):
            for part in traceback.format_exception(sys.exception()):
                # A message of many lines goes on below its own beginning, and can't look like ours.
                err.print(part.rstrip("\n").replace("\n", "\n  "), soft_wrap=True)
    say(message)
    return code


def let_go_of_streams() -> None:
    """Drop what can't be written any more: Python would complain once more while it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses names the file, also where it can be opened and not written to."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_file(path: Path, text: str, *, is_new: bool = False) -> None:
    """With `is_new` one that is there stays."""
    with writing(path), path.open("x" if is_new else "w", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def regular_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be read: no pipe, which might never end or never begin, and no device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        yield file


def told(error: OSError) -> str:
    """What the system says, with the file that was meant in front."""
    what = error.strerror or str(error)
    file = error.filename2 or error.filename
    return what if file is None else f"{file}: {what}"


def say(message: str) -> None:
    """An error, in one line; the exit code tells where nobody can read it."""
    _tell("error: ", "bold red", message)


def warn(message: str) -> None:
    """Something that went on, and may not be as it should, in one line."""
    _tell("warning: ", "bold yellow", message)


def _tell(kind: str, style: str, message: str) -> None:
    with suppress(OSError):
        for part in _in_lines(kind + printable(message), err):
            head = kind if part.startswith(kind) else ""
            err.print(Text.assemble((head, style), part[len(head) :]), soft_wrap=True)


def note(*lines: str) -> None:
    """Something beside the result; each text is one line, whatever is in it, broken between words
    where a terminal is narrow."""
    for line in lines:
        for part in _in_lines(printable(line), err):
            err.print(Text(part, style="dim"), soft_wrap=True)


def put(text: str) -> None:
    """A result that programs read as it is; on a terminal it is one line, whatever is in it."""
    print(printable(text) if sys.stdout.isatty() else text)
