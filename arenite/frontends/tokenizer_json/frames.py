"""Frames: what the process of a tokenizer and its parent say to each other.

A frame is its length in 8 bytes, then its bytes. Files are not buffered: a fork copies no half of
a frame that is written later.
"""

from __future__ import annotations

import os
import struct

_LENGTH = struct.Struct("<Q")


def write_frame(descriptor: int, content: bytes) -> None:
    for part in (_LENGTH.pack(len(content)), content):
        left = memoryview(part)
        while left:
            left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int) -> bytes | None:
    """The next frame; None where the other side has ended."""
    head = _read(descriptor, _LENGTH.size)
    return None if head is None else _read(descriptor, _LENGTH.unpack(head)[0])


def _read(descriptor: int, nbytes: int) -> bytes | None:
    parts = []
    while nbytes:
        part = os.read(descriptor, min(nbytes, 2**20))
        if not part:
            return None
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)
