"""What a shell completes a word of the command line to."""

from __future__ import annotations

import os
from pathlib import Path

#: Files that are models by their names.
SUFFIXES = (".gguf", ".safetensors", ".onnx")


def model_names(incomplete: str) -> list[str]:
    """Models of the catalogue, those that were fetched, and paths."""
    from arenite import fetch
    from arenite.errors import AreniteError
    from arenite.fetch.catalogue import CATALOGUE

    try:
        names = [info.name for info in fetch.models()]
    except (AreniteError, OSError):  # no folder for models: there are still files
        names = [*CATALOGUE]
    return [name for name in names if name.startswith(incomplete)] + paths(incomplete, SUFFIXES)


def paths(incomplete: str, suffixes: tuple[str, ...] = ("",)) -> list[str]:
    """Folders, and files with such endings, that a path may become; folders end with a slash."""
    folder, begun = os.path.split(incomplete)
    try:
        entries = sorted(Path(folder or ".").expanduser().iterdir())
    except OSError:
        return []
    names = []
    for entry in entries:
        is_meant = entry.name.startswith(begun) and (begun or not entry.name.startswith("."))
        if not is_meant or not entry.name.isprintable():
            continue
        shown = os.path.join(folder, entry.name)
        if entry.is_dir():
            names.append(shown + "/")
        elif entry.name.endswith(suffixes):
            names.append(shown)
    return names
