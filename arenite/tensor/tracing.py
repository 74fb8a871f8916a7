"""States while a function is traced: what each is by now, in branches and in the bodies of loops.

function     a state is at first what the last call left
side         of a branch: at first what it was before; what the sides make of it is chosen
body         of a loop: at first a parameter; what the body sets, the loop carries
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from arenite.errors import InvalidArgument
from arenite.ir import Node, make, parameter, topological
from arenite.ir.growing_loop import Carried
from arenite.ir.regions import rebuilt

if TYPE_CHECKING:
    from arenite.tensor.state import State


class Scope:
    """A function, or the body of a loop in `outer`: states as they enter it and as they are now."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.current: dict[State, Node] = {}
        self._entering: dict[State, Node] = {}

    def value(self, state: State) -> Node:
        """The state as it is by now."""
        if state not in self.current:
            self.current[state] = self.entry(state)
        return self.current[state]

    def entry(self, state: State) -> Node:
        """The state as it enters."""
        if state not in self._entering:
            if self.outer is None:
                if any(other.name == state.name for other in self._entering):
                    raise InvalidArgument(f"two states of one function are called {state.name!r}")
                self._entering[state] = state.node
            else:
                self.outer.value(state)
                self._entering[state] = parameter(state.node.shape, state.node.dtype)
        return self._entering[state]

    def carried(self) -> dict[State, Carried]:
        """Of a body: the states that it sets."""
        assert self.outer is not None
        return {
            state: Carried(self.outer.value(state), entry, self.value(state))
            for state, entry in self._entering.items()
            if self.value(state) is not entry
        }

    def unchanged(self) -> dict[Node, Node]:
        """Of a body: parameters of states that it only reads, and what they are outside."""
        assert self.outer is not None
        return {
            entry: self.outer.value(state)
            for state, entry in self._entering.items()
            if self.value(state) is entry
        }

    @property
    def updates(self) -> list[tuple[Node, Node]]:
        """Of a function: (state, value) for those that become something else."""
        for state, value in self.current.items():
            if any(node.op == "parameter" for node in topological([value])):
                raise InvalidArgument(
                    f"{state} becomes a value of the body of a loop, which has no number outside; "
                    "set it in the body, or let the loop return the value"
                )
        return [(one.node, value) for one, value in self.current.items() if value is not one.node]


_scope: ContextVar[Scope | None] = ContextVar("_scope", default=None)


def scope() -> Scope | None:
    """The one that is being traced."""
    return _scope.get()


@contextmanager
def _entered(made: Scope | None) -> Iterator[None]:
    token = _scope.set(made)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def tracing() -> Iterator[Scope]:
    """Around the call of a function that is being traced."""
    inner = Scope()
    with _entered(inner):
        yield inner


@contextmanager
def tracing_body() -> Iterator[Scope | None]:
    """Around the call of a body; None where no function is traced, so that there are no states."""
    outer = scope()
    inner = None if outer is None else Scope(outer)
    with _entered(inner):
        yield inner


@contextmanager
def without_states() -> Iterator[None]:
    """Around a function that is traced by itself."""
    with _entered(None):
        yield


@contextmanager
def side(before: Mapping[State, Node]) -> Iterator[dict[State, Node]]:
    """Around the call of one side of a branch: what states are behind it; they are as before then.
    `before` is `values_now()`."""
    inside = scope()
    after: dict[State, Node] = {}
    try:
        yield after
    finally:
        if inside is not None:
            after |= inside.current
            inside.current = dict(before)


def values_now() -> dict[State, Node]:
    """What the states are by now that were used so far."""
    inside = scope()
    return {} if inside is None else dict(inside.current)


def replace_values(mapping: Mapping[Node, Node]) -> None:
    """Put nodes in the place of others in what the states are by now."""
    inside = scope()
    if inside is not None:
        new = rebuilt(inside.current.values(), mapping)
        inside.current = {state: new[value] for state, value in inside.current.items()}


def choose_states(condition: Node, one: Mapping[State, Node], other: Mapping[State, Node]) -> None:
    """States become what the side that is taken makes of them."""
    inside = scope()
    for state in {**one, **other}:
        assert inside is not None
        yes, no = (side.get(state, inside.value(state)) for side in (one, other))
        inside.current[state] = yes if yes is no else make("if", condition, yes, no)
