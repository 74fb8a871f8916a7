"""Cursor: numbers and strings out of a file, in order, each checked against the bytes left."""

from __future__ import annotations

import struct
from functools import cache
from typing import Literal, NoReturn

from arenite.device import Buffer
from arenite.errors import InvalidFile
from arenite.frontends.stored_tensor import quoted

ByteOrder = Literal["<", ">"]

#: Longest name of a key or a tensor, in bytes, as the format has it.
MAX_NAME_NBYTES = 65_535


_kind = cache(struct.Struct)


class Cursor:
    """A position in a file's bytes. `what` in each call names what is read, for the error."""

    __slots__ = ("data", "file", "order", "path", "position")

    def __init__(
        self, file: Buffer, data: memoryview, path: str, order: ByteOrder, position: int
    ) -> None:
        self.file = file
        self.data = data  # its bytes, mapped
        self.path = path
        self.order: ByteOrder = order
        self.position = position

    def section(self, start: int, end: int) -> bytes:
        """A copy of some bytes, for reading long after the file was opened: FileChanged where it is
        no longer what it was."""
        return self.file.view(start, end - start).copyout()

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, nbytes: int, what: str) -> int:
        """Step over bytes that must be there; returns where they start."""
        start = self.position
        if nbytes > self.left:
            self.fail(f"{what} needs {nbytes} bytes and {self.left} are left: cut short or damaged")
        self.position = start + nbytes
        return start

    def number(self, code: str, what: str) -> int | float:
        """One number, by its letter in the struct module."""
        kind = _kind(self.order + code)
        value: int | float = kind.unpack_from(self.data, self.take(kind.size, what))[0]
        return value

    def integer(self, code: str, what: str) -> int:
        return int(self.number(code, what))

    def count(self, what: str, least_nbytes: int, most: int) -> int:
        """How many things follow, of at least so many bytes each; never more than `most`."""
        start = self.position
        count = self.integer("Q", f"the number of {what}")
        if count * least_nbytes > self.left:
            self.fail(
                f"{count} {what} are announced, which take at least {least_nbytes} bytes each, "
                f"and {self.left} bytes are left",
                start,
            )
        if count > most:
            self.fail(f"{count} {what} are announced; at most {most} are read", start)
        return count

    def text(self, what: str, most_nbytes: int | None = None) -> str:
        start = self.position
        length = self.integer("Q", f"the length of {what}")
        if most_nbytes is not None and length > most_nbytes:
            self.fail(f"{what} has {length} bytes; at most {most_nbytes} are allowed", start)
        begin = self.take(length, what)
        try:
            return str(self.data[begin : begin + length], "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8: {error.reason} after {error.start} bytes", begin)

    def name(self, what: str) -> str:
        """The name of a key or tensor."""
        start = self.position
        name = self.text(what, MAX_NAME_NBYTES)
        if not name or "\0" in name:
            self.fail(f"{what} is {quoted(name)}, which can't be a name", start)
        return name

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        raise InvalidFile(f"{self.path}, byte {self.position if at is None else at}: {reason}")
