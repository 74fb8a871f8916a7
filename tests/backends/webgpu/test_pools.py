"""Short sums on WebGPU, a thread a result: pools of every kind, over channels that lie last or not,
judged by windows in NumPy. Whole numbers, so results are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.ir import Var, graph_input, make
from arenite.ir.compose.basic import pad
from tests.backends.webgpu.runner import Array, executable, run

F32 = BY_NAME["float32"]
REDUCED: dict[str, Any] = {"max": np.max, "min": np.min, "sum": np.sum}
#: Axes, size and stride of windows.
SHAPES = [((1, 2), 3, 2), ((2, 3), 2, 2), ((1, 2), 8, 1)]


def whole(*shape: int) -> Array:
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


def by_windows(x: Array, axes: tuple[int, int], size: int, stride: int, op: str) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axes)
    steps = [slice(None)] * windows.ndim
    for axis in axes:
        steps[axis] = slice(None, None, stride)
    return np.asarray(REDUCED[op](windows[tuple(steps)], axis=(-2, -1)))


@pytest.mark.parametrize("op", REDUCED)
@pytest.mark.parametrize(
    ("axes", "size", "stride"), [((1, 2), 3, 2), ((2, 3), 2, 2), ((1, 2), 8, 1)]
)
def test_a_pool_is_that_of_its_windows(
    op: str, axes: tuple[int, int], size: int, stride: int
) -> None:
    data = whole(2, 11, 13, 12)
    x = graph_input("x", 0, data.shape, F32)
    window = {"axes": axes, "sizes": (size,) * 2, "strides": (stride,) * 2, "dilations": (1, 1)}
    [found] = run([make(op, make("window", x, **window), axes=(4, 5))], data)
    assert np.array_equal(found, by_windows(data, axes, size, stride, op))


def test_what_follows_a_pool_and_open_sizes() -> None:
    """A sum over padded windows, scaled: an average pool that counts its padding."""
    high = Var("high", 4, 20)
    x = graph_input("x", 0, (2, high, 9, 5), F32)
    window = {"axes": (1, 2), "sizes": (2, 2), "strides": (1, 1), "dilations": (1, 1)}
    padded = pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)))
    y = make("neg", make("sum", make("window", padded, **window), axes=(4, 5)))
    with executable([y]) as program:
        for n in (4, 20, 7):
            data = whole(2, n, 9, 5)
            around = np.pad(data, ((0, 0), (1, 0), (0, 1), (0, 0)))
            [found] = program(data)
            assert np.array_equal(found, -by_windows(around, (1, 2), 2, 1, "sum"))
        program.run_checked(whole(2, 7, 9, 5))
