"""Sizes not seen before: waits are taken over from other sizes only where they suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Var
from arenite.hazards import order
from arenite.runtime import assemble


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many launches were put in order, each time that was done."""
    found: list[int] = []

    def counting(launches: Any) -> Any:
        found.append(len(launches))
        return order(launches)

    monkeypatch.setattr(assemble, "order", counting)
    return found


def test_every_size_is_ordered_without_a_race(counted: list[int]) -> None:
    """Two sizes that grow apart, so that which values share bytes changes with them."""

    def network(x: Any, y: Any) -> Any:
        kept = []
        for k in range(6):
            x = (x @ x.T).tanh() @ x
            y = (y @ y.T).exp() @ y * 0.01
            kept.append(x.sum() + y.max() if k % 2 else x.mean())
        return sum(kept[1:], kept[0]), x, y

    m, n = Var("m", 1, 300), Var("n", 1, 300)
    program = arenite.compile(network, arenite.spec((m, 64)), arenite.spec((n, 64)), threads=2)
    alone = arenite.compile(network, arenite.spec((m, 64)), arenite.spec((n, 64)), threads=1)
    rng = np.random.default_rng(5)
    sizes = [(300, 300), (1, 300), (300, 1), (7, 250), (250, 7), (64, 64), (3, 3), (299, 300)]
    for rows, columns in sizes:
        x = rng.standard_normal((rows, 64)).astype(np.float32) * 0.1
        y = rng.standard_normal((columns, 64)).astype(np.float32) * 0.1
        for one, other in zip(program(x, y), alone(x, y), strict=True):
            assert np.array_equal(one, other)
        program.verify()
    n_before = len(counted)
    program(np.ones((298, 64), np.float32) * 0.1, np.ones((300, 64), np.float32) * 0.1)
    assert len(counted) == n_before
