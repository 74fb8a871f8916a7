"""Protobuf's wire format, read for the places of large tensors.

In: a file as memory. Out: the model as protobuf bytes without the bytes of large tensors, each of
which is replaced by an entry that tells its place, so that a plan reads no weights. Messages that
may hold tensors are walked through, at any depth (subgraphs, Constants, functions); what is short
is copied as it is. The entry's key has a random part: no file can write one itself.

    tag varint (field << 3 | kind) | kind 0: varint | 1: 8 bytes | 5: 4 bytes | 2: length, bytes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, TypeAlias

from arenite.device import Buffer
from arenite.digests import NBYTES, blake2b
from arenite.errors import InvalidFile
from arenite.records import NamedTuple

#: Bytes from which on the data of a tensor stays in the file.
MIN_NBYTES: Final = 1024
#: Of all that is not the data of large tensors.
MAX_STRUCTURE_NBYTES: Final = 1 << 28
#: Messages in messages, as protobuf itself has it.
MAX_DEPTH: Final = 100
_WINDOW: Final = 1 << 14
#: Of a field's key and length.
_LONGEST: Final = 20
_BEHIND: Final = "a field that ends at byte {}, behind its message's {}"

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


#: Bytes that replace some of the file, or (start, end) of those that stay.
_Piece: TypeAlias = "bytes | tuple[int, int]"


class Part(NamedTuple):
    """Bytes of a file, and where they begin."""

    start: int
    data: bytes


class Scanned(NamedTuple):
    """A model without the data of large tensors; `key` is that of the entries which tell the
    place among `places`. `digest` is of all bytes of the file but those at the places, and of
    where these are."""

    structure: bytes
    places: list[Place]
    key: str
    digest: str


def scan(path: str, file: Buffer) -> Scanned:
    """Read the structure of a model's file."""
    return _Scan(path, file).scanned()


def parts_between(path: str, file: Buffer, ends: Sequence[tuple[int, int]]) -> list[Part]:
    """All of a file but what lies between these starts and ends."""
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), file.nbytes]
    spans = [(start, stop - start) for start, stop in zip(starts, stops, strict=True)]
    if sum(nbytes for _, nbytes in spans) > MAX_STRUCTURE_NBYTES:
        raise InvalidFile(
            f"{path} has more than {MAX_STRUCTURE_NBYTES} bytes beside the data of its "
            "tensors; no such file is read"
        )
    return [Part(*one) for one in zip(starts, file.read_parts(spans), strict=True)]


def digest_of(parts: Iterable[Part]) -> str:
    """That of a file which has these parts between its large tensors. Whoever finds the same parts
    at the same places in a file need not scan it: what a scan reads is in them."""
    digest = blake2b(digest_size=NBYTES)
    for start, data in parts:
        digest.update(b"%d %d " % (start, start + len(data)) + data)
    return digest.hexdigest()


class _Scan:
    def __init__(self, path: str, file: Buffer) -> None:
        self.path = path
        self.file = file
        self.places: list[Place] = []
        self.key = f"place {os.urandom(8).hex()}"
        self._nbytes = file.nbytes
        self._window = b""
        self._at = 0  # of the window

    def scanned(self) -> Scanned:
        pieces = self._message(0, self._nbytes, MODEL, 0) or [(0, self._nbytes)]
        ends = [(one.offset, one.offset + one.nbytes) for one in self.places]
        all_kept = parts_between(self.path, self.file, ends)
        kept = iter(all_kept)
        first, data = next(kept)
        parts = []
        for one in pieces:
            if isinstance(one, bytes):
                parts.append(one)
                continue
            start, end = one
            while start > first + len(data):
                first, data = next(kept)
            parts.append(data[start - first : end - first])
        return Scanned(b"".join(parts), self.places, self.key, digest_of(all_kept))

    # Bytes.

    def _read(self, start: int, end: int) -> bytes:
        """Some bytes of the file; near ones come from a window."""
        first = start - self._at
        if first >= 0 and end - self._at <= len(self._window):
            return self._window[first : end - self._at]
        self._fill(start, end - start)
        return self._window[: end - start]

    def _fill(self, start: int, nbytes: int) -> None:
        """A window that begins here, of at least so many bytes."""
        nbytes = max(nbytes, min(_WINDOW, self._nbytes - start))
        self._window, self._at = self.file.read(start, nbytes), start

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

    def _message(self, start: int, end: int, kind: Message, depth: int) -> list[_Piece] | None:
        """What stands for a message with large tensors in it; None: itself."""
        if depth > MAX_DEPTH:
            self._fail(start, f"messages are nested more than {MAX_DEPTH} deep")
        pieces: list[_Piece] = []
        kept = at = start
        data, base = self._window, self._at
        last = base + len(data)
        while at < end:
            begin = at
            if at + _LONGEST > last:
                self._fill(at, 0)
            if self._window is not data:
                data, base = self._window, self._at
                last = base + len(data)
            # Nearly all fields are short, and their keys and numbers of one byte: steps over them.
            k = at - base
            if at + _LONGEST <= last and data[k] < 128:
                wire, nbytes = data[k] & 7, data[k + 1]
                if wire == _VARINT and nbytes < 128:
                    at += 2
                elif wire == _BYTES and nbytes < 128:
                    at += 2 + nbytes
                elif wire == _BYTES and data[k + 2] << 7 < MIN_NBYTES:
                    at += 3 + (nbytes & 127) + (data[k + 2] << 7)
                if at > end:
                    self._fail(begin, _BEHIND.format(at, end))
                if at > begin:
                    continue
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
                        pieces += [(kept, begin), *replaced]
                        kept = at
            else:
                self._fail(begin, f"a field of kind {wire}, which ONNX has not")
            if at > end:
                self._fail(begin, _BEHIND.format(at, end))
        return [*pieces, (kept, end)] if pieces else None

    def _replaced(
        self, kind: Message, number: int, body: int, nbytes: int, depth: int
    ) -> list[_Piece] | None:
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
        pieces = self._message(body, body + nbytes, inner, depth + 1)
        if pieces is None:
            return None
        length = sum(len(one) if isinstance(one, bytes) else one[1] - one[0] for one in pieces)
        return [_number(number << 3 | _BYTES) + _number(length), *pieces]


def _field(number: int, body: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(body)) + body


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
