"""Meter: what a render may still use, in steps of time and in bytes of memory.

A step is one operation, or 256 characters of one: about half a microsecond. Bytes are those of the
values that are alive: what was alive when it was last counted, and all that was made since. They
are small beside what a process may take above its plan, so that a render needs no place in it; more
of them are given for what the caller gives.
"""

from __future__ import annotations

import weakref
from typing import Any

BASE_STEPS = 2**20
STEPS_PER_BYTE = 4  # of what is given
BASE_NBYTES = 2**22
NBYTES_PER_BYTE = 16
BASE_LENGTH = 2**20  # characters of what is rendered: all of it is made into tokens
LENGTH_PER_BYTE = 8
STEP_SIZE = 256  # characters that one step pays for


class OverBudget(Exception):
    """A template that would take more steps or more memory than it may."""


class _Ref(weakref.ref[Any]):
    """A weak reference that is equal to itself alone."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Meter:
    """Steps and bytes that are left; more are given for larger conversations."""

    __slots__ = ("_alive", "_bound", "_kept", "max_length", "max_nbytes", "steps")

    def __init__(self) -> None:
        """One without limits, to count what is given."""
        self.steps = self.max_nbytes = self.max_length = 2**62
        self._bound = 0  # no more than this is alive
        self._kept = 0  # never given back
        # By the number of bits of their sizes. Entries go by a function of C's: a `__del__` would
        # swallow the KeyboardInterrupt that comes while it runs.
        self._alive: tuple[set[_Ref], ...] = tuple(set() for _ in range(64))

    def limit(self) -> None:
        """Set the limits by what was made so far; that itself counts no more."""
        given, self._bound, self._kept = self._bound, 0, 0
        for alive in self._alive:
            alive.clear()
        self.steps = BASE_STEPS + STEPS_PER_BYTE * given
        self.max_nbytes = BASE_NBYTES + NBYTES_PER_BYTE * given
        self.max_length = BASE_LENGTH + LENGTH_PER_BYTE * given

    @property
    def is_large(self) -> bool:
        """Whether much of what may be used at once was."""
        return self._bound > BASE_NBYTES // 2

    def spend(self, size: int = 0) -> None:
        """Pay for an operation on so many characters."""
        self.steps -= 1 + size // STEP_SIZE
        if self.steps < 0:
            raise OverBudget("takes more steps than any conversation needs")

    def need(self, nbytes: int) -> None:
        """Refuse what is about to be made when there is no room for it."""
        if self._bound + nbytes > self.max_nbytes:
            self._count()
            if self._bound + nbytes > self.max_nbytes:
                raise OverBudget(f"takes over {self.max_nbytes} bytes of memory")

    def take(self, owner: object, nbytes: int) -> None:
        """Count a new value's bytes for as long as it lives."""
        self.need(nbytes)
        self._bound += nbytes
        alive = self._alive[nbytes.bit_length()]
        alive.add(_Ref(owner, alive.discard))

    def keep(self, nbytes: int) -> None:
        """Count bytes to the end of the render."""
        self.need(nbytes)
        self._bound += nbytes
        self._kept += nbytes

    def _count(self) -> None:
        self._bound = self._kept + sum(
            len(alive) << n_bits for n_bits, alive in enumerate(self._alive) if alive
        )
