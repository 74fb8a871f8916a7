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
from arenite.ir.element import numpy_dtype
from arenite.ir.node import typed
from arenite.ir.outline import Port

Array = NDArray[Any]


class Arguments:
    """The inputs of a graph; what a call checks of each is looked up once."""

    def __init__(self, inputs: tuple[Port, ...], variables: tuple[Var, ...]) -> None:
        self._inputs = inputs
        self._variables = variables
        self._wanted = [
            (numpy_dtype(port.dtype), None if _is_open(port) else port.shape) for port in inputs
        ]
        #: Whether some size is known only when arrays are given.
        self.is_open = any(shape is None for _, shape in self._wanted)

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """NumPy's, of each input."""
        return [dtype for dtype, _ in self._wanted]

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
            if array.shape != shape and (
                shape is not None or array.ndim != len(self._inputs[k].shape)
            ):
                _explain(array, self._inputs[k])
            flags = array.flags
            fitting.append(array if flags.c_contiguous and flags.aligned else array.copy())
        return fitting

    def sizes(self, arrays: list[Array]) -> dict[str, int]:
        """The values of all variables, read off the shapes; every other size is checked."""
        sizes: dict[str, int] = {}
        pairs = list(zip(self._inputs, arrays, strict=True))
        for port, array in pairs:
            for dim, size in zip(port.shape, array.shape, strict=True):
                if isinstance(dim, Var) and dim.name not in sizes:
                    sizes[dim.name] = check_binding(dim, size)
        missing = [var.name for var in self._variables if var.name not in sizes]
        if missing:
            raise BoundsError(
                f"no input has {missing[0]!r} as a size by itself, so it is not known"
            )
        for port, array in pairs:
            if any(
                _value(dim, sizes) != size
                for dim, size in zip(port.shape, array.shape, strict=True)
            ):
                _explain(array, port)
        return sizes


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


def _is_open(port: Port) -> bool:
    return not all(isinstance(size, int) for size in port.shape)


def _explain(array: Array, port: Port) -> NoReturn:
    """Say what is wrong with an array for an input."""
    if array.dtype != numpy_dtype(port.dtype):
        raise TypeMismatch(f"input {port.name!r} is {port.dtype}, the array given {array.dtype}")
    raise ShapeMismatch(
        f"input {port.name!r} is {typed(port.shape, port.dtype)}, the array given has shape "
        f"{array.shape}"
    )


def _value(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)
