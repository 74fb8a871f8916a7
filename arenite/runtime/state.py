"""States of an Executable, from outside: what lives from run to run, by name.

Reading and writing happen between runs; a run in progress is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import Array
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.element import in_native_order, numpy_dtype, packed, unpacked
from arenite.ir.interface import Port
from arenite.ir.node import nbytes_of, typed

#: Gives the bytes of a state while nothing runs, writable.
OpenBytes: TypeAlias = Callable[[], AbstractContextManager[NDArray[np.uint8]]]


class HeldState:
    """One state: its type, and its elements between runs."""

    def __init__(self, port: Port, open_bytes: OpenBytes) -> None:
        self.name = port.name
        self.shape = tuple(int(str(size)) for size in port.shape)
        self.dtype = port.dtype
        self._open_bytes = open_bytes

    @property
    def nbytes(self) -> int:
        return int(str(nbytes_of(self.shape, self.dtype)))

    def numpy(self) -> Array:
        """The elements as they are now, in an array of the caller's."""
        with self._open_bytes() as content:
            return unpacked(content[: self.nbytes], self.dtype, self.shape).copy()

    def load(self, array: Any) -> None:
        """Put these elements in; of the shape and dtype of the state."""
        given = in_native_order(np.asarray(array))
        if given.dtype != numpy_dtype(self.dtype):
            raise TypeMismatch(
                f"state {self.name!r} is {self.dtype}, the array given {given.dtype}"
            )
        if given.shape != self.shape:
            raise ShapeMismatch(
                f"state {self.name!r} is {typed(self.shape, self.dtype)}, the array given has "
                f"shape {given.shape}"
            )
        with self._open_bytes() as content:
            content[: self.nbytes] = packed(given, self.dtype)

    def clear(self) -> None:
        """Make all elements zero."""
        with self._open_bytes() as content:
            content[...] = 0

    def __repr__(self) -> str:
        return f"<state {self.name} {typed(self.shape, self.dtype)}, {self.nbytes} bytes>"


class States(Mapping[str, HeldState]):
    """All states by name."""

    def __init__(self, held: list[HeldState]) -> None:
        self._held = {one.name: one for one in held}

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self._held.values())

    def __getitem__(self, name: str) -> HeldState:
        if name not in self._held:
            known = ", ".join(self._held) or "none"
            raise InvalidArgument(f"there is no state {name!r}; there are: {known}")
        return self._held[name]

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __str__(self) -> str:
        from arenite.memory.tables import aligned

        rows = [["state", "type", "bytes"]]
        rows += [[s.name, typed(s.shape, s.dtype), str(s.nbytes)] for s in self._held.values()]
        return aligned(rows, {2}) + f"\n\n{self.nbytes} bytes in all"

    def __repr__(self) -> str:
        return f"<{len(self)} states, {self.nbytes} bytes>"
