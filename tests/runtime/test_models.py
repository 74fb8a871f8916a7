"""The five models of decision 0003, as real tables, against NumPy, on teams of 1, 2 and 3."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.cpu.driver.native import BoundTable, Outcome, OutcomeKind
from arenite.backends.cpu.driver.table_check import check_table
from arenite.program.table import Ins
from tests.runtime.kernels import (
    AFFINE_TILE,
    CHUNK,
    GATHER_TILE,
    GATHER_WIDTH,
    GROW_TILE,
    OUT_OF_RANGE,
    STEP_TILE,
    address,
)
from tests.runtime.table_builder import TableBuilder

Ints = NDArray[np.int64]
END = Outcome(OutcomeKind.END)

pytestmark = pytest.mark.parametrize("threads", [1, 2, 3])


def bound(build: TableBuilder) -> BoundTable:
    table, registers = build.finish()
    check_table(table)
    return BoundTable(table, registers)


def random(*shape: int, seed: int = 0) -> Ints:
    return np.random.default_rng(seed).integers(-1000, 1000, shape)


def test_if_runs_one_of_two_branches(kernels: dict[str, int], threads: int) -> None:
    n = 4 * AFFINE_TILE
    x, t, h, s, p = random(n), *(np.zeros(n, np.int64) for _ in range(4))
    condition = np.zeros(1, np.bool_)
    build = TableBuilder()
    where, holds, tiles = build.constant(address(condition)), build.register(), build.constant(4)
    affine = kernels["affine"]

    def launch(
        out: Ints, source: Ints, k: int, waits: list[int] | None = None, shared: bool = True
    ) -> int:
        window = [address(out), address(source), k]
        return build.launch(affine, window, tiles, shared=shared, waits=waits or [])

    build.eval((Ins.LOAD8, holds, where))
    with build.if_(holds), build.block(parallel=True):
        stft = launch(t, x, 2)
        launch(h, t, 3, waits=[stft])
    with build.else_(), build.block(parallel=True):
        launch(h, x, 5)
    with build.block(parallel=True):
        lstm = launch(s, h, 7)
        launch(p, s, 11, waits=[lstm], shared=False)
    model = bound(build)
    for chosen in (True, False, True):
        condition[0] = chosen
        assert model.run(threads) == END
        expected = (x * 2 + 1) * 3 + 1 if chosen else x * 5 + 1
        assert (p == (expected * 7 + 1) * 11 + 1).all()


@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_loop_carries_state_in_two_slots_and_writes_a_scan_output(
    kernels: dict[str, int], threads: int, trips: int
) -> None:
    n = 64
    x, y = random(max(trips, 1), n), np.zeros((max(trips, 1), n), np.int64)
    first, slots, result = random(n, seed=1), np.zeros((2, n), np.int64), np.zeros(n, np.int64)
    build = TableBuilder()
    r_trips, r_i = build.register(trips), build.register()
    current, following, offset = build.register(), build.register(), build.register()
    both = build.constant(address(slots[0]) + address(slots[1]))
    row_nbytes, r_x, r_y = (build.constant(v) for v in (8 * n, address(x), address(y)))
    r_first, r_p = build.constant(address(first)), build.constant(address(slots[0]))
    step = build.window([0, 0, 0, 0, n])
    copy = build.window([address(result), 0, n])
    tiles = build.constant(n // STEP_TILE)
    build.eval((Ins.MOV, current, r_first), (Ins.MOV, following, r_p))
    with build.loop(r_i, r_trips):
        build.eval(
            (Ins.MOV, step, current),
            (Ins.MOV, step + 1, following),
            (Ins.MUL, offset, r_i, row_nbytes),
            (Ins.ADD, step + 2, r_x, offset),
            (Ins.ADD, step + 3, r_y, offset),
        )
        with build.block(parallel=True):
            build.launch(kernels["step"], step, tiles, shared=True)
        build.eval((Ins.MOV, current, following), (Ins.SUB, following, both, following))
    build.eval((Ins.MOV, copy + 1, current))
    with build.block():
        build.launch(kernels["copy"], copy, 1)
    model = bound(build)
    for _ in range(2):
        assert model.run(threads) == END
        state = first
        for i in range(trips):
            state = state.sum() + 3 * np.roll(state, -1) + x[i]
            assert (y[i] == state).all()
        assert (result == state).all()


@pytest.mark.parametrize("capacity", [2, 64])
def test_a_carried_value_grows_and_leaves_for_more_room(
    kernels: dict[str, int], threads: int, capacity: int
) -> None:
    width, limit = 32, 100_000
    start = np.abs(random(1, width)) + 1
    v = np.zeros((capacity, width), np.int64)
    flag = np.zeros(8, np.uint8)
    build = TableBuilder()
    r_trips, r_i = build.constant(2**63 - 1), build.register()
    rows, r_v, goes_on = build.register(), build.register(address(v)), build.register()
    room, is_full, offset = build.register(capacity), build.register(), build.register()
    row_nbytes, r_flag = build.constant(8 * width), build.constant(address(flag))
    copy = build.window([address(v), address(start), width])
    grow, ask = build.window([0, 0, 0, width]), build.window([0, address(flag), limit])
    tiles = build.constant(width // GROW_TILE)
    build.eval((Ins.MOV, rows, 1), (Ins.MOV, goes_on, 1))
    with build.block():
        build.launch(kernels["copy"], copy, 1)
    with build.loop(r_i, r_trips, goes_on):
        build.eval(
            (Ins.SUB, is_full, rows, room), (Ins.ADD, is_full, is_full, 1),
            (Ins.MAX, is_full, is_full, 0),
        )  # fmt: skip
        with build.if_(is_full):
            build.segment(1)
        build.eval(
            (Ins.MOV, grow + 1, rows),
            (Ins.MUL, offset, rows, row_nbytes),
            (Ins.MOV, grow, r_v),
            (Ins.ADD, grow + 2, r_v, offset),
            (Ins.MOV, ask, grow + 2),
        )
        with build.block(parallel=True):
            grown = build.launch(kernels["grow"], grow, tiles, shared=True)
            build.launch(kernels["go_on"], ask, 1, waits=[grown])
        build.eval((Ins.ADD, rows, rows, 1), (Ins.LOAD8, goes_on, r_flag))
    model = bound(build)
    exits = 0
    while (outcome := model.run(threads)).kind is OutcomeKind.SEGMENT:
        entry = model.table.entries[outcome.tick]
        assert entry["a"] == 1
        larger = np.zeros((2 * len(v), width), np.int64)
        larger[: len(v)] = v
        v, exits = larger, exits + 1
        model.registers[[r_v, room]] = address(v), len(v)
    assert outcome == END
    expected = start
    while True:
        row = len(expected) + expected.sum(0)
        expected = np.vstack([expected, row])
        if not row[0] < limit:
            break
    n = int(model.registers[rows])
    assert n == len(expected)
    assert (v[:n] == expected).all()
    assert exits == (0 if capacity == 64 else int(np.ceil(np.log2(n / capacity))))


def nonzero_model(
    kernels: dict[str, int], x: Ints, data: Ints, limit: int
) -> tuple[BoundTable, Ints, int, int]:
    """(model, y, register of the count, register of the limit)"""
    n = len(x)
    chunks = -(-n // CHUNK)
    counts, firsts, indices = (np.zeros(k, np.int64) for k in (chunks, chunks, n))
    y = np.zeros((n, GATHER_WIDTH), np.int64)
    build = TableBuilder()
    count, gather_tiles = build.register(), build.register()
    r_chunks, rows_a_tile = build.constant(chunks), build.constant(GATHER_TILE)
    scan = build.window([address(counts), address(firsts), chunks, 0])
    gather = build.window([address(data), address(indices), address(y), 0, limit])
    with build.block(parallel=True):
        counted = build.launch(
            kernels["count_chunks"], [address(x), address(counts), n], r_chunks, shared=True
        )
        build.launch(kernels["scan"], scan, 1, waits=[counted])
    build.eval(
        (Ins.ADD, gather_tiles, count, build.constant(GATHER_TILE - 1)),
        (Ins.DIV, gather_tiles, gather_tiles, rows_a_tile),
        (Ins.MOV, gather + 3, count),
    )
    with build.block(parallel=True):
        window = [address(x), address(firsts), address(indices), n]
        written = build.launch(kernels["write_indices"], window, r_chunks, shared=True)
        build.launch(kernels["gather"], gather, gather_tiles, shared=True, waits=[written])
    model = bound(build)
    model.registers[scan + 3] = model.register_address(count)
    model.keep = (counts, firsts, indices)  # type: ignore[attr-defined]
    return model, y, count, gather + 4


@pytest.mark.parametrize("n", [1, 64, 1000, 5000])
def test_nonzero_finds_its_size_while_running(
    kernels: dict[str, int], threads: int, n: int
) -> None:
    x, data = (random(n) > 200).astype(np.int64), random(n, GATHER_WIDTH, seed=2)
    model, y, count, _ = nonzero_model(kernels, x, data, n)
    for _ in range(2):
        y[...] = -1
        assert model.run(threads) == END
        found = np.flatnonzero(x)
        assert model.registers[count] == len(found)
        assert (y[: len(found)] == data[found]).all()
        assert (y[len(found) :] == -1).all()


def test_an_index_out_of_range_is_an_error_and_the_next_run_is_right(
    kernels: dict[str, int], threads: int
) -> None:
    x, data = (random(2000) > 0).astype(np.int64), random(2000, GATHER_WIDTH)
    model, y, count, limit = nonzero_model(kernels, x, data, 100)
    failed = model.run(threads)
    assert (failed.kind, failed.site, failed.code) == (OutcomeKind.ERROR, 6, OUT_OF_RANGE)
    model.registers[limit] = 2000
    assert model.run(threads) == END
    found = np.flatnonzero(x)
    assert model.registers[count] == len(found)
    assert (y[: len(found)] == data[found]).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_given_as_input_picks_a_table(
    kernels: dict[str, int], threads: int, axis: int
) -> None:
    rows, width, a_tile = 100, 40, 16
    x = random(rows, width)
    chunks = -(-rows // a_tile)
    parts, y = np.zeros((chunks, width), np.int64), np.zeros((rows, width)[1 - axis], np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        if axis == 1:
            window = [address(x), address(y), width]
            build.launch(kernels["reduce_rows"], window, build.constant(rows), shared=True)
        else:
            first = build.launch(
                kernels["reduce_columns"],
                [address(x), address(parts), rows, width, a_tile],
                build.constant(chunks),
                shared=True,
            )
            combine = [address(parts), address(y), chunks, width, chunks]
            build.launch(kernels["reduce_columns"], combine, 1, waits=[first])
    assert bound(build).run(threads) == END
    assert (y == x.sum(axis)).all()
