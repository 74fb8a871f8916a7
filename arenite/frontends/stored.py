"""StoredTensor: where a tensor lies in a file, and its bytes as a buffer on the mapped file."""

from __future__ import annotations

from dataclasses import dataclass, field

from arenite import device
from arenite.device import Buffer
from arenite.dtype import DType
from arenite.dtype.blocks import byteswapped


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file whose place was checked against the file's size.

    `shape` is row-major: the last axis is the one whose elements lie side by side. `offset` counts
    bytes from the start of the file.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    file: Buffer = field(repr=False)  # the whole file, mapped
    is_swapped: bool = False  # the file has the other byte order than this machine

    def buffer(self) -> Buffer:
        """The tensor's bytes in place; of a file in the other byte order a converted copy."""
        if not self.is_swapped:
            return self.file.view(self.offset, self.nbytes, self.dtype, self.shape)
        raw = self.file.view(self.offset, self.nbytes).as_array()
        copy = Buffer(device.get("cpu"), self.dtype, self.shape)
        copy.copyin(byteswapped(raw, self.dtype))
        return copy


def quoted(name: str) -> str:
    """A name from a file for an error message: quoted, escaped, not longer than a line."""
    return repr(name) if len(name) <= 80 else f"{name[:77]!r}... ({len(name)} characters)"
