"""Products of floats for tests of register tiles: shapes, ways operands lie, and how far off a sum
may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from arenite import passes
from arenite.backends.cpu import target as targets
from arenite.dtype import of as dtype_of
from arenite.ir import graph_input
from arenite.ir.dim import Dim
from arenite.ir.graph import Graph
from arenite.tensor import Tensor
from tests.codegen.made import Array, MadeKernel
from tests.passes.lists import PASSES

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Made(MadeKernel):
    """The one kernel of a function of tensors, after all passes."""

    def __init__(
        self,
        function: Callable[..., Tensor | Sequence[Tensor]],
        shapes: Sequence[tuple[Dim, ...]],
        dtype: Any = np.float32,
        target: str | targets.Target = "host",
    ) -> None:
        inputs = [
            graph_input(f"x{k}", k, shape, dtype_of(np.dtype(dtype)))
            for k, shape in enumerate(shapes)
        ]
        results = function(*(Tensor.of_node(node) for node in inputs))
        results = [results] if isinstance(results, Tensor) else results
        graph = Graph(tuple(inputs), tuple(result.node for result in results))
        super().__init__(passes.run(graph, PASSES)[0], target)


def numbers(shape: Sequence[int], seed: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype)


def bound_of(a: Array, b: Array, unit: float) -> Array:
    """How far a sum of products may lie from the true one, in any order of adding."""
    depth = a.shape[-1]
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return np.asarray((depth + 2) * unit / (1 - (depth + 2) * unit) * size)


UNITS = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def unit_of(dtype: Any) -> float:
    return UNITS.get(np.dtype(dtype), 2.0**-24)


def last_place(dtype: Any) -> float:
    """The relative error of rounding to a dtype."""
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Shape:
    """A product with the ways its operands may lie."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    a_batch: bool = True
    b_batch: bool = True
    ta: bool = False
    tb: bool = False
    a_step: int = 1
    b_step: int = 1

    def operands(self, dtype: Any) -> tuple[Array, Array]:
        """A and B as they lie in memory."""
        a = (self.k, self.m * self.a_step) if self.ta else (self.m, self.k * self.a_step)
        b = (self.n, self.k * self.b_step) if self.tb else (self.k, self.n * self.b_step)
        a_shape = (*(self.batch if self.a_batch else ()), *a)
        b_shape = (*(self.batch if self.b_batch else ()), *b)
        return numbers(a_shape, 1, dtype), numbers(b_shape, 2, dtype)

    def views(self, a: Any, b: Any) -> tuple[Any, Any]:
        """What is multiplied: [batch, m, k] and [batch, k, n], of arrays or of tensors."""
        a, b = a[..., :: self.a_step], b[..., :: self.b_step]
        return (a.swapaxes(-1, -2) if self.ta else a), (b.swapaxes(-1, -2) if self.tb else b)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self.views(a, b)
        made: Tensor = left @ right
        return made


def check(shape: Shape, dtype: Any = np.float32, target: str | targets.Target = "host") -> Made:
    a, b = shape.operands(dtype)
    made = Made(shape.product, [a.shape, b.shape], dtype, target)
    assert made.loops
    [got] = made.run([a, b])
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    want = left @ right
    unit = unit_of(dtype)
    error = np.abs(got.astype(np.float64) - want)
    limit = bound_of(left, right, unit) + last_place(dtype) * np.abs(want) * 1.01
    assert got.shape == want.shape
    assert (error <= limit).all(), (shape, float((error / np.maximum(limit, 1e-300)).max()))
    return made
