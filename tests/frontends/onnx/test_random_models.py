"""Random valid models give what ONNX Runtime gives, for each of two or three sizes: by the rules,
and compiled with sizes that are open. `random_runs.py` judges thousands of them by hand.

What ONNX Runtime refuses or has wrong is judged node by node; each model is compared with one or
the other, for none is there no judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from arenite.ir import evaluate
from tests.frontends.onnx.models import INT64, graph, info, model, opened, stored, translated
from tests.frontends.onnx.random_judge import Judges
from tests.frontends.onnx.random_models import NEWEST, all_nodes, random_model
from tests.frontends.onnx.random_runs import differences

#: Models of a case: hundreds, so that every run of the tests has as many.
N_BY_RULES, N_COMPILED = 200, 6


def check(seeds: range, *, is_compiled: bool) -> None:
    judges: Judges = Judges()
    assert differences(seeds, is_compiled=is_compiled, judges=judges) == {}
    n_runs = sum(len(random_model(seed).inputs) for seed in seeds)
    by_runtime, by_node = judges["models by ONNX Runtime"], judges["models node by node"]
    assert n_runs >= 2 * len(seeds)
    assert by_runtime + by_node == n_runs  # each was compared
    if len(seeds) == N_BY_RULES:
        assert by_runtime > n_runs / 2
        assert judges["nodes by ONNX Runtime"] > 2 * judges["nodes by the standard's evaluator"]


@pytest.mark.parametrize("first", range(0, 4 * N_BY_RULES, N_BY_RULES))
def test_random_models_give_what_onnx_runtime_gives(first: int) -> None:
    check(range(first, first + N_BY_RULES), is_compiled=False)


@pytest.mark.parametrize("first", range(5000, 5000 + 24 * N_COMPILED, N_COMPILED))
def test_compiled_random_models_give_what_onnx_runtime_gives(first: int) -> None:
    check(range(first, first + N_COMPILED), is_compiled=True)


def test_models_of_a_seed_are_the_same_each_time() -> None:
    made = random_model(5).model
    random_model.cache_clear()
    assert random_model(5).model == made
    assert random_model(6).model != made


def test_models_are_of_many_operators_versions_types_and_sizes() -> None:
    made = [random_model(seed) for seed in range(80)]
    nodes = [node for one in made for node in all_nodes(one.model.graph.node)]
    assert len({node.op_type for node in nodes}) > 110
    assert {"If", "Loop", "Scan", "Same", "SequenceConstruct", "QuantizeLinear"} <= {
        node.op_type for node in nodes
    }
    assert {one.model.opset_import[0].version for one in made} == {*range(7, NEWEST + 1)}
    assert all(len(one.model.graph.node) >= 3 for one in made)
    kinds = {array.dtype.name for one in made for array in one.outputs[0].values()}
    assert kinds >= {"bfloat16", "bool", "float16", "float32", "float64", "int32", "int64", "uint8"}
    assert {sizes["batch"] for one in made for sizes in one.sizes} == {0, 1, 2, 3, 5}


def test_a_judge_tells_what_differs() -> None:
    """One that can't fail would be none."""
    from tests.frontends.onnx.random_judge import judged
    from tests.frontends.onnx.random_runs import difference

    made = random_model(5)
    wanted = judged(made.model, made.inputs[0], Judges())
    assert difference(wanted, wanted, made.tolerances) == ""
    for name, array in wanted.items():
        other = {**wanted, name: array + 1 if array.dtype != bool else ~array}
        if array.size:
            assert "differs" in difference(other, wanted, made.tolerances)
        assert difference({**wanted, name: array[None]}, wanted, made.tolerances)


def test_rows_of_a_loop_that_goes_on_are_as_many_as_its_trips() -> None:
    """As exporters write it: the body hands its condition on."""
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["a"], ["b"])]
    given = [info("i", [], INT64), info("go", [], TensorProto.BOOL), info("a", [2])]
    body = graph(nodes, given, [info("on", [], TensorProto.BOOL), info("b", [2]), info("b", [2])])
    loop = helper.make_node("Loop", ["n", "yes", "x"], ["y", "rows"], body=body)
    held = [stored("n", np.array(3)), stored("yes", np.array(True))]
    outer = graph([loop], [info("x", [2])], [info("y", None), info("rows", None)], held)
    made = translated(opened(model(outer)))
    assert [one.shape for one in made.graph.outputs] == [(2,), (3, 2)]


def test_a_shape_that_a_run_finds_is_found_where_nothing_else_is_asked_of_it() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["places"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
    ]
    made = translated(
        opened(model(graph(nodes, [info("x", [5])], [info("zeros", None), info("shape", None)])))
    )
    zeros, shape = evaluate(made.graph, [np.asarray([0, 1, 0, 2, 3], np.float32)])
    assert zeros.shape == (1, 3)
    assert shape.tolist() == [1, 3]


def test_the_last_place_of_aligned_corners_is_the_last_one() -> None:
    from tests.frontends.onnx.one_node import Const, judged, model_of, ran

    x = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    given = [x, None, None, Const([1, 1, 1, 24])]
    attrs: dict[str, Any] = {
        "mode": "nearest",
        "nearest_mode": "floor",
        "coordinate_transformation_mode": "align_corners",
    }
    made, arrays = model_of("Resize", given, 19, **attrs)
    np.testing.assert_array_equal(ran("Resize", given, 19, **attrs)[0], judged(made, arrays)[0])
