"""Conversation: what was said, and the part of it that fits the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from arenite.errors import InvalidArgument

Message: TypeAlias = dict[str, str]  # "role" and "content", as chat templates take them


class Conversation:
    """Messages in the order they came; a system message stays in front."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[Message] = []
        self._first = 0  # the first turn that is still told

    @property
    def messages(self) -> list[Message]:
        return self._system + self.turns

    def say(self, role: str, content: str) -> None:
        self.turns.append({"role": role, "content": content})

    def take_back(self) -> None:
        """Forget the last message."""
        self.turns.pop()

    def clear(self) -> None:
        self.turns.clear()
        self._first = 0

    def fitting(
        self, encode: Callable[[Sequence[Message]], list[int]], n_tokens: int
    ) -> tuple[list[int], int]:
        """The tokens of as many of the latest messages as fit, and how many are left out.

        What is left out are the oldest turns, each with all its answers; the system message and
        the last turn stay. They are left out until half the place is free, and for good: so the
        next turns begin as this one does, and a session need not read them again.
        """
        starts = [at for at, turn in enumerate(self.turns) if turn["role"] == "user"] or [0]
        place = n_tokens
        for start in (at for at in starts if at >= self._first):
            tokens = encode(self._system + self.turns[start:])
            if len(tokens) <= (n_tokens if start == starts[-1] else place):
                self._first = start
                return tokens, start
            place = n_tokens // 2
        raise InvalidArgument(
            f"the last message makes {len(tokens)} tokens and there is place for {n_tokens}; "
            "shorten it, or load the model with a longer context"
        )

    @property
    def _system(self) -> list[Message]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]
