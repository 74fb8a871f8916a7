"""Sizes not seen before: waits are taken over from other sizes only where they suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Var
from arenite.program import waits
from arenite.program.waits import found_waits


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many launches were put in order, each time that was done."""
    found: list[int] = []

    def counting(skeleton: Any, hazards: Any) -> Any:
        found.append(len(hazards))
        return found_waits(skeleton, hazards)

    monkeypatch.setattr(waits, "found_waits", counting)
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


NAMES = "tile row column group head k block t0 acc0 in0 out0 at _s0 size_k batch first_row".split()


@pytest.mark.parametrize("name", NAMES)
def test_a_size_may_have_any_name(name: str) -> None:
    """Generated code has names of its own; sizes never meet them."""
    rng = np.random.default_rng(6)
    w = rng.standard_normal((48, 20)).astype(np.float32)
    tables = rng.standard_normal((4, 6)).astype(np.float32)

    def network(x: Any, rows: Any) -> Any:
        heads = x.reshape(x.shape[0], 3, 16).transpose(1, 0, 2)
        seen = heads.attention(heads, heads, causal=True)
        return (
            x @ w,
            x.softmax(-1).sum(0),
            arenite.tensor.concat([x, x * 2]),
            seen.transpose(1, 0, 2).reshape(x.shape[0], 48),
            arenite.from_numpy(tables).take(rows, axis=0),
            x.argsort(0),
        )

    var = Var(name, 1, 50)
    specs = arenite.spec((var, 48)), arenite.spec((var,), "int64")
    program = arenite.compile(network, *specs)
    known = arenite.compile(network, arenite.spec((13, 48)), arenite.spec((13,), "int64"))
    x = rng.standard_normal((13, 48)).astype(np.float32)
    rows = rng.integers(0, 4, 13)
    for one, other in zip(program(x, rows), known(x, rows), strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-5)
    assert {name for kernel in program.kernels for name in kernel.var_names} == {name}
