"""Store: the folder of fetched models, one folder a model.

    models/  smollm2-135m-instruct/          its files, and `arenite.json`, the record of them
             smollm2-135m-instruct.partial/  where it is fetched, by one process at a time

What must hold: a file that is handed out was whole when its record was written, and has not been
written since (size and time tell; where the time differs its SHA-256 decides, once). Records are
read with distrust: one that is not as it should be means that nothing is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from arenite.errors import FileMissing
from arenite.fetch.source import OnProgress, Source
from arenite.program import cache
from arenite.program.model_file import write_atomically

RECORD = "arenite.json"
SCHEMA = 1
MAX_RECORD_NBYTES = 2**20
CHUNK_NBYTES = 2**20


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    nbytes: int
    sha256: str
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Record:
    """What was fetched: written last, so what has a record is whole."""

    model: str
    licence: str
    files: tuple[StoredFile, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


class Store:
    """Models in one folder. Any number of processes may share it. `why_closed`: why nothing can be
    put there or removed, where that is so."""

    def __init__(self, folder: Path, why_closed: str = "") -> None:
        self.folder = folder
        self.why_closed = why_closed

    def path_of(self, source: Source) -> Path:
        """What is to be opened once the model is there."""
        return (
            self.folder_of(source.name) / source.main
            if source.main
            else self.folder_of(source.name)
        )

    def folder_of(self, model: str) -> Path:
        return self.folder / folder_name(model)

    def partial_of(self, model: str) -> Path:
        return self.folder / f"{folder_name(model)}.partial"

    def has(self, source: Source, hash_all: bool = False) -> bool:
        """Whether all files of a model are there and whole."""
        folder = self.folder_of(source.name)
        record = read_record(folder)
        if record is None:
            return False
        kept = {file.name: file for file in record.files}
        for wanted in source.files:
            file = kept.get(wanted.name)
            if file is None or wanted.sha256 not in (None, file.sha256):
                return False
            now = _whole(folder / file.name, file, hash_all)
            if now is None:
                return False
            kept[now.name] = now
        if tuple(kept.values()) != record.files:
            with suppress(OSError):  # it can be hashed again
                _write_record(folder, replace(record, files=tuple(kept.values())))
        return True

    def records(self) -> list[Record]:
        """What is in the folder, by name."""
        if not self.folder.is_dir():
            return []
        all_records = [read_record(folder) for folder in self.folder.iterdir() if folder.is_dir()]
        return sorted((r for r in all_records if r is not None), key=lambda record: record.model)

    def keep(self, source: Source, fetched: Path) -> None:
        """Take over a folder with all files of a model, in place of what was there."""
        files = []
        for wanted in source.files:
            path = fetched / wanted.name
            with path.open("rb") as file:
                os.fsync(file.fileno())
            status = path.stat()
            digest = wanted.sha256 or sha256_of(path)
            files.append(StoredFile(wanted.name, status.st_size, digest, status.st_mtime_ns))
        _write_record(fetched, Record(source.name, source.licence, tuple(files)))
        target = self.folder_of(source.name)
        shutil.rmtree(target, ignore_errors=True)
        fetched.rename(target)

    def remove(self, model: str) -> int:
        """Remove a model and what is left of fetching it; returns the bytes of its files."""
        nbytes = 0
        with self.fetching(model) as partial:
            for folder in (self.folder_of(model), partial):
                nbytes += sum(f.lstat().st_size for f in folder.rglob("*") if not f.is_dir())
                empty(folder)
            with suppress(FileNotFoundError):
                self.folder_of(model).rmdir()
        return nbytes

    @contextmanager
    def fetching(self, model: str) -> Iterator[Path]:
        """The folder to fetch a model in, held by one thread of one process at a time. What is
        left in it stays for the next attempt."""
        if self.why_closed:
            raise _no_folder(self.why_closed)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.partial_of(model)
        descriptor = _hold(path)
        try:
            yield path
        finally:
            with suppress(OSError):  # not empty
                path.rmdir()
            os.close(descriptor)


def _hold(path: Path) -> int:
    """A descriptor that locks a folder, made where it is not there."""
    while True:
        # Not pathlib's mkdir: it looks again, and fails where another has just removed the folder.
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with suppress(FileNotFoundError):  # removed by who held it before: make it again
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def default_store() -> Store:
    """The folder `models` in Arenite's cache folder, which is private. Where that can't be written
    and nobody else writes it either, as in an image, what is there is used."""
    info = cache.default().info()
    if info.folder is not None:
        return Store(info.folder / "models")
    folder = cache.default_folder()
    if not _is_closed(folder):
        raise _no_folder(info.why_in_memory)
    return Store(folder / "models", info.why_in_memory)


def _is_closed(folder: Path) -> bool:
    """Whether a folder is there, is the user's or the system's, and can't be written."""
    try:
        status = folder.stat()
    except OSError:
        return False
    is_ours = status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
    return stat.S_ISDIR(status.st_mode) and is_ours and not os.access(folder, os.W_OK)


def _no_folder(why: str) -> FileMissing:
    return FileMissing(
        f"there is no folder for models: {why}; set ARENITE_CACHE_DIR to a private folder, or give "
        "the path of a model's file"
    )


def empty(folder: Path, but: str = "") -> None:
    """Remove what is in a folder, where there is one; one name may stay."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name == but:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def folder_name(model: str) -> str:
    """A plain name for a model's folder: its own where that is plain, else one made of it."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model)
    if plain == model and not model.startswith("."):
        return model
    return f"{plain[:80]}-{hashlib.sha256(model.encode()).hexdigest()[:12]}"


def read_record(folder: Path) -> Record | None:
    """The record of a model's folder, or None where there is none that makes sense."""
    path = folder / RECORD
    try:
        if path.stat().st_size > MAX_RECORD_NBYTES:
            return None
        content = json.loads(path.read_bytes())
        if content["schema"] != SCHEMA:
            return None
        files = tuple(StoredFile(**file) for file in content["files"])
        record = Record(content["model"], content["licence"], files)
        plain = all(
            isinstance(f.name, str)
            and f.name == os.path.basename(f.name)
            and isinstance(f.sha256, str)
            and type(f.nbytes) is type(f.mtime_ns) is int
            for f in files
        )
        well = plain and isinstance(record.model, str) and isinstance(record.licence, str)
        return record if well and folder_name(record.model) == folder.name else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def sha256_of(path: Path, step: str = "", on_progress: OnProgress | None = None) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    total, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_NBYTES):
            digest.update(chunk)
            done += len(chunk)
            if on_progress is not None:
                on_progress(step, done, total)
    return digest.hexdigest()


def _whole(path: Path, file: StoredFile, hash_all: bool) -> StoredFile | None:
    """The file as it is now, or None where it is not what was recorded."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size != file.nbytes:
        return None
    if (status.st_mtime_ns != file.mtime_ns or hash_all) and sha256_of(path) != file.sha256:
        return None
    return replace(file, mtime_ns=status.st_mtime_ns)


def _write_record(folder: Path, record: Record) -> None:
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1)
    write_atomically(folder / RECORD, text.encode())
