"""The cache of compiled code on disk: one file a key, one builder a key.

In: a key (a hex digest of everything the content depends on) and sections of bytes. Out: the
sections, or nothing. However many threads and processes ask for a key at once, one builds it. An
entry holds its key, so that one that got into another's place is not believed. What does not pass
its checks is dropped, whatever it is, and built again; nothing is unpickled. The folder is private;
where there is none to write to, entries live in memory, which is said once to the logger `arenite`.

    folder/  2f...e1.arenite   entries (`model_file`), the least recently used goes first
             2f...e1.lock      held by whoever builds or changes that key, gone afterwards
             kernels/          a folder of the same kind, for the code of single kernels
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import struct
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from arenite import __version__, locks
from arenite.digests import NBYTES, blake2b
from arenite.errors import DamagedCache, InvalidArgument
from arenite.program.model_file import (
    Sections,
    entry_bytes,
    of_key,
    parsed_entry,
    read_model_file,
    write_atomically,
)
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_CAP_NBYTES = 2 * 2**30
KERNELS_CAP_NBYTES = 64 * 2**20
SUFFIX = ".arenite"
_KEY_DIGITS = "0123456789abcdef"
_LEFT_BEHIND_SECONDS = 3600.0
_HANDED = struct.Struct("<QQ")  # lengths of a key and of the content behind it

_log = logging.getLogger("arenite")


class CacheInfo(NamedTuple):
    """What `arenite cache info` shows."""

    folder: Path | None  # None: in memory
    n_entries: int
    nbytes: int
    cap_nbytes: int
    why_in_memory: str = ""


def key_of(*parts: str | bytes) -> str:
    """The key of content that depends on these parts; Arenite's version is always one of them."""
    digest = blake2b(digest_size=NBYTES)
    for part in (__version__, *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _is_key(text: str) -> bool:
    return 16 <= len(text) <= 128 and not text.strip(_KEY_DIGITS)


class Cache:
    """Entries in one folder. Any number of threads and processes may share it."""

    def __init__(self, folder: str | Path, cap_nbytes: int = DEFAULT_CAP_NBYTES) -> None:
        self.cap_nbytes = cap_nbytes
        self._memory: dict[str, bytes] = {}
        self._builders: dict[str, locks.Turn] = {}
        self._lock = locks.reentrant()
        self._held: set[int] = set()  # descriptors of lock files
        self._folder: str | None = os.fspath(folder)
        self._why_in_memory = ""
        problem = _make_private(self._folder)
        if problem:
            self._go_in_memory(problem)
        locks.watch(self)

    @property
    def folder(self) -> Path | None:
        """Where entries are; None: in memory."""
        from pathlib import Path

        return None if self._folder is None else Path(self._folder)

    def get(self, key: str) -> Sections | None:
        """The sections under a key, or None. What is damaged is dropped on the way."""
        path = self._path(key)
        try:
            if path is None:
                with self._lock:
                    content = self._memory.get(key)
                return None if content is None else parsed_entry(key, content)
            found = of_key(key, read_model_file(path, self.cap_nbytes))
        except DamagedCache as damage:
            if path is None or os.path.lexists(path):
                _log.info("a damaged cache entry is dropped: %s", damage)
                self.drop(key)
            return None
        with suppress(OSError):
            os.utime(path)  # used now: the last to be evicted
        return found

    def put(self, key: str, sections: Mapping[str, bytes]) -> None:
        """Keep these sections under a key, in place of what was there."""
        self._keep({key: entry_bytes(key, sections)}, is_synced=True)

    def put_all(self, entries: Mapping[str, Mapping[str, bytes]]) -> None:
        """Keep many small entries at once, which a crash of the system may damage."""
        contents = {key: entry_bytes(key, sections) for key, sections in entries.items()}
        self._keep(contents, is_synced=False)

    def obtain(
        self,
        key: str,
        build: Callable[[], Mapping[str, bytes]],
        needs: Collection[str] = (),
    ) -> Sections:
        """The sections under a key, built by exactly one of those who ask for it at once; an entry
        without the sections it `needs` is built anew."""
        found = self._whole(key, needs)
        if found is not None:
            return found
        with self.holding(key):
            found = self._whole(key, needs)
            if found is None:
                sections = build()
                self.put(key, sections)
                found = self.get(key)
                if found is None:  # over the cap by itself, or removed by another process
                    found = parsed_entry(key, entry_bytes(key, sections))
        return found

    def _whole(self, key: str, needs: Collection[str]) -> Sections | None:
        """What is under a key, if it has these sections; else it is dropped."""
        found = self.get(key)
        if found is None or found.keys() >= {*needs}:
            return found
        _log.info("a cache entry without %s is dropped", ", ".join({*needs} - found.keys()))
        self.drop(key)
        return None

    def _keep(self, contents: Mapping[str, bytes], is_synced: bool) -> None:
        paths = {key: self._path(key) for key in contents}
        places = {path: contents[key] for key, path in paths.items() if path is not None}
        if len(places) == len(contents):
            try:
                for path, content in places.items():
                    if os.path.isdir(path):
                        _remove(path)
                    write_atomically(path, content, is_synced)
                self._evict(keep=places)
                return
            except OSError as error:
                self._go_in_memory(f"{self._folder} can't be written: {error.strerror or error}")
        with self._lock:
            self._memory |= contents

    def drop(self, key: str) -> None:
        """Forget what is under a key, because it passed the file's checks and is of no use."""
        path = self._path(key)
        with self._lock:
            self._memory.pop(key, None)
        if path is not None:
            _remove(path)

    def hand_over(self, descriptor: int) -> None:
        """Write the entries that are in memory to a file, for another process to `receive`."""
        with self._lock:
            contents = dict(self._memory)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            for key, content in contents.items():
                file.write(_HANDED.pack(len(key), len(content)) + key.encode())
                file.write(content)

    def receive(self, descriptor: int) -> None:
        """Have the entries that another process has handed over; what is damaged is dropped when
        it is looked at, like any other."""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            while head := file.read(_HANDED.size):
                n_key, n_content = _HANDED.unpack(head)
                key = file.read(n_key).decode("ascii")
                self._keep({key: file.read(n_content)}, is_synced=False)

    def info(self) -> CacheInfo:
        if self._folder is None:
            with self._lock:
                sizes = [len(content) for content in self._memory.values()]
        else:
            sizes = [status.st_size for _, status in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.cap_nbytes, self._why_in_memory)

    def clear(self) -> int:
        """Remove all entries; returns how many."""
        with self._lock:
            n = len(self._memory)
            self._memory.clear()
        if self._folder is None:
            return n
        for path, _ in self._entries():
            if _remove(path):
                n += 1
        return n

    def forget_after_fork(self) -> None:
        """In a forked process: threads that held keys are not here, their lock files are."""
        self._builders = {}
        for descriptor in self._held:
            with suppress(OSError):
                os.close(descriptor)
        self._held = set()

    def _path(self, key: str) -> str | None:
        if not _is_key(key):
            raise InvalidArgument(f"{key!r} is no key: 16 to 128 hex digits are needed")
        return None if self._folder is None else os.path.join(self._folder, f"{key}{SUFFIX}")

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """While it lasts nobody else builds or holds this key, in any thread or process."""
        with self._lock:
            mine = self._builders.setdefault(key, locks.Turn(f"cache entry {key[:16]}"))
        with mine.take():
            descriptor = self._lock_file(key)
            try:
                yield
            finally:
                # One that is not held any more is the parent's: this process was forked meanwhile.
                if descriptor is not None and descriptor in self._held:
                    # While it is held: who opened it before finds another inode and tries again.
                    with suppress(OSError):
                        os.unlink(self._lock_path(key))
                    self._held.discard(descriptor)
                    os.close(descriptor)

    def _lock_path(self, key: str) -> str:
        return os.path.join(self._folder or "", f"{key}.lock")

    def _lock_file(self, key: str) -> int | None:
        """Wait for the lock file of a key; None where there is no folder to hold one."""
        import fcntl

        while self._folder is not None:
            path = self._lock_path(key)
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(path, flags, 0o600)
            except OSError as error:
                # A folder or a link in its place, which is no lock.
                if error.errno in (errno.EISDIR, errno.ELOOP) and _remove(path):
                    continue
                self._go_in_memory(f"{self._folder} can't be written: {error.strerror}")
                return None
            self._held.add(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
            except FileNotFoundError:
                pass  # the builder before us removed it
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                    raise
                return descriptor  # a file system without locks: build, perhaps twice
            self._held.discard(descriptor)
            os.close(descriptor)
        return None

    def _entries(self) -> list[tuple[str, os.stat_result]]:
        """Entries on disk, or what is in the place of one, the least recently used first."""
        return self._named(lambda name: name.endswith(SUFFIX) and _is_key(name[: -len(SUFFIX)]))

    def _named(self, is_meant: Callable[[str], bool]) -> list[tuple[str, os.stat_result]]:
        found = []
        assert self._folder is not None
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if is_meant(entry.name):
                    with suppress(OSError):
                        found.append((entry.path, entry.stat(follow_symlinks=False)))
        return sorted(found, key=lambda entry: entry[1].st_mtime_ns)

    def _evict(self, keep: Container[str]) -> None:
        kept = []
        for path, status in self._entries():
            # What can't be an entry takes no room from those that are.
            if status.st_size > self.cap_nbytes or not stat.S_ISREG(status.st_mode):
                _remove(path)
            else:
                kept.append((path, status.st_size))
        total = sum(nbytes for _, nbytes in kept)
        for path, nbytes in kept:
            if total <= self.cap_nbytes:
                break
            if path not in keep:
                _remove(path)
                total -= nbytes
        self._sweep()

    def _sweep(self) -> None:
        """Temporary files of writers that were killed."""
        newest = max((status.st_mtime for _, status in self._entries()), default=0.0)
        for path, status in self._named(lambda name: name.startswith(".new-")):
            if status.st_mtime < newest - _LEFT_BEHIND_SECONDS:
                _remove(path)

    def _go_in_memory(self, why: str) -> None:
        if self._folder is not None:
            _log.warning("compiled code is kept in memory only: %s", why)
        self._folder = None
        self._why_in_memory = why


def _remove(path: str) -> bool:
    """Remove what is there, a folder with all that is in it too; whether it is gone by that."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("a cache entry can't be removed: %s", error)
        return False
    return True


def default_folder() -> Path:
    """ARENITE_CACHE_DIR, else `arenite` in the user's cache folder."""
    from pathlib import Path

    return Path(_default_folder())


def _default_folder() -> str:
    chosen = os.environ.get("ARENITE_CACHE_DIR")
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return os.path.join(base, "arenite")
    return os.path.join(os.path.expanduser("~"), ".cache", "arenite")


def default() -> Cache:
    """The process's cache, in the default folder."""
    return _cache_at(_default_folder())


def kernels() -> Cache | None:
    """The cache of single kernels, in a folder inside the default one's; None where there is none,
    since what is in memory serves one process and would only grow."""
    folder = default().folder
    if folder is None:
        return None
    found = _cache_at(str(folder / "kernels"), KERNELS_CAP_NBYTES)
    return None if found.folder is None else found


@lru_cache(maxsize=16)
def _cache_at(folder: str, cap_nbytes: int = DEFAULT_CAP_NBYTES) -> Cache:
    return Cache(folder, cap_nbytes)


def _make_private(folder: str) -> str:
    """Make the folder, for us alone; returns what is wrong with it, or nothing."""
    try:
        if not os.path.isdir(folder):
            from pathlib import Path

            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        return f"{folder} can't be made: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is no folder"
    if status.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write {folder}; make it private (chmod 700)"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} can't be written"
    return ""
