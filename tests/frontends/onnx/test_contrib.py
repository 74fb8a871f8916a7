"""Operators of com.microsoft against what ONNX Runtime made of the same models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.dtype import of as dtype_of
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, Translated, translate
from arenite.ir import evaluate
from arenite.pipeline.program import compile_program
from tests.frontends.onnx.contrib_cases import Case, fed, model_of, stored

Array = NDArray[Any]
CASES = stored()


def graph_of(case: Case) -> Translated:
    file = OnnxFile.of_bytes(model_of(case).SerializeToString(), "m.onnx")
    return translate(
        file, {name: Argument(one.shape, dtype_of(one.dtype)) for name, one in fed(case).items()}
    )


def compare(case: Case, results: list[Array], wanted: list[Array]) -> None:
    assert len(results) == len(wanted)
    for one, other in zip(results, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_is_what_onnx_runtime_makes_of_it(name: str) -> None:
    case, wanted = CASES[name]
    compare(case, evaluate(graph_of(case).graph, list(fed(case).values())), wanted)
