"""Variants: one function, compiled once for each set of values that decide its structure.

In: values, and a way to compile for them. Out: a Variant, compiled at the first call that brings
the values and kept; of those kept too many the least recently used goes. Counted, and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from arenite import locks
from arenite.errors import RunFailed

if TYPE_CHECKING:
    from arenite.runtime.compiled_program import CompiledProgram

#: Sets of values for which a function is kept compiled.
MAX_VARIANTS = 16


class Variant:
    """The program for one set of values."""

    def __init__(
        self,
        values: tuple[Any, ...],
        executable: CompiledProgram,
        structure: Any,
        state_names: tuple[str, ...] = (),
    ) -> None:
        self.values = values
        self.executable = executable
        self.structure = structure  # of what the function returned, for `structure.unflatten`
        self.state_names = state_names
        self.n_calls = 0
        self.last_use = 0  # counted over all variants
        self._lock = locks.reentrant()

    def __repr__(self) -> str:
        return f"<Variant {self.values!r}: {self.n_calls} calls>"

    def count_call(self) -> None:
        with self._lock:
            self.n_calls += 1


class Variants(Sequence[Variant]):
    """What was kept at a moment, the variant used last first."""

    def __init__(self, kept: tuple[Variant, ...], n_compiled: int, n_dropped: int) -> None:
        self.kept, self.n_compiled, self.n_dropped = kept, n_compiled, n_dropped

    def __repr__(self) -> str:
        return f"<Variants: {len(self.kept)} kept, {self.n_compiled} compiled>"

    def __len__(self) -> int:
        return len(self.kept)

    @overload
    def __getitem__(self, k: int) -> Variant: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[Variant, ...]: ...
    def __getitem__(self, k: int | slice) -> Variant | tuple[Variant, ...]:
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
        from arenite.memory.html import html_table

        return html_table(self._rows(), range(1, 4))

    def __str__(self) -> str:
        from arenite.memory.tables import aligned

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
        variant = self._find(key)
        if variant is None:
            with self._compiling:
                variant = self._find(key)
                if variant is None:
                    self._make_room()
                    variant = self._keep(key, self._compile_for(values))
        return variant

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
            variant = self._kept.get(key)
            if variant is not None:
                self._n_uses += 1
                variant.last_use = self._n_uses
            return variant

    def _keep(self, key: str, variant: Variant) -> Variant:
        with self._lock:
            if self._is_closed:
                variant.executable.close()
                raise RunFailed("this function was closed while it was compiled")
            self._n_uses += 1
            variant.last_use = self._n_uses
            self._kept[key] = variant
            self._n_compiled += 1
        return variant

    def _make_room(self) -> None:
        """For one more: before it is compiled, so that not even for a moment there are too many."""
        most = MAX_VARIANTS if self._most is None else self._most
        with self._lock:
            while len(self._kept) >= most:
                # Not closed: another thread may be about to run it. It goes with its last user.
                del self._kept[min(self._kept, key=lambda key: self._kept[key].last_use)]
                self._n_dropped += 1
