"""Products and convolutions of bytes as graphs, and the whole numbers they must give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.passes.integers import integers
from arenite.dtype import of as dtype_of
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.passes import apply, run
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor
from tests.passes.lists import PASSES

Array = NDArray[Any]
BYTES = [np.uint8, np.int8]
AS_THEY_ARE: dict[str, Any] = {"transpose_a": False, "transpose_b": False}


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0, spread: str = "any") -> Array:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    if spread == "extreme":
        return np.asarray(rng.choice([info.min, info.max], shape).astype(dtype))
    return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype))


def given_tensor(array: Array, index: int = 0, shape: Any = None) -> Tensor:
    shape = array.shape if shape is None else shape
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, dtype_of(array.dtype)))


def known(array: Array) -> Tensor:
    return Tensor.of_node(ir.constant(array))


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def check(results: list[Tensor], arrays: list[Array], expected: list[Array], op: str) -> Graph:
    """The pass makes the op of the graph, which gives the same numbers when it is interpreted and
    when it is compiled, with one thread and with two."""
    graph = Graph.of([result.node for result in results])
    made = apply(graph, integers)
    verify(made)
    assert op in ops_of(made)
    last, _ = run(graph, PASSES)
    for one in (made, last):
        for got, want in zip(reference.evaluate(one, arrays), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            for got, want in zip(program(*arrays), expected, strict=True):
                np.testing.assert_array_equal(got, want)
    return last


def less(x: Any, zero: Any) -> Any:
    """Widened, less a zero point; the same on tensors and arrays."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero


def products(a: Array, w: Array, za: Any = 0, zw: Any = 0) -> Array:
    sums = (a.astype(np.int64) - za) @ (w.astype(np.int64) - zw)
    return np.asarray(sums.astype(np.int32))


def quantised(real: Any, scale: float, zero: int, dtype: Any) -> Any:
    """QuantizeLinear; the same on tensors and arrays."""
    info = np.iinfo(dtype)
    return ((real / scale).round() + float(zero)).clip(float(info.min), float(info.max))


@dataclass(frozen=True)
class Case:
    image: tuple[int, ...]
    channels: int
    out: int
    kernel: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    groups: int = 1
    images: int = 1


def conv_node(case: Case, x: Tensor, w: Tensor) -> Tensor:
    n = len(case.image)
    return Tensor.of_node(
        ir.make(
            "conv",
            x.node,
            w.node,
            strides=(case.stride,) * n,
            dilations=(case.dilation,) * n,
            padding=case.padding,
            groups=case.groups,
        )
    )


def convolved(case: Case, x: Array, w: Array, za: int, zw: Any) -> Array:
    """As the definition has it: place by place, and zero around what is less the zero point."""
    x = np.pad(x.astype(np.int64) - za, ((0, 0), (0, 0), *case.padding))
    w = w.astype(np.int64) - zw
    reach = [case.dilation * (k - 1) + 1 for k in case.kernel]
    places = [(s - r) // case.stride + 1 for s, r in zip(x.shape[2:], reach, strict=True)]
    # [images, groups, 1, channels of a group, ...] and [groups, outputs of a group, ...].
    x = x.reshape(x.shape[0], case.groups, 1, w.shape[1], *x.shape[2:])
    w = w.reshape(case.groups, -1, *w.shape[1:])
    result = np.zeros((x.shape[0], w.shape[0] * w.shape[1], *places), np.int64)
    for place in np.ndindex(*places):
        cut: list[Any] = [
            slice(p * case.stride, p * case.stride + r, case.dilation)
            for p, r in zip(place, reach, strict=True)
        ]
        products = x[(..., *cut)] * w
        result[(..., *place)] = products.reshape(*result.shape[:2], -1).sum(-1)
    return np.asarray(result.astype(np.int32))


def conv_arrays(case: Case, a_type: Any, w_type: Any, spread: str = "any") -> tuple[Array, Array]:
    x = numbers((case.images, case.channels * case.groups, *case.image), a_type, 1, spread)
    return x, numbers((case.out, case.channels, *case.kernel), w_type, 2, spread)


PLAIN = Case((6, 7), 5, 9, (3, 3), padding=((1, 1), (1, 1)), images=2)
FEW, MANY = replace(PLAIN, channels=8), replace(PLAIN, channels=4, image=(15, 14))
