"""pip, asked to fetch wheels or to say where they are: it knows where its user has it look."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arenite.errors import FileMissing, InvalidFile
from arenite.fetch.source import OnProgress

_TICK_SECONDS = 0.1
#: Bytes of a wheel after which it was there, and came in part.
_BEGUN_NBYTES = 2**20
_MAX_REPORT_NBYTES = 2**24


@dataclass(frozen=True, slots=True)
class WheelUrl:
    """Where a wheel is, and the SHA-256 that the index has of it."""

    url: str
    sha256: str


def wheel_url_of(requirement: str, scratch: Path, on_progress: OnProgress) -> WheelUrl | None:
    """Where pip would fetch the wheel of a requirement from; None where that is not known, or not
    a place that can be asked for the rest of a file."""
    report = scratch / "report.json"
    arguments = ["install", "--dry-run", "--ignore-installed", f"--report={report}"]
    step = f"looking for {requirement}"
    code, _ = _pip(arguments, requirement, scratch, lambda: on_progress(step, 0, None))
    if code or not report.is_file() or report.stat().st_size > _MAX_REPORT_NBYTES:
        return None
    try:
        [wheel] = json.loads(report.read_bytes())["install"]
        info: dict[str, Any] = wheel["download_info"]
        url, sha256 = info["url"], info["archive_info"]["hashes"]["sha256"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_known = isinstance(url, str) and isinstance(sha256, str)
    if not is_known or not url.startswith("https://") or not re.fullmatch("[0-9a-f]{64}", sha256):
        return None
    return WheelUrl(url, sha256)


def run_pip(
    requirement: str, dest: Path, scratch: Path, total: int | None, on_progress: OnProgress
) -> None:
    """Have pip fetch the wheel of a requirement into `dest`; its temporary files in `scratch`.

    Raises FileMissing where there is none to be had, InvalidFile where it came in part.
    """
    nbytes = 0

    def tell() -> None:
        nonlocal nbytes
        nbytes = max(nbytes, _nbytes_under(scratch))
        on_progress(f"fetching {requirement}", nbytes, total)

    arguments = ["download", "--no-cache-dir", "--progress-bar=off", f"--dest={dest}"]
    code, said = _pip(arguments, requirement, scratch, tell)
    if code and "No module named pip" in said:
        raise FileMissing(
            f"{requirement} is fetched by pip, which {sys.executable} does not have; "
            "`python -m ensurepip` (or `uv pip install pip`) installs it"
        )
    if code:
        failure = InvalidFile if nbytes > _BEGUN_NBYTES else FileMissing
        raise failure(f"pip can't fetch {requirement}: {_last_words(said)}")


def _pip(
    arguments: list[str], requirement: str, scratch: Path, tick: Callable[[], None]
) -> tuple[int, str]:
    """Run pip for the wheel of a requirement alone: its exit code, and what it said."""
    command = [sys.executable, "-P", "-m", "pip", *arguments, "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--quiet", "--disable-pip-version-check", "--", requirement]
    # Since 25.1 pip goes on where the line broke; older ones don't know the option.
    environment = {"PIP_RESUME_RETRIES": "5", **os.environ, "TMPDIR": str(scratch)}
    # What it says is not kept in a file: the disk may be full.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        try:
            while True:
                try:
                    said, _ = process.communicate(timeout=_TICK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            if process.poll() is None:
                process.terminate()
    return process.returncode, said.decode("utf-8", "replace")


def _last_words(said: str) -> str:
    """What pip gives as its reason; after "ERROR: Exception:" that ends a traceback."""
    lines = [line.strip() for line in said.split("\n") if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if errors[-1:] == ["Exception:"]:
        errors = lines[-1:]
    return " ".join((errors or lines or ["it says nothing"])[-2:])


def _nbytes_under(folder: Path) -> int:
    nbytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                nbytes += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # moved meanwhile
    return nbytes
