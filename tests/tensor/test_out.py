"""`out=`: results go into arrays of the caller, each with bytes of its own, or nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import arenite
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.program.arguments import check_targets
from arenite.tensor import concat

Array = NDArray[Any]

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    """It counts its runs."""
    runs = arenite.State((1,), "int64", name="runs")

    def function(x: Any) -> Any:
        runs.set(runs.value + 1)
        return {"sum": x + 1, "rest": (x * 2, x - 1)}

    with arenite.compile(function, X) as compiled:
        yield compiled


def test_results_that_would_overwrite_each_other_are_refused_before_a_run(program: Any) -> None:
    one, two, whole = np.zeros_like(X), np.zeros_like(X), np.zeros((4, 4), np.float32)
    before = program.state["runs"].numpy().tolist()
    for a, b, c, first, second in (
        (one, one, two, r"out\['sum'\]", r"out\['rest'\]\[0\]"),
        (two, one, one, r"out\['rest'\]\[0\]", r"out\['rest'\]\[1\]"),
        (whole[1:], one, whole[:3], r"out\['sum'\]", r"out\['rest'\]\[1\]"),
        (one[::-1], two, one, r"out\['sum'\]", r"out\['rest'\]\[1\]"),
    ):
        pair = f"({first} and {second}|{second} and {first}) share bytes"
        with pytest.raises(InvalidArgument, match=pair):
            program(X, out={"sum": a, "rest": (b, c)})
    with pytest.raises(InvalidArgument, match=r"out\[0\] and out\[2\] share bytes"):
        program.executable(X, out=[one, two, one])
    with pytest.raises(InvalidArgument, match=r"elements of out\[1\] share bytes"):
        program.executable(X, out=[one, as_strided(two, strides=(0, 4)), whole[:3]])
    assert program.state["runs"].numpy().tolist() == before
    assert not one.any()
    assert not whole.any()


def test_arrays_that_results_do_not_fit_are_refused_before_a_run(program: Any) -> None:
    before = program.state["runs"].numpy().tolist()
    good = [np.zeros_like(X) for _ in range(3)]
    for wrong in (np.zeros((3, 5), np.float32), np.zeros(X.shape, np.float64)):
        with pytest.raises(ShapeMismatch, match="does not go into an array of"):
            program.executable(X, out=[*good[:2], wrong])
    with pytest.raises(InvalidArgument, match="3 outputs do not go into 2 arrays"):
        program.executable(X, out=good[:2])
    assert program.state["runs"].numpy().tolist() == before
    assert not np.any(good)


def test_views_that_lie_between_one_another_are_taken(program: Any) -> None:
    whole = np.full((3, 12), 9, np.float32)
    x = whole[:, 8:]
    x[...] = X
    program(x, out={"sum": whole[:, :8:2], "rest": (whole[:, 1:8:2], x)})
    np.testing.assert_array_equal(whole[:, :8:2], X + 1)
    np.testing.assert_array_equal(whole[:, 1:8:2], X * 2)
    np.testing.assert_array_equal(x, X - 1)  # an input too: it was read before


@pytest.mark.parametrize(
    "wrong", [X.tolist(), np.broadcast_to(X[:1], X.shape), None], ids=["a list", "closed", "none"]
)
def test_what_can_not_be_written_to_is_refused_before_a_run(program: Any, wrong: Any) -> None:
    one = np.zeros_like(X)
    before = program.state["runs"].numpy().tolist()
    with pytest.raises(InvalidArgument, match=r"out\[1\] is no array that can be written to"):
        program.executable(X, out=[one, wrong, np.zeros_like(X)])
    assert program.state["runs"].numpy().tolist() == before
    assert not one.any()


def test_a_program_in_segments_refuses_them_too() -> None:
    def function(x: Any, n: Any) -> Any:
        grown = arenite.fori_loop(n, lambda i, v: concat([v, v[:1]]), x, grows=True)
        return grown, grown + 1

    x = np.arange(3)
    with arenite.compile(function, x, np.array(2)) as program:
        whole = np.zeros(9, int)
        for call, out in ((program, (whole[:5], whole[4:])), (program.executable, [whole[:5]] * 2)):
            with pytest.raises(InvalidArgument, match=r"out\[0\] and out\[1\] share bytes"):
                call(x, np.array(2), out=out)


@st.composite
def views(draw: st.DrawFn, whole: Array) -> Array:
    """A part of an array: steps of either sign, axes in any order, perhaps nothing."""
    parts = []
    for size in whole.shape:
        ends = [draw(st.integers(0, size)) for _ in range(2)]
        parts.append(slice(min(ends), max(ends), draw(st.integers(1, 3))))
    view = whole[tuple(parts)]
    turned = tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in whole.shape)
    return view[turned].transpose(draw(st.permutations(range(whole.ndim))))


@given(st.data())
def test_arrays_are_refused_where_some_byte_is_in_two(data: st.DataObject) -> None:
    """Judged by the numbers of all elements."""
    whole = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5)
    arrays = [data.draw(views(whole)) for _ in range(data.draw(st.integers(1, 4)))]
    numbers = [number for array in arrays for number in array.ravel().tolist()]
    if len(set(numbers)) == len(numbers):
        check_targets(arrays)
    else:
        with pytest.raises(InvalidArgument, match="share bytes"):
            check_targets(arrays)
