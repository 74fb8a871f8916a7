"""Small convolutional networks compiled whole, against NumPy: one thread and two, bytes watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import reference
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor
from arenite.tensor.creation import concatenate

FLOAT32 = BY_NAME["float32"]


class Weights:
    """Constants that keep the size of what flows through a network about the same."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def constant(self, array: NDArray[Any]) -> Tensor:
        return Tensor.of_node(ir.constant(array.astype(np.float32), FLOAT32))

    def conv(self, x: Tensor, out: int, kernel: int = 3, groups: int = 1, **more: Any) -> Tensor:
        """A convolution and a norm."""
        shape = (out, evaluate(x.shape[1], {}) // groups, *[kernel] * (x.ndim - 2))
        w = self.rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        y = x.conv(self.constant(w), padding=kernel // 2, groups=groups, **more)
        average, weight, bias = map(self.constant, self.rng.standard_normal((3, out)) * 0.3)
        return y.batch_norm(average, self.constant(self.rng.uniform(0.5, 1.5, out)), weight, bias)

    def up(self, x: Tensor, out: int) -> Tensor:
        shape = (evaluate(x.shape[1], {}), out, 2, 2)
        w = self.rng.standard_normal(shape) * (1 / shape[0]) ** 0.5
        return x.conv_transpose(self.constant(w), stride=2)


def residual(x: Tensor) -> Tensor:
    w = Weights()
    y = w.conv(x, 24, 7, stride=2).relu().max_pool(3, stride=2, padding=1)
    for out, stride in ((24, 1), (40, 2), (40, 1)):
        kept = y if stride == 1 else w.conv(y, out, 1, stride=stride)
        inner = w.conv(w.conv(y, 16, 1).relu(), 16, stride=stride).relu()
        y = (w.conv(inner, out, 1) + kept).relu()
    return y.mean((2, 3))


def depthwise(x: Tensor) -> Tensor:
    w = Weights()
    y = w.conv(x, 16, stride=2).relu()
    for out, stride in ((16, 1), (24, 2), (24, 1)):
        wide = 3 * evaluate(y.shape[1], {})
        inner = w.conv(w.conv(y, wide, 1).clip(0, 6), wide, groups=wide, stride=stride).clip(0, 6)
        gate = inner.mean((2, 3), keepdims=True)
        gate = w.conv(w.conv(gate, 8, 1).relu(), wide, 1).sigmoid()
        made = w.conv(inner * gate, out, 1)
        y = made + y if made.shape == y.shape else made
    return y


def encoder_and_decoder(x: Tensor) -> Tensor:
    w = Weights()
    first = w.conv(x, 12).silu()
    second = w.conv(first.max_pool(2), 20).silu()
    third = w.conv(second.max_pool(2), 36, groups=4).silu()
    y = w.conv(concatenate([second, w.up(third, 20)], 1), 20).silu()
    y = w.conv(concatenate([first, w.up(y, 12)], 1), 12).silu()
    return w.conv(y, 3, 1)


NETWORKS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "residual": (residual, (3, 36, 41)),
    "depthwise": (depthwise, (3, 33, 30)),
    "encoder and decoder": (encoder_and_decoder, (2, 24, 20)),
    "along a line": (lambda x: residual(x[..., None]), (4, 70)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("is_later", [False, True], ids=["fixed", "batch later"])
def test_networks(name: str, is_later: bool) -> None:
    network, shape = NETWORKS[name]
    n: Dim = Var("n", 1, 4) if is_later else 2
    x = Tensor.of_node(ir.graph_input("x", 0, (n, *shape), FLOAT32))
    graph = Graph.of([network(x).node])
    given = np.random.default_rng(5).standard_normal((2, *shape)).astype(np.float32)
    [expected] = reference.evaluate(graph, [given])
    results = []
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            results.append(program(given)[0])
            program.verify()
    with compile_graph(graph) as program:
        results.append(program.run_checked(given)[0])
    for result in results:
        assert result.tobytes() == results[0].tobytes()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=2e-6 * scale)
