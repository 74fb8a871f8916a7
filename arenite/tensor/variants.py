"""Variants: one function, compiled once for each set of values that decide its structure.

In: values, and a way to compile for them. Out: a Variant, compiled at the first call that brings
the values and kept; of those kept too many the least recently used goes. Counted, and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arenite import locks
from arenite.errors import RunFailed
from arenite.memory.html import html_table
from arenite.memory.tables import aligned

if TYPE_CHECKING:
    from arenite.runtime.executable import Executable

#: Sets of values for which a function is kept compiled.
MAX_VARIANTS = 16


@dataclass(eq=False, slots=True)
class Variant:
    """The program for one set of values."""

    values: tuple[Any, ...]
    executable: Executable
    structure: Any  # of what the function returned, for `structure.put_together`
    state_names: tuple[str, ...] = ()
    n_calls: int = 0
    last_use: int = 0  # counted over all variants
    _lock: locks.ReentrantLock = field(default_factory=locks.reentrant, init=False, repr=False)

    def count_call(self) -> None:
        with self._lock:
            self.n_calls += 1


@dataclass(frozen=True, slots=True)
class Variants(Sequence[Variant]):
    """What was kept at a moment, the variant used last first."""

    kept: tuple[Variant, ...]
    n_compiled: int
    n_dropped: int

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, k: Any) -> Any:
        return self.kept[k]

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.kept)

    def _rows(self) -> list[list[str]]:
        return [["values", "calls", "kernels", "arena bytes"]] + [
            [
                ", ".join(map(repr, one.values)),
                str(one.n_calls),
                str(len(one.executable.kernels)),
                str(one.executable.plan.peak_nbytes),
            ]
            for one in self.kept
        ]

    def _repr_html_(self) -> str:
        return html_table(self._rows(), range(1, 4))

    def __str__(self) -> str:
        return (
            aligned(self._rows(), {1, 2, 3})
            + f"\n\n{self.n_compiled} compiled, {self.n_dropped} dropped, {len(self)} kept of at "
            f"most {MAX_VARIANTS}"
        )


class VariantCache:
    """Variants by value. One compile for a value, however many threads bring it."""

    def __init__(
        self, compile_for: Callable[[tuple[Any, ...]], Variant], most: int | None = None
    ) -> None:
        """`most` of them are kept, where not as many as usual are."""
        self._compile_for = compile_for
        self._most = most
        self._kept: dict[str, Variant] = {}
        self._n_uses = self._n_compiled = self._n_dropped = 0
        self._is_closed = False
        # Around the books; a signal handler may call on the thread that has it.
        self._lock = locks.reentrant()
        self._compiling = locks.reentrant()

    def obtain(self, values: tuple[Any, ...]) -> Variant:
        """The variant for these values, compiled if it is not there."""
        # Text tells 1, 1.0 and True apart, and -0.0 from 0.0.
        key = repr(values)
        found = self._find(key)
        if found is None:
            with self._compiling:
                found = self._find(key)
                if found is None:
                    self._make_room()
                    found = self._keep(key, self._compile_for(values))
        return found

    def has(self, values: tuple[Any, ...]) -> bool:
        """Whether there is a variant for these values now."""
        with self._lock:
            return repr(values) in self._kept

    def snapshot(self) -> Variants:
        with self._lock:
            kept = sorted(self._kept.values(), key=lambda one: -one.last_use)
            return Variants(tuple(kept), self._n_compiled, self._n_dropped)

    def close(self) -> None:
        """Close all that are kept, and compile no more. Called from within a run of one it raises,
        as that one does, and nothing is closed that is needed."""
        with self._lock:
            self._is_closed = True
            kept = [*self._kept.items()]
        closed = []
        try:
            for key, one in kept:
                one.executable.close()
                closed.append(key)
        except RunFailed:
            with self._lock:
                self._is_closed = False
                for key in closed:
                    self._kept.pop(key, None)
            raise

    def _find(self, key: str) -> Variant | None:
        with self._lock:
            if self._is_closed:
                raise RunFailed("this function was closed; compile it again")
            found = self._kept.get(key)
            if found is not None:
                self._n_uses += 1
                found.last_use = self._n_uses
            return found

    def _keep(self, key: str, made: Variant) -> Variant:
        with self._lock:
            if self._is_closed:
                made.executable.close()
                raise RunFailed("this function was closed while it was compiled")
            self._n_uses += 1
            made.last_use = self._n_uses
            self._kept[key] = made
            self._n_compiled += 1
        return made

    def _make_room(self) -> None:
        """For one more: before it is compiled, so that not even for a moment there are too many."""
        most = MAX_VARIANTS if self._most is None else self._most
        with self._lock:
            while len(self._kept) >= most:
                # Not closed: another thread may be about to run it. It goes with its last user.
                del self._kept[min(self._kept, key=lambda key: self._kept[key].last_use)]
                self._n_dropped += 1
