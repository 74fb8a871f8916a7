"""Indices and masks over sizes that are not known before a run, judged by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import IndexOutOfRange, ShapeMismatch
from arenite.tensor import concat

Array = NDArray[Any]
RNG = np.random.default_rng(11)


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def put(x: Array, key: Any, value: Any, how: str = "none") -> Array:
    """What NumPy makes of it."""
    made = x.copy()
    if how == "none":
        made[key] = value
    else:
        ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[how]
        made[key] = ufunc(made[key], value)
    return made


@pytest.mark.parametrize("how", ["none", "add", "mul", "min", "max"])
def test_one_value_by_a_mask_found_while_running(how: str) -> None:
    row, column = f32([5, 6, 7, 8]), f32([[1], [2], [3]])

    def network(x: Any, xp: Any) -> list[Any]:
        rows, columns = x.sum(1) > 0, x.sum(0) > 0
        return [
            xp(x, x > 0, 2.5, how),
            xp(x, rows, 3, how),
            xp(x, rows, row, how),
            xp(x, rows, row[None], how),
            xp(x, (rows, Ellipsis), 3, how),
            xp(x, (Ellipsis, columns), -1, how),
            xp(x, (slice(None), columns), column, how),
            xp(x, (slice(None), columns, Ellipsis), column, how),
        ]

    with arenite.compile(
        lambda x: network(x, lambda x, key, value, how: x.set(key, value, how)), spec((3, 4))
    ) as program:
        for _ in range(3):
            x = RNG.integers(-4, 5, (3, 4)).astype(np.float32)
            for made, wanted in zip(program(x), network(x, put), strict=True):
                np.testing.assert_array_equal(made, wanted)
        # A choice at each place: nothing is counted, nothing scattered.
        assert not any("scatter" in one.entry_point for one in program.kernels)


def test_many_values_by_a_mask_found_while_running() -> None:
    def network(x: Tensor, y: Tensor) -> Any:
        by_mask = x.set(x[:, 0] > 0, x[x[:, 0] > 0] * 10)
        return by_mask, x.set(x[:, 0] > 0, y), x.set(x > 0, y[y > 0])

    with arenite.compile(network, spec((5, 3)), spec((2, 3))) as program:
        x = f32([[1, -1, 2], [-1, 1, 1], [3, 0, 0], [-2, 0, 0], [-1, 0, 0]])
        y = f32([[1, 2, 3], [0, 4, 5]])
        a, b, c = program(x, y)
        np.testing.assert_array_equal(a, put(x, x[:, 0] > 0, x[x[:, 0] > 0] * 10))
        np.testing.assert_array_equal(b, put(x, x[:, 0] > 0, y))
        np.testing.assert_array_equal(c, put(x, x > 0, y[y > 0]))
        with pytest.raises(ValueError, match="shape mismatch"):
            put(x[1:], x[1:, 0] > 0, y)
        x[2, 0] = -3  # one row for two values
        with pytest.raises(IndexOutOfRange):
            program(x, y)


def test_masks_in_the_body_of_a_loop() -> None:
    def network(x: Tensor, n: Tensor) -> Any:
        def body(i: Tensor, s: Tensor) -> Tensor:
            even = s % 2 == 0
            return s.set(even, s[even] // 2).set(s > 6, 0)

        return arenite.fori_loop(n, body, x)

    x = RNG.integers(0, 20, 12)
    with arenite.compile(network, x, spec((), "int64")) as program:
        for n in (0, 1, 4):
            expected = x.copy()
            for _ in range(n):
                new = np.where(expected % 2 == 0, expected // 2, expected)
                new[expected > 6] = 0
                expected = new
            np.testing.assert_array_equal(program(x, np.int64(n)), expected)


def test_what_does_not_fit_a_mask_is_refused() -> None:
    x = arenite.tensor.zeros((3, 4)) + 1
    with pytest.raises(IndexOutOfRange, match="does not match axes"):
        x.set(x[:2, 0] > 0, 1)
    with pytest.raises(ShapeMismatch):
        x.set(x.sum(1) > 0, np.zeros(3))


def test_the_ends_of_what_has_no_size_yet() -> None:
    n = Var("n", 1, 9)

    def network(x: Tensor) -> Any:
        found = x[x > 0]
        return found[-1], found[0], found[[-1, 0]], x[-1], x[-2], x[1], x.set(-2, 7)

    def judge(x: Array) -> Any:
        found = x[x > 0]
        return found[-1], found[0], found[[-1, 0]], x[-1], x[-2], x[1], put(x, -2, 7)

    with arenite.compile(network, spec((n,))) as program:
        for x in ([1, 2], [-1, 5, -3, 4], [3, -1]):
            given = f32(x)
            for made, wanted in zip(program(given), judge(given), strict=True):
                np.testing.assert_array_equal(made, wanted)
        for x in ([-1, -2], [1]):  # no element is true; and there is no second one
            with pytest.raises(IndexOutOfRange, match="outside its axis"):
                program(f32(x))
            program.reset()


def test_an_index_that_is_outside_for_every_size_is_refused_at_once() -> None:
    n = Var("n", 1, 4)
    for index in (4, -5, n, n + 2):
        with pytest.raises(IndexOutOfRange, match="is outside axis 0"):
            arenite.compile(lambda x, index=index: x[index], spec((n,)))


def test_the_last_element_of_a_growing_state() -> None:
    def network(x: Tensor, n: Tensor) -> Any:
        def body(i: Tensor, s: Tensor) -> Tensor:
            return concat([s, (s[-1] + s[-2]).reshape(1)])

        return arenite.fori_loop(n, body, x, grows=True)

    with arenite.compile(network, spec((2,), "int64"), spec((), "int64")) as program:
        for n in (0, 5, 70):
            fibonacci = [1, 1]
            for _ in range(n):
                fibonacci.append(fibonacci[-1] + fibonacci[-2])
            assert program(np.array([1, 1]), np.int64(n)).tolist() == fibonacci


@pytest.mark.parametrize("code", [">f4", ">i8", ">c8", ">u2"])
def test_arrays_of_the_other_byte_order_are_taken(code: str) -> None:
    small = RNG.integers(0, 99, (3, 4)).astype(code)
    large = RNG.integers(0, 99, (30, 4)).astype(code)
    assert not small.dtype.isnative
    for array in (small, large, large[::2], np.array(7, code)):
        native = array.astype(array.dtype.newbyteorder("="))
        for tensor in (Tensor(array), arenite.from_numpy(array)):
            assert tensor.numpy().dtype == native.dtype
            np.testing.assert_array_equal((tensor + tensor).numpy(), native + native)
        np.testing.assert_array_equal((Tensor(native) * array).numpy(), native * native)
        with arenite.compile(lambda x: x + x, array) as program:
            for given in (array, native, array):
                made = program(given)
                assert made.dtype == native.dtype
                np.testing.assert_array_equal(made, native + native)


def test_a_state_takes_the_other_byte_order() -> None:
    kept = arenite.State((3,), name="kept")
    with arenite.compile(lambda x: kept.value + x, spec((3,))) as program:
        program.state["kept"].load(np.array([1, 2, 3], ">f4"))
        assert program(np.zeros(3, np.float32)).tolist() == [1, 2, 3]
