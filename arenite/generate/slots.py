"""Slots: which text each copy of a model's states holds, and who uses it.

A model has as many slots as its plan has room for. A session keeps the slot that it fed last until
another session takes it; what the two do not share is then computed again. So any number of
sessions is right, and as many as there are slots are quick. A text in the making claims its slot:
texts that are made at the same time wait, and don't take each other's in turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from arenite import locks

if TYPE_CHECKING:
    from arenite.generate.session import Session

#: A text that asked for no token for so long does not keep others waiting: whoever reads it may
#: never come back.
PATIENCE_SECONDS = 1.0
#: Between two looks at whether a slot is free; a token takes some milliseconds.
POLL_SECONDS = 0.002


class Slot:
    """One copy of the states."""

    __slots__ = ("claimant", "n_advances", "number", "owner", "thread", "tokens", "used_at")

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []  # whose keys and values it holds
        self.n_advances = 0  # how often tokens were fed, each time overwriting what was behind them
        self.owner: ReferenceType[Session] | None = None  # who fed it last
        self.claimant: ReferenceType[Session] | None = None  # whose text is in the making
        self.thread = 0  # of the claimant
        self.used_at = 0.0

    def is_free_for(self, session: Session) -> bool:
        """Whether no other session claims it."""
        claimant = None if self.claimant is None else self.claimant()
        return claimant is None or claimant is session

    def rests(self) -> bool:
        """Whether its claimant can't go on while this thread waits, or has not for long."""
        is_idle = time.monotonic() - self.used_at > PATIENCE_SECONDS
        return is_idle or self.thread == threading.get_ident()


class Slots:
    """Those of one model."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot(number) for number in range(count)]
        self._lock = locks.reentrant()

    def obtain(self, session: Session) -> Slot:
        """The slot for what a session feeds: its own, else the one that was used least recently,
        of those that no other text claims if there are any."""
        with self._lock:
            owned = self._owned(session)
            free = [owned] if owned else self._free_for(session) or self._slots
            return self._taken(session, free)

    @contextmanager
    def claimed(self, session: Session) -> Iterator[None]:
        """Keep a slot for a text in the making. Where others claim all of them, wait until one is
        given up or rests."""
        slot = self._claim(session)
        while slot is None:
            time.sleep(POLL_SECONDS)
            slot = self._claim(session)
        try:
            yield
        finally:
            if slot.claimant is not None and slot.claimant() is session:
                slot.claimant = None

    def _claim(self, session: Session) -> Slot | None:
        with self._lock:
            owned, free = self._owned(session), self._free_for(session)
            if owned in free:
                free = [owned]
            free = free or [slot for slot in self._slots if slot.rests()]
            if not free:
                return None
            slot = self._taken(session, free)
            slot.claimant, slot.thread = ref(session), threading.get_ident()
            return slot

    def forget(self) -> None:
        """Of what the states hold nothing is known."""
        with self._lock:
            for slot in self._slots:
                slot.tokens.clear()
                slot.owner = slot.claimant = None

    def _taken(self, session: Session, candidates: list[Slot]) -> Slot:
        slot = min(candidates, key=lambda one: one.used_at)
        slot.owner = ref(session)
        slot.used_at = time.monotonic()
        return slot

    def _owned(self, session: Session) -> Slot | None:
        owned = (one for one in self._slots if one.owner is not None and one.owner() is session)
        return next(owned, None)

    def _free_for(self, session: Session) -> list[Slot]:
        return [slot for slot in self._slots if slot.is_free_for(session)]
