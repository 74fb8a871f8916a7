"""Targets by name."""

from __future__ import annotations

from arenite.backends.cpu.target import AVX2, AVX512, AVX512_VNNI, NEON, X86_64, Target, host

__all__ = ["Target", "host", "named"]

_BY_NAME = {
    "x86-64": X86_64,
    "avx2": AVX2,
    "avx512": AVX512,
    "avx512vnni": AVX512_VNNI,
    "neon": NEON,
}


def named(name: str) -> Target:
    """The target "host", or one of the fixed ones, whose code any such CPU can run."""
    return host() if name == "host" else _BY_NAME[name]
