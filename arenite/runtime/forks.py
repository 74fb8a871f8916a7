"""What a forked process does first: locks that threads of its parent held are made anew."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something with locks. In the child none of the parent's other threads will let go of them."""

    def forget_after_fork(self) -> None: ...


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(one: Forked) -> None:
    """Call `one.forget_after_fork()` in every process forked while it lives."""
    _watched.add(one)


def _forget_after_fork() -> None:
    for one in list(_watched):
        one.forget_after_fork()


os.register_at_fork(after_in_child=_forget_after_fork)
