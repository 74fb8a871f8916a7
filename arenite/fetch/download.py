"""Downloads that go on where the line broke, in this process or in a later one.

    .partial/ kept/ <sha256>.whl        what has come so far; it stays until its files are taken out

Only bytes whose SHA-256 is known before are fetched this way, so it does not matter who sent them.
"""

from __future__ import annotations

import errno
import os
import shutil
import ssl
import time
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

from arenite.errors import FileMissing, InvalidFile
from arenite.fetch.source import OnProgress
from arenite.fetch.store import empty, sha256_of

#: The folder of what stays for the next attempt.
KEPT = "kept"
CHUNK_NBYTES = 2**18
TIMEOUT_SECONDS = 60
#: Times that a line may break without a byte between, once some came, and the pause after each.
RETRIES = 4
PAUSE_SECONDS = 1.0
_PARTIAL, _BEHIND_THE_END = 206, 416
_COME_AGAIN = (408, 425, 429)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class NothingComes(Exception):
    """Not this way: another way to the same file may do better."""


def download(url: str, sha256: str, kept: Path, step: str, on_progress: OnProgress) -> Path:
    """The path of a file with all bytes at `url`, in the folder `kept`; what is there already is
    not fetched again.

    Raises NothingComes where another way should be tried, FileMissing where the line broke for good
    (what came stays in `kept`), InvalidFile where the bytes are not those of the SHA-256.
    """
    kept.mkdir(mode=0o700, exist_ok=True)
    path = kept / f"{sha256}.whl"
    empty(kept, but=path.name)  # of another version
    if _nbytes(path) and sha256_of(path, "checking", on_progress) == sha256:
        return path
    try:
        nbytes = _all_of(url, path, step, on_progress)
    except NothingComes:
        shutil.rmtree(kept)
        raise
    if sha256_of(path, "checking", on_progress) != sha256:
        shutil.rmtree(kept)
        raise InvalidFile(f"{step}: {nbytes} bytes came whose SHA-256 is not {sha256}")
    return path


def _all_of(url: str, path: Path, step: str, on_progress: OnProgress) -> int:
    """Go on until all is there, or it is clear that it won't come; the bytes there are then."""
    done = _nbytes(path)
    left = RETRIES
    while True:
        try:
            return _go_on(url, path, done, step, on_progress)
        except (OSError, HTTPException) as error:
            before, done = done, _nbytes(path)
            if not done or _is_refused(error):
                raise NothingComes from error
            left = RETRIES if done > before else left - 1
            if left < 0 or getattr(error, "errno", None) in _DISK_ERRORS:
                raise FileMissing(
                    f"{step}: it broke off after {done} bytes ({error}); they are kept, and "
                    "asking again goes on behind them"
                ) from None
            time.sleep(PAUSE_SECONDS)


def _nbytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_refused(error: Exception) -> bool:
    """Whether the answer would be the same again: no such place, or not for us."""
    if not isinstance(error, HTTPError) or error.code in _COME_AGAIN:
        return False
    return 400 <= error.code < 500


def _go_on(url: str, path: Path, done: int, step: str, on_progress: OnProgress) -> int:
    """Write what follows the first `done` bytes; the bytes there are then."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "arenite"}
    if done:
        headers["Range"] = f"bytes={done}-"
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    try:
        request = urllib.request.Request(url, headers=headers)
        response: HTTPResponse = urllib.request.urlopen(
            request, timeout=TIMEOUT_SECONDS, context=context
        )
    except HTTPError as error:
        if error.code == _BEHIND_THE_END:
            return done  # all is there, or too much: the SHA-256 will tell
        raise
    except ValueError as error:  # no address at all
        raise NothingComes from error
    with response, path.open("ab") as file:
        if response.length is None:  # none is told, or none that makes sense
            raise NothingComes("it might never end")
        if done and response.status != _PARTIAL:
            file.truncate(0)  # it is sent from its beginning
            done = 0
        total = done + response.length
        while chunk := response.read(CHUNK_NBYTES):
            file.write(chunk)
            done += len(chunk)
            on_progress(step, done, total)
    if done < total:
        raise OSError(f"{total - done} bytes are missing")
    return done
