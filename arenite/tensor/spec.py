"""TensorSpec: the type of an argument, with sizes that may be variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.dtype import DType
from arenite.dtype import of as dtype_of
from arenite.ir.dim import Dim
from arenite.ir.node import typed
from arenite.ir.ops import graph_input
from arenite.tensor.base import DTypeLike, shape_of
from arenite.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class TensorSpec:
    shape: tuple[Dim, ...]
    dtype: DType

    def argument(self, name: str, index: int) -> Tensor:
        """The tensor that stands for the argument while a function is traced."""
        return Tensor.of_node(graph_input(name, index, self.shape, self.dtype))

    def __str__(self) -> str:
        return typed(self.shape, self.dtype)


def spec(shape: Sequence[Dim], dtype: DTypeLike = "float32") -> TensorSpec:
    """The type of an argument: `spec((Var("batch", 1, 64), 784), "float32")`."""
    return TensorSpec(shape_of((tuple(shape),)), dtype_of(dtype))
