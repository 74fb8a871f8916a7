"""Random graphs with reused slots: any team gives the bits of one thread, and waits are why."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.cpu.driver.layout import Worker
from arenite.backends.cpu.driver.native import BoundTable, OutcomeKind
from arenite.backends.cpu.driver.table_check import check_table
from arenite.program.table import LaunchTable
from tests.runtime.kernels import address, of_each_thread
from tests.runtime.table_builder import TableBuilder

N = 16  # elements that each launch reads of each input
ITERATIONS = 3
RUNS = 3


def random_graph(kernels: dict[str, int], seed: int) -> tuple[LaunchTable, NDArray[np.int64],
                                                              NDArray[np.int64]]:  # fmt: skip
    """Launches in a loop that read two slots and write a third: (table, registers, slots)."""
    pick = random.Random(seed)
    slots = np.zeros((pick.randint(3, 8), N), np.int64)
    build = TableBuilder()
    counter, trips = build.register(), build.constant(ITERATIONS)
    last_writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    is_shared: dict[int, bool] = {}
    with build.loop(counter, trips), build.block(parallel=True):
        for _ in range(pick.randint(5, 40)):
            out = pick.randrange(len(slots))
            inputs = [pick.choice([s for s in range(len(slots)) if s != out]) for _ in "xy"]
            shared = pick.random() < 0.6
            waits = {last_writer[s] for s in (*inputs, out) if s in last_writer}
            waits |= readers.get(out, set())
            # What worker 0 runs alone is in order with what it ran alone before.
            waits = {tick for tick in waits if shared or is_shared[tick]}
            delay = pick.choice([0, 0, 100, 2000])
            window = [address(slots[s]) for s in (out, *inputs)]
            tiles = build.constant(pick.choice([1, 1, 4, N]))
            tick = build.launch(
                kernels["mix"], [*window, N, delay], tiles, shared=shared, waits=sorted(waits)
            )
            is_shared[tick] = shared
            last_writer[out], readers[out] = tick, set()
            for slot in inputs:
                readers.setdefault(slot, set()).add(tick)
    table, registers = build.finish()
    return table, registers, slots


def run_graph(
    kernels: dict[str, int], seed: int, threads: int, with_waits: bool = True
) -> list[NDArray[np.int64]]:
    """The slots after each of three runs."""
    table, registers, slots = random_graph(kernels, seed)
    check_table(table)
    if not with_waits:
        entries = table.entries.copy()
        entries["wait_count"] = 0
        table = table._replace(entries=entries)
    bound = BoundTable(table, registers)
    found = []
    for _ in range(RUNS):
        assert bound.run(threads).kind is OutcomeKind.END
        found.append(slots.copy())
    return found


@pytest.mark.parametrize(("threads", "seeds"), [(2, range(200)), (3, range(200, 300))])
def test_a_team_computes_what_one_thread_computes(
    kernels: dict[str, int], threads: int, seeds: range
) -> None:
    before = sum(of_each_thread(Worker.N_TILES)[1:])
    for seed in seeds:
        alone, together = run_graph(kernels, seed, 1), run_graph(kernels, seed, threads)
        for a, b in zip(alone, together, strict=True):
            assert (a == b).all(), f"seed {seed}"
    assert sum(of_each_thread(Worker.N_TILES)[1:]) > before, "no other thread ran a tile"


def test_without_waits_some_graph_goes_wrong(kernels: dict[str, int]) -> None:
    for seed in range(2000):
        alone, together = run_graph(kernels, seed, 1), run_graph(kernels, seed, 2, False)
        if any((a != b).any() for a, b in zip(alone, together, strict=True)):
            return
    raise AssertionError("2000 graphs without any order came out right: the judge sees nothing")
