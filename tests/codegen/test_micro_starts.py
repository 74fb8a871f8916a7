"""Sums of float convolutions begin with what is added to every pixel; held to whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.conv.depthwise import Depthwise
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.gemm.kernel import Details
from arenite.codegen.printer import kernel_text
from arenite.tensor import Tensor
from tests.codegen.bytes_kernels import Made
from tests.codegen.made import TARGETS, Array

CHANNELS, SIZE = 21, 9
AROUND = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}

#: Where a channel's number is, of each image.
PLACE = f"{CHANNELS} * _s0 + _s3"

#: What follows the sums, from them, two numbers a channel and one a pixel; what they begin with.
ENDS: list[tuple[Callable[[Any, Any, Any, Any], Any], str]] = [
    (lambda y, one, two, each: y + one, "in2[_s3]"),
    (lambda y, one, two, each: one * 2.0 + 3.0 + y, "in2[_s3] * 2.0f + 3.0f"),
    (lambda y, one, two, each: y - one * two + each, "0.0f - in2[_s3] * in3[_s3]"),
    (lambda y, one, two, each: (y + one) * one, "in2[_s3]"),
    (lambda y, one, two, each: y + each + one, "zero"),
    (lambda y, one, two, each: (y + one) * y, "zero"),
    (lambda y, one, two, each: abs(y), "zero"),
]


def whole(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def windows(x: Array) -> Array:
    """The nine taps of every pixel, zeros around the image: [1, H, W, 3, 3, C]."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.moveaxis(seen, 3, -1)


def check(
    kind: type[Details], w: Array, sums: Array, convolved: Callable[..., Any], target: str
) -> None:
    x = whole((1, SIZE, SIZE, CHANNELS), 1)
    arrays = [x, w, *(whole((CHANNELS,), k) for k in (3, 4)), whole(sums.shape, 5)]
    for end, start in ENDS:

        def function(x: Tensor, w: Tensor, *more: Tensor, end: Callable[..., Any] = end) -> Tensor:
            made: Tensor = end(Tensor.of_node(convolved(x.node, w.node)), *more)
            return made

        shapes = [(one.shape, one.dtype) for one in arrays]
        made = Made(function, shapes, target, kind)
        assert f"sums begin with {start}\n".replace("_s3", PLACE) in kernel_text(made.loops)
        expected = end(sums, *arrays[2:])
        [got] = made.run(arrays)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_a_channel_by_itself(target: str) -> None:
    w, x = whole((3, 3, CHANNELS), 2), whole((1, SIZE, SIZE, CHANNELS), 1)
    sums = (windows(x) * w).sum((3, 4))
    check(Depthwise, w, sums, lambda x, w: ir.make("depthwise_last", x, w, **AROUND), target)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_all_channels(target: str) -> None:
    w, x = whole((3, 3, CHANNELS, CHANNELS), 2), whole((1, SIZE, SIZE, CHANNELS), 1)
    sums = np.einsum("nhwtuc,tuco->nhwo", windows(x), w)
    room = np.pad(w, ((0, 0), (0, 0), (0, 0), (0, -CHANNELS % 16)))
    panels = np.moveaxis(room.reshape(1, 3, 3, CHANNELS, -1, 16), -2, 1)

    def convolved(x: Any, w: Any) -> Any:
        return ir.make("conv_last", x, w, channels=CHANNELS, **AROUND)

    check(Conv, np.ascontiguousarray(panels), sums, convolved, target)
