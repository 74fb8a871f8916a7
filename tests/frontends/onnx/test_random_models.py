"""Random valid models give what the standard's own evaluator gives, by the rules and compiled.

Thousands of them are judged by ONNX Runtime with `judge_random.py`, by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from arenite.ir import evaluate
from tests.frontends.onnx.models import graph, info, model, opened, translated
from tests.frontends.onnx.random_models import random_model
from tests.frontends.onnx.random_runs import difference, outputs_of

#: What the evaluator of onnx 1.23 has wrong, by operator, before a version; ONNX Runtime is of our
#: opinion. Old ones of Softmax and its kin take all axes from one on as one; old ones of
#: BatchNormalization train; LRN leaves out the last of its channels; LpNormalization sums numbers
#: and not their magnitudes; Resize of float64 has coefficients of float32.
MISJUDGED = {
    "Softmax": 13,
    "LogSoftmax": 13,
    "BatchNormalization": 14,
    "LRN": 99,
    "LpNormalization": 99,
    "Resize": 99,
}


def is_misjudged(seed: int) -> bool:
    made = random_model(seed).model
    version = made.opset_import[0].version
    return any(version < MISJUDGED.get(node.op_type, 0) for node in made.graph.node)


@pytest.mark.parametrize("seed", range(200))
def test_a_random_model_gives_what_the_standard_says(seed: int) -> None:
    made = random_model(seed)
    if is_misjudged(seed):
        made.outputs.clear()  # it is still to be run
    assert not difference(outputs_of(made, compiled=False), made.outputs, made.tolerances)


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_a_compiled_random_model_gives_what_the_rules_give(seed: int) -> None:
    made = random_model(seed)
    by_rules = outputs_of(made, compiled=False)
    assert not difference(outputs_of(made, compiled=True), by_rules, made.tolerances)


def test_models_of_a_seed_are_the_same_each_time() -> None:
    assert random_model(5).model == random_model(5).model
    assert random_model(5).model != random_model(6).model


def test_models_are_of_many_operators_and_versions() -> None:
    made = [random_model(seed).model for seed in range(40)]
    assert len({node.op_type for one in made for node in one.graph.node}) > 60
    assert len({one.opset_import[0].version for one in made}) > 10
    assert all(len(one.graph.node) >= 3 for one in made)


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
