"""What an argument of a compiled function is: a tensor of a type, or a value that is structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenite.dtype import DType
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument
from arenite.ir import Dim, graph_input, typed
from arenite.tensor.base import DTypeLike, shape_of
from arenite.tensor.structure import Whole
from arenite.tensor.tensor import Tensor

#: Elements of a static argument; more than axes and shapes ever have are data.
MAX_STATIC_ELEMENTS = 1024
MAX_STATIC_DEPTH = 8


@dataclass(frozen=True, slots=True)
class TensorSpec(Whole):
    """The type of an argument, with sizes that may be variables."""

    shape: tuple[Dim, ...]
    dtype: DType

    def argument(self, name: str, index: int) -> Tensor:
        """The tensor that stands for the argument while a function is traced."""
        return Tensor.of_node(graph_input(name, index, self.shape, self.dtype))

    def __str__(self) -> str:
        return typed(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class Static(Whole):
    """The kind of an argument that decides structure; `arenite.static` is the one there is."""

    def value(self, given: Any, name: str, depth: int = 0) -> Any:
        """What the function gets: numbers, bools, strings and None as they are, lists and arrays
        as tuples of them."""
        if isinstance(given, np.generic | np.ndarray | Tensor):
            _check_count(np.size(given), name)
            given = np.asarray(given).tolist()
        if given is None or isinstance(given, bool | int | float | str):
            return given
        if isinstance(given, tuple | list) and depth < MAX_STATIC_DEPTH:
            _check_count(len(given), name)
            return tuple(self.value(one, name, depth + 1) for one in given)
        raise InvalidArgument(
            f"argument {name!r} is static: a number, a bool, a string, None, or a tuple or an "
            f"array of these, not {type(given).__name__}"
        )

    def __repr__(self) -> str:
        return "static"


static = Static()


def spec(shape: Sequence[Dim], dtype: DTypeLike = "float32") -> TensorSpec:
    """The type of an argument: `spec((Var("batch", 1, 64), 784), "float32")`."""
    if not isinstance(shape, Sequence):
        raise InvalidArgument(f"a shape is a sequence of sizes, not {shape!r}")
    sizes = shape_of((tuple(shape),))
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise InvalidArgument(f"sizes are not negative: {sizes}")
    return TensorSpec(sizes, dtype_of(dtype))


def _check_count(count: int, name: str) -> None:
    if count > MAX_STATIC_ELEMENTS:
        raise InvalidArgument(
            f"argument {name!r} is static and has {count} elements; at most "
            f"{MAX_STATIC_ELEMENTS} can be structure: give it a spec, so that it is data"
        )
