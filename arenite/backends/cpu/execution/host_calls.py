"""Calls of the host: what happens between two segments of a program.

In: the number of a call, and the registers in which the addresses of its values are. Out: the bytes
of what the function made, where the plan has them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import Array, DType
from arenite.ir.dim import evaluate
from arenite.ir.interface import GraphInterface
from arenite.program.compiled import Compiled, functions_of


class HostCalls:
    """The functions of a graph, ready to be called for a program of it."""

    def __init__(self, interface: GraphInterface, compiled: Compiled, first_cell: int) -> None:
        self._functions = functions_of(interface.graph) if compiled.hosts else []
        self._hosts = compiled.hosts
        self._values = compiled.values
        self._first_cell = first_cell

    def call(
        self, number: int, words: memoryview | NDArray[np.int64], sizes: Mapping[str, int]
    ) -> None:
        """Read arguments, call, write the result; what the function raises comes through."""
        host = self._hosts[number]
        *given, made = (
            _array_at(
                int(words[self._first_cell + cell]),
                tuple(evaluate(dim, sizes) for dim in self._values[value].shape),
                self._values[value].dtype,
            )
            for value, cell in zip((*host.reads, host.write), host.addresses, strict=True)
        )
        # Copies: what the function keeps must not change, nor go, with the arena.
        arrays = [array.copy() for array in given]
        dtype = self._values[host.write].dtype
        made[...] = self._functions[host.function].call(arrays, made.shape, dtype)


def _array_at(address: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Memory of a program as an array, for as long as nothing runs."""
    nbytes = dtype.nbytes(shape)
    if nbytes == 0:
        return np.empty(shape, dtype.to_numpy())
    memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address))
    return np.frombuffer(memory, dtype.to_numpy()).reshape(shape)
