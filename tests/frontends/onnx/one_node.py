"""Models of one node: made, and run by the reference rules of the graph they become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, translate
from arenite.ir import Dim, evaluate
from arenite.ir.element import held_dtype
from arenite.ir.graph import Graph

Array = NDArray[Any]


class Const:
    """An input that the file holds."""

    def __init__(self, values: Any, dtype: Any = np.int64) -> None:
        self.array = np.asarray(values, dtype)


def model_of(
    op: str, inputs: Sequence[Any], opset: int, n_outputs: int = 1, domain: str = "", **attrs: Any
) -> tuple[ModelProto, dict[str, Array]]:
    """A model of one node, and the arrays it takes; an input is an array, a Const or None."""
    names, types, stored, arrays = [], [], [], {}
    for k, one in enumerate(inputs):
        name = "" if one is None else f"x{k}"
        names.append(name)
        if isinstance(one, Const):
            stored.append(numpy_helper.from_array(one.array, name))
        elif one is not None:
            arrays[name] = np.asarray(one)
            kind = helper.np_dtype_to_tensor_dtype(arrays[name].dtype)
            types.append(helper.make_tensor_value_info(name, kind, arrays[name].shape))
    outputs = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "one", types, made, stored)
    sets = [helper.make_opsetid("", opset)]
    if domain:
        sets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=sets), arrays


def graph_of(
    model: ModelProto, given: dict[str, Array], shapes: dict[str, tuple[Dim, ...]] | None = None
) -> Graph:
    """What a model becomes for inputs of these types; `shapes` has other shapes of inputs."""
    file = OnnxFile.of_bytes(model.SerializeToString(), "model.onnx")
    arguments = {
        name: Argument((shapes or {}).get(name, one.shape), held_dtype(one.dtype))
        for name, one in given.items()
    }
    return translate(file, arguments).graph


def ran(
    op: str, inputs: Sequence[Any], opset: int, n_outputs: int = 1, domain: str = "", **attrs: Any
) -> list[Array]:
    """The outputs of a model of one node."""
    model, arrays = model_of(op, inputs, opset, n_outputs, domain, **attrs)
    return evaluate(graph_of(model, arrays), list(arrays.values()))


def judged(model: ModelProto, arrays: dict[str, Array]) -> list[Array]:
    """What the standard's own evaluator makes of a model."""
    return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, arrays)]
