"""What all commands have in common: exit codes, errors in one line, tables or JSON, logging.

Standard output carries the result and nothing else; errors, warnings, progress and logs go to
standard error. A traceback is shown with --debug only.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from arenite.errors import AreniteError, DoesNotFit
from arenite.memory.tables import printable

EXIT_DONE = 0
EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

EXIT_CODES = """\
Exit codes: 0 done · 1 the answer is no (a plan does not fit) · 2 bad usage or bad input ·
70 a fault in Arenite · 130 interrupted."""

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
        # No line is broken: a path can be copied.
        out.print(Text.assemble((f" {name:<{width}}", "bold"), f"  {value}"), soft_wrap=True)


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
    opened gets its number. What standard output has no character for becomes a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def exit_code_of(command: Callable[[], int], debug: bool) -> int:
    """Run a command; every error becomes one line on standard error and an exit code."""
    try:
        return command()
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; without this Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO
    except DoesNotFit as error:
        return _fail(error, EXIT_NO, debug)
    except (AreniteError, OSError) as error:
        return _fail(error, EXIT_BAD_INPUT, debug)
    except Exception as error:
        if debug:
            raise
        say(f"a fault in Arenite: {type(error).__name__}: {error}; --debug shows where")
        return EXIT_BUG


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
    """An error, in one line."""
    err.print(Text("error: ", style="bold red") + Text(printable(message)), soft_wrap=True)
