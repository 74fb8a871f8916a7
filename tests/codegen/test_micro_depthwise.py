"""How depthwise convolutions are cut into tiles, and how far ahead they ask for what they need."""

from __future__ import annotations

import re

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.conv.depthwise import Depthwise
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.codegen.kernels.built import Built
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.targets import named
from tests.passes.lists import PASSES


def built(channels: int, size: int, stride: int = 1) -> tuple[Built, MicroKernel, Depthwise]:
    """Three by three taps on a square image, channels last in memory."""
    node = ir.graph_input("x", 0, (1, size, size, channels), BY_NAME["float32"])
    x = Tensor.of_node(node).permute(0, 3, 1, 2)
    taps = np.ones((channels, 1, 3, 3), np.float32)
    y = x.conv(taps, stride=stride, padding=1, groups=channels).permute(0, 2, 3, 1)
    kernels = fuse(run(Graph.of([y.node]), PASSES)[0]).kernels
    [kernel] = [one for one in kernels if one.name.startswith("depthwise")]
    made = build(kernel, named("avx512"))
    assert isinstance(made.loops, MicroKernel)
    assert isinstance(made.loops.details, Depthwise)
    return made, made.loops, made.loops.details


def lines_of_a_tile(kernel: MicroKernel) -> int:
    [length, *_] = re.findall(r"last_line = min\(.*?(\d+), \d+\);", kernel_text(kernel))
    return int(length)


@pytest.mark.parametrize(
    ("channels", "size"), [(32, 112), (96, 80), (144, 56), (192, 28), (384, 14), (960, 7)]
)
def test_two_workers_have_as_many_lines_and_channels_each(channels: int, size: int) -> None:
    made, kernel, _ = built(channels, size)
    assert isinstance(made.tiles, int)
    n_lines = lines_of_a_tile(kernel)
    n_chunks, rest = divmod(made.tiles * n_lines, size)
    assert rest == 0
    assert size % n_lines == channels // 16 % n_chunks == made.tiles % 2 == 0


@pytest.mark.parametrize(("channels", "size"), [(16, 320), (48, 160), (96, 80), (144, 56)])
@pytest.mark.parametrize("stride", [1, 2])
def test_most_of_what_is_asked_for_ahead_is_of_the_same_tile(
    channels: int, size: int, stride: int
) -> None:
    _, kernel, depthwise = built(channels, size, stride)
    assert depthwise.n_new_lines == stride
    pixels = lines_of_a_tile(kernel) * (size // stride)
    assert 0 < depthwise.ahead <= pixels / 4
