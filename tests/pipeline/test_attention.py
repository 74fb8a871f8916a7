"""Attention from tensors to a program: one kernel, judged by PyTorch; or written out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.backends.cpu.passes.attention import why_expanded
from arenite.dtype import BY_NAME
from arenite.ir.compose import basic
from arenite.ir.compose.neural import attention, quantised_rows
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.control import cut
from arenite.passes import run
from arenite.pipeline import compile_graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.passes.lists import PASSES
from tests.pipeline.attention_inputs import CASES, inputs, part

Array = NDArray[Any]
FLOAT32 = BY_NAME["float32"]


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(Path(__file__).with_name("torch_attention.npz")) as file:
        return dict(file)


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch_has_it(name: str, expected: dict[str, Array]) -> None:
    case = CASES[name]
    arrays = inputs(case)

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return q.attention(k, v, mask, causal=case.causal, window=case.window or None)

    one, two = (np.asarray(arenite.compile(attention, *arrays, threads=n)(*arrays)) for n in (1, 2))
    assert (one == two).all()
    np.testing.assert_allclose(part(one), expected[name], rtol=2e-5, atol=2e-6)


def attention_of(*shapes: tuple[int, ...], **attrs: Any) -> tuple[Graph, Node]:
    nodes = [ir.graph_input(f"x{k}", k, shape, FLOAT32) for k, shape in enumerate(shapes)]
    given = {"scale": 0.5, "causal": False, "offset": 0, "window": 0} | attrs
    made = ir.make("attention", *nodes, **given)
    return Graph(tuple(nodes), (made,)), made


def random_arrays(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(3)
    shapes = [tuple(evaluate(size, {}) for size in node.shape) for node in graph.inputs]
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def by_name(arrays: list[Array]) -> dict[str, Array]:
    return {f"x{k}": array for k, array in enumerate(arrays)}


def test_no_scores_in_memory() -> None:
    side = 1024
    graph, _ = attention_of(*[(1, 4, side, 16)] * 3)
    with compile_graph(graph) as program:
        assert len(program.kernels) == 1
        assert program.plan.peak_nbytes < 4 * side * side * 4 / 2


def test_views_are_read_where_they_lie() -> None:
    """Heads of one projection, as models write them: nothing is copied before or behind."""
    x = ir.graph_input("x0", 0, (2, 30, 3 * 4 * 8), FLOAT32)
    split = Tensor.of_node(x).reshape(2, 30, 3, 4, 8)
    q, k, v = (split[:, :, part].swapaxes(1, 2) for part in range(3))
    w = ir.graph_input("x1", 1, (32, 20), FLOAT32)
    result = q.attention(k, v).swapaxes(1, 2).reshape(2, 30, 32) @ Tensor.of_node(w)
    graph = Graph((x, w), (result.node,))
    [kernel, product] = fuse(run(graph, PASSES)[0]).kernels
    assert kernel.inputs == (x,)
    assert product.inputs == (w, *kernel.outputs)
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_is_computed_is_written_before_it_is_read() -> None:
    x = ir.graph_input("x0", 0, (2, 4, 20, 8), FLOAT32)
    q = Tensor.of_node(x)
    key = (q * 3).exp().swapaxes(-1, -2).swapaxes(-1, -2)
    graph = Graph((x,), (q.attention(key, key + 1).node,))
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("heads", "groups", "queries"), [(2, 2, 1), (8, 2, 1), (2, 1, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_few_queries_over_many_keys(heads: int, groups: int, queries: int, dtype: str) -> None:
    """Chunks of keys side by side, joined in a fixed order."""
    keys = Var("keys", 1, 5000)
    shapes: list[tuple[Dim, ...]] = [(1, heads, queries, 16)] + [(1, keys, groups, 16)] * 2
    nodes = [ir.graph_input(f"x{k}", k, shape, BY_NAME[dtype]) for k, shape in enumerate(shapes)]
    q, k, v = (Tensor.of_node(node) for node in nodes)
    result = q.attention(k.swapaxes(1, 2), v.swapaxes(1, 2), causal=True, offset=keys - queries)
    graph = Graph(tuple(nodes), (result.node,))
    made, _ = run(graph, PASSES)
    assert "attention_parts" in [node.op for node in made.nodes]
    assert all(node.op != "permute" for node in fuse(made).kernels[0].inputs)
    with compile_graph(graph, threads=1) as alone, compile_graph(graph, threads=2) as both:
        for n in (5, 1024, 4000):
            rng = np.random.default_rng(n)
            given = [
                rng.standard_normal([evaluate(s, {"keys": n}) for s in shape]).astype(dtype)
                for shape in shapes
            ]
            [one], [two] = (p.run(by_name(given)) for p in (alone, both))
            assert (one == two).all()
            [want] = ir.evaluate(graph, given)
            tolerance = 2e-3 if dtype == "float16" else 1e-5
            np.testing.assert_allclose(one, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("queries", "keys"), [("head", "key"), ("count", "chunk"), ("k", "lane"), ("tile", "d")]
)
def test_sizes_of_any_name(queries: str, keys: str) -> None:
    """A size of the model may be called like a variable of the kernel."""
    n_queries, n_keys = Var(queries, 1, 200), Var(keys, 1, 300)
    shapes: list[tuple[Dim, ...]] = [(1, 2, length, 8) for length in (n_queries, n_keys, n_keys)]
    nodes = [ir.graph_input(f"x{k}", k, shape, FLOAT32) for k, shape in enumerate(shapes)]
    q, k, v = (Tensor.of_node(node) for node in nodes)
    graph = Graph(tuple(nodes), (q.attention(k, v, causal=True, offset=n_keys - n_queries).node,))
    with compile_graph(graph) as program:
        for t, s in ((3, 100), (77, 150)):
            rng = np.random.default_rng(s)
            sizes = [(1, 2, length, 8) for length in (t, s, s)]
            arrays: list[Array] = [rng.standard_normal(size, dtype=np.float32) for size in sizes]
            [got] = program.run(by_name(arrays))
            [want] = ir.evaluate(graph, arrays)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_queries_that_see_nothing_of_many_keys() -> None:
    graph, _ = attention_of((1, 2, 4, 8), (1, 2, 3000, 8), (1, 2, 3000, 8), causal=True, offset=-2)
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    assert (got[:, :, :2] == 0).all()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 5])
def test_keys_that_may_be_none(length: int) -> None:
    graph, _ = attention_of((1, 2, 3, 4), (1, 2, length, 4), (1, 2, length, 4))
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_queries_that_are_none() -> None:
    graph, _ = attention_of((2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 4))
    with compile_graph(graph) as program:
        assert program.run(by_name(random_arrays(graph)))[0].shape == (2, 2, 0, 4)


@pytest.mark.parametrize("is_spelled", [False, True])
def test_heads_that_are_copied_share_their_keys(is_spelled: bool) -> None:
    nodes = [ir.graph_input("x0", 0, (2, 6, 20, 8), FLOAT32)]
    nodes += [ir.graph_input(f"x{k}", k, (2, 3, 30, 8), FLOAT32) for k in (1, 2)]
    q, k, v = (Tensor.of_node(node) for node in nodes)
    k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
    result = (q @ k.swapaxes(-1, -2) * 0.3).softmax() @ v if is_spelled else q.attention(k, v)
    graph = Graph(tuple(nodes), (result.node,))
    [kernel] = fuse(run(graph, PASSES)[0]).kernels
    assert kernel.inputs == tuple(nodes)
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_heads_that_are_tiled_stay() -> None:
    """The copies of one head do not stand side by side."""
    nodes = [ir.graph_input("x0", 0, (1, 4, 5, 8), FLOAT32)]
    nodes += [ir.graph_input(f"x{k}", k, (1, 2, 6, 8), FLOAT32) for k in (1, 2)]
    q, k, v = (Tensor.of_node(node) for node in nodes)
    graph = Graph(tuple(nodes), (q.attention(k.tile(1, 2, 1, 1), v.tile(1, 2, 1, 1)).node,))
    arrays = random_arrays(graph)
    with compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [257, 300])
def test_what_no_kernel_is_made_for_is_written_out(
    width: int, caplog: pytest.LogCaptureFixture
) -> None:
    graph, node = attention_of((1, 2, 6, width), (1, 2, 9, width), (1, 2, 9, 3), causal=True)
    reason = why_expanded(node)
    assert reason == f"its width {width} is not in 1..256"
    arrays = random_arrays(graph)
    with caplog.at_level(logging.INFO, "arenite.passes"), compile_graph(graph) as program:
        [got] = program.run(by_name(arrays))
    [want] = ir.evaluate(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    expanded, _ = run(graph, PASSES)
    assert reason in caplog.text
    assert all(inner.op != "attention" for inner in expanded.nodes)


def test_attention_in_a_loop() -> None:
    x = np.random.default_rng(1).standard_normal((1, 2, 12, 8)).astype(np.float32)

    def layers(x: Tensor) -> Tensor:
        result: Tensor = arenite.fori_loop(3, lambda _, y: y.attention(y, y, causal=True), x)
        return result

    got = np.asarray(arenite.compile(layers, x)(x))
    want = x
    for _ in range(3):
        node = ir.graph_input("x", 0, x.shape, FLOAT32)
        made = Tensor.of_node(node).attention(
            Tensor.of_node(node), Tensor.of_node(node), causal=True
        )
        [want] = ir.evaluate(Graph((node,), (made.node,)), [want])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


CONTEXT, HEADS, GROUPS, SIZE = 800, 6, 2, 16


def cache_of_bytes(scale_dtype: str, window: int | None) -> Graph:
    """New rows of keys and values join those kept as int8, by position; then attention over all."""
    rows = Var("rows", 1, 64)
    q = ir.graph_input("x0", 0, (rows, HEADS, SIZE), FLOAT32)
    new = [ir.graph_input(f"x{k}", k, (rows, GROUPS, SIZE), FLOAT32) for k in (1, 2)]
    at = ir.graph_input("x3", 3, (), BY_NAME["int64"])
    end = at + ir.size(rows, at.dtype)
    updates: list[tuple[Node, Node]] = []
    seen: list[Node] = []
    for name, x in zip("kv", new, strict=True):
        for number, value in enumerate(quantised_rows(x, BY_NAME[scale_dtype])):
            shape = (CONTEXT, *value.shape[1:])
            state = ir.make("state", name=f"{name}{number}", shape=shape, dtype=value.dtype)
            updated = ir.make("update_slice", state, value, at, axis=0)
            updates.append((state, updated))
            kept = cut(updated, end)
            seen.append(basic.permute(kept, (1, 0, *range(2, kept.ndim))))
    k, k_scale, v, v_scale = seen
    made = attention(
        basic.permute(q, (1, 0, 2)),
        k,
        v,
        causal=True,
        offset=k.shape[1] - rows,
        window=window,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    result = basic.permute(made, (1, 0, 2))
    return Graph((q, *new, at), (result,), updates=tuple(updates))


def kept_as_bytes(x: Array, scale_dtype: str) -> Array:
    """What rows of x are after they were kept."""
    scale = (np.abs(x).max(-1, keepdims=True) * np.float32(1 / 127)).astype(scale_dtype)
    numbers = np.rint(x / scale.astype(np.float32))
    assert np.abs(numbers).max() == 127
    return np.asarray(numbers * scale.astype(np.float64))


@pytest.mark.parametrize("scale_dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [None, 50])
def test_a_cache_of_bytes(scale_dtype: str, window: int | None) -> None:
    graph = cache_of_bytes(scale_dtype, window)
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal((CONTEXT, heads, SIZE), dtype=np.float32)
        for heads in (HEADS, GROUPS, GROUPS)
    )
    keys, values = (
        np.repeat(kept_as_bytes(x, scale_dtype), HEADS // GROUPS, axis=1) for x in (k, v)
    )
    behind = np.arange(CONTEXT)[:, None] - np.arange(CONTEXT)
    hidden = (behind < 0) | (behind >= (window or CONTEXT))
    scores = np.einsum("thd,shd->hts", q, keys) / np.sqrt(SIZE)
    weights = np.exp(np.where(hidden, -np.inf, scores))
    want = np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), values)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        at = 0
        for n in (1, 64, 2, 64, 1, 9, 8, 64, 30, 57, *[64] * 7, 52):
            some = slice(at, at + n)
            given = by_name([q[some], k[some], v[some], np.array(at)])
            [got], [other] = one.run(given), two.run(given)
            assert (got == other).all()
            np.testing.assert_allclose(got, want[some], rtol=1e-4, atol=1e-5)
            at += n
        assert at == CONTEXT
        one.verify()
        # Bytes are read where they lie: whatever is written is smaller than the cache.
        written = [ir.bounds(kernel.writes_nbytes)[1] for kernel in one.kernels]
        assert max(written) < CONTEXT * GROUPS * SIZE
