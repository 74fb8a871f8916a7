"""What decides the code of a program, beside its graph: our sources, the compiler, the machine."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from arenite.codegen import target
from arenite.codegen.llvm import compiler_identity

_FOLDERS = ("ir", "passes", "schedule", "codegen", "memory", "runtime", "pipeline")


def identity() -> tuple[bytes, str, str]:
    """Parts of every key under which code, or what was measured of it, is kept."""
    return (_sources(), compiler_identity(), target.host_identity())


@lru_cache(maxsize=1)
def _sources() -> bytes:
    """Our own sources, hashed by content."""
    here = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for file in sorted((here / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()
