"""Compiling grows with the graph and no faster: deep graphs, wide ones, and diamonds of every kind.

What is counted is the functions that Python enters on the way from a graph to LLVM's text, and the
length of the loops: four times the graph may take little more than four times as much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.backend import BACKEND
from arenite.backends.cpu.lowering.lower import lower
from arenite.codegen.kernel_choices import build_chosen
from arenite.codegen.kernels.built import Built
from arenite.codegen.printer import kernel_text
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.passes.simplify import MAX_PARTS
from arenite.pipeline.build import plan_program
from arenite.schedule import fuse
from arenite.schedule.roots import MAX_OPS, MAX_PIECES
from arenite.tensor import Tensor, asarray, concat, spec, stack, where
from tests.passes.lists import PASSES

#: More than the size itself grows, for what a kernel as large as they get has over smaller ones.
SLACK = 1.6
SMALL, LARGE = 40, 160


def graph_of(function: Callable[..., Any], *arguments: Tensor) -> Graph:
    made = function(*arguments)
    outputs = made if isinstance(made, list) else [made]
    return Graph(tuple(x.node for x in arguments), tuple(x.node for x in outputs))


def built_of(graph: Graph) -> list[Built]:
    simplified, _ = run(graph, PASSES)
    return [build_chosen(kernel, BACKEND.build, {}) for kernel in fuse(simplified).kernels]


def calls_of(work: Callable[[], object]) -> int:
    """Functions that Python enters on the way."""
    calls = 0

    def entered(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(entered)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def work_of(graph: Graph) -> tuple[int, int]:
    """Functions entered from the graph to the text of all modules, and characters of loops."""
    texts: list[str] = []

    def work() -> None:
        built = built_of(graph)
        texts.extend(kernel_text(replace(one.loops, name="kernel")) for one in built)
        for loops in {text: one.loops for text, one in zip(texts, built, strict=True)}.values():
            lower(loops, BACKEND.target)

    return calls_of(work), sum(map(len, texts))


def repeated(step: Callable[[Tensor], Tensor], times: int) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        for _ in range(times):
            x = step(x)
        return x

    return function


def fan(x: Tensor, width: int) -> list[Tensor]:
    shared = x.sin()
    return [((shared * float(k) + 1) * shared).sum() for k in range(width)]


def views(x: Tensor, width: int) -> list[Tensor]:
    found = []
    for k in range(width):
        x = x[::-1].T
        found.append(x + float(k))
    return found


DEEP: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: x * 1.5 + x.sin(),
    "square": lambda x: x * x,
    "diamond": lambda x: x + x * 2,
    "small floats": lambda x: (x.astype("bfloat16") * 1.5).astype("float32"),
    "choice": lambda x: where(x > 0, x, -x),
    "rotation": lambda x: concat([x[1:], x[:1]]),
    "halves": lambda x: concat([x[:4] * 2, x[4:] * 3]),
    "padding": lambda x: x.pad(1)[2:, 2:],
    "padding that goes": lambda x: x.pad(1)[1:-1, 1:-1] * 1.001,
    "shift": lambda x: x[1:].pad(((0, 1), (0, 0))) + x,
    "flip": lambda x: x[::-1],
    "reshape": lambda x: x.reshape(4, 16).permute(1, 0).reshape(8, 8) + 1,
    "broadcast": lambda x: x[:, :1] + x[:1],
    "stack": lambda x: stack([x, x + 1]).sum(0),
    "reduction": lambda x: x - x.sum(1, keepdims=True),
    "scan": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(),
    "gather": lambda x: x.take(np.arange(8), 0),
    "product": lambda x: x @ x,
}

WIDE: dict[str, Callable[[Tensor, int], Any]] = {
    "concat": lambda x, n: concat([x * float(k) for k in range(n)]),
    "reduction of a concat": lambda x, n: concat([x * float(k) for k in range(n)]).sum(),
    "concat of dear parts": lambda x, n: concat([(x * float(k)).sin().exp() for k in range(n)]),
    "sum of many": lambda x, n: sum((x * float(k) for k in range(n)), start=x),
    "many outputs": lambda x, n: [x * float(k) for k in range(n)],
    "many readers": fan,
    "views of views": views,
}


def need_linear(small: tuple[int, int], large: tuple[int, int]) -> None:
    for few, many in zip(small, large, strict=True):
        assert many <= few * LARGE / SMALL * SLACK


@pytest.mark.parametrize("name", DEEP)
def test_work_grows_with_the_depth_of_a_graph(name: str) -> None:
    def work(depth: int) -> tuple[int, int]:
        return work_of(graph_of(repeated(DEEP[name], depth), spec((8, 8)).argument("x", 0)))

    need_linear(work(SMALL), work(LARGE))


@pytest.mark.parametrize("name", WIDE)
def test_work_grows_with_the_width_of_a_graph(name: str) -> None:
    def work(width: int) -> tuple[int, int]:
        return work_of(graph_of(lambda x: WIDE[name](x, width), spec((8, 8)).argument("x", 0)))

    need_linear(work(SMALL), work(LARGE))


def test_layers_take_few_steps_each_from_the_graph_to_the_plan() -> None:
    def graph(n: int) -> Graph:
        def function(x: Tensor) -> Tensor:
            for k in range(n):
                x = (x @ asarray(np.full((16, 16), k, np.float32))).gelu()
                x = (x - x.mean(1, keepdims=True)) * 0.5
                x = concat([x[:, 8:], -x[:, :8]], 1).softmax(1)
            return x

        return graph_of(function, spec((12, 16)).argument("x", 0))

    plan_program(graph(20))  # what all layers have in common
    small, large = graph(20), graph(60)
    few, many = calls_of(lambda: plan_program(small)), calls_of(lambda: plan_program(large))
    # Some fifteen passes, and fusion, order, lifetimes and placement.
    assert (many - few) / (len(large) - len(small)) < 300


def test_what_passes_leave_alone_is_looked_at_once_by_each() -> None:
    graph = graph_of(repeated(DEEP["choice"], 200), spec((8, 8)).argument("x", 0))
    assert run(graph, PASSES)[0] is graph
    assert calls_of(lambda: run(graph, PASSES)) < 6 * len(PASSES) * len(graph)


@pytest.mark.parametrize("name", ["square", "flip"])
def test_nothing_is_recursive_over_a_deep_graph(name: str) -> None:
    graph = graph_of(repeated(DEEP[name], 5_000), spec((8, 8)).argument("x", 0))
    for one in built_of(graph):
        assert len(kernel_text(one.loops)) < 300 * MAX_OPS


def test_a_kernel_of_a_concat_has_few_parts() -> None:
    arguments = [spec((3,)).argument(f"x{k}", k) for k in range(3_000)]
    graph, _ = run(graph_of(lambda *xs: concat(list(xs)).sum(), *arguments), PASSES)
    assert max(len(kernel.inputs) for kernel in fuse(graph).kernels) == MAX_PARTS


def test_an_element_is_chosen_from_few_pieces() -> None:
    arguments = [spec((3,)).argument(f"x{k}", k) for k in range(MAX_PIECES + 1)]
    for n, kernels in ((MAX_PIECES, 1), (MAX_PIECES + 1, 2)):
        graph = graph_of(lambda *xs: concat(list(xs)).exp().sum(), *arguments[:n])
        assert len(fuse(graph).kernels) == kernels


@pytest.mark.parametrize("n", [60, 200])
def test_reductions_of_many_pieces(n: int) -> None:
    rows = [np.random.default_rng(k).normal(size=7).astype(np.float32) for k in range(n)]

    def function(*xs: Tensor) -> tuple[Tensor, Tensor]:
        return concat(list(xs)).sum(), stack(list(xs)).softmax(0)

    total, soft = arenite.compile(function, *rows)(*rows)
    np.testing.assert_allclose(total, np.concatenate(rows).sum(dtype=np.float64), rtol=1e-5)
    powers = np.exp(np.stack(rows).astype(np.float64))
    np.testing.assert_allclose(soft, powers / powers.sum(0), rtol=1e-5)


def test_pieces_of_pieces() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rolled = repeated(DEEP["rotation"], 21)(x)
        moved = repeated(DEEP["padding"], 3)(x)
        same = repeated(DEEP["padding that goes"], 30)(x)
        return rolled, moved, same

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    rolled, moved, same = arenite.compile(function, x)(x)
    np.testing.assert_array_equal(rolled, np.roll(x, -21, 0))
    np.testing.assert_array_equal(moved, np.pad(x, ((0, 3), (0, 3)))[3:, 3:])
    np.testing.assert_allclose(same, x * 1.001**30, rtol=1e-5)
