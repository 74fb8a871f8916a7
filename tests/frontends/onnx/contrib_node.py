"""A model of one operator of com.microsoft, and arrays for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

Array = NDArray[Any]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """A node: `constants` are those of its inputs that the file holds; None is left out."""

    op: str
    inputs: list[Array | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    #: "" is an output that is not asked for.
    outputs: tuple[str, ...] = ("y",)
    constants: tuple[int, ...] = ()
    domain: str = MICROSOFT
    tolerance: float = 1e-5


def model_of(case: Case) -> ModelProto:
    names = [f"x{k}" if one is not None else "" for k, one in enumerate(case.inputs)]
    node = helper.make_node(
        case.op, names, list(case.outputs), domain=case.domain, name="it", **case.attrs
    )
    given, stored = [], []
    for k, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
        if array is None:
            continue
        if k in case.constants:
            stored.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            given.append(helper.make_tensor_value_info(name, kind, array.shape))
    results = [ValueInfoProto(name=name) for name in case.outputs if name]
    graph = helper.make_graph([node], "g", given, results, stored)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def fed(case: Case) -> dict[str, Array]:
    """What comes with a call, by name."""
    return {
        f"x{k}": array
        for k, array in enumerate(case.inputs)
        if array is not None and k not in case.constants
    }


class Numbers:
    """Arrays at random; the same each time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def whole(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Array:
        return self.rng.integers(low, high, shape).astype(dtype)


def int32(*values: int) -> Array:
    return np.array(values, np.int32)
