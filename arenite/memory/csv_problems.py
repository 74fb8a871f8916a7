"""Placement problems as CSV: `id,lower,upper,size`, one value a row, in any order of columns.

Files come from strangers: every field is checked, line by line, and what is wrong is named with
its file, line and reason. Reading is bounded by MAX_ROWS and MAX_FILE_NBYTES.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from arenite.errors import FileMissing, InvalidFile
from arenite.memory.plan import MemoryPlan
from arenite.memory.values import MAX_NUMBER, Lifetime, Value

COLUMNS = ("id", "lower", "upper", "size")
MAX_ROWS = 2_000_000
MAX_FILE_NBYTES = 256 * 2**20
MAX_ID_LENGTH = 1000

_WHOLE = re.compile(r"\s*([+-]?)0*([0-9]+)\s*", re.ASCII)


def read_csv(path: Path) -> list[Value]:
    """The values of a problem, without alignment, all in the work region."""
    if not path.exists():
        raise FileMissing(f"{path}: no such file")
    if not path.is_file():
        raise InvalidFile(f"{path}: not a regular file")
    nbytes = path.stat().st_size
    if nbytes > MAX_FILE_NBYTES:
        raise InvalidFile(f"{path}: {nbytes} bytes are more than the {MAX_FILE_NBYTES} read here")
    values: list[Value] = []
    seen: set[str] = set()
    total = 0
    for line, row, columns in _rows(path):
        where = f"{path} line {line}"
        name = row[columns["id"]].strip()
        if not name or len(name) > MAX_ID_LENGTH:
            raise InvalidFile(f"{where}: an id has 1 to {MAX_ID_LENGTH} characters")
        if name in seen:
            raise InvalidFile(f"{where}: id {name!r} stands on an earlier line already")
        seen.add(name)
        lower, upper, size = (_number(row[columns[c]], c, where) for c in COLUMNS[1:])
        if upper < lower:
            raise InvalidFile(f"{where}: upper {upper} is before lower {lower}")
        total += size
        if total > MAX_NUMBER:
            raise InvalidFile(f"{where}: all sizes so far add up to more than {MAX_NUMBER}")
        if len(values) == MAX_ROWS:
            raise InvalidFile(f"{where}: more than the {MAX_ROWS} rows read here")
        values.append(Value(name, size, Lifetime(lower, upper), alignment=1))
    if not values:
        raise InvalidFile(f"{path}: no rows below the header: nothing to place")
    return values


def write_csv(problem: Path, plan: MemoryPlan, out: Path) -> None:
    """The problem's own rows, with the plan's offsets in a column `offset`. A file is written whole
    or not; links, pipes and devices stay what they are, and are written to.

    The problem is read a second time instead of being kept in memory.
    """
    if out.is_symlink() or (out.exists() and not out.is_file()):
        with out.open("w", encoding="utf-8", newline="") as file:
            _write_rows(problem, plan, file)
        return
    draft = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            _write_rows(problem, plan, file)
        draft.replace(out)
    except OSError as error:
        if isinstance(error, InvalidFile) or str(error.filename or draft) != str(draft):
            raise
        raise OSError(error.errno, error.strerror, str(out)) from None  # the file that was meant
    finally:
        draft.unlink(missing_ok=True)


def _write_rows(problem: Path, plan: MemoryPlan, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    header_written = False
    for line, row, columns in _rows(problem):
        if not header_written:
            names = [name for name in columns if name != "offset"]
            writer.writerow([*names, "offset"])
            header_written = True
        slot = plan.slots.get(row[columns["id"]].strip())
        if slot is None:
            raise InvalidFile(f"{problem} line {line}: the file changed while it was used")
        writer.writerow([*(row[columns[name]] for name in names), slot.offset])


def _rows(path: Path) -> Iterator[tuple[int, list[str], dict[str, int]]]:
    """(line number, fields, position of each column) for every row below the header."""
    columns: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if not row:
                    continue
                if not columns:
                    columns = _header(row, path)
                    continue
                if len(row) != len(columns):
                    raise InvalidFile(
                        f"{path} line {reader.line_num}: {len(row)} fields where the header has "
                        f"{len(columns)}"
                    )
                yield reader.line_num, row, columns
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: not a CSV: byte {error.start} is not UTF-8 text") from None
    except csv.Error as error:
        raise InvalidFile(f"{path} line {reader.line_num}: not a CSV: {error}") from None
    if not columns:
        raise InvalidFile(
            f"{path}: empty: the first line must name the columns {','.join(COLUMNS)}"
        )


def _header(row: list[str], path: Path) -> dict[str, int]:
    names = [name.strip() for name in row]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise InvalidFile(
            f"{path} line 1: no column {missing[0]!r}; the header must name "
            f"{', '.join(COLUMNS)}, and reads {','.join(row)[:200]!r}"
        )
    if len(set(names)) != len(names):
        raise InvalidFile(f"{path} line 1: two columns have the same name")
    return {name: k for k, name in enumerate(names)}


def _number(text: str, column: str, where: str) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise InvalidFile(f"{where}: {column} {text[:60]!r} is not a whole number")
    sign, digits = match.groups()
    if sign == "-" and digits != "0":
        raise InvalidFile(f"{where}: {column} {text[:60].strip()} is negative")
    if len(digits) > 19 or int(digits) > MAX_NUMBER:
        raise InvalidFile(f"{where}: {column} {text[:60].strip()} is over {MAX_NUMBER}")
    return int(digits)
