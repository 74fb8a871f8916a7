"""Products of dequantised numbers: when they are of integers, and that the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import evaluate, verify
from arenite.ir.graph import Graph
from arenite.passes import apply
from arenite.passes.quantised import MAX_DEPTH, quantised
from arenite.tensor import Tensor

RNG = np.random.default_rng(2)
FLOAT32 = BY_NAME["float32"]


def bytes_in(*shape: int, kind: str = "uint8", index: int = 0) -> Tensor:
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, BY_NAME[kind]))


def weights(*shape: int) -> Tensor:
    return Tensor(RNG.integers(-127, 128, shape).astype(np.int8))


def real(numbers: Tensor, scale: Any, zero: int = 0) -> Tensor:
    """DequantizeLinear"""
    wide = numbers.astype(np.int32)
    shifted = wide - zero if zero else wide
    return shifted.astype(np.float32) * Tensor(np.asarray(scale, np.float32))


def rewritten(result: Tensor, exactly: bool = False) -> Graph:
    """The graph after the pass, which gives the same numbers but for rounding."""
    before = Graph.of([result.node])
    after = apply(before, quantised)
    verify(after)
    arrays = []
    for one in before.inputs:
        sizes = [size for size in one.shape if isinstance(size, int)]
        arrays.append(RNG.integers(0, 120, sizes).astype(one.dtype.to_numpy()))
    [wanted], [made] = evaluate(before, arrays), evaluate(after, arrays)
    if wanted.dtype.kind == "f" and not exactly:
        size = np.abs(wanted).max()
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5 * size)
    else:
        np.testing.assert_array_equal(made, wanted)
    return after


def dtypes(graph: Graph, op: str) -> list[str]:
    return [node.dtype.name for node in graph.nodes if node.op == op]


@pytest.mark.parametrize("scale", [0.1, RNG.random(6) + 0.1])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_product_is_of_integers(kind: str, scale: Any) -> None:
    x = real(bytes_in(2, 3, 5, kind=kind), 0.02, 7)
    after = rewritten(x @ real(weights(5, 6), scale))
    assert dtypes(after, "matmul") == ["int32"]


def test_rows_may_have_scales_and_weights_be_turned() -> None:
    rows = RNG.random((3, 1)) + 0.1
    w = real(weights(6, 5), RNG.random((6, 1)) + 0.1).T
    after = rewritten(real(bytes_in(2, 3, 5), rows, 7) @ w)
    assert dtypes(after, "matmul") == ["int32"]


def test_a_convolution_is_of_integers_with_its_bias() -> None:
    scale = (RNG.random(4) + 0.1).astype(np.float32)
    w = real(weights(4, 3, 3, 3), scale.reshape(4, 1, 1, 1))
    bias = real(Tensor(RNG.integers(-99, 99, 4).astype(np.int32)), scale * np.float32(0.02))
    made = real(bytes_in(1, 3, 6, 6), 0.02, 9).conv(w, padding=1)
    after = rewritten(made + bias.reshape(1, 4, 1, 1))
    assert dtypes(after, "conv") == ["int32"]
    assert dtypes(after, "add") == ["int32"]
    other = rewritten(made + (bias * 1.5).reshape(1, 4, 1, 1))
    assert dtypes(other, "add") == ["float32"]


def test_what_is_quantised_next_is_scaled_once() -> None:
    w = real(weights(5, 6), 0.1)
    sums = real(bytes_in(3, 5), 0.02, 7) @ w
    added = real(bytes_in(3, 6, index=1), 0.3, 2)
    units = (sums + added).relu() / 0.5
    after = rewritten(units)
    assert all(node.shape == (1, 1) for node in after.nodes if node.op == "div" and node.ndim)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.reshape(4, 30),
        lambda x: x.permute(0, 2, 1),
        lambda x: x[:, 1:, ::2],
        lambda x: x.max(axis=2),
        lambda x: x.reshape(2, 1, 10, 6)[:, :, 2:].max_pool(3, 2, 1),
    ],
)
def test_what_moves_or_chooses_does_so_with_bytes(move: Any) -> None:
    moved = move(real(bytes_in(2, 5, 12), 0.25, 7))
    [last] = rewritten(moved, exactly=True).outputs
    assert last.op == "mul"
    again = ((moved / 0.25).round() + 7.0).astype(np.uint8)
    made = [node for node in rewritten(again).nodes if node.dtype == FLOAT32]
    assert made == []


def test_bytes_that_are_quantised_as_they_were_are_left_alone() -> None:
    x = bytes_in(4, 5)
    back = ((real(x, 0.3, 7) / Tensor(np.float32(0.3))).round() + 7.0).astype(np.uint8)
    assert rewritten(back).outputs[0].op == "input"
    for scale, zero in ((0.31, 7.0), (0.3, 8.0)):
        other = ((real(x, 0.3, 7) / Tensor(np.float32(scale))).round() + zero).astype(np.uint8)
        assert rewritten(other).outputs[0].op == "cast"


@pytest.mark.parametrize(
    "result",
    [
        lambda: real(bytes_in(2, 5), 0.1) @ real(bytes_in(5, 6, kind="int8", index=1), 0.1),
        lambda: real(bytes_in(2, 5, kind="int16"), 0.1) @ real(weights(5, 6), 0.1),
        lambda: real(bytes_in(2, 5), RNG.random(5)) @ real(weights(5, 6), 0.1),
        lambda: real(bytes_in(2, 5), 0.1) @ real(weights(5, 6), RNG.random((5, 1))),
        lambda: real(bytes_in(1, MAX_DEPTH + 1), 0.1) @ real(weights(MAX_DEPTH + 1, 2), 0.1),
        lambda: real(bytes_in(1, 3, 6, 6), RNG.random((3, 1, 1))).conv(
            real(weights(4, 3, 3, 3), 0.1)
        ),
    ],
    ids=["no constant", "no bytes", "scales of k", "scales of rows of w", "too long", "channels"],
)
def test_other_products_stay(result: Any) -> None:
    after = rewritten(result())
    assert dtypes(after, "matmul") + dtypes(after, "conv") == ["float32"]


def test_a_window_of_padding_alone_is_no_byte() -> None:
    x = real(bytes_in(1, 1, 4, 4), 0.25)
    padded = x.pad([(0, 0), (0, 0), (3, 3), (3, 3)], value=float("-inf"))
    after = rewritten(padded.max_pool(2, 1), exactly=True)
    assert dtypes(after, "max") == ["float32"]
