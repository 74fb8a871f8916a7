"""Texts that a command reads: from standard input or a file, decoded, within bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from arenite.errors import InvalidArgument

#: Bytes of a prompt, a schema or the like: far more than any model reads.
MOST_NBYTES = 64 * 2**20


def standard_input(name: str) -> str:
    """All of standard input, in place of the argument of that name."""
    if sys.stdin.isatty():
        raise InvalidArgument(f"no {name} is given and nothing is piped in; name one of them")
    return _decoded(sys.stdin.buffer, "standard input").removesuffix("\n")


def read(file: Path) -> str:
    with file.open("rb") as opened:
        return _decoded(opened, str(file))


def _decoded(file: BinaryIO, source: str) -> str:
    content = file.read(MOST_NBYTES + 1)
    if len(content) > MOST_NBYTES:
        raise InvalidArgument(f"{source} has more than the {MOST_NBYTES} bytes that are read")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{source} is not UTF-8: {error.reason} at byte {error.start}"
        ) from None
