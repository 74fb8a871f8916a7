"""Locks that survive a fork, for the whole package.

A process forked while another thread holds a lock has that lock taken, and no thread that would
ever let go of it. So every lock of the package is made here: in the child those of other threads
are free again, and what they guarded is told (`watch`), to put itself in order. Locks that the
forking thread holds itself stay held: it goes on in the child, and lets go of them.

Locks are reentrant: a signal handler or a finaliser may run at any line, also on the thread that
holds the lock, and must never wait for itself. What cannot be entered twice says so (`Turn`).
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from arenite.errors import RunFailed

if TYPE_CHECKING:
    from _thread import RLock

ReentrantLock: TypeAlias = "RLock"


class Forked(Protocol):
    """Something whose state may be that of another thread in the middle of its work."""

    def forget_after_fork(self) -> None: ...


_reentrant: weakref.WeakSet[ReentrantLock] = weakref.WeakSet()
_exclusive: weakref.WeakSet[Any] = weakref.WeakSet()
_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def reentrant() -> ReentrantLock:
    """A lock that its own thread may take again."""
    lock = threading.RLock()
    _reentrant.add(lock)
    return lock


def exclusive() -> threading.Lock:
    """A lock that nobody may take again, for those who never wait: `acquire(blocking=False)`."""
    lock = threading.Lock()
    _exclusive.add(lock)
    return lock


def watch(one: Forked) -> None:
    """Call `one.forget_after_fork()` in every process forked while it lives, once locks are free
    there."""
    _watched.add(one)


def is_mine(lock: ReentrantLock) -> bool:
    """Whether this thread holds the lock."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]  # as threading.Condition asks it


class Turn:
    """`with turn.take():` to be alone; other threads wait. Taken a second time on its own thread it
    raises RunFailed, which begins with `what` (the subject of the sentence)."""

    __slots__ = ("__weakref__", "_is_taken", "_lock", "_what", "was_cut_short")

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = reentrant()
        self._is_taken = False
        #: In a forked process: whether another thread of its parent was in the middle of a turn.
        self.was_cut_short = False
        watch(self)

    @contextmanager
    def take(self) -> Iterator[None]:
        with self._lock:
            if self._is_taken:
                raise RunFailed(
                    f"{self._what} is busy on this very thread: a signal handler or a finaliser "
                    "that runs in the middle of a call can't begin another; do it afterwards"
                )
            try:
                self._is_taken = True
                yield
            finally:
                self._is_taken = False

    def forget_after_fork(self) -> None:
        if self._is_taken and not is_mine(self._lock):
            self._is_taken, self.was_cut_short = False, True


def _free_after_fork() -> None:
    # As the standard library does with locks of its own.
    for lock in [*_reentrant, *_of_cached_properties()]:
        if not is_mine(lock):
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    for held in list(_exclusive):
        held._at_fork_reinit()
    for one in list(_watched):
        one.forget_after_fork()


def _of_cached_properties() -> Iterator[ReentrantLock]:
    """Before Python 3.12 each has a lock, which is held while any object's value is computed."""
    if sys.version_info >= (3, 12):
        return
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "arenite":
            for kind in [one for one in vars(module).values() if isinstance(one, type)]:
                for member in vars(kind).values():
                    if isinstance(member, cached_property):
                        yield cast(Any, member).lock


def _finish_imports() -> None:
    """Wait until other threads have imported what they are importing of the package: in a forked
    process Python's own lock of such a module would be held for ever."""
    for name, module in list(sys.modules.items()):
        is_own = name.partition(".")[0] == "arenite"
        if is_own and getattr(module.__spec__, "_initializing", False):
            with suppress(Exception):  # it is told to the thread that imports it
                importlib.import_module(name)


os.register_at_fork(before=_finish_imports, after_in_child=_free_after_fork)
