"""What depends on constants alone is computed once, at load, and stays in the packed region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var
from arenite.errors import IndexOutOfRange
from arenite.program import cache

Array = NDArray[Any]
RNG = np.random.default_rng(3)
#: Over the size up to which constants are folded while compiling.
WEIGHTS = RNG.standard_normal((300, 301)).astype(np.float32)


def scaled(x: Tensor) -> Any:
    return x @ (arenite.from_numpy(WEIGHTS) * 2 + 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_weights_are_prepared_once(threads: int) -> None:
    program = arenite.compile(
        scaled, arenite.spec((Var("rows", 1, 40), 300), "float32"), threads=threads
    )
    [kernel] = program.executable.load_kernels
    assert len(program.kernels) == 1
    slots = {name: s for name, s in program.plan.slots.items() if s.region == "packed"}
    # Columns lie in panels of 16.
    assert [slot.nbytes for slot in slots.values()] == [300 * 304 * 4]
    read = program.executables[0].compiled.values[kernel.ins[0]].name
    assert [*slots] == [f"{read} packed"]
    for rows in (7, 40, 1, 7):
        x = RNG.standard_normal((rows, 300)).astype(np.float32)
        exact = x.astype(np.float64) @ (WEIGHTS.astype(np.float64) * 2 + 1)
        assert np.abs(program(x) - exact).max() < 1e-2
        program.verify()
        assert np.array_equal(program.run_checked(x), program(x))
    once = program.executables[0].load_ns
    program(RNG.standard_normal((9, 300)).astype(np.float32))
    assert once is not None
    assert program.executables[0].load_ns == once


def test_weights_are_packed_when_that_is_asked_for() -> None:
    x = RNG.standard_normal((3, 300)).astype(np.float32)
    [program] = arenite.compile(scaled, x).executables
    heard: list[tuple[int, int]] = []
    assert program.load_ns is None
    program.pack(lambda done, total: heard.append((done, total)))
    once = program.load_ns
    assert once is not None
    assert heard == [(k + 1, len(heard)) for k in range(len(heard))]
    assert heard
    program.pack(lambda done, total: heard.clear())
    assert heard  # the second time there is nothing to do
    exact = x.astype(np.float64) @ (WEIGHTS.astype(np.float64) * 2 + 1)
    assert np.abs(program(x)[0] - exact).max() < 1e-2
    assert program.load_ns == once


def test_a_program_from_the_cache_prepares_its_weights_too() -> None:
    x = RNG.standard_normal((3, 300)).astype(np.float32)
    first, again = (arenite.compile(scaled, x) for _ in range(2))
    assert cache.default().info().n_entries > 0
    assert len(again.executable.load_kernels) == 1
    assert np.array_equal(first(x), again(x))


def test_what_is_handed_out_is_made_in_every_run() -> None:
    program = arenite.compile(
        lambda x: (x + 1, arenite.from_numpy(WEIGHTS) * 3), np.ones(4, np.float32)
    )
    assert program.executable.load_kernels == ()
    for _ in range(2):
        _, tripled = program(np.ones(4, np.float32))
        assert np.array_equal(tripled, WEIGHTS * 3)
        tripled[...] = 0


def test_without_inputs_nothing_is_kept() -> None:
    total = (arenite.from_numpy(WEIGHTS) * 2 + 1).sum()
    assert np.isclose(total.item(), (WEIGHTS.astype(np.float64) * 2 + 1).sum(), rtol=1e-4)


def test_a_failure_at_load_names_the_line() -> None:
    rows = arenite.from_numpy(np.arange(70_000))
    table = arenite.from_numpy(np.ones((100, 4), np.float32))
    program = arenite.compile(lambda x: x + table.take(rows, axis=0).sum(), np.ones(4, np.float32))
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match=r"test_load\.py"):
            program(np.ones(4, np.float32))
        program.executable.reset()


def test_a_loop_reads_what_was_made_at_load() -> None:
    def body(_: Tensor, x: Any) -> Any:
        return scaled(x)[:, :300] * 0.01

    x = RNG.standard_normal((3, 300)).astype(np.float32)
    program = arenite.compile(lambda x: arenite.fori_loop(5, body, x), x)
    assert len(program.executable.load_kernels) == 1
    exact = x.astype(np.float64)
    for _ in range(5):
        exact = (exact @ (WEIGHTS.astype(np.float64) * 2 + 1))[:, :300] * 0.01
    assert np.allclose(program(x), exact, rtol=1e-3, atol=1e-4)
    program.verify()
