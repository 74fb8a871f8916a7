"""C becomes a shared object by the compiler of the system, once: objects are kept in the cache."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from arenite.errors import CompileFailed, DeviceUnavailable
from arenite.program import cache as program_cache

COMPILERS = ("cc", "gcc", "clang")
#: Nothing that changes results.
FLAGS = "-std=c11 -O3 -march=native -fopenmp-simd -DSIMD -fPIC -shared".split()
_FIRST_LINES = 20


@cache
def compiler() -> str:
    """The compiler of the system; DeviceUnavailable without one."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise DeviceUnavailable(
        f'device "c" needs a C compiler, and none of {", ".join(COMPILERS)} is on the PATH; '
        "install gcc or clang (Debian: apt-get install gcc; macOS: xcode-select --install)"
    )


@cache
def compiler_identity() -> tuple[str, ...]:
    """The compiler and what it says of itself, the machine it compiles for among that."""
    path = compiler()
    # What it would call, with the machine spelled out.
    about = [path, *FLAGS, "-###", "-E", "-x", "c", os.devnull]
    told = subprocess.run(about, capture_output=True, text=True, check=False)
    return path, told.stderr, *FLAGS


def compiled_files(sources: Mapping[str, str], flags: Sequence[str], target: str) -> bytes:
    """What the compiler makes of files, given by name; CompileFailed with what it says."""
    with tempfile.TemporaryDirectory(prefix="arenite-c-") as folder:
        for name, text in sources.items():
            (Path(folder) / name).write_text(text)
        files = [name for name in sources if name.endswith(".c")]
        line = [compiler(), *flags, *files, "-o", target, "-lm"]
        ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            said = "\n".join(ran.stderr.strip().split("\n")[:_FIRST_LINES])
            raise CompileFailed(f"{' '.join(line)} failed:\n{said}")
        return (Path(folder) / target).read_bytes()


class SharedObject:
    """Files of C in memory; its functions return an int."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        def build() -> dict[str, bytes]:
            return {"object": compiled_files(sources, FLAGS, "program.so")}

        parts = (*compiler_identity(), *sources, *sources.values())
        key = program_cache.key_of("shared object", *parts)
        sections = program_cache.default().obtain(key, build, needs=("object",))
        with tempfile.TemporaryDirectory(prefix="arenite-c-") as folder:
            path = Path(folder) / "program.so"
            path.write_bytes(bytes(sections["object"]))
            # Stays in memory when its file is gone.
            self._library: ctypes.CDLL | None = ctypes.CDLL(str(path))

    def call(self, name: str, *arguments: Any) -> int:
        """Without Python's lock."""
        assert self._library is not None
        return int(self._library[name](*arguments))

    def close(self) -> None:
        """Nothing of it may run any more."""
        import _ctypes

        library, self._library = self._library, None
        if library is not None:
            _ctypes.dlclose(library._handle)
