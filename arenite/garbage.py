"""Python's garbage collector, which looks for cycles less often while a program is made or loaded.

A program is made of very many objects that live until it is there, and hardly any cycles; so are
the modules that do it. The collector would look at all of them again and again, the more of them
there are: a third of the time for a graph of 50,000 nodes, a tenth of a warm load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from arenite import locks

#: New objects after which the collector looks at them, while a program is made.
OBJECTS_A_LOOK = 100_000


class _Pace:
    """How often the collector looks, and who is making programs."""

    def __init__(self) -> None:
        self._lock = locks.reentrant()
        self._makers: list[int] = []  # threads, once for each program
        self._usual = self._slow = gc.get_threshold()
        locks.watch(self)

    def slow_down(self) -> None:
        with self._lock:
            self._makers.append(get_ident())
            if len(self._makers) == 1:
                self._usual = gc.get_threshold()
                first, *others = self._usual
                if 0 < first < OBJECTS_A_LOOK:  # 0: it never looks
                    gc.set_threshold(OBJECTS_A_LOOK, *others)
                self._slow = gc.get_threshold()

    def go_on(self) -> None:
        with self._lock:
            self._makers.remove(get_ident())
            self._restore()

    def _restore(self) -> None:
        """The usual thresholds, once no program is made, and unless somebody else set others. The
        collector would look at all that was made as soon as they hold again; so all objects count
        as old from here on, which it does with those that survive its looks."""
        if not self._makers and gc.get_threshold() == self._slow:
            if self._slow != self._usual and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.set_threshold(*self._usual)

    def forget_after_fork(self) -> None:
        """Programs that other threads were making are not made here."""
        if self._makers:
            self._makers = [one for one in self._makers if one == get_ident()]
            self._restore()


_pace = _Pace()


@contextmanager
def collected_less_often() -> Iterator[None]:
    """While this lasts, on any thread, the collector looks at many new objects at once."""
    _pace.slow_down()
    try:
        yield
    finally:
        _pace.go_on()
