"""Frames: what the process of a tokenizer and its parent say to each other.

A frame is its length in 8 bytes, then its bytes. Files are not buffered: a fork copies no half of
a frame that is written later.

Facts: what a tokenizer.json says, once its library has read it.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import asdict, dataclass
from typing import Any

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


@dataclass(frozen=True)
class Facts:
    """Texts of tokens are side by side in `texts`, in UTF-8; a text is as long as `lengths` says,
    four bytes a token, little-endian."""

    n_tokens: int
    added: list[int]  # tokens that stand for themselves
    controls: list[int]  # those of them that are special
    prefix: list[int]  # what is put before a text, and after it
    suffix: list[int]
    ids: dict[str, int]  # of the names that were asked for and are there
    is_byte_level: bool
    has_bytes: bool
    continuing_prefix: str | None  # of the pieces of a word after the first
    starts_with_space: bool  # whether a text that stands alone is decoded with a space before it
    texts: bytes
    lengths: bytes

    def frames(self) -> list[bytes]:
        """All of it in three frames."""
        rest: dict[str, Any] = asdict(self)
        texts, lengths = rest.pop("texts"), rest.pop("lengths")
        return [json.dumps(rest).encode(), texts, lengths]

    @classmethod
    def of_frames(cls, rest: bytes, texts: bytes, lengths: bytes) -> Facts:
        return cls(**json.loads(rest), texts=texts, lengths=lengths)
