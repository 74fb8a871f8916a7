"""FileRecord: what the cache keeps of a model's file, so that it need not be parsed again.

Under a digest of all of the file but the data of large tensors: its description, and which of these
tensors were read while it was translated. All that was made of the file is kept under that digest
and the content of those tensors together; so what is found is what would be made again. The data of
other tensors decides nothing: it is read where it lies, whatever it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

import numpy as np

from arenite import locks, saved_json
from arenite.digests import NBYTES, blake2b
from arenite.errors import AreniteError
from arenite.frontends.onnx.description import Description
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.tensor_files import TensorPlace
from arenite.lazy import folder_of
from arenite.pipeline.identity import graph_sources, identity
from arenite.program import cache

_log = logging.getLogger("arenite.model")

#: Of a file's beginning, by which the places of its large tensors are looked up.
_HEAD_NBYTES = 64


class FileRecord:
    """`description` is of a file that was checked, now or before."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self._lock = locks.reentrant()
        _recognise(file)
        self._entry = cache.key_of(
            "onnx file", *identity(), graph_sources(), _onnx_version(), file.digest
        )
        self._reads: set[TensorPlace] = set()
        self._contents: str | None = None  # of the tensors that are read, hashed
        self.description = self._kept() or self._described()

    def _kept(self) -> Description | None:
        store = cache.default()
        sections = store.get(self._entry)
        if sections is None:
            return None
        try:
            content = saved_json.loads(bytes(sections["file"]))
            self._reads = {TensorPlace.from_json(one) for one in content["reads"]}
            return Description.from_json(content["description"])
        except (AreniteError, AttributeError, LookupError, TypeError, ValueError) as problem:
            _log.info("what was kept of a file is dropped: %r", problem)
            self._reads = set()
            store.drop(self._entry)
            return None

    def _described(self) -> Description:
        from arenite.frontends.onnx import operators
        from arenite.frontends.onnx.checks import check, functions_of

        operators.load()
        check(self.file, functions_of(self.file))
        self._keep(self.file.description)
        return self.file.description

    def _keep(self, description: Description) -> None:
        reads = sorted(place.to_json() for place in self._reads)
        content = {"description": description.to_json(), "reads": reads}
        cache.default().put_all({self._entry: {"file": saved_json.dumps(content).encode()}})

    def key(self, *parts: str | bytes) -> str:
        """The key in the cache of what is made of the file in a way that these parts tell."""
        with self._lock:
            if self._contents is None:
                hashed = blake2b(digest_size=NBYTES)
                for place in sorted(self._reads):
                    hashed.update(place.to_json().encode())
                    hashed.update(self.file.files.content_digest(place))
                self._contents = hashed.hexdigest()
            return cache.key_of(self._entry, self._contents, *parts)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """While the file is translated: which tensors decide what it becomes is found out. Keys may
        be others afterwards."""
        with self.file.files.watched() as read:
            try:
                yield
            finally:
                with self._lock:
                    if not read <= self._reads:
                        self._reads |= read
                        self._contents = None
                        self._keep(self.description)


def _recognise(file: OnnxFile) -> None:
    """Have the file's digest known without a scan, which takes a small model a third of a warm
    load: of files that begin alike and have as many bytes, the cache has the one seen last."""
    data, store = file.files.file(""), cache.default()
    head = data.read(0, min(data.nbytes, _HEAD_NBYTES))
    key = cache.key_of("onnx places", graph_sources(), str(data.nbytes), head)
    sections = store.get(key)
    if sections is not None and set(sections) == {"digest", "ends"}:
        with suppress(AreniteError, ValueError):
            known = np.frombuffer(sections["ends"], np.int64).reshape(-1, 2).tolist()
            ends = [(start, end) for start, end in known]
            if file.recognised(bytes(sections["digest"]).decode(), ends):
                return
    ends = [(one.offset, one.offset + one.nbytes) for one in file.scanned.places]
    found = {"digest": file.digest.encode(), "ends": np.array(ends, np.int64).tobytes()}
    store.put_all({key: found})


@lru_cache(maxsize=1)
def _onnx_version() -> bytes:
    """What the onnx package, which says what operators mean, has to say of its version; it is not
    imported for that."""
    folder = folder_of("onnx")
    if folder is None:
        return b"none"
    try:
        with open(os.path.join(folder, "version.py"), "rb") as file:
            return file.read()
    except OSError:
        status = os.stat(folder)
        return f"{folder} {status.st_ino} {status.st_ctime_ns}".encode()
