"""Tensors made from arrays, other libraries and nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite.device import Buffer
from arenite.errors import InvalidArgument
from arenite.ir import Graph, Var, evaluate
from arenite.tensor import (
    Tensor,
    arange,
    asarray,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    spec,
    zeros,
    zeros_like,
)
from tests.tensor.examples import ALL, BFLOAT16, array, same


@pytest.mark.parametrize(
    "data",
    [3, 2.5, True, 1j, [1, 2], [[1.5], [2]], np.float32(3), np.arange(4)[::2], (True, False)],
    ids=repr,
)
def test_a_tensor_of_anything_numpy_takes(data: Any) -> None:
    same(Tensor(data), np.asarray(data))
    same(asarray(data), np.asarray(data))


def test_a_tensor_with_a_dtype() -> None:
    same(Tensor([1, 2], "float32"), np.array([1, 2], np.float32))
    same(Tensor(Tensor([1.7]), "int8"), np.array([1], np.int8))
    t = Tensor([1])
    assert asarray(t) is t
    assert Tensor(t).node is t.node
    assert asarray(t, "int8").dtype.name == "int8"


def test_what_is_no_number() -> None:
    for wrong in ("text", object(), ["a"], np.array(["2020"], "M8[Y]")):
        with pytest.raises(InvalidArgument, match="which is no number"):
            Tensor(wrong)
    with pytest.raises(InvalidArgument, match=r"Tensor\.of_node"):
        Tensor(Tensor(1).node)
    with pytest.raises(InvalidArgument, match=r"is a node; .*Tensor\.of_node"):
        _ = Tensor(1) + Tensor(1).node


def test_small_arrays_are_known_by_content_large_ones_by_identity() -> None:
    small, large = np.arange(64.0), np.arange(65.0)
    assert Tensor(small).node is Tensor(small.copy()).node
    assert Tensor(large).node is not Tensor(large).node
    assert Tensor(small).node.op == "constant"
    assert Tensor(large).node.op == "buffer"


def test_a_tensor_keeps_a_copy_and_from_numpy_does_not() -> None:
    data = np.arange(100.0)
    copied, shared = Tensor(data), from_numpy(data)
    data[0] = 7
    assert copied.numpy()[0] == 0
    assert shared.numpy()[0] == 7
    assert not shared.numpy().flags.writeable
    same(from_numpy(data[::-1]), data[::-1])
    with pytest.raises(InvalidArgument, match="a NumPy array is needed, not list"):
        from_numpy([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [*ALL, BFLOAT16], ids=str)
def test_dlpack_both_ways(dtype: np.dtype[Any]) -> None:
    data = array(dtype if dtype.kind != "V" else np.dtype("float32"), (10, 10)).astype(dtype)
    t = Tensor(data)
    assert t.__dlpack_device__() == (1, 0)
    same(from_dlpack(t), data)
    same(from_dlpack(from_dlpack(Buffer.from_array(data))), data)
    if dtype.kind != "V":
        np.testing.assert_array_equal(np.from_dlpack(t), data)
        np.testing.assert_array_equal(np.from_dlpack(t * 1 if dtype.kind != "b" else t), data)


def test_fills() -> None:
    same(zeros(3), np.zeros(3))
    same(zeros((2, 0), "int8"), np.zeros((2, 0), np.int8))
    same(ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    same(full((2,), 7), np.full((2,), 7))
    same(full((), 2.5), np.full((), 2.5))
    same(full(2, -0.0, "float32"), np.full(2, -0.0, np.float32))
    assert np.signbit(full(2, -0.0).numpy()).all()
    same(full(2, 0.1, BFLOAT16), np.full(2, 0.1, BFLOAT16))
    same(full(2, float("nan")), np.full(2, np.nan))
    same(full(2, 3.9, "int4").astype("int8"), np.full(2, 3, np.int8))
    x = array(np.dtype("int16"), (2, 3))
    same(zeros_like(Tensor(x)), np.zeros_like(x))
    same(ones_like(x, "float32"), np.ones_like(x, np.float32))
    same(full_like(x, 5), np.full_like(x, 5))
    with pytest.raises(InvalidArgument, match="whole numbers"):
        zeros(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [(5,), (0,), (-3,), (2, 9), (9, 2), (2, 9, 3), (9, 2, -2), (0.5,), (1, 2, 0.1), (5, 1, -0.7)],
)
def test_arange_as_numpy(arguments: Any) -> None:
    same(arange(*arguments), np.arange(*arguments), 0)
    start, stop, step = {1: (*arguments, None, 1), 2: (*arguments, 1)}.get(
        len(arguments), arguments
    )
    expected = np.arange(*arguments, dtype=np.float32)
    same(arange(start, stop, step, "float32"), expected)


def test_arange_of_sizes() -> None:
    n = Var("n", 0, 9)
    t = spec((n,)).argument("x", 0)
    made = [arange(n), arange(n, n + 4), arange(n, -1, -2), arange(1, n, 2, "float32")]
    results = evaluate(Graph.of([t.node, *[m.node for m in made]]), [np.zeros(5, np.float32)])
    for result, expected in zip(
        results[1:],
        [np.arange(5), np.arange(5, 9), np.arange(5, -1, -2), np.arange(1, 5, 2, dtype=np.float32)],
        strict=True,
    ):
        same(result, expected)
    with pytest.raises(InvalidArgument, match="whole numbers only"):
        arange(n, 5.5)
    with pytest.raises(InvalidArgument, match="the step is 0"):
        arange(1, 2, 0)


@pytest.mark.parametrize("num", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_as_numpy(num: int, endpoint: bool) -> None:
    same(linspace(-1, 2.5, num, endpoint), np.linspace(-1, 2.5, num, endpoint))
    same(linspace(3, 1, num, dtype="float32"), np.linspace(3, 1, num, dtype=np.float32))


def test_linspace_ends_where_it_says() -> None:
    assert linspace(0, 0.1, 10).numpy()[-1] == 0.1
    with pytest.raises(InvalidArgument, match="fewer than none"):
        linspace(0, 1, -1)


def test_eye_as_numpy() -> None:
    same(eye(3), np.eye(3))
    same(eye(2, 4, 1, "int8"), np.eye(2, 4, 1, np.int8))
    same(eye(3, k=-2, dtype=bool), np.eye(3, k=-2, dtype=bool))


def test_specs() -> None:
    batch = Var("batch", 1, 64)
    made = spec((batch, 784))
    assert str(made) == "float32[batch, 784]"
    assert made == spec([batch, 784], np.float32)
    argument = made.argument("x", 0)
    assert argument.shape == (batch, 784)
    assert argument.node.attr("name") == "x"
    assert argument.size == 784 * batch


def test_a_size_or_a_tensor_fills() -> None:
    n = arenite.Var("n", 1, 9)

    def filled(x: arenite.Tensor) -> tuple[arenite.Tensor, ...]:
        size = x.shape[0]
        return (
            arenite.full((2, size), size),
            arenite.full_like(x, size * 2),
            arenite.full((2, size), x + 1, "float64"),
        )

    program = arenite.compile(filled, arenite.spec((n,)))
    for k in (1, 3, 9):
        x = np.arange(k, dtype=np.float32)
        ends: list[NDArray[Any]] = [np.full((2, k), k), np.full_like(x, k * 2)]
        ends.append(np.full((2, k), x + 1, np.float64))
        for got, want in zip(program(x), ends, strict=True):
            assert got.dtype == want.dtype
            assert np.array_equal(got, want)
