"""Random programs over states, run several times and judged by the reference: whatever reads the
old value and whatever writes the new one, states become what they should, by one thread or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, ir
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.tensor.state import State
from arenite.tensor.tracing import tracing

Array = NDArray[Any]

SHAPE = (6, 4)
N_RUNS = 3


class Program:
    """A function of x, rows and a position that does random things to three states."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.states = [State(SHAPE, "int64", name=name) for name in "abc"]
        self.kept: list[Tensor] = []

    def any_state(self) -> State:
        return self.states[self.rng.integers(len(self.states))]

    def any_value(self) -> Tensor:
        """One of a state as it is, or as it was."""
        if self.kept and self.rng.random() < 0.5:
            return self.kept[self.rng.integers(len(self.kept))]
        return self.any_state().value

    def step(self, x: Tensor, rows: Tensor, at: Tensor) -> None:
        state, value = self.any_state(), self.any_value()
        kind = self.rng.integers(10)
        if kind == 0:
            state.set(state.value + x)
        elif kind == 1:
            state.set(value)
        elif kind <= 4:
            state.write(rows, at=at)
        elif kind == 5:
            state.set(value.cumsum(0) % 1000)
        elif kind == 6:
            state.set(value - state.value.sum(axis=0) % 7)
        elif kind == 7:
            state.set((state.first(at).sum(axis=0) + value) % 1000)
        elif kind == 8:
            state.set(arenite.cond(at > 2, state.value, value + 1))
        else:
            state.set(arenite.fori_loop(at % 3, lambda i, v: v + i, value))
        self.kept.append(self.any_value() if self.rng.random() < 0.6 else value * 2 + x)

    def graph(self) -> Graph:
        specs = [
            arenite.spec(SHAPE, "int64"),
            arenite.spec((2, 4), "int64"),
            arenite.spec((), "int64"),
        ]
        given = [s.argument(name, k) for k, (s, name) in enumerate(zip(specs, "xra", strict=True))]
        with tracing() as traced:
            for _ in range(self.rng.integers(2, 9)):
                self.step(*given)
            outputs = [value for value in self.kept if self.rng.random() < 0.3]
            outputs += [state.value for state in self.states if self.rng.random() < 0.3]
        nodes = tuple(tensor.node for tensor in outputs)
        return Graph(tuple(one.node for one in given), nodes, (), updates=tuple(traced.updates))


@pytest.mark.parametrize("seed", [*range(40), 96])
def test_states_become_what_they_should(shared: None, seed: int) -> None:
    graph = Program(seed).graph()
    ir.verify(graph)
    rng = np.random.default_rng(seed)
    expected: dict[str, Array] = {}
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        for run in range(N_RUNS):
            given = [
                rng.integers(-99, 99, SHAPE),
                rng.integers(-99, 99, (2, 4)),
                np.asarray(rng.integers(0, 5)),
            ]
            watched = two.run_checked(*given)
            wanted = ir.evaluate(graph, given, states=expected)
            for made in (watched, one(*given), two(*given)):
                for a, b in zip(made, wanted, strict=True):
                    np.testing.assert_array_equal(a, b, f"run {run}")
            for executable in (one, two):
                executable.verify()
                for name, held in executable.state.items():
                    np.testing.assert_array_equal(held.numpy(), expected.get(name, 0), name)
