"""Convolutions on WebGPU: every cut of results, strides, groups, padding, open sizes, and what
follows in the same kernel.

Elements are small whole numbers, which float32 holds exactly however they are summed: the judge is
a sum over windows in NumPy, and results are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from arenite.backends.webgpu import conv as kernels
from arenite.backends.webgpu.channels_last import CONV, why_left
from arenite.backends.webgpu.conv_text import Cut
from arenite.dtype import BY_NAME
from arenite.ir import Var, buffer, constant, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.sources import full
from arenite.pipeline.program import compile_program
from tests.backends.webgpu.runner import ON_WEBGPU, Array, devices_of, executable, run, webgpu
from tests.passes.scattered import scattered

F32 = BY_NAME["float32"]


class Case(NamedTuple):
    x: tuple[int, ...]
    out: int
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1


CASES = {
    "first layer": Case((1, 3, 20, 18), 16, (7, 7), stride=2, padding=3),
    "three by three": Case((2, 8, 9, 7), 24, (3, 3), padding=1),
    "one by one": Case((1, 20, 6, 5), 66, (1, 1)),
    "strided": Case((2, 12, 9, 8), 10, (3, 3), stride=2, padding=1),
    "strided one by one": Case((1, 8, 9, 9), 16, (1, 1), stride=2),
    "dilated": Case((1, 4, 11, 12), 5, (3, 2), padding=2, dilation=2),
    "two groups": Case((1, 16, 7, 7), 32, (3, 3), padding=1, groups=2),
    "small groups": Case((1, 12, 7, 7), 6, (3, 3), padding=1, groups=3),
    "depthwise": Case((2, 20, 9, 9), 20, (3, 3), padding=1, groups=20),
    "one channel in and out": Case((1, 1, 30), 1, (5,), padding=2),
    "along one axis": Case((2, 6, 40), 12, (5,), stride=2, padding=2),
    "along three": Case((1, 4, 5, 6, 7), 9, (3, 3, 2), padding=1),
    "more than a rectangle": Case((1, 4, 20, 20), 140, (3, 3), padding=1),
}


def whole(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def image(shape: Sequence[Any], index: int = 0) -> Node:
    return graph_input(f"x{index}", index, tuple(shape), F32)


def conv(x: Node, w: Array, case: Case) -> Node:
    n = len(case.kernel)
    return make(
        "conv",
        x,
        constant(w),
        strides=(case.stride,) * n,
        padding=((case.padding, case.padding),) * n,
        dilations=(case.dilation,) * n,
        groups=case.groups,
    )


def weights(case: Case) -> Array:
    return whole(case.out, case.x[1] // case.groups, *case.kernel, seed=1)


def by_windows(x: Array, w: Array, case: Case) -> Array:
    """The sum over all windows, one group of channels after another."""
    n = len(case.kernel)
    padded = np.pad(x, ((0, 0), (0, 0), *[(case.padding, case.padding)] * n)).astype(np.float64)
    reach = tuple((taps - 1) * case.dilation + 1 for taps in case.kernel)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + n)))
    places = (slice(None, None, case.stride),) * n
    taps = (slice(None, None, case.dilation),) * n
    windows = windows[(slice(None), slice(None), *places, *taps)]
    groups = zip(
        np.split(windows, case.groups, axis=1), np.split(w, case.groups, axis=0), strict=True
    )
    axes = "ijk"[:n]
    formula = f"nc{'xyz'[:n]}{axes},oc{axes}->no{'xyz'[:n]}"
    return np.concatenate([np.einsum(formula, *pair) for pair in groups], axis=1)


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_the_sum_over_its_windows(name: str) -> None:
    case = CASES[name]
    data, w = whole(*case.x), weights(case)
    [found] = run([conv(image(case.x), w, case)], data)
    assert np.array_equal(found, by_windows(data, w, case))


def test_a_convolution_of_no_channels_is_zero() -> None:
    webgpu()
    case = Case((2, 0, 6, 7), 8, (3, 3), padding=1)
    [found] = run([conv(image(case.x), whole(8, 0, 3, 3), case)], np.zeros(case.x, np.float32))
    assert np.array_equal(found, np.zeros((2, 8, 6, 7)))


@pytest.mark.parametrize("groups", [1, 16])
def test_an_infinity_reaches_the_places_of_its_taps_and_no_other(groups: int) -> None:
    webgpu()
    x, w = whole(1, 16, 6, 5), whole(16, 16 // groups, 3, 3, seed=1)
    w[w == 0] = 1
    x[0, 3, 2, 2], x[0, 8, 5, 4] = np.inf, -np.inf
    padding, more = ((1, 1),) * 2, (1, 1)
    attrs = {"strides": (2, 2), "dilations": (1, 1), "groups": groups}
    y = make(
        "conv_transpose",
        image(x.shape),
        constant(w),
        padding=padding,
        output_padding=more,
        **attrs,
    )
    [found] = run([y], x)
    assert np.array_equal(found, scattered(x, w, (2, 2), padding, more, groups))


@pytest.mark.parametrize("cut", kernels.CUTS, ids=str)
def test_every_cut_gives_the_same(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cut_for", lambda rows, columns: cut)
    case = Case((2, 12, 9, 8), 2 * cut.own_columns + 70, (3, 3), padding=1)
    data, w = whole(*case.x), weights(case)
    # A number of its own: what is compiled is kept by the graph.
    y = conv(image(case.x), w, case) * full((), float(cut.height + cut.teams), F32)
    [found] = run([y], data)
    assert np.array_equal(found, by_windows(data, w, case) * (cut.height + cut.teams))


def test_what_follows_is_one_kernel() -> None:
    """A bias, a residual, a gate of each image and channel, and an activation; the sum before them
    is asked for too."""
    case = Case((2, 8, 6, 7), 8, (3, 3), padding=1)
    x, w, b = image(case.x), weights(case), whole(8, 1, 1, seed=2)
    gate = graph_input("gate", 1, (2, 8, 1, 1), F32)
    y = (conv(x, w, case) + constant(b)) * gate
    y = make("maximum", y + x, full((2, 8, 6, 7), 0.0, F32))
    again = conv(y, whole(8, 8, 3, 3, seed=4), case)
    data, gates = whole(*case.x), whole(2, 8, 1, 1, seed=3)
    with executable([again]) as program:
        names = [kernel.entry_point for kernel in program.kernels]
        [found] = program(data, gates)
    first = np.maximum((by_windows(data, w, case) + b) * gates + data, 0)
    assert np.array_equal(found, by_windows(first, whole(8, 8, 3, 3, seed=4), case))
    assert sum(name.startswith(CONV) for name in names) == 2
    assert not any("maximum" in name for name in names if not name.startswith(CONV)), names


def test_sizes_may_be_open() -> None:
    batch, high, wide = Var("batch", 1, 3), Var("high", 5, 12), Var("wide", 5, 12)
    case = Case((0, 8, 0, 0), 20, (3, 3), stride=2, padding=1)
    w = weights(case)
    x = image((batch, 8, high, wide))
    y = make("neg", conv(x, w, case))
    with executable([y]) as program:
        for shape in ((1, 8, 5, 12), (3, 8, 12, 7), (2, 8, 9, 9)):
            data = whole(*shape, seed=shape[2])
            [found] = program(data)
            assert np.array_equal(found, -by_windows(data, w, case))
        program.verify()
        program.run_checked(whole(2, 8, 9, 9))


def test_a_network_keeps_its_channels_last() -> None:
    """One permute at the entry, none between convolutions, pools and sums."""
    case = Case((1, 3, 16, 16), 8, (3, 3), padding=1)
    x = image(case.x)
    y = make("maximum", conv(x, weights(case), case), full((1, 8, 16, 16), 0.0, F32))
    pool = {"sizes": (2, 2), "strides": (2, 2), "dilations": (1, 1), "axes": (2, 3)}
    y = make("max", make("window", y, **pool), axes=(4, 5))
    second = Case((1, 8, 8, 8), 12, (1, 1))
    y = make("sum", conv(y, weights(second), second), axes=(2, 3))
    data = whole(*case.x)
    with executable([y]) as program:
        [found] = program(data)
        names = [kernel.entry_point.rstrip("_0123456789") for kernel in program.kernels]
    wanted = np.maximum(by_windows(data, weights(case), case), 0)
    wanted = wanted.reshape(1, 8, 8, 2, 8, 2).max((3, 5))
    wanted = by_windows(wanted, weights(second), second).sum((2, 3))
    assert np.array_equal(found, wanted)
    assert not any("permute" in name for name in names[2:]), names


@pytest.mark.parametrize("rows", [(1,), (7,), (2, 9), (2, 3, 4)], ids=str)
def test_a_short_product_shares_the_depth_out(rows: tuple[int, ...]) -> None:
    """By weights [K, N], as files of models have them; what follows is in its kernel."""
    w, b, data = whole(60, 36, seed=1), whole(36, seed=2), whole(*rows, 60)
    y = make("matmul", image((*rows, 60)), constant(w), transpose_a=False, transpose_b=False)
    with executable([make("abs", y + constant(b))]) as program:
        [found] = program(data)
        names = [kernel.entry_point for kernel in program.kernels]
    assert np.array_equal(found, np.abs(data @ w + b))
    assert [name.startswith(CONV) for name in names] == [False, True, False], names


def test_other_elements_are_convolved_as_they_lie() -> None:
    webgpu()
    x = graph_input("x", 0, (1, 4, 6, 6), BY_NAME["float16"])
    case = Case((1, 4, 6, 6), 4, (3, 3), padding=1)
    y = make(
        "conv",
        x,
        constant(weights(case).astype(np.float16)),
        strides=(1, 1),
        padding=((1, 1), (1, 1)),
        dilations=(1, 1),
        groups=1,
    )
    assert why_left(y) == "products of float16 and float16 have no kernel of their own"
    data = whole(*case.x).astype(np.float16)
    with compile_program(Graph.of([y]), ON_WEBGPU) as program:
        [found] = program(data)
        assert devices_of(program) == {"webgpu"}
    assert np.array_equal(found, by_windows(data, weights(case), case))


def test_weights_that_are_packed_lie_on_the_device_once() -> None:
    """As they were given, only until the program has packed them."""
    gpu = webgpu()
    case = Case((1, 64, 4, 4), 128, (3, 3), padding=1)
    w, data = weights(case), whole(*case.x)
    before = gpu.stats.live_nbytes
    y = make(
        "conv",
        image(case.x),
        buffer(w),
        strides=(1, 1),
        padding=((1, 1), (1, 1)),
        dilations=(1, 1),
        groups=1,
    )
    with executable([y]) as program:
        for _ in range(2):
            assert np.array_equal(program(data)[0], by_windows(data, w, case))
        assert gpu.stats.live_nbytes - before <= program.plan.peak_nbytes + 4096
        assert program.plan.peak_nbytes > w.nbytes
