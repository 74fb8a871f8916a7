"""What decides the code of a program, beside its graph: our sources, the compiler, the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from struct import pack

from arenite.digests import NBYTES, blake2b
from arenite.program import cache
from arenite.program.backend import backend_of
from arenite.program.options import USUAL, Options

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Where graphs come from, and what makes code of them.
_FOLDERS = {
    "graphs": ("dtype", "ir", "frontends"),
    "programs": (
        *("dtype", "ir", "passes", "schedule", "codegen", "memory", "hazards"),
        *("program", "backends", "pipeline"),
    ),
}


def identity(options: Options = USUAL) -> tuple[bytes | str, ...]:
    """Parts of every key under which code, or what was measured of it, is kept: our sources, the
    device, its driver and its limits."""
    device = options.device
    return (_sources("programs"), device, *backend_of(device).identity(device))


def graph_sources() -> bytes:
    """Our own sources that decide which graph a file becomes."""
    return _sources("graphs")


@lru_cache(maxsize=2)
def _sources(of: str) -> bytes:
    """Our own sources, hashed by content. Reading them takes longer than the rest of a warm start,
    so the digest is kept under what the system says of the files: a file that is written, or put
    in another's place, has another time of change, whatever its other times are set to."""
    found = [_files(os.path.join(_HERE, folder)) for folder in _FOLDERS[of]]
    key = cache.key_of("sources", *(part for names, states in found for part in (names, states)))

    def hashed() -> dict[str, bytes]:
        digest = blake2b(digest_size=NBYTES)
        for path in sorted(path for names, _ in found for path in names.split("\0") if path):
            with open(path, "rb") as file:
                digest.update(file.read())
        return {"digest": digest.digest()}

    return bytes(cache.default().obtain(key, hashed, needs=("digest",))["digest"])


@lru_cache(maxsize=32)
def _files(folder: str) -> tuple[str, bytes]:
    """The sources in a folder, and what tells one state of them from another: as few
    steps for each of some 500 as there can be."""
    paths: list[str] = []
    states: list[int] = []
    pending = [folder]
    while pending:
        here = pending.pop()
        with suppress(OSError):
            descriptor = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        name = entry.name
                        if name.endswith(".py"):
                            paths.append(f"{here}/{name}")
                            state = entry.stat()
                            states += (state.st_ino, state.st_size, state.st_ctime_ns)
                        elif name != "__pycache__" and entry.is_dir():
                            pending.append(f"{here}/{name}")
            finally:
                os.close(descriptor)
    return "\0".join(paths), pack(f"<{len(states)}Q", *states)
