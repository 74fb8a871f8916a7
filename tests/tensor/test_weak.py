"""Numbers without a dtype of their own: sizes, and Python numbers that a loop carries.

The rule is that of Python numbers beside arrays, as NumPy 2 and JAX have it: they raise the kind of
a dtype, never its width. So a size that becomes a variable changes no dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import TypeMismatch

N = Var("n", 1, 16)

OPERATIONS: dict[str, Any] = {
    "x + n": lambda x, n: x + n,
    "n - x": lambda x, n: n - x,
    "n * x": lambda x, n: n * x,
    "x / n": lambda x, n: x / n,
    "n / x": lambda x, n: n / x,
    "x // n": lambda x, n: x // n,
    "n // x": lambda x, n: n // x,
    "n % x": lambda x, n: n % x,
    "x ** n": lambda x, n: x**n,
    "x < n": lambda x, n: x < n,
    "n == x": lambda x, n: n == x,
    "n != x": lambda x, n: n != x,
    "clip": lambda x, n: x.clip(2, n),
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16"])
def test_a_size_counts_as_a_python_integer(dtype: str) -> None:
    array = np.array([1, 2, 3], dtype)
    n = 3
    expected = [function(array, n) for function in OPERATIONS.values()]

    def network(x: Tensor) -> list[Tensor]:
        assert isinstance(x.shape[0], arenite.ir.Var)
        return [function(x, x.shape[0]) for function in OPERATIONS.values()]

    with arenite.compile(network, spec((N,), dtype)) as program:
        for name, made, wanted in zip(OPERATIONS, program(array), expected, strict=True):
            assert made.dtype == wanted.dtype, name
            np.testing.assert_allclose(made, wanted, rtol=1e-6, err_msg=name)


def test_a_size_becomes_a_tensor() -> None:
    def network(x: Tensor) -> Any:
        n = x.shape[0]
        half = Tensor(n // 2)
        assert half.shape == ()
        assert half.dtype.name == "int64"
        known = arenite.tensor.asarray(n * 2, "float32")
        picked = arenite.tensor.where(x > 1, n, x)
        return half, known, picked, x.set(0, n), arenite.cond(True, n, n + 1)

    with arenite.compile(network, spec((N,))) as program:
        x = np.array([1, 2, 3, 4, 5], np.float32)
        half, known, picked, put, chosen = program(x)
        assert half == 2
        assert known == 10
        assert known.dtype == picked.dtype == put.dtype == np.float32
        assert picked.tolist() == [1, 5, 5, 5, 5]
        assert put.tolist() == [5, 2, 3, 4, 5]
        assert chosen == 5


def test_a_size_that_has_no_value_says_so() -> None:
    with pytest.raises(arenite.errors.NotSupported, match="sizes that are not bound: n"):
        Tensor(N * 2).numpy()


def loops(x: Tensor) -> dict[str, Any]:
    """What each gives is of the dtype that its key begins with."""
    return {
        "float32 sum": arenite.fori_loop(0, 3, lambda i, s: s + x[i], 0.0),
        "float32 from int": arenite.fori_loop(0, 3, lambda i, s: s + x[i], 0),
        "float32 counted": arenite.fori_loop(0, 3, lambda i, s: s + i, x),
        "float32 beside": arenite.fori_loop(
            0, 3, lambda i, s: (s[0] * 2, s[1] + s[0] * x), (1.5, x)
        )[1],
        "float32 scan": arenite.scan(lambda s, row: (s * row, s), 1, x)[0],
        "float32 while": arenite.while_loop(lambda s: s < 9, lambda s: s * x[1], 1),
        "float32 of a result": x * arenite.fori_loop(0, 3, lambda i, s: s * 2.5, 1),
        "int64 count": arenite.fori_loop(0, 3, lambda i, s: s + i, 0),
        "float64 count": arenite.fori_loop(0, 3, lambda i, s: s * 1.5, 1),
        "float64 nested": arenite.fori_loop(
            0, 3, lambda i, s: arenite.fori_loop(0, i, lambda j, t: t + 0.5, s), 0
        ),
        "float32 index": arenite.fori_loop(0, 3, lambda i, s: i, x[0]),
        "bool flag": arenite.fori_loop(0, 3, lambda i, s: s & (x[i] > 1), True),
        "float32 chosen": arenite.fori_loop(
            0, 3, lambda i, s: (arenite.cond(i > 0, s[0], 2.5), s[1] * s[0]), (1, x)
        )[1],
    }


def test_python_numbers_in_loops_take_the_dtype_of_what_becomes_of_them() -> None:
    x = np.array([1, 2, 3], np.float32)
    expected: dict[str, Any] = {
        "float32 sum": 6,
        "float32 from int": 6,
        "float32 counted": x + 3,
        "float32 beside": x + (1.5 + 3 + 6) * x,
        "float32 scan": 6,
        "float32 while": 16,
        "float32 of a result": x * 2.5**3,
        "int64 count": 3,
        "float64 count": 1.5**3,
        "float64 nested": 1.5,
        "float32 index": 2,
        "bool flag": False,
        "float32 chosen": x * 2.5**2,
    }
    with arenite.compile(loops, spec((3,))) as program:
        for key, made in program(x).items():
            assert made.dtype.name == key.split()[0], key
            np.testing.assert_allclose(made, expected[key], rtol=1e-6, err_msg=key)


def test_a_number_that_a_dtype_cannot_hold_is_refused_not_cut_off() -> None:
    ints = Tensor([1, 2, 3])
    with pytest.raises(TypeMismatch, match=r"is 7\.5, not int64\[3\], which cannot hold it"):
        arenite.fori_loop(3, lambda i, s: 7.5, ints)
    with pytest.raises(TypeMismatch, match=r"cond gives for false is 2\.5, not int64\[3\]"):
        arenite.cond(True, ints, 2.5)
    with pytest.raises(TypeMismatch, match=r"cond gives for true is 2\.5, not int64\[3\]"):
        arenite.cond(True, 2.5, ints)
    with pytest.raises(TypeMismatch, match="int32"):
        arenite.fori_loop(0, 2, lambda i, s: Tensor(np.int32(1)), 1.5)
    assert arenite.cond(True, 1, 2.5).numpy().dtype == np.float64


def test_loops_have_the_bounds_of_range() -> None:
    def network(a: Tensor, b: Tensor) -> Any:
        def body(i: Any, s: Any) -> Any:
            return s * 10 + i

        return (
            arenite.fori_loop(2, 5, body, 0),
            arenite.fori_loop(a, b, body, 0),
            arenite.fori_loop(-1, b, body, 0),
            arenite.fori_loop(a, 4, body, 0),
            arenite.fori_loop(b, body, 0),
            arenite.fori_loop(5, 2, body, 7),
        )

    def judge(start: int, stop: int, s: int = 0) -> int:
        for i in range(start, stop):
            s = s * 10 + i
        return s

    with arenite.compile(network, spec((), "int64"), spec((), "int64")) as program:
        for a, b in ((1, 4), (3, 3), (-2, 0)):
            expected = [judge(2, 5), judge(a, b), judge(-1, b), judge(a, 4), judge(0, b), 7]
            assert [int(one) for one in program(np.int64(a), np.int64(b))] == expected


def test_bounds_that_are_sizes() -> None:
    def network(x: Tensor) -> Any:
        n = x.shape[0]
        return arenite.fori_loop(n // 2, n, lambda i, s: s + x[i], 0.0)

    with arenite.compile(network, spec((N,))) as program:
        for n in (1, 2, 7, 16):
            x = np.arange(n, dtype=np.float32) + 1
            assert program(x) == x[n // 2 :].sum()


@pytest.mark.parametrize("arguments", [(), (3,), (3, 4, 5), (lambda i, s: s, 3, 4, 5)])
def test_what_a_loop_is_given_is_said(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(arenite.errors.InvalidArgument, match=r"\(lower, upper, body, initial\)"):
        arenite.fori_loop(*arguments)
