"""Downloads that go on where the line broke, in this process or in a later one.

    .partial/ kept/ <sha256>.whl        what has come so far; whole once its SHA-256 is right

Only bytes whose SHA-256 is known before are fetched this way, so it does not matter who sent them.
"""

from __future__ import annotations

import errno
import os
import ssl
import time
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

from arenite.errors import FileMissing, InvalidFile
from arenite.fetch.source import OnProgress
from arenite.fetch.store import sha256_of

#: The folder of what stays for the next attempt.
KEPT = "kept"
CHUNK_NBYTES = 2**18
TIMEOUT_SECONDS = 60
#: Times that a line may break without a byte between, and the pause after each.
RETRIES = 4
PAUSE_SECONDS = 1.0
_PARTIAL, _BEHIND_THE_END = 206, 416
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class NothingCame(Exception):
    """Not one byte: another way to the same file may do better."""


def download(url: str, sha256: str, path: Path, step: str, on_progress: OnProgress) -> None:
    """All bytes at `url` into `path`, after those that are there already.

    Raises NothingCame where none came in all attempts, FileMissing where the line broke for good
    (what came stays), InvalidFile where the bytes are not those of the SHA-256 (they go).
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    for other in path.parent.iterdir():
        if other != path:
            other.unlink()  # of another version
    began = done = _nbytes(path)
    left = RETRIES
    while True:
        try:
            total = _go_on(url, path, done, step, on_progress)
            break
        except (OSError, HTTPException) as error:
            before, done = done, _nbytes(path)
            left = RETRIES if done > before else left - 1
            if left < 0 or _is_final(error):
                if not began and not done:
                    raise NothingCame from error
                raise FileMissing(
                    f"{step}: the line broke after {done} bytes ({error}); they are kept, and "
                    "asking again goes on behind them"
                ) from None
            time.sleep(PAUSE_SECONDS)
    if sha256_of(path, "checking", on_progress) != sha256:
        path.unlink()
        raise InvalidFile(f"{step}: {total} bytes came whose SHA-256 is not {sha256}")


def _nbytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_final(error: Exception) -> bool:
    """Whether the answer would be the same again: no such file, or a full disk."""
    if isinstance(error, HTTPError):
        return 400 <= error.code < 500
    return not isinstance(error, HTTPException) and getattr(error, "errno", None) in _DISK_ERRORS


def _go_on(url: str, path: Path, done: int, step: str, on_progress: OnProgress) -> int:
    """Write what follows the first `done` bytes; the bytes there are then."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "arenite"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    try:
        response: HTTPResponse = urllib.request.urlopen(
            request, timeout=TIMEOUT_SECONDS, context=context
        )
    except HTTPError as error:
        if error.code == _BEHIND_THE_END:
            return done  # all is there, or too much: the SHA-256 will tell
        raise
    with response, path.open("ab") as file:
        if done and response.status != _PARTIAL:
            file.truncate(0)  # it is sent from its beginning
            done = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        while chunk := response.read(CHUNK_NBYTES):
            file.write(chunk)
            done += len(chunk)
            on_progress(step, done, total)
    if total is not None and done < total:
        raise OSError(f"{total - done} bytes are missing")
    return done
