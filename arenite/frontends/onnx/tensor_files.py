"""TensorFiles: the files that the tensors of a model lie in, and the tensors at places in them.

The model's own file, and others of its folder, each mapped once; what a model may name is checked
here, whoever asks. While a model is translated, it is noted which tensors are read: what it becomes
depends on their numbers, and on those of no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from arenite import saved_json
from arenite.device.buffer import Buffer
from arenite.digests import digest_of
from arenite.dtype import SCALARS
from arenite.errors import InvalidFile
from arenite.frontends.stored_tensor import quoted
from arenite.ir.data import BufferSource
from arenite.records import NamedTuple


class TensorPlace(NamedTuple):
    """A tensor in a file; `location` names that in the model's folder, "" is the model's own."""

    location: str
    offset: int
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> str:
        return saved_json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> TensorPlace:
        """ValueError, TypeError or LookupError where it is none."""
        location, offset, dtype, shape = saved_json.loads(text)
        if type(location) is not str or type(offset) is not int or offset < 0:
            raise ValueError(f"{text} is no place")
        return cls(location, offset, SCALARS[dtype].name, tuple(map(int, shape)))

    @property
    def nbytes(self) -> int:
        return SCALARS[self.dtype].nbytes(self.shape)


class TensorFiles:
    """The files of one model; `folder` is None for one that came as bytes."""

    def __init__(self, path: str, file: Buffer, folder: str | None) -> None:
        self._path = path
        self._folder = folder
        self._mapped: dict[str, Buffer] = {"": file}
        #: A place is one tensor however often it is asked for.
        self._sources: dict[TensorPlace, BufferSource] = {}
        self._places: dict[int, TensorPlace] = {}
        self._watching: list[set[TensorPlace]] = []

    def file(self, location: str, where: str = "") -> Buffer:
        """A file, mapped; InvalidFile for one that is not in the model's folder. `where` names the
        tensor."""
        known = self._mapped.get(location)
        if known is not None:
            return known
        where = where or f"{self._path}: a tensor"
        if self._folder is None:
            raise InvalidFile(
                f"{where} has its data in {quoted(location)}, and the model came as bytes, without "
                "a folder; load it from its file"
            )
        parts = re.split(r"[/\\]", location)
        if (
            not location.isprintable()
            or os.path.isabs(location)
            or "\\" in location
            or ":" in location
            or ".." in parts
        ):
            raise refused(where, location)
        from arenite.frontends.folder_files import map_inside

        mapped = map_inside(self._folder, location)
        path = os.path.join(self._folder, location)
        if os.stat(path).st_nlink > 1:
            raise InvalidFile(
                f"{where} has its data in {quoted(location)}, which has another name elsewhere "
                "(a hard link) and may be anyone's file; put a copy in its place if you trust it"
            )
        self._mapped[location] = file = mapped.file()
        return file

    def source(self, place: TensorPlace) -> BufferSource:
        """The tensor at a place, for graphs; InvalidView where the file is too short for it."""
        found = self._sources.get(place)
        if found is None:
            view = self.file(place.location).view(
                place.offset, place.nbytes, SCALARS[place.dtype], place.shape
            )
            found = self._sources[place] = BufferSource(view, partial(self._note, place))
            self._places[found.id] = place
        return found

    def place_of(self, source: BufferSource) -> TensorPlace | None:
        """Where a tensor lies; None for one of another's."""
        return self._places.get(source.id)

    def content_digest(self, place: TensorPlace) -> bytes:
        """The bytes of a tensor, hashed; b"" where the file is too short for it."""
        file = self.file(place.location)
        if place.offset + place.nbytes > file.nbytes:
            return b""
        return digest_of(file.read(place.offset, place.nbytes))

    @contextmanager
    def watched(self) -> Iterator[set[TensorPlace]]:
        """The places that are read while it lasts."""
        read: set[TensorPlace] = set()
        self._watching.append(read)
        try:
            yield read
        finally:
            # By identity: two may have read the same.
            self._watching = [one for one in self._watching if one is not read]

    def _note(self, place: TensorPlace) -> None:
        for read in self._watching:
            read.add(place)


def refused(where: str, location: str) -> InvalidFile:
    return InvalidFile(
        f"{where} has its data in {quoted(location)}; only files in the model's own folder "
        "are read, named from there"
    )
