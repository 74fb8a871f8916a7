"""StoredTensor: where a tensor lies in a file, and its bytes as a buffer on the mapped file."""

from __future__ import annotations

import numpy as np

from arenite.device.buffer import Buffer
from arenite.device.registry import get
from arenite.dtype import DType
from arenite.ir.data import BufferSource


class StoredTensor:
    """A tensor of a file whose place was checked against the file's size.

    `shape` is row-major: the last axis is the one whose elements lie side by side. `offset` counts
    bytes from the start of the file.
    """

    __slots__ = ("_source", "dtype", "file", "is_swapped", "name", "nbytes", "offset", "shape")

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        offset: int,
        nbytes: int,
        file: Buffer,
        is_swapped: bool = False,
    ) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape
        self.offset, self.nbytes = offset, nbytes
        self.file = file  # the whole file, mapped
        self.is_swapped = is_swapped  # the file has the other byte order than this machine
        self._source: BufferSource | None = None

    @property
    def source(self) -> BufferSource:
        """The tensor for graphs, the same each time."""
        if self._source is None:
            self._source = BufferSource(self.buffer())
        return self._source

    def buffer(self) -> Buffer:
        """The tensor's bytes in place; of a file in the other byte order a converted copy."""
        if not self.is_swapped:
            return self.file.view(self.offset, self.nbytes, self.dtype, self.shape)
        from arenite.dtype.blocks import byteswapped

        raw = np.frombuffer(self.file.view(self.offset, self.nbytes).copyout(), np.uint8)
        copy = Buffer(get("cpu"), self.dtype, self.shape)
        copy.copyin(byteswapped(raw, self.dtype))
        return copy

    def __repr__(self) -> str:
        return (
            f"StoredTensor({quoted(self.name)}, {self.dtype}, {self.shape}, offset={self.offset}, "
            f"nbytes={self.nbytes})"
        )


def quoted(name: str) -> str:
    """A name from a file for an error message: quoted, escaped, not longer than a line."""
    return repr(name) if len(name) <= 80 else f"{name[:77]!r}... ({len(name)} characters)"
