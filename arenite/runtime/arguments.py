"""What goes into a program and what comes out: arrays checked against the types they are to have.

In: the arrays of a caller. Out: arrays that native code can read in place, and the sizes that are
read off their shapes; one clear error where something does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from arenite.errors import BoundsError, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Var, check_binding, evaluate
from arenite.ir.node import Node, typed
from arenite.ir.ops.element import numpy_dtype, packed

Array = NDArray[Any]


class Arguments:
    """The inputs of a graph; what a call checks of each is looked up once."""

    def __init__(self, inputs: tuple[Node, ...], variables: tuple[Var, ...]) -> None:
        self._inputs = inputs
        self._variables = variables
        self._wanted = [
            (numpy_dtype(node.dtype), None if _is_open(node) else node.shape) for node in inputs
        ]
        #: Whether some size is known only when arrays are given.
        self.is_open = any(shape is None for _, shape in self._wanted)

    def fitting(self, arrays: list[Array]) -> list[Array]:
        """The arrays as native code can read them in place; what does not fit raises."""
        if len(arrays) != len(self._wanted):
            raise InvalidArgument(f"{len(self._wanted)} inputs are needed, not {len(arrays)}")
        fitting = []
        for k, array in enumerate(arrays):
            dtype, shape = self._wanted[k]
            given = array.dtype
            if given is not dtype and given != dtype:
                _explain(array, self._inputs[k])
            if array.shape != shape and (shape is not None or array.ndim != self._inputs[k].ndim):
                _explain(array, self._inputs[k])
            flags = array.flags
            fitting.append(array if flags.c_contiguous and flags.aligned else array.copy())
        return fitting

    def sizes(self, arrays: list[Array]) -> dict[str, int]:
        """The values of all variables, read off the shapes; every other size is checked."""
        sizes: dict[str, int] = {}
        pairs = list(zip(self._inputs, arrays, strict=True))
        for node, array in pairs:
            for dim, size in zip(node.shape, array.shape, strict=True):
                if isinstance(dim, Var) and dim.name not in sizes:
                    sizes[dim.name] = check_binding(dim, size)
        missing = [var.name for var in self._variables if var.name not in sizes]
        if missing:
            raise BoundsError(
                f"no input has {missing[0]!r} as a size by itself, so it is not known"
            )
        for node, array in pairs:
            if any(
                _value(dim, sizes) != size
                for dim, size in zip(node.shape, array.shape, strict=True)
            ):
                _explain(array, node)
        return sizes


def constant_array(node: Node) -> Array:
    """The memory of a constant or a buffer, as kernels read it."""
    if node.dtype.bits < 8:
        return _packed_bytes(node)
    array: Array = node.attr("data").array if node.op == "constant" else node.attr("source").array()
    # NumPy's own function for this adds an axis to an array of none.
    return array if array.flags.c_contiguous else array.copy()


def write_to(out: Sequence[Array], results: list[Array]) -> list[Array]:
    """Results copied into the caller's arrays: all of them, or none where one does not fit."""
    if len(out) != len(results):
        raise InvalidArgument(f"{len(results)} outputs do not go into {len(out)} arrays")
    for target, result in zip(out, results, strict=True):
        if target.shape != result.shape or target.dtype != result.dtype:
            raise ShapeMismatch(
                f"an output of {result.dtype}{result.shape} does not go into an array of "
                f"{target.dtype}{target.shape}"
            )
    for target, result in zip(out, results, strict=True):
        target[...] = result
    return list(out)


def _packed_bytes(node: Node) -> Array:
    """The bytes of elements narrower than a byte; those of a buffer in place."""
    if node.op == "constant":
        return packed(node.attr("data").array, node.dtype)
    return np.frombuffer(node.attr("source").storage.as_host_bytes(), np.uint8)


def _is_open(node: Node) -> bool:
    return not all(isinstance(size, int) for size in node.shape)


def _explain(array: Array, node: Node) -> NoReturn:
    """Say what is wrong with an array for an input."""
    name = node.attr("name")
    if array.dtype != numpy_dtype(node.dtype):
        raise TypeMismatch(f"input {name!r} is {node.dtype}, the array given {array.dtype}")
    raise ShapeMismatch(
        f"input {name!r} is {typed(node.shape, node.dtype)}, the array given has shape "
        f"{array.shape}"
    )


def _value(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)
