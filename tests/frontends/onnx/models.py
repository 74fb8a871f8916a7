"""Small models for tests, written with the onnx package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arenite.dtype import of as dtype_of
from arenite.errors import AreniteError
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, Translated, translate
from arenite.frontends.onnx.types import TensorType
from arenite.ir import Dim, evaluate

Array = NDArray[Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def info(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    stored: Sequence[TensorProto] = (),
    name: str = "g",
) -> GraphProto:
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(stored))


def model(made: GraphProto, version: int = 17, functions: Sequence[Any] = ()) -> ModelProto:
    sets = [helper.make_opsetid("", version), helper.make_opsetid("own", 1)]
    return helper.make_model(made, opset_imports=sets, functions=list(functions), ir_version=9)


def stored(name: str, array: Array) -> TensorProto:
    return numpy_helper.from_array(array, name)


def one_node(op: str, n_inputs: int = 1, version: int = 17, **attrs: Any) -> ModelProto:
    """A model of one node, whose inputs x0, x1, ... are float[2]."""
    names = [f"x{k}" for k in range(n_inputs)]
    node = helper.make_node(op, names, ["y"], name="it", **attrs)
    return model(graph([node], [info(name, [2]) for name in names], [info("y", None)]), version)


def opened(made: ModelProto, name: str = "m.onnx") -> OnnxFile:
    return OnnxFile.of_bytes(made.SerializeToString(), name)


def translated(file: OnnxFile, shapes: dict[str, tuple[Dim, ...]] | None = None) -> Translated:
    """The graph, for inputs of the shapes given, or those that the file says."""
    given = {}
    for name, kind in file.inputs.items():
        assert isinstance(kind, TensorType)
        shape = shapes[name] if shapes else bound(kind)
        given[name] = Argument(shape, kind.dtype, kind.is_string)
    return translate(file, given)


def results(made: ModelProto, *arrays: Array) -> list[Array]:
    """What the reference rules make of a model."""
    file = opened(made)
    names = list(file.inputs)
    given = {
        name: Argument(array.shape, dtype_of(array.dtype))
        for name, array in zip(names, arrays, strict=True)
    }
    return evaluate(translate(file, given).graph, [np.asarray(one) for one in arrays])


def read_or_refused(data: bytes) -> bool:
    """Whether a graph could be made; otherwise there was one clear error that names the file."""
    try:
        file = OnnxFile.of_bytes(data, "m.onnx")
        if any(
            not isinstance(one, TensorType) or one.shape is None for one in file.inputs.values()
        ):
            return False  # `translated` does not bind these
        translated(file, {name: bound(one) for name, one in file.inputs.items()})
    except AreniteError as error:
        if "m.onnx" not in str(error) or len(str(error)) > 2000:
            raise AssertionError(f"not one clear error: {error}") from error
        return False
    return True


def bound(kind: Any) -> tuple[Dim, ...]:
    """A shape with numbers for names."""
    return tuple(3 if not isinstance(one, int) else one for one in kind.shape)
