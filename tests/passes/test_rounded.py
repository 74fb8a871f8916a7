"""Bytes that become numbers again: when they are left out, and that no number changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.passes.byte_casts import stay_numbers
from arenite.backends.cpu.passes.integers import integers
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.passes import apply
from arenite.tensor import Tensor

FLOAT32 = BY_NAME["float32"]
KINDS: list[Any] = [np.uint8, np.int8]


def x_of(index: int = 0) -> Tensor:
    return Tensor.of_node(ir.graph_input(f"x{index}", index, (500,), FLOAT32))


def floats(seed: int) -> NDArray[Any]:
    """Halves, whole numbers and others, some beyond all bytes and some that are none."""
    rng = np.random.default_rng(seed)
    array = np.concatenate(
        [
            rng.integers(-600, 600, 300) / 2,
            rng.standard_normal(193) * 100,
            [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0],
        ]
    )
    return array.astype(np.float32)


def bytes_of(x: Any, zero: int, kind: Any) -> Any:
    info = np.iinfo(kind)
    return (x.round() + float(zero)).clip(float(info.min), float(info.max)).astype(kind)


def number_of(byte: Any, zero: int, scale: float) -> Any:
    return (byte.astype(np.int32) - zero).astype(np.float32) * scale


def made_of(*results: Tensor) -> Graph:
    """The graph after the pass, which gives the same numbers."""
    before = apply(Graph.of([result.node for result in results]), integers)
    after = stay_numbers(before)
    verify(after)
    arrays = [floats(k) for k in range(len(after.inputs))]
    for one, other in zip(
        reference.evaluate(before, arrays), reference.evaluate(after, arrays), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    return after


def n_bytes(graph: Graph) -> int:
    return sum(node.op == "cast" and node.dtype.bits == 8 for node in graph.nodes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("zero", "other"), [(0, 0), (11, 11), (-5, 3), (-128, -128)])
def test_rounded_numbers_need_no_bytes(kind: Any, zero: int, other: int) -> None:
    y = number_of(bytes_of(x_of(), zero, kind), other, 0.25)
    assert n_bytes(made_of(y)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_as_bytes_stays_bytes(kind: Any) -> None:
    byte = bytes_of(x_of(), 3, kind)
    assert n_bytes(made_of(number_of(byte, 3, 0.25), byte)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_that_are_added_the_second_stays_bytes(kind: Any) -> None:
    one, other = (number_of(bytes_of(x_of(k), k, kind), k, 0.5 + k) for k in range(2))
    graph = made_of(one + other)
    assert n_bytes(graph) == 1
    [sum_of] = graph.outputs
    first, second = (operand.inputs[0] for operand in sum_of.inputs)
    assert first.op == "sub"
    assert second.op == "cast"


def test_bytes_that_were_not_kept_within_bounds_stay() -> None:
    raised = (x_of() + 12582912.0).view(np.int32)
    y = number_of((raised + 1).astype(np.uint8), 0, 0.25)
    assert n_bytes(made_of(y)) == 1


@pytest.mark.parametrize("zero", [0, 7, -128])
def test_signed_bytes_alone_are_made_at_once(zero: int) -> None:
    graph = made_of(bytes_of(x_of(), zero, np.int8))
    ops = [node.op for node in graph.nodes]
    assert "xor" not in ops
    assert n_bytes(graph) == 1
    assert ops.count("add") == 1 + (zero != 0)


def test_bytes_of_floats_with_a_bit_turned_stay() -> None:
    turned = x_of().astype(np.uint8) ^ np.uint8(128)
    assert "xor" in [node.op for node in made_of(turned.view(np.int8)).nodes]
