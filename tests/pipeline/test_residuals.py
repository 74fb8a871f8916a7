"""Residuals: what a convolution adds to is read where its results are written, and in its bytes.

Elements are small whole numbers, so that sums are exact in any order; NumPy sums them in 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import of as dtype_of
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor
from tests.pipeline.test_plan import in_place

Array = NDArray[Any]


def whole(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def convolved(x: Array, w: Array) -> Array:
    """With stride 1 and as many places as there were."""
    side = w.shape[2] // 2
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (side, side), (side, side)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    sums: Array = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))
    return sums


def given(array: Array) -> Tensor:
    return Tensor.of_node(ir.graph_input("x", 0, array.shape, dtype_of(array.dtype)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("size", "channels", "kernel"), [(17, 32, 1), (9, 18, 1), (7, 64, 3), (20, 24, 3), (30, 130, 1)]
)
def test_a_block_adds_in_the_bytes_of_its_residual(
    size: int, channels: int, kernel: int, threads: int
) -> None:
    x = whole((1, 8, size, size), 1)
    first, narrow, last = (
        whole((channels, 8, 1, 1), 2),
        whole((12, channels, kernel, kernel), 3),
        whole((channels, 12, 1, 1), 4),
    )
    kept = given(x).conv(first).relu()
    y = kept.conv(narrow, padding=kernel // 2).relu().conv(last)
    graph = Graph.of([(y + kept).relu().conv(narrow[:, :, :1, :1]).node])
    with compile_graph(graph, threads=threads) as program:
        program.verify()
        assert any(name.startswith("conv_last_maximum_add") for name in in_place(program.plan))
        [got] = program(x)
        [checked] = program.run_checked(x)
    before = np.maximum(convolved(x, first), 0)
    after = convolved(np.maximum(convolved(before, narrow), 0), last)
    expected = convolved(np.maximum(after + before, 0), narrow[:, :, :1, :1])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(checked, expected)


def test_a_residual_that_is_read_again_keeps_its_bytes() -> None:
    x = whole((1, 8, 12, 12), 1)
    first, last = whole((16, 8, 1, 1), 2), whole((16, 16, 1, 1), 3)
    kept = given(x).conv(first).relu()
    y = kept.conv(last) + kept
    graph = Graph.of([(y.conv(last) + kept).node])
    with compile_graph(graph) as program:
        [got] = program(x)
    before = np.maximum(convolved(x, first), 0)
    after = convolved(before, last) + before
    np.testing.assert_array_equal(got, convolved(after, last) + before)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", [(0, 0), (7, -3)])
@pytest.mark.parametrize("order", [1, -1])
def test_residuals_of_bytes_are_read_as_bytes(
    kind: Any, zeros: tuple[int, int], order: int
) -> None:
    """Two branches, each rounded to bytes, are added as numbers and rounded again."""
    x = np.abs(whole((1, 8, 9, 9), 1)).astype(kind)
    weights = [whole((20, 8, 1, 1), 2, np.int8), whole((20, 8, 3, 3), 3, np.int8)]
    info = np.iinfo(kind)
    scales = [0.37, 0.61]

    def bytes_of(real: Any, zero: int) -> Any:
        return (real.round() + float(zero)).clip(float(info.min), float(info.max)).astype(kind)

    tensors, arrays = [], []
    for w, zero, scale in zip(weights, zeros, scales, strict=True):
        sums = given(x).astype(np.int32).conv(Tensor(w).astype(np.int32), padding=w.shape[2] // 2)
        tensors.append(bytes_of(sums.astype(np.float32) * scale, zero))
        numbers = convolved(x, w).astype(np.float32) * np.float32(scale)
        arrays.append(bytes_of(numbers, zero))

    def added(branches: list[Any]) -> Any:
        one, other = (
            (branch.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)
            for branch, zero, scale in zip(branches, zeros, scales, strict=True)
        )
        return bytes_of(one + other, 5)

    graph = Graph.of([added(tensors[::order]).node])
    expected = added(arrays[::order])
    with compile_graph(graph, threads=2) as program:
        [got] = program(x)
        made = [kernel for kernel in program.kernels if kernel.entry_point.startswith("conv_bytes")]
        assert len(made) == 2
        assert "float32 out0" not in made[0].code, "what is kept are bytes"
    np.testing.assert_array_equal(got, expected)
