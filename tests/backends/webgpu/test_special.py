"""Scans, indexing by data and updates on WebGPU: what NumPy makes of them, by many groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from arenite.dtype import BY_NAME, DType
from arenite.errors import IndexOutOfRange
from arenite.ir import Node, Var, graph_input, make
from arenite.ir.dim import Dim, bounds
from tests.backends.webgpu.runner import Array, devices_of, executable, run

F32, F16, I64, I32, I8 = (
    BY_NAME[name] for name in ("float32", "float16", "int64", "int32", "int8")
)
OPS: dict[str, tuple[str, Callable[..., Array]]] = {
    "add": ("cumsum", np.cumsum),
    "mul": ("cumprod", np.cumprod),
    "max": ("cummax", np.maximum.accumulate),
    "min": ("cummin", np.minimum.accumulate),
}


def x(*shape: Dim, index: int = 0, dtype: DType = F32) -> Node:
    return graph_input(f"x{index}", index, shape, dtype)


def whole_numbers(*shape: int, seed: int = 0, dtype: type = np.float32) -> Array:
    """Sums of which are exact in every order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1,), 0),
        ((40, 32), 1),
        ((33,), 0),
        ((3, 2048), 1),
        ((2049,), 0),
        ((100_003,), 0),
        ((2, 700, 3), 1),
        ((5, 257, 9), 1),
        ((300, 70), 0),
    ],
)
def test_scans_are_numpys(op: str, shape: tuple[int, ...], axis: int) -> None:
    name, judge = OPS[op]
    given = whole_numbers(*shape)
    if op == "mul":
        given = np.where(given > 8, -1, 1).astype(np.float32)
    with executable([make(name, x(*shape), axis=axis)]) as program:
        [found] = program(given)
        assert np.array_equal(found, judge(given, axis=axis, dtype=np.float32))
        assert devices_of(program) == {"webgpu"}


@pytest.mark.parametrize("dtype", [I32, I64, I8, F16])
def test_scans_wrap_and_round_as_elements_do(dtype: DType) -> None:
    given = whole_numbers(3, 1000, dtype=np.dtype(dtype.to_numpy()).type)
    [found] = run([make("cumsum", x(3, 1000, dtype=dtype), axis=1)], given)
    wide = np.cumsum(given, axis=1, dtype=np.float32 if dtype == F16 else given.dtype)
    assert np.array_equal(found, wide.astype(given.dtype))


def test_a_scan_hands_on_what_is_no_number() -> None:
    given = whole_numbers(2, 3000)
    given[0, 1234], given[1, 2500] = np.nan, np.inf
    for name, judge in OPS.values():
        [found] = run([make(name, x(2, 3000), axis=1)], given)
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = judge(given, axis=1)
        assert np.array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize("size", [0, 1, 7, 2048, 2049, 6000])
def test_a_scan_of_an_open_size_is_that_of_its_elements(size: int) -> None:
    n = Var("n", 0, 6000)
    given = np.random.default_rng(1).standard_normal((2, 6000)).astype(np.float32)
    with executable([make("cumsum", x(2, n), axis=1)]) as program:
        [whole] = program(given)
        [found] = program(np.ascontiguousarray(given[:, :size]))
    assert np.array_equal(found, whole[:, :size])  # in whatever order, always the same
    near = np.cumsum(given[:, :size], axis=1, dtype=np.float64)
    assert np.abs(found - near).max(initial=0) < 1e-3


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((5000,), 0, 70_000), ((300, 70), 0, 1000), ((9, 50, 3), 1, 400), ((40, 500), 1, 333)],
)
def test_what_indices_name_is_taken_by_many_groups(
    shape: tuple[int, ...], axis: int, count: int
) -> None:
    data = whole_numbers(*shape)
    indices = np.random.default_rng(2).integers(0, shape[axis], count)
    taken = make("gather", x(*shape), x(count, index=1, dtype=I64), axis=axis)
    with executable([taken]) as program:
        [found] = program(data, indices)
        assert np.array_equal(found, np.take(data, indices, axis))
        [kernel] = [one for one in program.kernels if one.entry_point.startswith("gather")]
        assert bounds(kernel.global_size[0])[0] >= found.size // 4096


def test_an_index_outside_is_told_whichever_thread_finds_it() -> None:
    taken = make("gather", x(5000), x(70_000, index=1, dtype=I64), axis=0)
    indices = np.zeros(70_000, np.int64)
    indices[69_999] = 5000
    with executable([taken]) as program, pytest.raises(IndexOutOfRange, match="gather"):
        program(whole_numbers(5000), indices)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((50,), 0, 9000), ((4, 30, 5), 1, 200), ((70, 300), 0, 9)]
)
def test_updates_of_one_place_are_made_in_their_order(
    reduction: str, shape: tuple[int, ...], axis: int, count: int
) -> None:
    many = (*shape[:axis], count, *shape[axis + 1 :])
    rng = np.random.default_rng(3)
    data, updates = whole_numbers(*shape), whole_numbers(*many, seed=4)
    if reduction == "mul":
        updates = np.where(updates > 0, -1, 1).astype(np.float32)
    indices = rng.integers(0, shape[axis], many)
    node = make(
        "scatter_elements",
        x(*shape),
        x(*many, index=1, dtype=I64),
        x(*many, index=2),
        axis=axis,
        reduction=reduction,
    )
    wanted = data.copy()
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for at in np.ndindex(*many):
        to = (*at[:axis], indices[at], *at[axis + 1 :])
        wanted[to] = (
            updates[at] if reduction == "none" else combine[reduction](wanted[to], updates[at])
        )
    with executable([node]) as program:
        for _ in range(2):
            [found] = program(data, indices, updates)
            assert np.array_equal(found, wanted)
        wrong = indices.copy()
        wrong.flat[-1] = shape[axis]
        with pytest.raises(IndexOutOfRange, match="scatter_elements"):
            program(data, wrong, updates)


@pytest.mark.parametrize("dtype", [I8, F16])
def test_neighbours_in_a_word_are_updated_by_owners_of_their_own(dtype: DType) -> None:
    kind = np.dtype(dtype.to_numpy()).type
    data, updates = whole_numbers(37, dtype=kind), whole_numbers(4000, seed=5, dtype=kind)
    indices = np.random.default_rng(6).integers(0, 37, 4000)
    given = x(37, dtype=dtype), x(4000, index=1, dtype=I64), x(4000, index=2, dtype=dtype)
    [found] = run(
        [make("scatter_elements", *given, axis=0, reduction="none")], data, indices, updates
    )
    wanted = data.copy()
    wanted[indices] = updates  # the last one of a place
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(("shape", "axis"), [((2, 40, 3), 1), ((1000, 65), 0), ((3, 9), 1)])
def test_rows_are_put_into_a_copy_of_what_is_read_again(shape: tuple[int, ...], axis: int) -> None:
    part = (*shape[:axis], 4, *shape[axis + 1 :])
    data, rows = whole_numbers(*shape), whole_numbers(*part, seed=7)
    given = x(*shape), x(*part, index=1), x(index=2, dtype=I64)
    updated = make("update_slice", *given, axis=axis)
    both = make("add", updated, given[0])
    wanted = data.copy()
    wanted[(slice(None),) * axis + (slice(2, 6),)] = rows
    found, total = run([updated, both], data, rows, np.array(2))
    assert np.array_equal(found, wanted)
    assert np.array_equal(total, wanted + data)
