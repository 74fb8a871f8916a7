"""What register tiles of convolutions ask for ahead of time: which arrays, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.codegen.kernels.choose import build
from arenite.codegen.lower import lower
from arenite.codegen.target import named
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.passes import PASSES, run
from arenite.schedule import fuse
from arenite.tensor import Tensor

FLOAT32 = BY_NAME["float32"]
PREFETCH = r"call void @llvm\.prefetch\.p0\(ptr [^,]+, i32 (\d), i32 2, i32 1\)"


def image(channels: int, index: int, size: int = 28) -> Tensor:
    """Channels last in memory, second for those who look."""
    node = ir.graph_input(f"x{index}", index, (1, size, size, channels), FLOAT32)
    return Tensor.of_node(node).permute(0, 3, 1, 2)


def kernel_text(y: Tensor) -> str:
    """The one convolution as LLVM."""
    graph = Graph.of([y.permute(0, 2, 3, 1).node])
    target = named("avx512")
    kernels = fuse(run(graph, PASSES)[0]).kernels
    [kernel] = [one for one in kernels if one.name.startswith(("conv", "depthwise"))]
    return lower(build(kernel, target).loops, target)


def prefetches(y: Tensor) -> list[bool]:
    """Of the one kernel's prefetches, whether they are for writing."""
    return [kind == "1" for kind in re.findall(PREFETCH, kernel_text(y))]


def weights(out: int, channels: int, kernel: int = 1) -> Any:
    return np.ones((out, channels, kernel, kernel), np.float32)


def test_a_plain_convolution_asks_for_nothing() -> None:
    assert not prefetches(image(64, 0).conv(weights(192, 64)).relu())
    assert not prefetches(image(64, 0).conv(weights(64, 64, 5), padding=2))


@pytest.mark.parametrize("kernel", [1, 5])
def test_residuals_are_asked_for(kernel: int) -> None:
    y = image(64, 0).conv(weights(64, 64, kernel), padding=kernel // 2) + image(64, 1)
    found = prefetches(y)
    assert found
    assert not any(found)


def test_results_of_short_sums_are_asked_for() -> None:
    found = prefetches(image(16, 0).conv(weights(192, 16)))
    assert found
    assert all(found)


def test_rows_that_are_read_once_are_asked_for() -> None:
    found = prefetches(image(96, 0).conv(weights(24, 96)))
    assert found
    assert not any(found)


def test_what_is_the_same_for_all_rows_is_near_anyway() -> None:
    bias = Tensor(np.arange(192, dtype=np.float32).reshape(1, 192, 1, 1))
    assert not prefetches(image(64, 0).conv(weights(192, 64)) * 2.0 + bias)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions_of_far_images_ask_for_new_lines_and_results(stride: int) -> None:
    def strips(size: int) -> list[tuple[int, list[str]]]:
        """Pixels and prefetches of every function."""
        x = image(32, 0, size)
        text = kernel_text(x.conv(weights(32, 1, 3), stride=stride, padding=1, groups=32))
        functions = re.findall(r"^define [^\n]*\.strip(\d+)(.*?)^}", text, re.M | re.S)
        return [(int(pixels), re.findall(PREFETCH, body)) for pixels, body in functions]

    near, far = strips(28), strips(160)
    assert near
    assert not any(found for _, found in near)
    assert len(far) > 1
    for pixels, found in far:
        assert len(found) == pixels * (1 + stride**2)
        # All to the second cache, also what will be written.
        assert set(found) == {"0"}
