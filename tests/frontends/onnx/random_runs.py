"""Runs of random models by the importer, and what differs from a judge's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.frontends.onnx.file import OnnxFile
from tests.frontends.onnx.random_models import RandomModel
from tests.frontends.onnx.suite import ran, translated

Array = NDArray[Any]


def outputs_of(made: RandomModel, *, compiled: bool) -> dict[str, Array]:
    """What a model gives for its inputs, with sizes that are numbers."""
    file = OnnxFile.of_bytes(made.model.SerializeToString(), "random.onnx")
    graph, arrays = translated(file, dict(made.inputs))
    results = ran(graph, arrays, compiled=compiled)
    return dict(zip(graph.outputs, results, strict=True))


def difference(
    found: Mapping[str, Array],
    wanted: Mapping[str, Array],
    tolerances: Mapping[str, tuple[float, float]],
) -> str:
    """What differs first, or nothing."""
    for name, other in wanted.items():
        one = found[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{name} is {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
        if other.dtype.kind != "f":
            if not np.array_equal(one, other):
                return f"{name} differs in {int((one != other).sum())} of {other.size} elements"
            continue
        rtol, atol = tolerances[name]
        wide, its = one.astype(np.float64), other.astype(np.float64)
        wrong = ~np.isclose(wide, its, rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            k = int(np.argmax(np.where(wrong, np.abs(wide - its), -1)))
            return (
                f"{name} differs in {int(wrong.sum())} of {other.size} elements: "
                f"{wide.reshape(-1)[k]} is not {its.reshape(-1)[k]} (by {rtol:g} and {atol:g})"
            )
    return ""
