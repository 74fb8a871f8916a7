"""What ONNX Runtime makes of random models; of what it can't run, the standard's own evaluator.

A model that ONNX Runtime takes is judged by it as a whole. Any other is judged node by node: by
ONNX Runtime where it has the node, as a node of its newest operator set where the file's is newer
and the node is the same there, and in float32 for narrower types, whose results are rounded then;
and only what is left by the standard's evaluator.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.random_models import BFLOAT16, fragment, taken_by
from tests.frontends.onnx.runtime import Refused, run_runtime

Array = NDArray[Any]
#: Whoever judged: the models, and the nodes of those that ONNX Runtime does not take as a whole.
Judges = Counter[str]

#: Where ONNX Runtime gives something else than the standard says, by operator: whether a node is
#: such, by its operator set and what it is given; and why.
RUNTIME_ERRORS: dict[str, tuple[Callable[[NodeProto, int, list[Any]], bool], str]] = {
    "MeanVarianceNormalization": (
        lambda node, version, given: version < 13 and given[0].ndim == 4,
        "before 13 it divides by a deviation of zero, to which the standard adds 1e-9",
    ),
    "Gemm": (
        lambda node, version, given: given[0].size == 0,
        "of products without terms it leaves out beta",
    ),
} | {
    f"Reduce{kind}": (
        lambda node, version, given: given[0].size == 0,
        "of empty tensors it takes negative axes for kept ones",
    )
    for kind in "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()
}


@cache
def newest_of_runtime() -> int:
    """The newest operator set that ONNX Runtime has all of."""
    node = helper.make_node("Neg", ["x"], ["y"])
    try:
        run_runtime(fragment([node], {"x": np.ones(1, np.float32)}, ["y"], 99), {})
    except Refused as error:
        found = re.search(r"till opset (\d+)", str(error))
        if found:
            return int(found[1])
    return onnx.defs.onnx_opset_version()


def judged(model: ModelProto, given: Mapping[str, Array], judges: Judges) -> dict[str, Array]:
    """The outputs of a model by name."""
    try:
        results = run_runtime(model, given)
    except Refused:
        judges["models node by node"] += 1
        return judged_by_node(model, given, judges)
    judges["models by ONNX Runtime"] += 1
    names = [one.name for one in model.graph.output]
    return dict(zip(names, results, strict=True))


def judged_by_node(
    model: ModelProto, given: Mapping[str, Array], judges: Judges
) -> dict[str, Array]:
    """The same, where ONNX Runtime does not take a model, or one of its errors is in the way."""
    values: dict[str, Any] = dict(given)
    values |= {one.name: np.asarray(numpy_helper.to_array(one)) for one in model.graph.initializer}
    for node in model.graph.node:
        taken = {name: values[name] for name in taken_by([node])}
        results = _node_results(node, model, taken, judges)
        values |= dict(zip(node.output, results, strict=True))
    return {one.name: np.asarray(values[one.name]) for one in model.graph.output}


def _error(node: NodeProto, model: ModelProto, given: Mapping[str, Any]) -> str:
    """Why ONNX Runtime's result of a node does not count, or nothing."""
    if node.domain == "own":
        [function] = model.functions
        [node] = function.node
    if node.op_type not in RUNTIME_ERRORS:
        return ""
    test, reason = RUNTIME_ERRORS[node.op_type]
    arrays = [given.get(name) for name in node.input]
    return f"{node.op_type}: {reason}" if test(node, model.opset_import[0].version, arrays) else ""


def _node_results(
    node: NodeProto, model: ModelProto, given: dict[str, Any], judges: Judges
) -> list[Any]:
    version = model.opset_import[0].version
    functions = model.functions if node.domain == "own" else ()
    alone = fragment([node], given, node.output, version, functions)
    error = _error(node, model, given)
    if error:
        judges[error] += 1
    elif all(isinstance(one, np.ndarray) for one in given.values()):
        for attempt in (_as_it_is, _of_the_runtimes_set, _in_float32):
            try:
                results = attempt(node, alone, given)
            except Refused:
                continue
            judges["nodes by ONNX Runtime"] += 1
            return results
    judges["nodes by the standard's evaluator"] += 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(alone).run(None, given))


def _as_it_is(node: NodeProto, alone: ModelProto, given: dict[str, Any]) -> list[Any]:
    return run_runtime(alone, given)


def _of_the_runtimes_set(node: NodeProto, alone: ModelProto, given: dict[str, Any]) -> list[Any]:
    """A node that has not changed since the newest set of ONNX Runtime."""
    version, newest = alone.opset_import[0].version, newest_of_runtime()
    if version <= newest or node.domain or any(a.HasField("g") for a in node.attribute):
        raise Refused("its operator set is not the matter")
    if onnx.defs.get_schema(node.op_type, version, "").since_version > newest:
        raise Refused("the operator is newer")
    return run_runtime(fragment([node], given, node.output, newest), given)


def _in_float32(node: NodeProto, alone: ModelProto, given: dict[str, Any]) -> list[Any]:
    narrow = (BFLOAT16, np.dtype(np.float16))
    if not any(one.dtype in narrow for one in given.values()) or node.domain:
        raise Refused("the type is not the matter")
    inferred = onnx.shape_inference.infer_shapes(alone)
    if not all(one.type.tensor_type.elem_type for one in inferred.graph.output):
        raise Refused("which types it gives is not inferred")
    kinds = [one.type.tensor_type.elem_type for one in inferred.graph.output]
    wide = {
        name: one.astype(np.float32) if one.dtype in narrow else one for name, one in given.items()
    }
    version = min(alone.opset_import[0].version, newest_of_runtime())
    results = run_runtime(fragment([node], wide, node.output, version), wide)
    dtypes = [helper.tensor_dtype_to_np_dtype(kind) for kind in kinds]
    return [one.astype(dtype) for one, dtype in zip(results, dtypes, strict=True)]
