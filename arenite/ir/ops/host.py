"""host: a function of arrays that runs in Python, in the middle of a program.

    host(x...; function, shape, dtype)

Native code returns, the function is called with read-only arrays, and native code goes on: each
such call ends a segment. What it returns must depend on its arguments alone. It is known by its
identity, never folded, never saved: a program in the cache finds it in the graph again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from arenite.dtype import Array, DType
from arenite.errors import HostCallFailed, TypeMismatch
from arenite.ir.element import numpy_dtype
from arenite.ir.node import Node
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, is_dims
from arenite.ir.ops.sources import check_sizes


class NamedFunction:
    """A function as an attribute; equal only to itself."""

    __slots__ = ("function", "name")

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class HostFunction(NamedFunction):
    """A function of arrays."""

    __slots__ = ()

    def call(self, arrays: list[Array], shape: tuple[int, ...], dtype: DType) -> Array:
        """What the function makes of the arrays, checked; its own errors come through."""
        for array in arrays:
            array.flags.writeable = False
        made = np.asarray(self.function(*arrays))
        if made.shape != shape or made.dtype != numpy_dtype(dtype):
            raise HostCallFailed(
                f"{self.name} was to return {dtype}{list(shape)} and returned "
                f"{made.dtype}{list(made.shape)}; correct it, or what host_call says of it"
            )
        return made


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    for dtype in (*(value.dtype for value in inputs), attrs["dtype"]):
        if not dtype.has_numpy:
            raise TypeMismatch(f"host: {dtype} has no NumPy dtype; cast it before and after")
    return check_sizes("host", attrs["shape"]), attrs["dtype"]


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    function: HostFunction = attrs["function"]
    return function.call([np.array(array) for array in arrays], shape, dtype)


define(
    "host",
    "host",
    (0, None),
    _infer,
    _reference,
    {"function": HostFunction, "shape": is_dims, "dtype": DType},
    is_construct=True,
)
