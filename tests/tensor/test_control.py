"""cond, while_loop, fori_loop and scan as a user meets them: structures, types and errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import (
    InvalidArgument,
    NotSupported,
    RunCancelled,
    ShapeMismatch,
    TypeMismatch,
)
from tests.pipeline.interrupted import cancelled


class State(NamedTuple):
    x: Any
    n: Any


def test_structures_come_back_as_they_were() -> None:
    def network(x: Tensor) -> Any:
        chosen = arenite.cond(True, lambda: {"a": [x], "b": (x, None)}, {"a": [x], "b": (x, None)})
        assert chosen["b"][1] is None
        assert isinstance(chosen["a"], list)
        state = arenite.fori_loop(2, lambda i, s: State(s.x * 2, s.n + 1), State(x, 0))
        assert isinstance(state, State)
        last, ys = arenite.scan(
            lambda s, rows: ([s[0] + rows["v"]], {"y": rows["v"], "none": None}), [x], {"v": x * x}
        )
        assert ys["none"] is None
        return state.x, state.n, last[0], ys["y"]

    x = np.arange(3.0)
    twice, count, last, ys = arenite.compile(network, x[0:3])(x)
    np.testing.assert_array_equal(twice, x * 4)
    assert count == 2
    np.testing.assert_array_equal(last, x + (x * x).sum())
    np.testing.assert_array_equal(ys, x * x)


def test_numbers_take_the_type_of_what_they_stand_for() -> None:
    def network(x: Tensor) -> Any:
        a = arenite.cond(x.sum() > 0, 1, lambda: x)
        b = arenite.fori_loop(3, lambda i, s: 7, x)
        return a, b

    a, b = arenite.compile(network, spec((2,), "float32"))(np.ones(2, np.float32))
    assert a.dtype == b.dtype == np.float32
    assert a.tolist() == [1, 1]
    assert b.tolist() == [7, 7]


def test_a_predicate_may_be_a_number_or_have_axes_of_one() -> None:
    def network(n: Tensor) -> Any:
        return arenite.cond(n, lambda: n * 2, lambda: n - 1).reshape(1)

    program = arenite.compile(network, np.zeros((1, 1), np.int64))
    assert program(np.array([[3]])) == 6
    assert program(np.array([[0]])) == -1


def test_operands_are_handed_on() -> None:
    program = arenite.compile(
        lambda c, x, y: arenite.cond(c, lambda a, b: a - b, lambda a, b: b - a, x, y),
        np.array(True), np.array(1), np.array(1),
    )  # fmt: skip
    assert program(np.array(True), np.array(5), np.array(3)) == 2
    assert program(np.array(False), np.array(5), np.array(3)) == -2


def test_a_length_may_be_a_size() -> None:
    n = Var("n", 1, 8)

    def network(x: Tensor) -> Any:
        _, counts = arenite.scan(lambda s, _: (s + 1, s), 0, length=x.shape[0])
        return counts, arenite.fori_loop(x.shape[0] * 2, lambda i, s: s + i, 0)

    program = arenite.compile(network, spec((n,)))
    for size in (1, 3, 8):
        counts, total = program(np.ones(size, np.float32))
        assert counts.tolist() == list(range(size))
        assert total == sum(range(2 * size))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            lambda i, s: (s[0], s[1][:2]),
            ShapeMismatch,
            r"at \[1\].*its shape is \(2,\), not \(3,\)",
        ),
        (lambda i, s: (s[0], s[1] * 1.5), TypeMismatch, r"at \[1\].*dtype is float64, not int64"),
        (lambda i, s: [s[0], s[1]], InvalidArgument, r"structure \[\*, \*\], not \(\*, \*\)"),
        (lambda i, s: s[0], InvalidArgument, r"structure \*, not"),
    ],
)
def test_what_a_body_changes_is_named(body: Any, error: type[Exception], message: str) -> None:
    state = (Tensor([1.0]), Tensor([1, 2, 3]))
    with pytest.raises(error, match=message):
        arenite.fori_loop(2, body, state)


def test_sizes_change_only_where_that_is_said() -> None:
    x = Tensor([1, 2, 3])
    with pytest.raises(ShapeMismatch, match="with grows=True sizes may change"):
        arenite.fori_loop(2, lambda i, v: v[1:], x)
    with pytest.raises(ShapeMismatch, match="the number of axes may not"):
        arenite.fori_loop(2, lambda i, v: v[None], x, grows=True)
    with pytest.raises(TypeMismatch, match="its dtype is float64, not int64"):
        arenite.fori_loop(2, lambda i, v: v[1:] * 1.5, x, grows=True)
    np.testing.assert_array_equal(
        arenite.fori_loop(2, lambda i, v: v[1:] + i, x, grows=True).numpy(), [4]
    )


def test_what_specialize_is_given_is_checked() -> None:
    x, size = Tensor([1, 2, 3]), arenite.any_size()
    with pytest.raises(InvalidArgument, match=r"said with arenite\.spec; result\[0\] is Tensor"):
        arenite.specialize(lambda k, y: (y,), (x,), x.sum(), x)
    with pytest.raises(InvalidArgument, match="needs a value"):
        arenite.specialize(lambda y: y, arenite.spec((size,)), (), x)
    with pytest.raises(InvalidArgument, match=r"is of structure \*, not \(\*,\)"):
        arenite.specialize(lambda k, y: y, (arenite.spec((size,)),), x.sum(), x)[0].numpy()
    parts = arenite.specialize(
        lambda k, y: {"rows": y.reshape(k, -1)},
        {"rows": arenite.spec((size, arenite.any_size()), "int64")},
        x.max(),
        x * 2,
    )
    assert parts["rows"].numpy().tolist() == [[2], [4], [6]]


def test_sides_that_differ_are_named() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(ShapeMismatch, match=r"for false at \['h'\] is float64\[1\]"):
        arenite.cond(True, {"h": x}, {"h": x[:1]})
    with pytest.raises(TypeMismatch, match="its dtype is int64, not float64"):
        arenite.cond(True, x, x.astype("int64"))
    with pytest.raises(InvalidArgument, match="what cond gives for false is of structure"):
        arenite.cond(True, (x, x), (x,))
    with pytest.raises(ShapeMismatch, match="one truth value"):
        arenite.cond(x > 0, x, x)


def test_scans_say_what_they_need() -> None:
    x = Tensor(np.zeros((3, 2)))
    with pytest.raises(InvalidArgument, match=r"returns \(state, y\), not Tensor"):
        arenite.scan(lambda s, row: s, 0, x)
    with pytest.raises(ShapeMismatch, match=r"xs\['b'\] of scan has 2 rows"):
        arenite.scan(lambda s, row: (s, None), 0, {"a": x, "b": x.T})
    with pytest.raises(ShapeMismatch, match="no axis to go along"):
        arenite.scan(lambda s, row: (s, None), 0, Tensor(1.0))
    with pytest.raises(InvalidArgument, match="needs a length"):
        arenite.scan(lambda s, row: (s, None), 0)
    with pytest.raises(TypeMismatch, match="a trip count is one integer"):
        arenite.fori_loop(1.5, lambda i, s: s, 0)


def test_numbers_of_a_body_are_not_known_while_it_is_traced(monkeypatch: Any) -> None:
    from arenite import pipeline
    from arenite.tensor import realize

    monkeypatch.setattr(realize, "realize", pipeline.realize)
    with pytest.raises(NotSupported, match=r"arenite\.cond"):
        arenite.fori_loop(3, lambda i, s: s + 1 if s > 2 else s, Tensor(1))


def test_origins_of_kernels_in_a_body_are_the_lines_of_the_body() -> None:
    def network(x: Tensor) -> Tensor:
        def body(i: Tensor, s: Tensor) -> Tensor:
            return s.sort() + x  # the line

        return arenite.fori_loop(2, body, x)

    with arenite.compile(network, spec((4,))) as program:
        origins = {
            origin.line
            for kernel in program.kernels
            if kernel.entry_point.startswith("sort")
            for origin in kernel.origins
        }
    assert origins == {network.__code__.co_firstlineno + 2}


def test_origins_stay_when_something_is_taken_out_of_a_body() -> None:
    def network(x: Tensor, w: Tensor) -> Tensor:
        def body(i: Tensor, s: Tensor) -> Tensor:
            return s.conv(w, padding=1).sort() + x  # the line

        return arenite.fori_loop(2, body, x)

    types = spec((1, 16, 5, 5)), spec((16, 16, 3, 3))
    with arenite.compile(network, *types) as program:
        lines = {origin.line for kernel in program.kernels for origin in kernel.origins}
        assert all(kernel.origins for kernel in program.kernels if "sort" in kernel.entry_point)
    assert network.__code__.co_firstlineno + 2 in lines


@pytest.mark.parametrize("condition", [lambda s: s.sum() < 3, lambda s: True])
def test_a_loop_whose_body_changes_nothing_does_not_end_by_itself(condition: Any) -> None:
    def network(x: Tensor) -> Any:
        return arenite.while_loop(condition, lambda s: s * 1.0, x)

    with arenite.compile(network, spec((2,))) as program:
        end = cancelled(program, lambda: program(np.ones(2, np.float32)))
        assert isinstance(end, RunCancelled), end
        if condition(np.full(2, 2)) is not True:
            assert program(np.full(2, 2, np.float32)).tolist() == [2, 2]


def test_values_that_a_body_hands_on_are_not_carried() -> None:
    def network(n: Tensor, w: Tensor) -> Any:
        return arenite.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1]), (n * 0, w))[1]

    with arenite.compile(network, spec((), "int64"), spec((4,))) as program:
        assert not program.kernels  # the loop ends, and changes nothing that is asked for
        assert program(np.int64(3), np.ones(4, np.float32)).tolist() == [1] * 4
