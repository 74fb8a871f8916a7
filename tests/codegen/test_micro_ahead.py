"""What register tiles of convolutions ask for ahead of time: which arrays, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.lowering.lower import lower
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.targets import named
from tests.passes.lists import PASSES

FLOAT32 = BY_NAME["float32"]
#: Lines of the weights of the next columns, in each step of a product.
NEXT_WEIGHTS = 1
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


def tiles(y: Tensor) -> list[tuple[int, list[bool]]]:
    """Vectors of sums in each function of the one kernel, and its prefetches: whether for writing.

    Functions are named after their rows and columns, strips of pixels after what they lack too.
    """
    text = kernel_text(y)
    names = r"^define [^\n]*\.(?:tile|strip)(\d+)[^(\n]*?(?:x(\d+)m?)?\((.*?)^}"
    found = re.findall(names, text, re.M | re.S)
    assert found
    return [
        (int(rows) * int(columns or 1), [kind == "1" for kind in re.findall(PREFETCH, body)])
        for rows, columns, body in found
    ]


def weights(out: int, channels: int, kernel: int = 1) -> Any:
    return np.ones((out, channels, kernel, kernel), np.float32)


@pytest.mark.parametrize("kernel", [1, 5])
def test_results_are_asked_for_and_come_to_the_second_cache(kernel: int) -> None:
    y = image(64, 0).conv(weights(192, 64, kernel), padding=kernel // 2)
    for n_vectors, found in tiles(y.relu()):
        assert found == [False] * (n_vectors + NEXT_WEIGHTS * (kernel == 1))


@pytest.mark.parametrize("kernel", [1, 5])
def test_residuals_are_asked_for_too(kernel: int) -> None:
    y = image(64, 0).conv(weights(192, 64, kernel), padding=kernel // 2) + image(192, 1)
    for n_vectors, found in tiles(y):
        assert found == [False] * (2 * n_vectors + NEXT_WEIGHTS * (kernel == 1))


def test_results_of_short_sums_are_asked_for_to_be_written() -> None:
    for n_vectors, found in tiles(image(16, 0).conv(weights(192, 16))):
        assert found == [True] * n_vectors + [False] * NEXT_WEIGHTS


def test_rows_that_are_read_once_are_asked_for() -> None:
    """Sums of 24 channels are three half vectors: two lines of the cache."""
    for n_vectors, found in tiles(image(96, 0).conv(weights(24, 96))):
        assert len(found) > n_vectors // 3 * 2
        assert not any(found)


def test_what_is_the_same_for_all_rows_is_near_anyway() -> None:
    bias = Tensor(np.arange(192, dtype=np.float32).reshape(1, 192, 1, 1))
    for n_vectors, found in tiles(image(64, 0).conv(weights(192, 64)) * 2.0 + bias):
        assert len(found) == n_vectors + NEXT_WEIGHTS


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions_of_far_images_ask_for_new_lines_and_results(stride: int) -> None:
    def found(size: int) -> list[tuple[int, list[bool]]]:
        x = image(32, 0, size)
        return tiles(x.conv(weights(32, 1, 3), stride=stride, padding=1, groups=32))

    assert not any(asked for _, asked in found(28))
    for pixels, asked in found(160):
        assert asked == [False] * pixels * (1 + stride**2)
