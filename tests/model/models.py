"""Small ONNX models for tests, made with onnx.helper, and the reference evaluator that judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from arenite.model import Model

Array = NDArray[Any]

FLOAT, INT32, INT64, STRING = 1, 6, 7, 8


def tensor(name: str, shape: Sequence[Any] | None, kind: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """Names apart by spaces."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def made(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: dict[str, Array] | None = None,
    opset: int = 17,
) -> ModelProto:
    stored = [numpy_helper.from_array(one, name) for name, one in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def model_of(proto: ModelProto) -> Model:
    return Model.of_bytes(proto.SerializeToString())


def judged(proto: ModelProto, feed: dict[str, Any]) -> dict[str, Any]:
    """What onnx's own evaluator gives."""
    results = ReferenceEvaluator(proto).run(None, feed)
    return dict(zip([one.name for one in proto.graph.output], results, strict=True))


def weights(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network() -> ModelProto:
    """Two layers, with a batch that comes with each call."""
    return made(
        [node("MatMul", "x w", "t"), node("Relu", "t", "u"), node("MatMul", "u v", "y")],
        [tensor("x", ["batch", 8])],
        [tensor("y", ["batch", 5])],
        {"w": weights(8, 16), "v": weights(16, 5, seed=1)},
    )
