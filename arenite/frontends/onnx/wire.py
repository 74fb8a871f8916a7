"""Protobuf's wire format, read for the places of large tensors.

In: a file as memory. Out: the model as protobuf bytes without the bytes of large tensors, each of
which is replaced by an entry that tells its place, so that a plan reads no weights. Messages that
may hold tensors are walked through, at any depth (subgraphs, Constants, functions); what is short
is copied as it is. The entry's key has a random part: no file can write one itself.

    tag varint (field << 3 | kind) | kind 0: varint | 1: 8 bytes | 5: 4 bytes | 2: length, bytes
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from arenite.device import Buffer
from arenite.errors import InvalidFile

#: Bytes from which on the data of a tensor stays in the file.
MIN_NBYTES: Final = 1024
#: Of all that is not the data of large tensors.
MAX_STRUCTURE_NBYTES: Final = 1 << 28
#: Messages in messages, as protobuf itself has it.
MAX_DEPTH: Final = 100
_WINDOW: Final = 1 << 16

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class Message(dict[int, "Message"]):
    """The fields of a message that may hold tensors."""


TENSOR = Message()
_SPARSE = Message({1: TENSOR, 2: TENSOR})
_ATTRIBUTE, _NODE, _GRAPH = Message(), Message(), Message()
_ATTRIBUTE |= {5: TENSOR, 6: _GRAPH, 10: TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE}
_NODE |= {5: _ATTRIBUTE}
_GRAPH |= {1: _NODE, 5: TENSOR, 15: _SPARSE}
_FUNCTION = Message({7: _NODE, 11: _ATTRIBUTE})
_TRAINING = Message({1: _GRAPH, 2: _GRAPH})
MODEL = Message({7: _GRAPH, 20: _TRAINING, 25: _FUNCTION})

# Fields of TensorProto whose bytes are the elements as they lie in memory.
_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA = 4, 9, 10
_EXTERNAL_DATA = 13


class Place(NamedTuple):
    """Where the data of a tensor lies; `field` is TensorProto's."""

    offset: int
    nbytes: int
    field: int


@dataclass(slots=True)
class Scanned:
    """A model without the data of large tensors; `key` is that of the entries which tell the
    place among `places`."""

    structure: bytes
    places: list[Place] = field(default_factory=list)
    key: str = ""


def scan(path: str, file: Buffer) -> Scanned:
    """Read the structure of a model's file."""
    return _Scan(path, file).scanned()


class _Scan:
    def __init__(self, path: str, file: Buffer) -> None:
        self.path = path
        self.file = file
        self.places: list[Place] = []
        self.key = f"place {secrets.token_hex(8)}"
        self._window = b""
        self._at = 0  # of the window
        self._copied = 0

    def scanned(self) -> Scanned:
        parts = self._message(0, self.file.nbytes, MODEL, 0)
        return Scanned(b"".join(parts), self.places, self.key)

    # Bytes.

    def _read(self, start: int, end: int) -> bytes:
        """Some bytes of the file; near ones come from a window."""
        first = start - self._at
        if first >= 0 and end - self._at <= len(self._window):
            return self._window[first : end - self._at]
        nbytes = max(end - start, min(_WINDOW, self.file.nbytes - start))
        self._window, self._at = bytes(self.file.view(start, nbytes).copyout()), start
        return self._window[: end - start]

    def _copy(self, start: int, end: int) -> bytes:
        self._copied += end - start
        if self._copied > MAX_STRUCTURE_NBYTES:
            raise InvalidFile(
                f"{self.path} has more than {MAX_STRUCTURE_NBYTES} bytes beside the data of its "
                "tensors; no such file is read"
            )
        return self._read(start, end)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """(number, where it ends)."""
        raw = self._read(at, min(end, at + 10))
        length = next((k for k, byte in enumerate(raw, 1) if byte < 128), None)
        if length is None:
            self._fail(at, "a number is cut short or has more than ten bytes")
        return sum((byte & 127) << (7 * k) for k, byte in enumerate(raw[:length])), at + length

    def _fail(self, at: int, reason: str) -> NoReturn:
        raise InvalidFile(f"{self.path}, byte {at}: {reason}: damaged, cut short, or no ONNX file")

    # Messages.

    def _message(self, start: int, end: int, kind: Message, depth: int) -> list[bytes]:
        """The bytes of a message, in parts."""
        if depth > MAX_DEPTH:
            self._fail(start, f"messages are nested more than {MAX_DEPTH} deep")
        parts: list[bytes] = []
        kept = at = start
        while at < end:
            begin = at
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                _, at = self._varint(at, end)
            elif wire == _EIGHT:
                at += 8
            elif wire == _FOUR:
                at += 4
            elif wire == _BYTES:
                nbytes, body = self._varint(at, end)
                at = body + nbytes
                if at <= end and nbytes >= MIN_NBYTES:
                    replaced = self._replaced(kind, number, body, nbytes, depth)
                    if replaced is not None:
                        parts += [self._copy(kept, begin), *replaced]
                        kept = at
            else:
                self._fail(begin, f"a field of kind {wire}, which ONNX has not")
            if at > end:
                self._fail(begin, f"a field that ends at byte {at}, behind its message's {end}")
        parts.append(self._copy(kept, end))
        return parts

    def _replaced(
        self, kind: Message, number: int, body: int, nbytes: int, depth: int
    ) -> list[bytes] | None:
        """What stands for a long field; None: itself."""
        if kind is TENSOR:
            if number not in (_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA):
                return None
            self.places.append(Place(body, nbytes, number))
            key, value = self.key.encode(), str(len(self.places) - 1).encode()
            return [_field(_EXTERNAL_DATA, _field(1, key) + _field(2, value))]
        inner = kind.get(number)
        if inner is None:
            return None
        parts = self._message(body, body + nbytes, inner, depth + 1)
        length = sum(map(len, parts))
        return [_number(number << 3 | _BYTES) + _number(length), *parts]


def _field(number: int, body: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(body)) + body


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
