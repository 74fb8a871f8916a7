"""Drivers that end loops after so many turns: what they say of themselves; the turns that kernels
may take, which a count inside of the shader judges; and what is too long for such a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.webgpu import build, load, results
from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.shader import Shader
from arenite.backends.webgpu.turns import most_turns
from arenite.codegen import loop_ir as ir
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.errors import NotCompiled
from arenite.ir import constant, graph_input, make, reference
from arenite.ir.compose.neural import attention
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import compile_graph
from arenite.pipeline.program import compile_program
from tests.backends.webgpu.runner import ON_WEBGPU, devices_of, webgpu
from tests.codegen.block_weights import random_blocks, weights_node

Array = NDArray[Any]

F32, I32 = BY_NAME["float32"], BY_NAME["int32"]
#: More turns than a loop of lavapipe takes.
MANY = 70_000
N = Var("n", 1, 300)


def x(*shape: Dim, index: int = 0) -> Node:
    return graph_input(f"x{index}", index, shape, F32)


def product(rows: Dim, depth: int, columns: int) -> Node:
    weights = constant(np.ones((depth, columns), np.float32).T.copy())
    return make("matmul", x(rows, depth), weights, transpose_a=False, transpose_b=True)


def blocks_product(name: str, rows: Dim, depth: int) -> Node:
    return matmul_blocks(x(rows, depth), weights_node(name, random_blocks(name, 24, depth), depth))


def convolution() -> Node:
    sizes = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1}
    return make("conv", x(1, 40, N, 9), x(16, 40, 3, 3, index=1), **sizes)


def attended(queries: Dim, width: int) -> Node:
    of_keys = (x(4, N, width, index=k) for k in (1, 2))
    return attention(x(4, queries, width), *of_keys, causal=True)


def updates(count: int) -> Node:
    places = constant(np.arange(count) % 8)
    return make("scatter_elements", x(8), places, x(count, index=1), axis=0, reduction="add")


KERNELS: dict[str, Callable[[], Node]] = {
    "a map": lambda: make("exp", x(3000)),
    "a map that repeats something": lambda: make(
        "pow", *[graph_input(f"x{k}", k, (700,), I32) for k in range(2)]
    ),
    "rows": lambda: make("sum", x(9, 7000), axes=(1,)),
    "columns": lambda: make("max", x(700, 5), axes=(0,)),
    "a place in a row": lambda: make("argmax", x(3, 9000), axis=1),
    "a softmax": lambda: make("div", x(5, 400), _spread(make("sum", x(5, 400), axes=(1,)))),
    "one after another": lambda: make("cumsum", x(3, 30), axis=1),
    "blocks one after another": lambda: make("cumsum", x(3, 90_000), axis=1),
    "updates in their order": lambda: updates(700),
    "sorting": lambda: make("sort", x(3, 500), axis=1, descending=False),
    "a short sum": lambda: make("sum", x(40, 7), axes=(1,)),
    "a square of a product": lambda: make(
        "matmul", x(N, 70), x(70, N, index=1), transpose_a=False, transpose_b=False
    ),
    "a row by floats": lambda: product(1, 4096, 24),
    "a few rows by floats, or many": lambda: product(N, 520, 24),
    "many rows by floats": lambda: product(100, 1000, 64),
    "a row by blocks": lambda: blocks_product("q8_0", 1, 12_288),
    "a few rows by blocks": lambda: blocks_product("q4_k", 8, 9216),
    "many rows by blocks": lambda: blocks_product("q5_1", 100, 512),
    "a convolution": convolution,
    "attention of one": lambda: attended(1, 64),
    "attention of many": lambda: attended(N, 24),
}


def sizes(node: Node, n: int = 0) -> tuple[int, ...]:
    return tuple(evaluate(size, {"n": n}) for size in node.shape)


def _spread(sums: Node) -> Node:
    return make("expand", make("reshape", sums, shape=(5, 1)), shape=(5, 400))


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> WebGpuAllocator:
    """A device that ends no loop, as far as it says."""
    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(turns=2**31))
    return gpu


def counting(shader: Shader) -> Shader:
    """A shader that reports how many turns its threads take at the most, as its error."""
    body = shader.text.rstrip().removesuffix("}")
    smaller = tuple((size, most, counting(one)) for size, most, one in shader.smaller)
    return replace(
        shader,
        name="counting",
        text=f"var<private> turns: u32;\n{body}fail(parameters.error_at, turns);\n}}\n",
        requires=True,
        is_proven=False,
        smaller=smaller,
        following=None if shader.following is None else counting(shader.following),
    )


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The turns that the launches of a run take, each thread's at the most."""
    found: list[int] = []
    plain = Shader.module

    def module(self: Shader, *given: Any) -> str:
        text = plain(self, *given)
        if self.name != "counting":
            return text
        return re.sub(r"(?m)((?:for|while) \(.*\) \{)", r"\1 turns++;", text)

    def reported(data: memoryview, names: list[str]) -> None:
        found.extend(np.frombuffer(data[: 4 * len(names)], np.uint32).tolist())

    monkeypatch.setattr(Shader, "module", module)
    monkeypatch.setattr(load, "shaders_of", lambda image: [*map(counting, shaders_of(image))])
    monkeypatch.setattr(results, "check_errors", reported)
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_no_thread_takes_more_turns_than_was_counted(
    name: str, endless: WebGpuAllocator, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[str, int] = {}

    def count(kernel: ir.GroupKernel, sizes: dict[str, Var], tiles: Dim, most: int) -> None:
        turns = most_turns(kernel, sizes, tiles)
        counted[kernel.name] = max(turns, counted.get(kernel.name, 0))

    monkeypatch.setattr(build, "refuse_long_loops", count)
    graph = Graph.of([KERNELS[name]()])
    with compile_graph(graph, ON_WEBGPU) as program:
        for n in (1, 7, 300):
            program(*(np.ones(sizes(one, n), one.dtype.to_numpy()) for one in graph.inputs))
        [executable] = program.executables
        most = [
            counted[one.launch.name] for one in executable.kernels if one.launch.name in counted
        ]
    assert 0 < max(taken) <= max(most) < 4 * max(taken) + 300


def test_a_device_knows_after_how_many_turns_it_ends_a_loop() -> None:
    gpu = webgpu()
    assert gpu.limits.turns is None or gpu.limits.turns < 2**20
    if gpu.adapter_name.startswith("llvmpipe"):
        assert gpu.limits.turns == 65_535  # LP_MAX_TGSI_LOOP_ITERATIONS of Mesa


def test_it_is_known_how_long_loops_are_over_what_may_be_nothing() -> None:
    webgpu()
    columns = Var("n", 0, 5)
    graph = Graph.of([make("max", x(100, columns, 3), axes=(0,))])
    with compile_program(graph, ON_WEBGPU) as program:
        for n in (5, 0, 1):
            given = np.random.default_rng(n).standard_normal((100, n, 3)).astype(np.float32)
            np.testing.assert_array_equal(program(given)[0], given.max(axis=0))
        assert devices_of(program) == {"webgpu"}


@pytest.mark.parametrize(
    "make_long",
    [
        lambda: updates(MANY),
        lambda: make("argmin", x(2, MANY, 64), axis=1),
        lambda: make(
            "matmul", x(1, MANY), x(MANY, 8, index=1), transpose_a=False, transpose_b=False
        ),
        lambda: product(64, 8 * MANY, 16),
    ],
    ids=["updates in their order", "places in columns", "a product", "a product by weights"],
)
def test_what_takes_too_many_turns_is_right_all_the_same(make_long: Callable[[], Node]) -> None:
    """Such loops ended silently, and what they had until then was the result."""
    gpu = webgpu()
    graph = Graph.of([make_long()])
    rng = np.random.default_rng(3)
    arrays = [
        rng.integers(-3, 4, sizes(one)).astype(np.float32)  # whole numbers: all sums are exact
        for one in graph.inputs
    ]
    [wanted] = reference.evaluate(graph, list(arrays))
    with compile_program(graph, ON_WEBGPU) as program:
        [found] = program(*arrays)
        assert np.array_equal(found, wanted)
        if gpu.limits.turns is None:
            assert devices_of(program) == {"webgpu"}
        else:
            [reason] = program.on_cpu.values()
            assert f"after {gpu.limits.turns} turns" in reason


def test_what_fusion_made_too_long_runs_on_the_cpu_and_all_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each op alone is short enough, but not the kernel that they would be."""
    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(turns=200))
    first = make("cast", make("argmax", x(2, 90, 64), axis=1), dtype=F32)
    spread = make("expand", make("reshape", first, shape=(2, 1, 64)), shape=(2, 90, 64))
    graph = Graph.of([make("argmin", make("abs", make("sub", x(2, 90, 64), spread)), axis=1)])
    given = np.random.default_rng(4).integers(0, 60, (2, 90, 64)).astype(np.float32)
    [wanted] = reference.evaluate(graph, [given])
    with compile_program(graph, ON_WEBGPU, threads=2) as program:
        assert np.array_equal(program(given)[0], wanted)
        assert devices_of(program) == {"cpu"}
        [(segment, reason)] = program.on_cpu.items()
        assert segment == "segment 0"
        assert "after 200 turns" in reason
        assert program.runs_on == "2 threads"
        assert "at most so far, 2 threads>" in repr(program)
        profile = program.profile(given)
        assert all(one.name.startswith("segment 0 on cpu arg") for one in profile.kernels)
        assert "a core does" in str(profile)


def test_what_is_refused_says_how_many_turns_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(turns=50))
    graph = Graph.of([updates(60)])
    with pytest.raises(NotCompiled, match="after 50 turns, all of them together; here they may"):
        compile_graph(graph, ON_WEBGPU)
