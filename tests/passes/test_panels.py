"""Products by constant weights: which read panels, and that no number changes.

Elements are small whole numbers, which floats hold exactly however they are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.backends.cpu.passes.panels import MOST_ROWS, panels
from arenite.dtype import BY_NAME
from arenite.dtype import of as dtype_of
from arenite.ir import reference, verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph, topological
from arenite.passes import apply, run
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from arenite.tensor import Tensor
from tests.passes.lists import PASSES

Array = NDArray[Any]


def whole(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def given(shape: tuple[Any, ...], dtype: Any = np.float32) -> Tensor:
    return Tensor.of_node(ir.graph_input("x", 0, shape, dtype_of(np.dtype(dtype))))


def known(array: Array) -> Tensor:
    return Tensor.of_node(ir.constant(array))


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def made_of(y: Tensor) -> Graph:
    made = apply(Graph.of([y.node]), panels)
    verify(made)
    return made


def is_packed(y: Tensor) -> bool:
    return "matmul_panels" in ops_of(made_of(y))


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "x @ w": lambda x, w: x @ w(37, 50),
    "x @ w.T": lambda x, w: x @ w(50, 37).T,
    "one matrix for all": lambda x, w: x @ w(1, 1, 37, 50),
    "weights that are computed": lambda x, w: x @ (w(37, 50) + w(37, 1)),
    "a view of a value": lambda x, w: x[:, ::2] @ w(37, 50),
    "axes that come from afar": lambda x, w: x.swapaxes(0, 1).reshape(42, 37) @ w(37, 48),
}


@pytest.mark.parametrize("form", FORMS)
def test_products_with_constant_weights_read_panels(form: str) -> None:
    x = whole(6, 7, 37)
    expected = FORMS[form](x, whole)
    y = FORMS[form](given(x.shape), lambda *shape: known(whole(*shape)))
    made = made_of(y)
    assert "matmul_panels" in ops_of(made)
    assert "matmul" not in ops_of(made)
    np.testing.assert_array_equal(reference.evaluate(made, [x])[0], expected)
    for threads in (1, 2):
        with compile_graph(Graph.of([y.node]), threads=threads) as program:
            np.testing.assert_array_equal(program(x)[0], expected)


@pytest.mark.parametrize("n_rows", [1, 3, 5, 7, 10, 64, 200])
@pytest.mark.parametrize("n_columns", [33, 120])
def test_one_program_for_any_number_of_rows(n_rows: int, n_columns: int) -> None:
    x, w = whole(n_rows, 40), whole(40, n_columns)
    y = given((Var("tokens", 1, 2048), 40)) @ known(w)
    assert is_packed(y)
    with compile_graph(Graph.of([y.node]), threads=2) as program:
        np.testing.assert_array_equal(program(x)[0], x @ w)


def test_what_is_left_as_it_is() -> None:
    w = known(whole(64, 48))
    assert not is_packed(given((1, 64)) @ w), "one row"
    assert not is_packed(given((MOST_ROWS + 1, 64)) @ w), "many rows"
    assert not is_packed(given((8, 64)) @ known(whole(64, 7))), "few columns"
    assert not is_packed(known(whole(8, 64)) @ w), "nothing is given"
    assert not is_packed(known(whole(8, 64)) @ given((64, 48))), "constants on the left"
    assert not is_packed(given((3, 8, 64)) @ known(whole(3, 64, 48))), "a matrix for each"
    x, half = given((8, 64), np.float16), known(whole(48, 64, dtype=np.float16))
    along = ir.make("matmul", x.node, half.node, transpose_a=False, transpose_b=True)
    assert not is_packed(Tensor.of_node(along)), "narrow rows that lie along K"


@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16])
def test_narrow_weights_stay_narrow_in_panels(narrow: Any) -> None:
    x, w = whole(20, 64, dtype=narrow), whole(64, 48, dtype=narrow)
    y = given(x.shape, narrow) @ known(w)
    assert is_packed(y)
    graph = Graph.of([y.node])
    expected = (x.astype(np.float64) @ w.astype(np.float64)).astype(x.dtype)
    with compile_graph(graph, threads=1) as program:
        np.testing.assert_array_equal(program(x)[0], expected)
        packed = [slot for slot in program.plan.slots.values() if slot.region == "packed"]
        assert sum(slot.nbytes for slot in packed) == w.nbytes


def test_packing_is_done_at_load_and_the_source_is_not_kept() -> None:
    w = whole(64, 48)
    y = given((8, 64)) @ known(w)
    with compile_graph(Graph.of([y.node])) as program:
        by_region = {
            slot.region: slot.nbytes for slot in program.plan.slots.values() if slot.nbytes > 4096
        }
        assert by_region["packed"] == w.nbytes
        assert "mapped" not in by_region


def test_the_weights_of_a_loop_are_packed_before_it() -> None:
    w, xs = whole(40, 40), whole(6, 5, 40)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = (x + h @ known(w).T).clip(-4, 4)
        return h, h

    last, rows = arenite.scan(step, Tensor(np.zeros((5, 40), np.float32)), given(xs.shape))
    graph = Graph.of([last.node, rows.node])
    made, _ = run(graph, PASSES)
    [loop] = {node.attr("body"): node for node in made.nodes if node.op == "loop"}.values()
    [product] = [n for n in topological(loop.attr("body").results) if n.op == "matmul_panels"]
    assert product.inputs[1].op == "parameter"
    state, expected = np.zeros((5, 40)), []
    for x in xs:
        state = np.clip(x + state @ w.T, -4, 4)
        expected.append(state)
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            got = program(xs)
            np.testing.assert_array_equal(got[0], state)
            np.testing.assert_array_equal(got[1], expected)


def test_a_budget_without_room_for_panels_leaves_weights_where_they_are() -> None:
    x, w = whole(8, 640), whole(640, 470)
    graph = Graph.of([(given(x.shape) @ known(w)).node])
    with compile_graph(graph) as packed:
        enough = packed.plan.total_nbytes  # panels are padded
    for memory, is_packed_now in ((enough, True), (enough - 1, False)):
        with compile_graph(graph, Options(memory=memory)) as program:
            assert (
                "packed" in {slot.region for slot in program.plan.slots.values()}
            ) == is_packed_now
            np.testing.assert_array_equal(program(x)[0], x @ w)


def test_the_weights_of_a_branch_are_packed_at_load() -> None:
    w, x = whole(340, 480), whole(5, 340)
    flag = Tensor.of_node(ir.graph_input("flag", 1, (), BY_NAME["bool"]))
    y = arenite.cond(flag, lambda x: x @ known(w), lambda x: x @ known(-w), given(x.shape))
    with compile_graph(Graph.of([y.node])) as program:
        assert len(program.load_kernels) == 2
        assert len(program.kernels) == 2
        for choice, expected in ((True, x @ w), (False, -(x @ w))):
            np.testing.assert_array_equal(program(x, np.asarray(choice))[0], expected)
