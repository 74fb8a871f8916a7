"""GgufFile: a model in one GGUF file or in shards that lie side by side.

In: a path, of any shard where there are several. Out: metadata, and tensors by name. Names of
shards are made from the name that was given and from numbers, `NAME-00002-of-00003.gguf`; nothing
written in a file leads to another folder.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from arenite.device import DiskAllocator
from arenite.device.allocator import readable_nbytes
from arenite.errors import FileMissing, InvalidFile, printable
from arenite.frontends.folder_files import map_inside
from arenite.frontends.gguf.metadata import Metadata
from arenite.frontends.gguf.reader import Part, read_part
from arenite.frontends.stored_tensor import StoredTensor, quoted

SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GgufFile(NamedTuple):
    """A model's metadata and tensors; the files stay mapped while anyone holds their buffers."""

    path: str
    metadata: Metadata
    tensors: dict[str, StoredTensor]
    parts: tuple[Part, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Map the file, and its sibling shards where it is one of several."""
        given = read_part(path)
        parts = _all_parts(given)
        tensors: dict[str, StoredTensor] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in tensors:
                    raise InvalidFile(
                        f"{part.path}: tensor {quoted(name)} is in an earlier shard too"
                    )
                tensors[name] = tensor
        first = parts[0]
        if len(parts) > 1:
            announced = first.metadata.integer("split.tensors.count", len(tensors))
            if announced != len(tensors):
                raise InvalidFile(
                    f"{first.path}: {announced} tensors are announced and the {len(parts)} shards "
                    f"have {len(tensors)}"
                )
        return cls(given.path, first.metadata, tensors, parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def drop_headers(self) -> None:
        """Let the system have the memory of headers back; whoever reads metadata reads the file."""
        for part in self.parts:
            file = part.file.allocator
            if isinstance(file, DiskAllocator):
                file.drop_pages(part.file.raw_ptr, part.data_offset)

    def __repr__(self) -> str:
        shards = f" in {len(self.parts)} shards" if len(self.parts) > 1 else ""
        return (
            f"<GgufFile {printable(self.path)}: {len(self.tensors)} tensors of "
            f"{readable_nbytes(self.nbytes)}{shards}, {len(self.metadata)} keys>"
        )


def shard_names(name: str) -> list[str]:
    """The names of all shards that belong with the shard of this name; its own where it is none."""
    match = SHARD_NAME.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    return [f"{match['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]


def _all_parts(given: Part) -> tuple[Part, ...]:
    count = given.metadata.integer("split.count", 1)
    number = given.metadata.integer("split.no", 0)
    if count == 1:
        return (given,)
    folder, name = os.path.split(given.path)
    names = shard_names(name)
    if not 0 <= number < count or len(names) != count or names[number] != name:
        raise InvalidFile(
            f"{given.path} says it is shard {number + 1} of {count}; such a file is named "
            "NAME-00001-of-00003.gguf with its own numbers, which is how the others are found"
        )
    parts = []
    for index, sibling in enumerate(names):
        if index == number:
            parts.append(given)
            continue
        part = _sibling(given.path, folder or ".", sibling)
        says = (part.metadata.integer("split.no", -1), part.metadata.integer("split.count", -1))
        if says != (index, count):
            raise InvalidFile(
                f"{part.path} should be shard {index + 1} of {count}; its keys split.no and "
                f"split.count are {says[0]} and {says[1]}"
            )
        parts.append(part)
    return tuple(parts)


def _sibling(asked: str, folder: str, name: str) -> Part:
    try:
        return read_part(os.path.join(folder, name), map_inside(folder, name))
    except FileMissing as error:
        raise FileMissing(f"{asked} is one of several shards, and {error}") from error
