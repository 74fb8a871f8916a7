"""Models of one node, run by us and by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, Translated, translate
from arenite.ir import Dim, evaluate
from arenite.ir.element import held_dtype
from arenite.pipeline.program import compile_program

Array = NDArray[Any]


def model_of(
    op: str,
    inputs: Sequence[Array | None],
    opset: int,
    *,
    constants: Sequence[int] = (),
    n_outputs: int = 1,
    **attrs: Any,
) -> onnx.ModelProto:
    """Inputs are x0, x1, ...; those of `constants` are in the file."""
    names = [f"x{k}" if one is not None else "" for k, one in enumerate(inputs)]
    outputs = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, outputs, **attrs)
    given = [
        helper.make_tensor_value_info(
            names[k], helper.np_dtype_to_tensor_dtype(one.dtype), [None] * one.ndim
        )
        for k, one in enumerate(inputs)
        if one is not None and k not in constants
    ]
    stored = [numpy_helper.from_array(_there(inputs[k]), names[k]) for k in constants]
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs]
    graph = helper.make_graph([node], "one node", given, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _there(array: Array | None) -> Array:
    assert array is not None
    return array


def translated(
    model: onnx.ModelProto,
    inputs: Sequence[Array | None],
    shapes: Mapping[int, tuple[Dim, ...]] | None = None,
    known: Sequence[int] = (),
) -> tuple[Translated, list[Array]]:
    """The graph for inputs of these shapes, by place, and the arrays that it takes."""
    names = [one.name for one in model.graph.input]
    places = [int(name[1:]) for name in names]
    arrays = {k: _there(inputs[k]) for k in places}
    given: dict[str, Any] = {}
    for name, k in zip(names, places, strict=True):
        array = arrays[k]
        shape = (shapes or {}).get(k, array.shape)
        given[name] = array if k in known else Argument(shape, held_dtype(array.dtype))
    made = translate(OnnxFile("one node", model, None), given)
    return made, [arrays[k] for k in places if k not in known]


def run(
    model: onnx.ModelProto,
    inputs: Sequence[Array | None],
    shapes: Mapping[int, tuple[Dim, ...]] | None = None,
    *,
    compiled: bool = False,
) -> list[Array]:
    """The outputs, by the reference rules or compiled."""
    made, arrays = translated(model, inputs, shapes)
    if not compiled:
        return evaluate(made.graph, arrays)
    with compile_program(made.graph, threads=1) as program:
        return [np.asarray(one) for one in program(*arrays)]


def judged(model: onnx.ModelProto, inputs: Sequence[Array | None]) -> list[Array]:
    """What ONNX's evaluator gives."""
    names = [one.name for one in model.graph.input]
    feeds = {name: inputs[int(name[1:])] for name in names}
    return list(ReferenceEvaluator(model).run(None, feeds))


def same(ours: Sequence[Array], theirs: Sequence[Array], rtol: float = 1e-4) -> None:
    assert len(ours) >= len(theirs)
    for one, other in zip(ours, theirs, strict=False):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-5)
