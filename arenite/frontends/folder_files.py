"""Files of a model's folder: the one place where they are opened.

A folder comes from anyone: a pipe in it would block, a device would never end, a link could lead to
a file of the user's own. What is opened is a regular file that lies in the folder. A link is
followed where it stays there, or where a hub's cache put it:

    models--NAME/snapshots/REVISION/config.json -> ../../blobs/HASH
"""

from __future__ import annotations

import os
import re
import stat

from arenite.device import DiskAllocator
from arenite.errors import FileMissing, InvalidFile
from arenite.frontends.stored_tensor import quoted

_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # names of blobs are digests


def read_inside(folder: str, name: str, most_nbytes: int) -> bytes | None:
    """The bytes of a file; None where the folder has no such file."""
    path = os.path.join(folder, name)
    real = _resolved(folder, path)
    if real is None:
        return None
    try:
        # The file may have become another since it was looked at.
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            _check_regular(path, os.fstat(descriptor))
            raw = file.read(most_nbytes + 1)
    except OSError as error:
        raise FileMissing(f"{path} can't be read: {error.strerror}") from None
    if len(raw) > most_nbytes:
        raise InvalidFile(f"{path} is longer than {most_nbytes} bytes; no such file is read")
    return raw


def map_inside(folder: str, name: str) -> DiskAllocator:
    """A file of the folder as memory."""
    path = os.path.join(folder, name)
    if _resolved(folder, path) is None:
        raise FileMissing(f"{path} cannot be opened: there is no such file")
    return DiskAllocator(path)


def is_inside(folder: str, name: str) -> bool:
    """Whether the folder has such a file, or a link of this name, wherever it leads."""
    return os.path.lexists(os.path.join(folder, name))


def _resolved(folder: str, path: str) -> str | None:
    """Where a file really lies, which is a regular file of the folder."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FileMissing(f"{quoted(path)} can't be read: {reason}") from None
    try:
        root, real = os.path.realpath(folder), os.path.realpath(path, strict=True)
        if os.path.commonpath([root, real]) != root and not _is_blob(root, real):
            raise InvalidFile(
                f"{path} is a link to {quoted(real)}, outside of the folder, and is not followed; "
                "put a copy in its place if you trust it"
            )
        _check_regular(path, os.stat(real, follow_symlinks=False))
    except OSError as error:
        raise FileMissing(f"{path} can't be read: {error.strerror}") from None
    return real


def _is_blob(root: str, real: str) -> bool:
    """Whether a folder is (or lies in) a snapshot of a hub's cache and a file is a blob of it."""
    folder, name = os.path.split(real)
    if not _BLOB.fullmatch(name):
        return False
    while (parent := os.path.dirname(root)) != root:
        if os.path.basename(parent) == "snapshots":
            return folder == os.path.join(os.path.dirname(parent), "blobs")
        root = parent
    return False


def _check_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidFile(f"{path} is no regular file: {_KINDS[stat.S_IFMT(status.st_mode)]}")


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
