"""Trees, support vectors and encoders of ai.onnx.ml, as scikit-learn's, XGBoost's and LightGBM's
converters write them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TypeProto, helper

import arenite.onnxruntime
from arenite.cli.arrays import described, saved
from arenite.errors import IndexOutOfRange, InvalidFile, NotSupported
from arenite.frontends.onnx.types import MapType, SequenceType
from arenite.model import Model
from tests.frontends.onnx.runtime import run_runtime

FLOAT, DOUBLE, INT64, STRING = 1, 11, 7, 8
N_FEATURES = 4
RNG = np.random.default_rng(3)
X = RNG.standard_normal((40, N_FEATURES)).astype(np.float32)
MISSING = np.where(RNG.random(X.shape) < 0.3, np.nan, X).astype(np.float32)


def model_of(
    op: str, outputs: dict[str, int], kind: int = FLOAT, width: int = N_FEATURES, **attrs: Any
) -> ModelProto:
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attrs)
    x = helper.make_tensor_value_info("x", kind, ["rows", width])
    results = [helper.make_tensor_value_info(name, one, None) for name, one in outputs.items()]
    graph = helper.make_graph([node], "g", [x], results)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


def check(model: ModelProto, *given: Any, rtol: float = 1e-5) -> None:
    with Model.of_bytes(model.SerializeToString()).compile(threads=1) as program:
        for x in given:
            results = list(program(x).values())
            for found, wanted in zip(results, run_runtime(model, {"x": x}), strict=True):
                assert found.shape == wanted.shape
                assert found.dtype == wanted.dtype
                if wanted.dtype.kind == "f":
                    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-6)
                else:
                    assert found.tolist() == wanted.tolist()


def trees(
    seed: int,
    of: str,
    targets: Any,
    *,
    n_trees: int = 5,
    depth: int = 3,
    modes: tuple[str, ...] = ("BRANCH_LEQ",),
    is_positive: bool = False,
) -> dict[str, Any]:
    """Random trees as lists; leaf k of tree t says something of `targets(t)`."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes",
                              "truenodeids", "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    said: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(n_trees):
        n = 2 ** rng.integers(0, depth + 1) - 1  # inner nodes: the first tree may be a leaf alone
        for node in range(2 * n + 1):
            is_leaf = node >= n
            row = (tree, node, int(rng.integers(N_FEATURES)), float(np.float32(rng.normal())),
                   "LEAF" if is_leaf else str(rng.choice(modes)),
                   0 if is_leaf else 2 * node + 1, 0 if is_leaf else 2 * node + 2,
                   int(rng.integers(2)))  # fmt: skip
            for name, one in zip(nodes, row, strict=True):
                nodes[name].append(one)
            for target in targets(tree) if is_leaf else ():
                weight = rng.random() / n_trees if is_positive else rng.normal()
                for name, one in zip(
                    said, (tree, node, target, float(np.float32(weight))), strict=True
                ):
                    said[name].append(one)
    return {f"nodes_{name}": one for name, one in nodes.items()} | {
        f"{of}_{name}": one for name, one in said.items()
    }


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_regressors(function: str, n_targets: int) -> None:
    every = trees(1, "target", lambda _: range(n_targets))
    base = [0.5, -0.25, 2.0][:n_targets]
    check(
        model_of("TreeEnsembleRegressor", {"y": FLOAT}, n_targets=n_targets, base_values=base,
                 aggregate_function=function, **every),
        X, X[:1], MISSING,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
def test_modes(kind: str) -> None:
    given = trees(2, "target", lambda _: [0], modes=(f"BRANCH_{kind}",))
    check(model_of("TreeEnsembleRegressor", {"y": FLOAT}, n_targets=1, **given), X, MISSING)


def test_modes_in_turn_and_inputs_of_other_types() -> None:
    given = trees(3, "target", lambda _: [0], modes=("BRANCH_LEQ", "BRANCH_GT"), depth=5)
    check(model_of("TreeEnsembleRegressor", {"y": FLOAT}, n_targets=1, **given), X)
    wide = model_of("TreeEnsembleRegressor", {"y": FLOAT}, DOUBLE, n_targets=1, **given)
    check(wide, X.astype(np.float64))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("labels", [[3, 7, 9], ["a", "bb", "c"]])
def test_classes(transform: str, labels: list[Any]) -> None:
    # A tree for each class in turn, as XGBoost has them, and every class in a leaf.
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    outputs = {"label": STRING if isinstance(labels[0], str) else INT64, "scores": FLOAT}
    for targets in (lambda tree: [tree % 3], lambda _: range(3)):
        given: dict[str, Any] = {name: labels, "post_transform": transform}
        given |= trees(4, "class", targets, n_trees=6)
        check(model_of("TreeEnsembleClassifier", outputs, **given), X, X[:1], MISSING)
        based = model_of("TreeEnsembleClassifier", outputs, base_values=[0.5, 0.0, 1.0], **given)
        check(based, X)


@pytest.mark.parametrize("is_positive", [False, True])
@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes(is_positive: bool, target: int, transform: str) -> None:
    outputs = {"label": INT64, "scores": FLOAT}
    given: dict[str, Any] = {"classlabels_int64s": [0, 1], "post_transform": transform}
    given |= trees(5, "class", lambda _: [target], is_positive=is_positive)
    check(model_of("TreeEnsembleClassifier", outputs, **given), X, MISSING)
    if not target:
        check(model_of("TreeEnsembleClassifier", outputs, base_values=[0.25], **given), X)


def test_trees_that_make_no_sense_are_refused() -> None:
    given = trees(6, "target", lambda _: [0], depth=3, n_trees=3)
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidFile, {"nodes_truenodeids": [0] * len(given["nodes_nodeids"])}),
        (InvalidFile, {"nodes_falsenodeids": [99] * len(given["nodes_nodeids"])}),
        (InvalidFile, {"nodes_values": given["nodes_values"][1:]}),
        (InvalidFile, {"nodes_nodeids": [0] * len(given["nodes_nodeids"])}),
        (InvalidFile, {"nodes_featureids": [N_FEATURES] * len(given["nodes_nodeids"])}),
        (InvalidFile, {"target_ids": [1] * len(given["target_ids"])}),
        (InvalidFile, {"target_nodeids": [77] * len(given["target_ids"])}),
        (NotSupported, {"nodes_modes": ["BRANCH_MEMBER"] * len(given["nodes_nodeids"])}),
        (NotSupported, {"post_transform": "PROBIT"}),
    ]
    for kind, one in wrong:
        model = model_of("TreeEnsembleRegressor", {"y": FLOAT}, n_targets=1, **given | one)
        with pytest.raises(kind):
            Model.of_bytes(model.SerializeToString()).compile(rows=3)


