"""What a launch touches: half-open byte ranges of storages, each read or written.

In comes where a kernel reads and writes (a buffer and a role, or plain numbers); out come values
that compare, print and say whether two of them conflict. Ranges are strictly half-open:

    [0, 64) and [64, 128) touch and do not conflict, in either direction;
    [64, 64) is empty and conflicts with nothing, also inside another range.

Undeclared is not none. A launch whose ranges are `None` may touch anything, so it conflicts with
every other launch, also with one that declares an empty list; a launch with an empty list touches
nothing and conflicts only with undeclared ones.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Protocol

from arenite.errors import InvalidArgument


class Role(Enum):
    """What a launch does with a range."""

    READ = "read"
    WRITE = "write"


class HazardKind(Enum):
    """Why two launches must be ordered, seen from the later one."""

    RAW = "read after write"
    WAR = "write after read"
    WAW = "write after write"
    UNDECLARED = "undeclared ranges"


class ByteView(Protocol):
    """What a buffer or a view of one has to say about its bytes."""

    @property
    def storage_id(self) -> int:
        """The allocation it lies in."""
        ...

    @property
    def offset(self) -> int:
        """First byte within the storage, whatever the views in between."""
        ...

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class BufferRange:
    """The bytes [start, end) of one storage, read or written."""

    storage_id: int
    start: int
    end: int
    role: Role

    def __post_init__(self) -> None:
        # A role of another type would be neither a read nor a write, and conflict with nothing.
        if type(self.role) is not Role:
            raise InvalidArgument(
                f"{self.role!r} is no role of bytes [{self.start}, {self.end}) of storage "
                f"{self.storage_id}: say Role.READ or Role.WRITE"
            )
        for number in (self.storage_id, self.start, self.end):
            if type(number) is not int and not isinstance(number, Integral):
                raise InvalidArgument(
                    f"bytes [{self.start!r}, {self.end!r}) of storage {self.storage_id!r} are no "
                    f"range: {number!r} is not a whole number"
                )
        if not 0 <= self.start <= self.end:
            raise InvalidArgument(
                f"bytes [{self.start}, {self.end}) of storage {self.storage_id} are no range: "
                "0 <= start <= end must hold"
            )

    @classmethod
    def of(cls, buffer: ByteView, role: Role) -> BufferRange:
        """All bytes of a buffer or view; siblings share the storage id and differ in bytes."""
        return cls(buffer.storage_id, buffer.offset, buffer.offset + buffer.nbytes, role)

    @property
    def is_empty(self) -> bool:
        """Whether it has no byte."""
        return self.start == self.end

    def overlaps(self, other: BufferRange) -> bool:
        """Whether at least one byte lies in both."""
        return self.storage_id == other.storage_id and (
            max(self.start, other.start) < min(self.end, other.end)
        )

    def conflicts_with(self, other: BufferRange) -> bool:
        """Whether both touch a byte that at least one of them writes."""
        return self.overlaps(other) and Role.WRITE in (self.role, other.role)

    def __repr__(self) -> str:
        return f"<{self.role.value} storage {self.storage_id} [{self.start}, {self.end})>"


def check_ranges(ranges: Collection[BufferRange]) -> None:
    """InvalidArgument unless these are ranges that can be looked at more than once.

    An iterator is empty the second time: a launch checked with one and then added would open
    nothing, and nobody would wait for it.
    """
    if not isinstance(ranges, Collection):
        raise InvalidArgument(
            f"the ranges of a launch are a {type(ranges).__name__}, which can't be looked at "
            "twice: hand over a list or a tuple of BufferRange, or None where they are not known"
        )
    for touched in ranges:
        if not isinstance(touched, BufferRange):
            raise InvalidArgument(
                f"the ranges of a launch are BufferRange, not {touched!r}; BufferRange.of(buffer, "
                "role) makes one"
            )


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: a name for people, and what it touches (`None` = undeclared)."""

    name: str
    ranges: tuple[BufferRange, ...] | None

    def __post_init__(self) -> None:
        if self.ranges is not None:
            check_ranges(self.ranges)

    def conflicts_with(self, other: Launch) -> bool:
        """Whether the two may not run side by side."""
        if self.ranges is None or other.ranges is None:
            return True
        return any(mine.conflicts_with(theirs) for mine in self.ranges for theirs in other.ranges)
