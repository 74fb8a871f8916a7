"""The states of a function that is compiled for several values: one of each name.

Every variant has bytes of its own for a state; those of the variant that ran last count. Before
another one runs they are copied to it, and while it runs no other may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arenite import locks
from arenite.errors import InvalidArgument
from arenite.ir.node import typed
from arenite.runtime.state import States
from arenite.runtime.variants import Variant


class VariantStates:
    """Which variant has each state as it is now."""

    def __init__(self) -> None:
        self._owners: dict[str, Variant] = {}
        # Held during a run; a signal handler may call on the thread that has it.
        self._lock = locks.reentrant()

    def join(self, variant: Variant) -> Variant:
        """A variant that was just compiled; InvalidArgument where a state has another type."""
        states = variant.executable.state
        for name, one in states.items():
            owner = self._owners.get(name)
            if owner is None:
                continue
            other = owner.executable.state[name]
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                variant.executable.close()
                raise InvalidArgument(
                    f"state {name!r} is {typed(one.shape, one.dtype)} for {variant.values} and "
                    f"{typed(other.shape, other.dtype)} for {owner.values}; all variants of a "
                    "function have one state of a name: give one of them another name"
                )
        variant.state_names = tuple(states)
        for name in states:
            self._owners.setdefault(name, variant)
        return variant

    @contextmanager
    def lent_to(self, variant: Variant) -> Iterator[None]:
        """Around a run of a variant: it has the states as they are now."""
        if not variant.state_names:
            yield
            return
        with self._lock:
            for name in variant.state_names:
                owner = self._owners[name]
                if owner is not variant:
                    current = owner.executable.state[name].numpy()
                    variant.executable.state[name].load(current)
                    self._owners[name] = variant
            yield

    @property
    def states(self) -> States:
        """All there are, by name."""
        return States([owner.executable.state[name] for name, owner in self._owners.items()])

    def clear(self) -> None:
        """Make all of them zero."""
        with self._lock:
            for one in self.states.values():
                one.clear()

    def close(self) -> None:
        """Close what has states; variants that are no longer kept among them."""
        for owner in self._owners.values():
            owner.executable.close()
