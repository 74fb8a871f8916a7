"""Instructions, control, errors, cancelling, epochs and time stamps of the native driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.backends.cpu.driver import layout, native
from arenite.backends.cpu.driver.native import BoundTable, Outcome, OutcomeKind
from arenite.backends.cpu.driver.stamps import Stamps
from arenite.backends.cpu.driver.table_check import check_table
from arenite.errors import InvalidArgument
from arenite.program.table import NONE, Ins
from tests.runtime.kernels import address
from tests.runtime.table_builder import TableBuilder

END = Outcome(OutcomeKind.END)
any_i64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.sampled_from([-(2**63), 2**63 - 1]),
)
all_threads = pytest.mark.parametrize("threads", [1, 2])


def bound(build: TableBuilder, refresh_after: int = native.REFRESH_EPOCHS) -> BoundTable:
    table, registers = build.finish()
    check_table(table)
    return BoundTable(table, registers, refresh_after)


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def reference(ins: Ins, a: int, b: int) -> int:
    simple = {
        Ins.MOV: a,
        Ins.ADD: wrapped(a + b),
        Ins.SUB: wrapped(a - b),
        Ins.MUL: wrapped(a * b),
        Ins.DIV: a // b if b > 0 else 0,
        Ins.MIN: min(a, b),
        Ins.MAX: max(a, b),
    }
    return simple[ins]


@settings(max_examples=100, deadline=None)
@given(any_i64, any_i64)
def test_arithmetic_is_pythons_on_64_bits_and_never_traps(a: int, b: int) -> None:
    chosen = [ins for ins in Ins if ins < Ins.LOAD8]
    build = TableBuilder()
    first = build.window([0] * len(chosen))
    r_a, r_b = build.register(a), build.register(b)
    build.eval(*((ins, first + i, r_a, r_b) for i, ins in enumerate(chosen)))
    model = bound(build)
    assert model.run() == END
    found = model.registers[first : first + len(chosen)].tolist()
    assert found == [reference(ins, a, b) for ins in chosen]


def test_loads_and_stores_reach_memory() -> None:
    memory = np.array([-2, 0], np.int64)
    build = TableBuilder()
    base, offset = build.constant(address(memory)), build.constant(1)
    found = build.window([0] * 2)
    target, value = build.constant(address(memory) + 8), build.constant(77)
    build.eval(
        (Ins.LOAD8, found, base, offset),
        (Ins.LOAD64, found + 1, base, 0),
        (Ins.STORE64, 0, target, value),
    )
    model = bound(build)
    assert model.run() == END
    assert model.registers[found : found + 2].tolist() == [255, -2]
    assert memory[1] == 77


def test_a_bind_program_runs_before_the_first_entry() -> None:
    build = TableBuilder()
    size, tiles, seen = build.register(10), build.register(), build.register()
    bind = build.program((Ins.DIV, tiles, size, build.constant(4)))
    build.eval((Ins.MOV, seen, tiles))
    model = bound(build)
    assert model.run(bind=bind) == END
    model.registers[size] = 100
    assert model.run() == END
    assert model.registers[seen] == 2
    assert model.run(bind=bind) == END
    assert model.registers[seen] == 25


def nested_loops(limit: int | None) -> tuple[BoundTable, int]:
    build = TableBuilder()
    i, j, total = build.register(), build.register(), build.register()
    goes_on = build.register(1)
    condition = NONE if limit is None else goes_on
    build.eval((Ins.MOV, total, 0))
    with build.loop(i, build.constant(3)), build.loop(j, build.constant(4), condition):
        build.eval((Ins.ADD, total, total, 1))
        if limit is not None:
            build.eval((Ins.SUB, goes_on, build.constant(limit), total))
    return bound(build), total


@all_threads
def test_loops_nest_and_end_by_their_condition(threads: int) -> None:
    for limit, expected in ((None, 12), (6, 6)):
        model, total = nested_loops(limit)
        assert model.run(threads) == END
        assert model.registers[total] == expected


@all_threads
def test_a_segment_leaves_and_goes_on_behind_it(threads: int) -> None:
    build = TableBuilder()
    before, after, wanted = build.register(), build.register(), build.register(1)
    build.eval((Ins.ADD, before, before, 1))
    with build.if_(wanted):
        tick = build.segment(3)
    build.eval((Ins.ADD, after, after, 1))
    model = bound(build)
    values = [before, after]
    assert model.run(threads) == Outcome(OutcomeKind.SEGMENT, tick=tick)
    assert model.registers[values].tolist() == [1, 0]
    assert model.run(threads) == END
    assert model.registers[values].tolist() == [1, 1]
    assert model.run(threads).kind is OutcomeKind.SEGMENT
    model.reset()
    model.registers[wanted] = 0
    assert model.run(threads) == END
    assert model.registers[values].tolist() == [3, 2]


@all_threads
@pytest.mark.parametrize("shared", [False, True])
def test_a_kernels_error_ends_the_run_and_names_its_entry(
    kernels: dict[str, int], threads: int, shared: bool
) -> None:
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    tiles = build.constant(5)
    with build.block(parallel=True):
        first = build.launch(kernels["increment"], [address(x)], 1)
        failing = build.launch(kernels["fail"], [42, 3], tiles, shared=shared, waits=[first])
        build.launch(kernels["increment"], [address(x)], 1, waits=[failing])
    model = bound(build)
    for runs in (1, 2):
        found = model.run(threads)
        assert found == Outcome(OutcomeKind.ERROR, site=failing, code=42)
        assert (x == runs).all(), "what comes after an error must not run"


@all_threads
@pytest.mark.parametrize("more", [0, 1, 2 * layout.MAX_CLAIMS + 5])
def test_more_tiles_than_a_sync_word_counts(
    kernels: dict[str, int], threads: int, more: int
) -> None:
    n_tiles = layout.MAX_CLAIMS + more
    out, x, y = np.zeros(n_tiles + 1, np.int64), np.array([5]), np.array([11])
    build = TableBuilder()
    with build.block(parallel=True):
        window = [address(out), address(x), address(y), 1, 0]
        build.launch(kernels["mix"], window, build.constant(n_tiles), shared=True)
    assert bound(build).run(threads) == END
    wanted = np.arange(n_tiles) * (7919 * 31) + (3 * 5 + 11)
    np.testing.assert_array_equal(out, [*wanted, 0])


def endless(kernels: dict[str, int], n_launches: int = 1) -> BoundTable:
    out = np.zeros(64, np.int64)
    build = TableBuilder()
    counter, for_ever = build.register(), build.constant(2**63 - 1)
    tiles = build.constant(4)
    with build.loop(counter, for_ever), build.block(parallel=True):
        for _ in range(n_launches):
            window = [address(out), 1000]
            build.launch(kernels["busy"], window, tiles, shared=True, cost_ns=1000)
    model = bound(build)
    model.keep = out  # type: ignore[attr-defined]
    return model


@all_threads
def test_another_thread_cancels_a_run(kernels: dict[str, int], threads: int) -> None:
    model = endless(kernels)
    outcomes: list[Outcome] = []
    runner = threading.Thread(target=lambda: outcomes.append(model.run(threads)))
    runner.start()
    while not model.registers.any() or model.registers[2] == 0:
        time.sleep(0.001)
    while runner.is_alive():  # a cancel that comes before the run begins is not one
        model.cancel()
        runner.join(0.01)
    assert outcomes == [Outcome(OutcomeKind.CANCELLED)]


def test_a_cancelled_segment_does_not_go_on() -> None:
    build = TableBuilder()
    after = build.register()
    build.segment(1)
    build.eval((Ins.MOV, after, 1))
    model = bound(build)
    assert model.run().kind is OutcomeKind.SEGMENT
    model.cancel()
    assert model.run() == Outcome(OutcomeKind.CANCELLED)
    assert model.registers[after] == 0
    assert model.run().kind is OutcomeKind.SEGMENT, "the next run begins anew"


def counting_graph(
    kernels: dict[str, int], refresh_after: int
) -> tuple[BoundTable, NDArray[np.int64], Sequence[int]]:
    """A chain of shared launches in a loop of 50 blocks, each block an epoch."""
    slots = np.ones((3, 16), np.int64)
    build = TableBuilder()
    counter, trips, tiles = build.register(), build.constant(50), build.constant(16)
    with build.loop(counter, trips), build.block(parallel=True):
        before: list[int] = []
        for out, x, y in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            window = [address(slots[s]) for s in (out, x, y)]
            before = [build.launch(kernels["mix"], [*window, 16, 50], tiles, shared=True,
                                   waits=before)]  # fmt: skip
    return bound(build, refresh_after), slots, before


@pytest.mark.parametrize("refresh_after", [1, 7, 64])
def test_refreshing_epochs_changes_nothing(kernels: dict[str, int], refresh_after: int) -> None:
    alone, expected, _ = counting_graph(kernels, native.REFRESH_EPOCHS)
    together, found, _ = counting_graph(kernels, refresh_after)
    for _ in range(4):
        assert alone.run() == END
        assert together.run(threads=2) == END
        assert (found == expected).all()
    refreshed = together._halves[layout.Run.REFRESHED // 4]
    assert together._halves[layout.Run.EPOCH // 4] - refreshed <= refresh_after


def test_epochs_may_pass_the_end_of_their_32_bits(kernels: dict[str, int]) -> None:
    alone, expected, _ = counting_graph(kernels, native.REFRESH_EPOCHS)
    together, found, _ = counting_graph(kernels, native.REFRESH_EPOCHS)
    near_the_end = 2**32 - 20
    together._halves[layout.Run.EPOCH // 4] = near_the_end
    together._halves[layout.Run.REFRESHED // 4] = near_the_end
    together._syncs.view(np.uint64)[:] = near_the_end << 32
    for _ in range(2):
        assert alone.run() == END
        assert together.run(threads=2) == END
        assert (found == expected).all()
    assert together._halves[layout.Run.EPOCH // 4] < 100


@all_threads
def test_stamps_tell_when_and_where_each_kernel_ran(kernels: dict[str, int], threads: int) -> None:
    out = np.zeros(8, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        first = build.launch(kernels["busy"], [address(out), 5000], build.constant(8), shared=True)
        second = build.launch(kernels["busy"], [address(out), 100], 1, waits=[first])
    model = bound(build)
    stamps = Stamps(threads)
    before = native.runtime().clock()
    assert model.run(threads, stamps=stamps) == END
    after = native.runtime().clock()
    records = stamps.records({})
    assert stamps.n_lost == 0
    tiles = sorted(records["tile"][records["tick"] == first].tolist())
    assert tiles == ([0] if threads == 1 else list(range(8)))
    [last] = records[records["tick"] == second]
    assert last["worker"] == 0
    assert (records["begin"] < records["end"]).all()
    assert (records["end"][records["tick"] == first] <= last["begin"]).all()
    assert before < records["begin"].min()
    assert records["end"].max() < after


def test_workers_claim_from_both_ends(kernels: dict[str, int]) -> None:
    out = np.zeros(8, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        window = [address(out), 20_000]
        ticks = [build.launch(kernels["busy"], window, build.constant(8), shared=True)]
        ticks.append(build.launch(kernels["busy"], window, build.constant(8), shared=True))
    model = bound(build)
    for _ in range(50):
        stamps = Stamps(3)
        assert model.run(3, stamps=stamps) == END
        records = stamps.records({})
        for tick in ticks:
            here = records[records["tick"] == tick]
            assert sorted(here["tile"].tolist()) == list(range(8))
            is_even = here["worker"] % 2 == 0
            # A worker may be held up between its claim and its first stamp: in no order.
            from_below, from_above = here["tile"][is_even], here["tile"][~is_even]
            assert sorted(from_below.tolist()) == list(range(len(from_below)))
            assert (from_above >= len(from_below)).all()


def test_stamps_that_find_no_room_are_counted(kernels: dict[str, int]) -> None:
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    with build.block():
        for _ in range(10):
            build.launch(kernels["increment"], [address(x)], 1)
    stamps = Stamps(1, capacity=4)
    assert bound(build).run(stamps=stamps) == END
    assert (len(stamps.records({})), stamps.n_lost) == (4, 6)
    assert (x == 10).all()
    with pytest.raises(InvalidArgument, match="stamps for 1 threads"):
        endless(kernels).run(threads=2, stamps=stamps)


def test_a_run_beside_another_on_the_team_works_alone(kernels: dict[str, int]) -> None:
    slow, quick = endless(kernels), endless(kernels)
    runner = threading.Thread(target=lambda: slow.run(threads=2))
    runner.start()
    while slow.registers[2] == 0:
        time.sleep(0.001)
    other = threading.Thread(target=lambda: quick.run(threads=2))
    other.start()
    while quick.registers[2] == 0:
        time.sleep(0.001)
    for model, thread in ((slow, runner), (quick, other)):
        while thread.is_alive():
            model.cancel()
            thread.join(0.01)


def test_two_threads_on_one_table_queue(kernels: dict[str, int]) -> None:
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    with build.block():
        for _ in range(100):
            build.launch(kernels["increment"], [address(x)], 1)
    model = bound(build)

    def often() -> None:
        for _ in range(50):
            assert model.run() == END

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x == 4 * 50 * 100).all()


def test_registers_of_another_shape_are_refused() -> None:
    table, registers = TableBuilder().finish()
    with pytest.raises(InvalidArgument, match="3 registers; the table has 2"):
        BoundTable(table, np.zeros(3, np.int64))
    with pytest.raises(InvalidArgument, match="flat array of int64"):
        BoundTable(table, registers.astype(np.int32))
    model = BoundTable(table, registers)
    with pytest.raises(InvalidArgument, match="r2 of 2"):
        model.register_address(2)
