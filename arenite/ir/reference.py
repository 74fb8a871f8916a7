"""The oracle: a graph evaluated node by node, each by the reference rule of its op.

In: a graph, an array for each input, values for its variables (found in the inputs' shapes where
they stand there alone). Out: an array for each output. An intermediate is dropped after its last
use. Nothing is fast here; every device is judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.errors import BoundsError, InvalidArgument, InvalidGraph, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Expr, Var, check_binding
from arenite.ir.dim import evaluate as evaluate_dim
from arenite.ir.graph import Graph
from arenite.ir.node import Node, typed
from arenite.ir.ops import OPS
from arenite.ir.ops.element import numpy_dtype

Array = NDArray[Any]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array] | Sequence[Array] = (),
    bindings: Mapping[str, int] | None = None,
) -> list[Array]:
    """The outputs. Inputs come in order or by name; they are never written to."""
    given = _given(graph, inputs)
    bound = bind(graph, given, bindings)
    values: dict[Node, Array] = dict(zip(graph.inputs, given, strict=True))
    last_use = {value: node for node in graph.nodes for value in node.inputs}
    kept = {*graph.inputs, *graph.outputs}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node not in values:
                values[node] = evaluate_node(node, [values[v] for v in node.inputs], bound)
            for value in dict.fromkeys(node.inputs):
                if last_use[value] is node and value not in kept:
                    del values[value]
    return [np.array(values[node], order="C") for node in graph.outputs]


def evaluate_node(node: Node, arrays: list[Array], bindings: Mapping[str, int]) -> Array:
    """One node on the arrays of its inputs; the rule's result is held to the node's type."""
    shape = tuple(evaluate_dim(size, bindings) for size in node.shape)
    attrs = {name: _evaluated(value, bindings) for name, value in node.attrs}
    result = OPS[node.op].reference(arrays, attrs, shape, node.dtype)
    if result.shape != shape or result.dtype != numpy_dtype(node.dtype):
        raise InvalidGraph(
            f"the reference of {node!r} gave {result.dtype}{list(result.shape)}, not "
            f"{typed(shape, node.dtype)}"
        )
    return result


def bind(
    graph: Graph, arrays: Sequence[Array], bindings: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Values of the graph's variables; arrays are checked against the types of the inputs."""
    bound = dict(bindings or {})
    for node, array in zip(graph.inputs, arrays, strict=True):
        if array.ndim != node.ndim:
            raise ShapeMismatch(f"input {_named(node)} got an array of shape {array.shape}")
        if array.dtype != numpy_dtype(node.dtype):
            raise TypeMismatch(f"input {_named(node)} got an array of {array.dtype}")
        for size, actual in zip(node.shape, array.shape, strict=True):
            if isinstance(size, Var) and size.name not in bound:
                bound[size.name] = check_binding(size, actual)
    for node, array in zip(graph.inputs, arrays, strict=True):
        expected = tuple(evaluate_dim(size, bound) for size in node.shape)
        if expected != array.shape:
            raise ShapeMismatch(
                f"input {_named(node)} got an array of shape {array.shape}, not {expected}"
            )
    for var in graph.vars:
        if var.name not in bound:
            raise BoundsError(f"variable {var.name!r} stands in no input's shape; bind it")
    return bound


def _given(graph: Graph, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(graph.inputs):
            raise InvalidArgument(f"the graph has {len(graph.inputs)} inputs, not {len(inputs)}")
        return [np.asarray(array) for array in inputs]
    names = [node.attr("name") for node in graph.inputs]
    if set(names) != set(inputs):
        raise InvalidArgument(f"the graph has inputs {names}, not {list(inputs)}")
    return [np.asarray(inputs[name]) for name in names]


def _named(node: Node) -> str:
    return f"{node.attr('name')!r} ({typed(node.shape, node.dtype)})"


def _evaluated(value: object, bindings: Mapping[str, int]) -> object:
    if isinstance(value, tuple):
        return tuple(_evaluated(item, bindings) for item in value)
    return evaluate_dim(value, bindings) if isinstance(value, Expr) else value
