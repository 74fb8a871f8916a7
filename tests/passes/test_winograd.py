"""Convolutions of 3x3 taps: which are done by Winograd's method, and what that changes.

Judged by NumPy: sums of whole numbers that floats hold exactly, and sums in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.dtype import of as dtype_of
from arenite.errors import DoesNotFit
from arenite.ir import verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from arenite.tensor import Tensor
from tests.passes.lists import PASSES

Array = NDArray[Any]


def whole(*shape: int, unit: int = 1) -> Array:
    """Multiples of four as weights make points that are whole numbers."""
    return (np.random.default_rng(sum(shape)).integers(-3, 4, shape) * unit).astype(np.float32)


def given(*shape: Any, dtype: Any = np.float32) -> Tensor:
    return Tensor.of_node(ir.graph_input("x", 0, shape, dtype_of(np.dtype(dtype))))


def convolved(x: Array, w: Array, side: int = 1) -> Array:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (side, side), (side, side)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True))


def is_winograd(y: Tensor) -> bool:
    made, _ = run(Graph.of([y.node]), PASSES)
    verify(made)
    return any(node.op == "conv_winograd" for node in made.nodes)


TAKEN: dict[str, Callable[[], Tensor]] = {
    "as in ResNet": lambda: given(1, 64, 56, 56).conv(whole(64, 64, 3, 3), padding=1),
    "odd sizes": lambda: given(1, 48, 27, 27).conv(whole(40, 48, 3, 3), padding=1),
    "no padding": lambda: given(2, 32, 30, 31).conv(whole(32, 32, 3, 3)),
    "images counted later": lambda: given(Var("n", 1, 8), 32, 20, 20).conv(
        whole(32, 32, 3, 3), padding=1
    ),
    "lines counted later": lambda: given(1, 64, Var("h", 8, 64), 28).conv(
        whole(64, 64, 3, 3), padding=1
    ),
    "sizes known later": lambda: given(1, 64, Var("h", 1, 640), Var("w", 1, 640)).conv(
        whole(64, 64, 3, 3), padding=1
    ),
    "weights that are computed": lambda: given(1, 32, 20, 20).conv(
        Tensor(whole(32, 32, 3, 3)) * Tensor(whole(32, 1, 1, 1)), padding=1
    ),
}

LEFT: dict[str, Callable[[], Tensor]] = {
    "other taps": lambda: given(1, 64, 28, 28).conv(whole(64, 64, 5, 5), padding=2),
    "a stride": lambda: given(1, 64, 28, 28).conv(whole(64, 64, 3, 3), padding=1, stride=2),
    "a dilation": lambda: given(1, 64, 28, 28).conv(whole(64, 64, 3, 3), padding=2, dilation=2),
    "groups": lambda: given(1, 64, 28, 28).conv(whole(64, 32, 3, 3), padding=1, groups=2),
    "few channels": lambda: given(1, 3, 112, 112).conv(whole(64, 3, 3, 3), padding=1),
    "few places": lambda: given(1, 512, 7, 7).conv(whole(512, 512, 3, 3), padding=1),
    "a line": lambda: given(1, 64, 1, 200).conv(whole(64, 64, 3, 3), padding=1),
    "float64": lambda: given(1, 64, 28, 28, dtype=np.float64).conv(
        whole(64, 64, 3, 3).astype(np.float64), padding=1
    ),
    "few channels in an image whose size is known later": lambda: given(
        1, 3, Var("h", 8, 640), Var("w", 8, 640)
    ).conv(whole(64, 3, 3, 3), padding=1),
    "weights that come with the input": lambda: given(1, 64, 28, 28).conv(
        Tensor.of_node(ir.graph_input("w", 1, (64, 64, 3, 3), dtype_of(np.dtype(np.float32)))),
        padding=1,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name: str) -> None:
    assert is_winograd(TAKEN[name]())


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    assert not is_winograd(LEFT[name]())


@pytest.mark.parametrize(("channels", "size"), [(32, 14), (40, 19)])
def test_results_are_those_of_the_convolution(channels: int, size: int) -> None:
    """Two layers and a residual, whose bytes the last one may take; with any number of threads."""
    x = whole(2, channels, size, size)
    first, second = (whole(channels, channels, 3, 3, unit=4) * (k + 1) for k in range(2))
    first[np.abs(first) > 4] = 0

    def block(x: Tensor) -> Tensor:
        kept = abs(x)
        return (kept.conv(first, padding=1).clip(0, 64).conv(second, padding=1) + kept).relu()

    inner = np.clip(convolved(np.abs(x), first), 0, 64)
    want = np.maximum(convolved(inner, second) + np.abs(x), 0)
    made = set()
    for threads in (1, 2, 3):
        with arenite.compile(block, x, threads=threads) as program:
            assert sum(one.entry_point.startswith("conv_winograd") for one in program.kernels) == 2
            program.verify()
            got = program(x)
            made.add(got.tobytes())
            np.testing.assert_array_equal(program.run_checked(x), got)
    np.testing.assert_array_equal(got, want)
    assert len(made) == 1


@pytest.mark.parametrize("padding", [0, 1])
def test_one_program_is_right_for_all_sizes(padding: int) -> None:
    """Images of less than a tile, of one block and of many, with lines cut evenly and not."""
    w = whole(40, 32, 3, 3, unit=4)
    height, width = Var("h", 3 - 2 * padding, 200), Var("w", 3 - 2 * padding, 200)
    spec = arenite.spec((Var("n", 1, 4), 32, height, width))
    with arenite.compile(lambda x: x.conv(w, padding=padding).relu(), spec) as program:
        assert any(one.entry_point.startswith("conv_winograd") for one in program.kernels)
        sizes = [(1, 3, 3), (2, 4, 37), (1, 33, 34), (3, 9, 130), (1, 131, 5), (1, 64, 64)]
        for n, *size in [*sizes, *([(1, 1, 1), (2, 1, 70)] if padding else [])]:
            x = whole(n, 32, *size)
            want = np.maximum(convolved(x, w, padding), 0)
            np.testing.assert_array_equal(program(x), want)
            np.testing.assert_array_equal(program.run_checked(x), want)
        program.verify()


def errors(depth: int) -> tuple[float, float]:
    """Rms of the error over that of the output: by Winograd's method, and without."""
    rng = np.random.default_rng(depth)
    x = rng.standard_normal((1, depth, 14, 14)).astype(np.float32)
    w = rng.standard_normal((32, depth, 3, 3)).astype(np.float32)
    true = convolved(x, w)
    found = []
    for winograd in (True, False):
        with arenite.compile(lambda x: x.conv(w, padding=1), x, winograd=winograd) as program:
            names = [one.entry_point for one in program.kernels]
            assert any(name.startswith("conv_winograd") for name in names) == winograd
            passes = [record.name for record in program.passes]
            assert ("winograd" in passes) == winograd
            found.append(float(np.sqrt(np.mean((program(x) - true) ** 2) / np.mean(true**2))))
    return found[0], found[1]


