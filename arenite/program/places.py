"""Where the values of a program lie, for one plan: columns by number of the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.memory import ValueId
from arenite.program.steps import Pointer

Numbers = NDArray[np.int64]
#: In the columns: not there.
NOWHERE = -1


class Place(NamedTuple):
    """Where a value lives: bytes of the arena, an address of its own in an io register, or, where
    it has neither, the bytes of the values it points to."""

    nbytes: int
    offset: int | None  # in the arena; None: outside
    io: int | None = None  # which of the io addresses
    targets: tuple[ValueId, ...] = ()


class Places(Mapping[ValueId, Place]):
    """All of them; a Place is made where one is asked for."""

    __slots__ = ("io", "nbytes", "offset", "pointers")

    def __init__(
        self, nbytes: Numbers, offset: Numbers, io: Numbers, pointers: Mapping[ValueId, Pointer]
    ) -> None:
        self.nbytes = nbytes
        self.offset = offset  # NOWHERE: outside of the arena
        self.io = io  # NOWHERE: no address of its own
        self.pointers = pointers

    @classmethod
    def outside(cls, nbytes: list[int]) -> Places:
        """Values that all have an address of their own."""
        n = len(nbytes)
        return cls(np.array(nbytes, np.int64), np.full(n, NOWHERE), np.arange(n), {})

    def __getitem__(self, value: ValueId) -> Place:
        number = int(value)
        if not 0 <= number < len(self.nbytes):
            raise KeyError(value)
        offset, io = int(self.offset[number]), int(self.io[number])
        if offset == io == NOWHERE:
            return Place(0, None, targets=self.pointers[number].targets)
        return Place(
            int(self.nbytes[number]),
            None if offset == NOWHERE else offset,
            None if io == NOWHERE else io,
        )

    def __iter__(self) -> Iterator[ValueId]:
        return iter(range(len(self.nbytes)))

    def __len__(self) -> int:
        return len(self.nbytes)
