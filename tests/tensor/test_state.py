"""What lives from call to call: updated in place, right whatever the order, and kept apart."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var
from arenite.errors import IndexOutOfRange, InvalidArgument, RunFailed, ShapeMismatch, TypeMismatch
from arenite.tensor.compile import CompiledFunction

Array = NDArray[Any]
RNG = np.random.default_rng(7)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def checked(compiled: CompiledFunction, *arguments: Any) -> Any:
    """The results of a call, which are those of a checked run on the same states too."""
    compiled.verify()
    watched = compiled.run_checked(*arguments)
    made = compiled(*arguments)
    np.testing.assert_array_equal(watched, made)
    return made


def test_a_running_sum() -> None:
    total = arenite.State((5,), "int64", name="total")

    def step(x: Tensor) -> Tensor:
        total.set(total.value + x)
        return total.value

    with arenite.compile(step, arenite.spec((5,), "int64")) as compiled:
        expected = np.zeros(5, np.int64)
        for _ in range(4):
            x = RNG.integers(-9, 9, 5)
            expected += x
            np.testing.assert_array_equal(checked(compiled, x), expected)
        np.testing.assert_array_equal(compiled.state["total"].numpy(), expected)
        assert compiled.plan.slots["total"].region == "state"
        assert compiled.plan.regions["state"].nbytes == 64
        assert len(compiled.kernels) == 1


def test_a_recurrent_network_step_by_step_is_the_scan_over_all_times() -> None:
    w, xs = floats(12, 12) / 4, floats(20, 3, 12)
    hidden = arenite.State((3, 12), name="hidden")

    def cell(h: Tensor, x: Tensor) -> Tensor:
        return (h @ w + x).tanh()

    def step(x: Tensor) -> Tensor:
        hidden.set(cell(hidden.value, x))
        return hidden.value

    def whole(xs: Tensor) -> Any:
        zero = arenite.tensor.zeros((3, 12), "float32")
        return arenite.scan(lambda h, x: (cell(h, x),) * 2, zero, xs)[1]

    with (
        arenite.compile(step, xs[0]) as one,
        arenite.compile(whole, xs) as all_times,
    ):
        rows = [checked(one, x) for x in xs]
        np.testing.assert_array_equal(np.stack(rows), all_times(xs))


@pytest.mark.parametrize("threads", [1, 2])
def test_values_that_change_places(threads: int) -> None:
    a, b = arenite.State((40,), name="a"), arenite.State((40,), name="b")

    def swap(x: Tensor) -> tuple[Tensor, Tensor]:
        was_a, was_b = a.value, b.value
        a.set(was_b + x)
        b.set(was_a)
        return a.value, was_b

    with arenite.compile(swap, arenite.spec((40,)), threads=threads) as compiled:
        left, right = np.zeros(40, np.float32), np.zeros(40, np.float32)
        for _ in range(4):
            x = floats(40)
            new, old = checked(compiled, x)
            np.testing.assert_array_equal(old, right)
            left, right = right + x, left
            np.testing.assert_array_equal(new, left)
            np.testing.assert_array_equal(compiled.state["a"].numpy(), left)
            np.testing.assert_array_equal(compiled.state["b"].numpy(), right)


def test_the_old_value_is_read_after_the_new_one_is_known() -> None:
    kept = arenite.State((6, 4), name="kept")

    def step(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        old = kept.value
        kept.write(x, at=at)
        # Needs all of the new value, and all of the old one after that.
        weights = kept.value.sum()
        return (old * weights).sum(axis=0), kept.value

    with arenite.compile(step, arenite.spec((2, 4)), arenite.spec((), "int64")) as compiled:
        state = np.zeros((6, 4), np.float32)
        for at in (0, 4, 1):
            x = RNG.integers(-4, 4, (2, 4)).astype(np.float32)
            old, state = state, state.copy()
            state[at : at + 2] = x
            compiled.verify()
            made, new = compiled(x, np.int64(at))
            np.testing.assert_array_equal(made, (old * state.sum()).sum(axis=0))
            np.testing.assert_array_equal(new, state)
            np.testing.assert_array_equal(compiled.state["kept"].numpy(), state)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_rows_are_written_in_place(axis: int, dtype: str) -> None:
    shape = (6, 10, 70)
    kept = arenite.State(shape, dtype, name="kept")
    size = Var("size", 0, shape[axis])

    def step(rows: Tensor, at: Tensor) -> None:
        kept.write(rows, at=at, axis=axis)

    types = arenite.spec([*shape[:axis], size, *shape[axis + 1 :]], dtype)
    with arenite.compile(step, types, arenite.spec((), "int32")) as compiled:
        kernel = compiled.kernels[-1]  # the one before makes the position wide
        expected = np.zeros(shape, np.dtype(dtype))
        for count, at in ((2, 3), (0, 5), (1, 0), (shape[axis], 0), (3, shape[axis] - 3)):
            rows = RNG.integers(-99, 99, [*shape[:axis], count, *shape[axis + 1 :]]).astype(dtype)
            expected[(slice(None),) * axis + (slice(at, at + count),)] = rows
            compiled.verify()
            compiled(rows, np.int32(at))
            np.testing.assert_array_equal(compiled.state["kept"].numpy(), expected)
        # What is written is the rows, and what is there already stays.
        assert kernel.writes_nbytes == types.argument("rows", 0).nbytes


def test_a_value_that_dies_is_updated_without_a_copy_and_one_that_lives_is_copied() -> None:
    def dies(x: Tensor, rows: Tensor, at: Tensor) -> Tensor:
        big = (x * 2).node
        new = arenite.ir.make("update_slice", big, rows.node, at.node, axis=0)
        return Tensor.of_node(new).sum(axis=0)

    def lives(x: Tensor, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        big = (x * 2).node
        new = arenite.ir.make("update_slice", big, rows.node, at.node, axis=0)
        return Tensor.of_node(new), Tensor.of_node(big)

    x, rows, at = floats(50, 3), floats(4, 3), np.int64(46)
    expected = x * 2
    expected[46:] = rows
    with arenite.compile(dies, x, rows, at) as compiled:
        np.testing.assert_allclose(checked(compiled, x, rows, at), expected.sum(axis=0), rtol=1e-5)
        assert compiled.kernels[1].writes_nbytes == rows.nbytes
    with arenite.compile(lives, x, rows, at) as compiled:
        new, big = checked(compiled, x, rows, at)
        np.testing.assert_array_equal(big, x * 2)
        np.testing.assert_array_equal(new, expected)


@pytest.mark.parametrize("at", [-1, 7, 8, 2**62, -(2**63), 2**63 - 1])
def test_a_position_out_of_range_raises_and_leaves_a_usable_program(at: int) -> None:
    kept = arenite.State((8, 5), name="kept")

    def step(rows: Tensor, at: Tensor) -> Tensor:
        kept.write(rows, at=at)
        return kept.first(at + 2).sum()

    rows = np.ones((2, 5), np.float32)
    with arenite.compile(step, rows, arenite.spec((), "int64")) as compiled:
        assert compiled(rows, np.int64(6)) == 10
        with pytest.raises(IndexOutOfRange, match="states may be half written"):
            compiled(rows, np.int64(at))
        with pytest.raises(RunFailed, match=r"reset\(\)"):
            compiled(rows, np.int64(0))
        compiled.reset()
        np.testing.assert_array_equal(compiled.state["kept"].numpy()[6:], 1)
        assert compiled(rows, np.int64(0)) == 10
        compiled.reset_state()
        assert compiled(rows, np.int64(2)) == 10
        np.testing.assert_array_equal(
            compiled.state["kept"].numpy()[:, 0], [0, 0, 1, 1, 0, 0, 0, 0]
        )


def test_a_conversation_is_saved_and_restored() -> None:
    kept = arenite.State((3, 2), name="kept")

    def step(x: Tensor) -> Tensor:
        kept.set(kept.value * 2 + x)
        return kept.value

    x = floats(3, 2)
    with arenite.compile(step, x) as one, arenite.compile(step, x) as other:
        one(x)
        saved = one.state["kept"].numpy()
        expected = one(x)
        np.testing.assert_array_equal(other.state["kept"].numpy(), 0)
        other.state["kept"].load(saved)
        np.testing.assert_array_equal(other(x), expected)
        with pytest.raises(ShapeMismatch, match="kept"):
            one.state["kept"].load(x[:2])
        with pytest.raises(TypeMismatch, match="float64"):
            one.state["kept"].load(x.astype(np.float64))
        with pytest.raises(InvalidArgument, match="no state 'other'; there are: kept"):
            one.state["other"]
        assert "kept" in str(one.state)
        assert one.state.nbytes == x.nbytes


def test_what_a_state_refuses() -> None:
    kept = arenite.State((3,), name="kept")
    with pytest.raises(InvalidArgument, match="only in a function that is being compiled"):
        kept.value  # noqa: B018 - it raises
    with pytest.raises(ShapeMismatch, match="sizes are numbers"):
        arenite.State(cast(Any, (Var("n", 1, 4),)), name="open")

    def twice(x: Tensor) -> None:
        kept.set(x)
        arenite.State((2,), name="kept").set(x[:2])

    x = floats(3)
    with pytest.raises(InvalidArgument, match="two states"):
        arenite.compile(twice, x)
    with pytest.raises(TypeMismatch, match="cast it"):
        arenite.compile(lambda x: kept.set(x.astype("float64")), x)
    with pytest.raises(ShapeMismatch, match="another shape"):
        arenite.compile(lambda x: kept.set(x[:2]), x)
