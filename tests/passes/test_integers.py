"""Products of bytes: which become dot products of words, and that no number changes.

Expected numbers are whole ones, summed by NumPy in 64 bits as the definitions of ONNX's operators
say it, and then cut to the width of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.passes.integers import integers, matmul_panels
from arenite.dtype import BY_NAME
from arenite.ir import reference
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.passes import apply, run
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor
from tests.passes.byte_graphs import (
    AS_THEY_ARE,
    BYTES,
    PLAIN,
    Case,
    check,
    conv_arrays,
    conv_node,
    given_tensor,
    known,
    less,
    numbers,
    ops_of,
    products,
    quantised,
)
from tests.passes.lists import PASSES


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("spread", ["any", "extreme"])
def test_products_of_bytes(a_type: Any, w_type: Any, spread: str) -> None:
    a, w = numbers((21, 37), a_type, 1, spread), numbers((37, 50), w_type, 2, spread)
    x = given_tensor(a)
    node = ir.make("matmul", x.node, known(w).node, **AS_THEY_ARE)
    check([Tensor.of_node(node)], [a], [products(a, w)], "matmul_bytes")


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("za", [None, 0, 7, 128, -128, 255])
@pytest.mark.parametrize("zw", [None, 0, 3, 128, "columns"])
def test_products_with_zero_points(a_type: Any, w_type: Any, za: Any, zw: Any) -> None:
    a, w = numbers((5, 9), a_type, 1), numbers((9, 20), w_type, 2)
    columns = numbers((20,), np.uint8, 3).astype(np.int32)
    of_w = columns if zw == "columns" else zw
    shown = known(columns) if zw == "columns" else zw
    y = less(given_tensor(a), za) @ less(known(w), shown)
    expected = products(a, w, 0 if za is None else za, 0 if zw is None else of_w)
    graph = Graph.of([y.node])
    made = apply(graph, integers)
    assert "matmul_bytes" in ops_of(made)
    [got] = reference.evaluate(made, [a])
    np.testing.assert_array_equal(got, expected)


def test_zero_points_that_are_known_only_in_a_run() -> None:
    a, w = numbers((2, 5, 9), np.uint8, 1), numbers((9, 20), np.int8, 2)
    za = np.asarray(77, np.uint8)
    rows = numbers((2, 5, 1), np.uint8, 3)
    x, one, each = given_tensor(a), given_tensor(za, 1), given_tensor(rows, 2)
    w8 = known(w)
    results = [less(x, one.astype(np.int32)) @ less(w8, 4), less(x, less(each, None)) @ less(w8, 4)]
    expected = [products(a, w, 77, 4), products(a, w, rows.astype(np.int64), 4)]
    last = check(results, [a, za, rows], expected, "matmul_bytes")
    assert "matmul" not in ops_of(last)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300)),
    kinds=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    zeros=st.tuples(st.integers(-128, 255), st.integers(-128, 255)),
    turned=st.tuples(st.booleans(), st.booleans()),
    spread=st.sampled_from(["any", "extreme"]),
)
def test_products_of_any_shape(
    sizes: tuple[int, int, int],
    kinds: tuple[Any, Any],
    zeros: tuple[int, int],
    turned: tuple[bool, bool],
    spread: str,
) -> None:
    rows, depth, columns = sizes
    a = numbers((depth, rows) if turned[0] else (rows, depth), kinds[0], 1, spread)
    w = numbers((columns, depth) if turned[1] else (depth, columns), kinds[1], 2, spread)
    factors = [
        less(x, zero).node for x, zero in zip((given_tensor(a), known(w)), zeros, strict=True)
    ]
    node = ir.make("matmul", *factors, transpose_a=turned[0], transpose_b=turned[1])
    graph = Graph.of([node])
    expected = products(a.T if turned[0] else a, w.T if turned[1] else w, *zeros)
    with compile_graph(graph, threads=2) as program:
        [got] = program(a)
    assert "matmul_bytes" in ops_of(run(graph, PASSES)[0])
    np.testing.assert_array_equal(got, expected)


def test_tensors_of_bytes_multiply_as_arrays_do() -> None:
    a, w = numbers((4, 6, 33), np.uint8, 1), numbers((33, 18), np.int8, 2)
    check([given_tensor(a) @ known(w)], [a], [a @ w], "matmul_bytes")
    check([given_tensor(a) @ known(w.view(np.uint8))], [a], [a @ w.view(np.uint8)], "matmul_bytes")


def test_weights_of_many_panels() -> None:
    a, w = numbers((2, 1024), np.uint8, 1), numbers((1024, 4100), np.int8, 2)
    node = ir.make("matmul", given_tensor(a).node, known(w).node, **AS_THEY_ARE)
    with compile_graph(Graph.of([node]), threads=2) as program:
        np.testing.assert_array_equal(program(a)[0], products(a, w))


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("y_type", BYTES)
def test_a_network_of_quantised_products(a_type: Any, y_type: Any) -> None:
    a, w = numbers((40, 64), a_type, 1), numbers((64, 48), np.int8, 2)
    w2, bias = numbers((48, 30), np.int8, 3), numbers((48,), np.int16, 4).astype(np.int32)
    scale = (np.random.default_rng(5).random(48) * 0.01 + 0.001).astype(np.float32)

    def network(x: Any, w: Any, w2: Any, bias: Any, scale: Any) -> Any:
        sums = less(x, 3) @ less(w, None) + bias
        hidden = sums.astype(np.float32) * scale
        kept = quantised(hidden * (hidden > 0).astype(np.float32), 0.5, 2, y_type).astype(y_type)
        return (less(kept, 2) @ less(w2, None)).astype(np.float32) * np.float32(0.25)

    result = network(given_tensor(a), *map(known, (w, w2, bias, scale)))
    last = check([result], [a], [network(a, w, w2, bias, scale)], "matmul_bytes")
    assert ops_of(last).count("matmul_bytes") == 2


def left(y: Tensor) -> bool:
    graph = Graph.of([y.node])
    return apply(graph, integers).outputs == graph.outputs


def test_what_is_left_to_loops() -> None:
    a, w = numbers((4, 8), np.uint8), numbers((8, 6), np.int8)
    x = given_tensor(a)
    assert left(less(x, 1) @ less(given_tensor(w, 1), 0)), "weights that are not constant"
    assert left(x.astype(np.int64) @ known(w).astype(np.int64)), "sums of 64 bits"
    assert left(less(x, known(numbers((8,), np.int32))) @ less(known(w), 0)), "a zero a column of a"
    batch = numbers((3, 8, 6), np.int8)
    assert left(less(x, 1) @ less(known(batch), 0)), "weights that are several matrices"
    deep = Case((6, 7), 1, 5, (3, 3), groups=5)
    image, w = conv_arrays(deep, np.uint8, np.int8)
    y = conv_node(deep, less(given_tensor(image), 0), less(known(w), 3))
    assert left(y), "one channel each, with a zero point of the weights"
    image, w = conv_arrays(PLAIN, np.uint8, np.int8)
    n = ir.graph_input("w", 1, (Var("n", 1, 9), 5, 3, 3), BY_NAME["int8"])
    assert left(conv_node(PLAIN, given_tensor(image), Tensor.of_node(n)))


def test_rows_whose_number_is_known_later() -> None:
    n = Var("n", 1, 40)
    w = numbers((12, 20), np.int8)
    x = given_tensor(np.zeros((1, 1, 12), np.int8), shape=(2, n, 12))
    graph = Graph.of([(less(x, -3) @ less(known(w), 2)).node])
    with compile_graph(graph) as program:
        for rows in (1, 7, 40):
            a = numbers((2, rows, 12), np.int8, rows)
            np.testing.assert_array_equal(program(a)[0], products(a, w, -3, 2))


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (4, 16), (9, 20), (30, 33)])
def test_panels_of_a_matrix(depth: int, columns: int) -> None:
    w = numbers((depth, columns), np.int8)
    [panels] = reference.evaluate(Graph.of([matmul_panels(ir.constant(w))]), [])
    assert panels.shape == (-(-columns // 16), -(-depth // 4), 16, 4)
    back = np.zeros((panels.shape[1] * 4, panels.shape[0] * 16), np.int8)
    for p, k, lane, byte in np.ndindex(*panels.shape):
        back[4 * k + byte, 16 * p + lane] = panels[p, k, lane, byte]
    np.testing.assert_array_equal(back[:depth, :columns], w)
    assert not back[depth:].any()
    assert not back[:, columns:].any()


def test_a_chain_deeper_than_the_stack() -> None:
    w = ir.constant(numbers((8, 8), np.int8))
    for _ in range(20_000):
        w = ir.make("not", w)
    a = given_tensor(numbers((4, 8), np.uint8))
    node = ir.make("matmul", a.node, w, **AS_THEY_ARE)
    assert "matmul_bytes" in ops_of(apply(Graph.of([node]), integers))
