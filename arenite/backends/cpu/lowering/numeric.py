"""Fused multiply-add, or what is nearest to it."""

from __future__ import annotations

from arenite.backends.cpu.lowering.vector import Vec


def fma(a: Vec, b: Vec | float, c: Vec | float) -> Vec:
    """a * b + c; of floats rounded once where the target has it, twice where it would be a library
    call."""
    build = a.builder
    if a.type.kind == "i" or not build.target.has_fma:
        return a * b + c
    t = a.type
    b = b if isinstance(b, Vec) else build.constant(b, t)
    c = c if isinstance(c, Vec) else build.constant(c, t)
    return build.intrinsic("fma", a, b, c)