def test_few_numbers_that_ask_for_huge_tables_are_refused() -> None:
    given = trees(6, "target", lambda _: [0], depth=3, n_trees=3)
    many = 10_000
    svm: dict[str, Any] = {"vectors_per_class": [1] * many, "classlabels_ints": [*range(many)]}
    for op, outputs, attrs in (
        ("TreeEnsembleRegressor", {"y": FLOAT}, given | {"n_targets": 10**12}),
        ("SVMClassifier", {"l": INT64, "y": FLOAT}, svm),
    ):
        model = model_of(op, outputs, **attrs)
        with pytest.raises(NotSupported, match="are the most"):
            Model.of_bytes(model.SerializeToString()).compile(rows=3)


# Support vectors.

KERNELS = [("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 3.0]), ("RBF", [0.3, 0.0, 0.0]),
           ("SIGMOID", [0.2, 0.1, 0.0])]  # fmt: skip


def numbers(n: int) -> list[float]:
    return [float(one) for one in RNG.standard_normal(n).astype(np.float32)]


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
def test_support_vector_regressors(kernel: str, parameters: list[float]) -> None:
    given: dict[str, Any] = {"kernel_type": kernel, "kernel_params": parameters, "n_supports": 6}
    given |= {"support_vectors": numbers(6 * N_FEATURES), "coefficients": numbers(6)}
    for is_one_class in (0, 1):
        model = model_of("SVMRegressor", {"y": FLOAT}, rho=[0.1], one_class=is_one_class, **given)
        check(model, X, rtol=1e-4)
    check(model_of("SVMRegressor", {"y": FLOAT}, rho=[0.1], coefficients=numbers(N_FEATURES),
                   kernel_type="LINEAR", kernel_params=[0.0] * 3, n_supports=0), X)  # fmt: skip


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
@pytest.mark.parametrize("counts", [[3, 2], [3, 1, 2], [2, 2, 3, 2]])
@pytest.mark.parametrize("has_chances", [False, True])
def test_support_vector_classifiers(
    kernel: str, parameters: list[float], counts: list[int], has_chances: bool
) -> None:
    n, n_pairs = sum(counts), len(counts) * (len(counts) - 1) // 2
    given: dict[str, Any] = {"kernel_type": kernel, "kernel_params": parameters}
    given |= {"support_vectors": numbers(n * N_FEATURES), "vectors_per_class": counts}
    given |= {"coefficients": numbers(n * (len(counts) - 1)), "rho": numbers(n_pairs)}
    if has_chances:
        given |= {"prob_a": [-1.0] * n_pairs, "prob_b": numbers(n_pairs)}
    labels = list(range(5, 5 + len(counts)))
    outputs = {"label": INT64, "scores": FLOAT}
    check(model_of("SVMClassifier", outputs, classlabels_ints=labels, **given), X, X[:1], rtol=1e-3)


# Encoders, and maps of scores.


def test_imputers() -> None:
    some: dict[str, Any] = {"imputed_value_floats": numbers(N_FEATURES)}
    check(model_of("Imputer", {"y": FLOAT}, replaced_value_float=float("nan"), **some), MISSING)
    one: dict[str, Any] = {"imputed_value_int64s": [9], "replaced_value_int64": 2}
    check(model_of("Imputer", {"y": INT64}, INT64, **one), np.arange(8).reshape(2, 4))


def test_one_hot_encoders() -> None:
    check(model_of("OneHotEncoder", {"y": FLOAT}, INT64, cats_int64s=[1, 5, 3]),
          np.arange(8).reshape(2, 4))  # fmt: skip
    known = model_of("OneHotEncoder", {"y": FLOAT}, INT64, cats_int64s=[1, 5, 3], zeros=0)
    check(known, np.asarray([[1, 3, 5, 3]]))
    with Model.of_bytes(known.SerializeToString()).compile() as program:
        with pytest.raises(IndexOutOfRange):
            program(np.asarray([[1, 3, 5, 4]]))
        assert program(np.asarray([[1, 3, 5, 3]]))["y"].shape == (1, 4, 3)
    texts = model_of("OneHotEncoder", {"y": FLOAT}, STRING, 1, cats_strings=["u", "w", "v"])
    check(texts, np.asarray([["w"], ["none of them"], ["u"]], object))


@pytest.mark.parametrize("labels", [[4, 5, 6, 7], ["a", "b", "c", "d"]])
def test_maps_of_scores(labels: list[Any], tmp_path: Any) -> None:
    is_text = isinstance(labels[0], str)
    name = "classlabels_strings" if is_text else "classlabels_int64s"
    given: dict[str, Any] = {name: labels}
    model = model_of("ZipMap", {"y": FLOAT}, **given)
    kind = TypeProto()
    element = kind.sequence_type.elem_type.map_type
    element.key_type = STRING if is_text else INT64
    element.value_type.tensor_type.elem_type = FLOAT
    model.graph.output[0].type.CopyFrom(kind)
    path = tmp_path / "maps.onnx"
    path.write_bytes(model.SerializeToString())
    [wanted] = run_runtime(model, {"x": X})
    for _ in range(2):  # the second time from the cache
        session = arenite.onnxruntime.InferenceSession(path)
        assert session.run(None, {"x": X}) == [wanted]
    key = "string" if is_text else "int64"
    assert session.get_outputs()[0].type == f"seq(map({key},tensor(float)))"
    [output] = Model.open(path).outputs
    assert isinstance(output.type, SequenceType)
    assert isinstance(output.type.element, MapType)
    assert str(output.type) == f"sequence of map from {key} to float32[...]"
    outputs = {"y": session.run(None, {"x": X})[0]}
    assert described(outputs["y"]) == ("sequence of 40 maps", "", "")
    saved(tmp_path / "y.npz", outputs)
    with np.load(tmp_path / "y.npz") as columns:
        for label, column in zip(labels, X.T, strict=True):
            np.testing.assert_array_equal(columns[f"y.{label}"], column)
    model.graph.input[0].type.CopyFrom(kind)
    with pytest.raises(NotSupported, match="map"):
        Model.of_bytes(model.SerializeToString())
