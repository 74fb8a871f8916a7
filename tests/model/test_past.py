"""Models that are given what they have computed before: one program serves the first call, where
there is nothing, and all later ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

from arenite.model.sizes import Form, Size
from tests.frontends.onnx.runtime import run_runtime
from tests.model.models import INT64, made, model_of, node, tensor

Array = NDArray[Any]


def attention(total: str) -> ModelProto:
    """Rows look at those of before and at each other, where a mask over both allows it."""
    return made(
        [
            node("Concat", "past_k x", "k", axis=1),
            node("Concat", "past_v x", "v", axis=1),
            node("Transpose", "k", "turned", perm=[0, 2, 1]),
            node("MatMul", "x turned", "scores"),
            node("Cast", "mask", "is_seen", to=9),
            node("Unsqueeze", "is_seen one", "seen"),
            node("Where", "seen scores least", "kept"),
            node("Softmax", "kept", "weights", axis=-1),
            node("MatMul", "weights v", "y"),
        ],
        [
            tensor("x", ["batch", "length", 8]),
            tensor("mask", ["batch", total], INT64),
            tensor("past_k", ["batch", "past", 8]),
            tensor("past_v", ["batch", "past", 8]),
        ],
        [tensor("y", None), tensor("k", None), tensor("v", None)],
        {"one": np.array([1]), "least": np.array(-1e9, np.float32)},
    )


@pytest.mark.parametrize("total", ["total", "past + length"])
def test_one_program_serves_a_past_of_any_length(total: str) -> None:
    proto = attention(total)
    rng = np.random.default_rng(0)
    past: list[Any] = [np.zeros((2, 0, 8), np.float32)] * 2
    with model_of(proto).compile() as program:
        for length in (5, 1, 1, 3):
            x = rng.standard_normal((2, length, 8)).astype(np.float32)
            mask = rng.integers(0, 2, (2, past[0].shape[1] + length))
            mask[:, -1] = 1
            given = {"x": x, "mask": mask, "past_k": past[0], "past_v": past[1]}
            wanted = run_runtime(proto, given)
            for one, other in zip(program(given).values(), wanted, strict=True):
                np.testing.assert_allclose(one, other, 1e-5, 1e-5)
            past = wanted[1:]
        assert len(program.variants) == 1


def test_a_mask_of_another_length_is_one_error() -> None:
    rng = np.random.default_rng(0)
    x, past = (rng.standard_normal((2, n, 8)).astype(np.float32) for n in (3, 4))
    with (
        model_of(attention("total")).compile() as program,
        pytest.raises(ValueError, match=r"'kept' .Where.: where: shapes .2, 1, 6. and .2, 3, 7."),
    ):
        program(x, np.ones((2, 6), np.int64), past, past)


def test_a_form_with_a_sum_is_kept_as_text() -> None:
    form = Form((("a", Size("a", 1, 0, 9)), ("b", Size("b", 1, 1, 5)), ("c", Size("c", 1, 1, 9))))
    summed = form.sum_of("c", ("a", "b"))
    assert Form.from_json(summed.to_json()) == summed
    assert str(summed) == "a 0..9, b 1..5, c = a + b"
    assert summed.values({"a": 2, "b": 3, "c": 5}) == {"a": 2, "b": 3}
    assert summed.values({"a": 2, "b": 3, "c": 6}) is None
    assert summed.largest() == {"a": 9, "b": 5, "c": 14}
    assert summed.least() == {"a": 0, "b": 1}
