"""Whole graphs, compiled and run, against the reference rules of the ops."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.device.allocator import readable_nbytes
from arenite.dtype import BY_NAME
from arenite.errors import IndexOutOfRange, RunFailed, ShapeMismatch, TypeMismatch
from arenite.ir import Var, reference
from arenite.ir.dim import evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from tests.pipeline.graphs import FLOAT32, INT64, GraphMaker, random_array

Array = NDArray[Any]


def run_both(graph: Graph, arrays: list[Array], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Compile and run on one and on two threads; compare with the reference and each other."""
    expected = reference.evaluate(graph, arrays)
    results = []
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            program.verify()
            results.append(program(*arrays))
            again = program(*arrays)
            for one, other in zip(results[-1], again, strict=True):
                assert one.tobytes() == other.tobytes(), "two runs differ"
    with compile_graph(graph) as program:
        for one, other in zip(results[0], program.run_checked(*arrays), strict=True):
            assert one.tobytes() == other.tobytes(), "a checked run differs"
    for one, other, wanted in zip(*results, expected, strict=True):
        assert one.tobytes() == other.tobytes(), "one and two threads differ"
        assert one.shape == wanted.shape
        np.testing.assert_allclose(one, wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_compute_what_the_reference_says(seed: int) -> None:
    maker = GraphMaker(seed)
    graph = maker.make(60)
    run_both(graph, maker.arrays(seed), rtol=2e-4, atol=2e-4)


def sizes(node: Node) -> tuple[int, ...]:
    return tuple(evaluate(size, {}) for size in node.shape)


def x_of(*shape: ir.Dim, index: int = 0) -> Node:
    return ir.graph_input(f"x{index}", index, shape, FLOAT32)


def test_softmax_is_one_kernel() -> None:
    x = x_of(64, 200)

    def spread(node: Node) -> Node:
        return ir.make("expand", ir.make("reshape", node, shape=(64, 1)), shape=(64, 200))

    e = ir.make("exp", ir.make("sub", x, spread(ir.make("max", x, axes=(1,)))))
    y = ir.make("div", e, spread(ir.make("sum", e, axes=(1,))))
    graph = Graph((x,), (y,))
    with compile_graph(graph) as program:
        assert len(program.kernels) == 1
        assert program.plan.peak_nbytes == 0, "nothing but the caller's own memory"
        assert "exp" in program.kernels[0].code
    run_both(graph, [random_array((64, 200), FLOAT32, 1)])


@pytest.mark.parametrize("shape", [(1, 7, 5), (3, 64, 33), (130, 70, 257), (14, 1, 1)])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul_with_bias_and_relu_is_one_kernel(
    shape: tuple[int, int, int], transpose_b: bool
) -> None:
    m, k, n = shape
    a, bias = x_of(m, k), x_of(n, index=2)
    b = x_of(*((n, k) if transpose_b else (k, n)), index=1)
    product = ir.make("matmul", a, b, transpose_a=False, transpose_b=transpose_b)
    spread = ir.make("expand", ir.make("reshape", bias, shape=(1, n)), shape=(m, n))
    y = ir.make("maximum", ir.make("add", product, spread), ir.full((m, n), 0.0, FLOAT32))
    graph = Graph((a, b, bias), (y,))
    arrays = [random_array(sizes(node), FLOAT32, 5) for node in graph.inputs]
    run_both(graph, arrays, rtol=1e-4, atol=1e-4)
    with compile_graph(graph) as program:
        assert len(program.kernels) == 1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("strides", "padding", "dilations"),
    [
        ((1, 1), ((0, 0), (0, 0)), (1, 1)),
        ((2, 1), ((1, 1), (1, 1)), (1, 1)),
        ((1, 2), ((2, 1), (0, 3)), (2, 1)),
    ],
)
def test_convolutions(strides: Any, padding: Any, dilations: Any, groups: int) -> None:
    x, w = x_of(2, 4, 20, 19), x_of(6, 4 // groups, 3, 3, index=1)
    y = ir.make("conv", x, w, strides=strides, padding=padding, dilations=dilations, groups=groups)
    graph = Graph((x, w), (y,))
    arrays = [random_array(sizes(node), FLOAT32, 5) for node in graph.inputs]
    run_both(graph, arrays, rtol=1e-4, atol=1e-4)


def test_a_new_batch_size_compiles_nothing() -> None:
    batch = Var("batch", 1, 64)
    x, w = x_of(batch, 16), x_of(16, 8, index=1)
    h = ir.make("tanh", ir.make("matmul", x, w, transpose_a=False, transpose_b=False))
    total = ir.make("sum", h, axes=(1,))
    y = ir.make(
        "mul", h, ir.make("expand", ir.make("reshape", total, shape=(batch, 1)), shape=(batch, 8))
    )
    graph = Graph((x, w), (y, ir.make("sum", y, axes=(0,))))
    weights = random_array((16, 8), FLOAT32, 2)
    with compile_graph(graph, threads=2) as program:
        for size in (1, 5, 64, 5):
            given = random_array((size, 16), FLOAT32, size)
            got = program(given, weights)
            wanted = reference.evaluate(graph, [given, weights])
            for one, other in zip(got, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
            program.verify()
        with pytest.raises(ValueError, match=r"batch = 65 is outside its bounds 1\.\.64"):
            program(random_array((65, 16), FLOAT32, 1), weights)


def test_indexing_by_data() -> None:
    x = x_of(7, 40)
    indices = ir.graph_input("i", 1, (3, 2), INT64)
    rows = ir.make("gather", x, indices, axis=0)
    columns = ir.make("gather", x, indices, axis=1)
    graph = Graph((x, indices), (rows, columns))
    given = random_array((7, 40), FLOAT32, 1)
    run_both(graph, [given, np.array([[0, 6], [3, 3], [1, 5]])])
    with compile_graph(graph) as program:
        with pytest.raises(IndexOutOfRange, match="gather"):
            program(given, np.array([[0, 7], [3, 3], [1, 5]]))
        with pytest.raises(RunFailed, match="reset"):
            program(given, np.array([[0, 0], [3, 3], [1, 5]]))
        program.reset()
        program(given, np.array([[0, 0], [3, 3], [1, 5]]))


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans(op: str, axis: int) -> None:
    x = x_of(3, 9, 5)
    run_both(Graph((x,), (ir.make(op, x, axis=axis),)), [random_array((3, 9, 5), FLOAT32, 1)])


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_and_gather_elements(reduction: str, axis: int) -> None:
    x, updates = x_of(6, 8), x_of(6, 8, index=2)
    indices = ir.graph_input("i", 1, (6, 8), INT64)
    put = ir.make("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)
    taken = ir.make("gather_elements", x, indices, axis=axis)
    given = [
        random_array((6, 8), FLOAT32, 1),
        np.random.default_rng(1).integers(0, 6, (6, 8)),
        random_array((6, 8), FLOAT32, 2),
    ]
    run_both(Graph((x, indices, updates), (put, taken)), given)


def test_random_bits_are_philox() -> None:
    seed = ir.graph_input("seed", 0, (), BY_NAME["uint64"])
    bits = ir.make("random_bits", seed, counter=12345678901, shape=(3, 77))
    run_both(Graph((seed,), (bits,)), [np.array(0x123456789ABCDEF, np.uint64)])


def test_attention_and_transposed_convolution_are_written_out() -> None:
    q, k, v = x_of(2, 4, 9, 16), x_of(2, 2, 12, 16, index=1), x_of(2, 2, 12, 8, index=2)
    seen = ir.make("attention", q, k, v, scale=0.25, causal=True, offset=3, window=2)
    arrays = [random_array(sizes(n), FLOAT32, 3) for n in (q, k, v)]
    run_both(Graph((q, k, v), (seen,)), arrays, rtol=1e-4, atol=1e-4)
    x, w = x_of(1, 4, 5, 6), x_of(4, 3, 3, 2, index=1)
    y = ir.make(
        "conv_transpose",
        x,
        w,
        strides=(2, 3),
        padding=((1, 0), (0, 1)),
        dilations=(1, 2),
        groups=2,
        output_padding=(1, 0),
    )
    arrays = [random_array(sizes(n), FLOAT32, 3) for n in (x, w)]
    run_both(Graph((x, w), (y,)), arrays, rtol=1e-4, atol=1e-4)


def test_outputs_that_are_inputs_or_constants_are_copies() -> None:
    x = x_of(4)
    c = ir.constant(np.arange(3.0, dtype=np.float32))
    with compile_graph(Graph((x,), (x, c, x))) as program:
        given = np.ones(4, np.float32)
        one, constant, other = program(given)
        assert constant.tolist() == [0, 1, 2]
        one[0] = 5
        assert given[0] == other[0] == 1


def test_wrong_arrays_are_refused_before_anything_runs() -> None:
    x = x_of(4, 5)
    with compile_graph(Graph((x,), (ir.make("neg", x),))) as program:
        with pytest.raises(TypeMismatch, match="'x0' is float32, the array given float64"):
            program(np.zeros((4, 5)))
        with pytest.raises(ShapeMismatch, match=r"float32\[4, 5\]"):
            program(np.zeros((5, 4), np.float32))
        with pytest.raises(ShapeMismatch):
            program(np.zeros(20, np.float32))
        with pytest.raises(ValueError, match="1 inputs are needed, not 0"):
            program()
        assert program(np.asfortranarray(np.ones((4, 5), np.float32)))[0].sum() == -20
    with pytest.raises(RunFailed, match="closed"):
        program(np.zeros((4, 5), np.float32))


def test_the_profile_names_every_kernel() -> None:
    x = x_of(300, 300)
    y = ir.make("matmul", ir.make("exp", x), x, transpose_a=False, transpose_b=False)
    with compile_graph(Graph((x,), (y,)), threads=2) as program:
        profile = program.profile(random_array((300, 300), FLOAT32, 1))
        assert {k.name for k in profile.kernels} == {k.entry_point for k in program.kernels}
        assert "GFLOP/s" in str(profile)
        assert "<table>" in profile._repr_html_()
        events = json.loads(profile.to_chrome_trace())["traceEvents"]
        calls = [event for event in events if event["ph"] == "X"]
        assert {event["name"] for event in calls} == {k.name for k in profile.kernels}
        lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        assert {event["tid"] for event in calls} == lanes.keys() <= {0, 1}
        assert all(lanes[tid] == f"thread {tid}" for tid in lanes)
        assert all(event["dur"] >= 0 for event in calls)
        for tid in lanes:  # a thread does one thing at a time
            mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in calls if e["tid"] == tid)
            assert all(one[1] <= next_[0] + 1e-3 for one, next_ in pairwise(mine))


def test_kernels_and_plans_are_tables() -> None:
    x = x_of(300, 300)
    y = ir.make("matmul", ir.make("exp", x), x, transpose_a=False, transpose_b=False)
    with compile_graph(Graph((x,), (y,))) as program:
        for kernel in program.kernels:
            assert kernel.entry_point in repr(program.kernels)
            written = kernel.writes_nbytes
            assert isinstance(written, int)
            for text, size in (
                (str(program.kernels), str(written)),
                (program.kernels._repr_html_(), readable_nbytes(written)),
            ):
                assert kernel.entry_point in text
                assert kernel.border in text
                assert size in text
        size = readable_nbytes(program.plan.slots["out0"].nbytes)
        assert f'<td style="text-align: right">{size}</td>' in program.plan._repr_html_()