@pytest.mark.parametrize("depth", [32, 256])
def test_the_error_is_as_stated(depth: int) -> None:
    """docs/stability.md: with few channels less than that of adding up nine times as many products,
    with many, which are added up in blocks, more."""
    by_winograd, direct = errors(depth)
    assert max(by_winograd, direct) < 1e-6
    assert (by_winograd < direct) == (depth < 64)


def test_what_is_not_finite_stays_in_its_patches() -> None:
    x, w = whole(1, 32, 20, 20), whole(32, 32, 3, 3, unit=4)
    want = convolved(x, w)
    x[0, 5, 9, 11] = np.inf
    with arenite.compile(lambda x: x.conv(w, padding=1), x) as program:
        got = program(x)
    # Patches that have line 9 begin at lines 7 and 9, those that have pixel 11 at 9 and 11.
    apart = np.ones((20, 20), bool)
    apart[8:12, 10:14] = False
    np.testing.assert_array_equal(got[..., apart], want[..., apart])
    assert not np.isfinite(got[..., 9, 11]).any()


def test_under_a_budget_that_the_larger_weights_do_not_fit() -> None:
    w = np.random.default_rng(1).standard_normal((96, 96, 3, 3)).astype(np.float32)
    x = np.random.default_rng(2).standard_normal((1, 96, 20, 20)).astype(np.float32)
    graph = Graph.of([given(*x.shape).conv(w, padding=1).node])
    with (
        compile_graph(graph) as by_winograd,
        compile_graph(graph, Options(winograd=False)) as direct,
    ):
        large, small = by_winograd.plan.total_nbytes, direct.plan.total_nbytes
        [want] = direct(x)
        [other] = by_winograd(x)
    assert small < large
    assert want.tobytes() != other.tobytes()
    for memory, result in ((large, other), (large - 1, want), (small, want)):
        with compile_graph(graph, Options(memory=memory)) as program:
            assert program.plan.total_nbytes <= memory
            [got] = program(x)
        assert got.tobytes() == result.tobytes()
    with pytest.raises(DoesNotFit):
        compile_graph(graph, Options(memory=small - 64))
