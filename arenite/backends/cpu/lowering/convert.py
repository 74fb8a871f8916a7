"""How each dtype is held in registers and in memory, and the casts there are instructions for.

float32 and float64 are held as floats, integers as integers, bool as one bit. float16, bfloat16
and the float8 kinds are held as their bits.
"""

from __future__ import annotations

from functools import cache

from arenite.backends.cpu.lowering.vector import Vec, VType
from arenite.dtype import DType, Kind


@cache
def register_type(dtype: DType, lanes: int) -> VType:
    """How values of the dtype are held in registers."""
    if dtype.kind is Kind.BOOL:
        return VType("i", 1, lanes)
    is_float = dtype.kind is Kind.FLOAT and dtype.bits >= 32
    return VType("f" if is_float else "i", dtype.bits, lanes)


def memory_type(dtype: DType, lanes: int) -> VType:
    """How values of the dtype lie in memory: as in registers, but a bool takes a byte."""
    return register_type(dtype, lanes)._replace(bits=dtype.bits)


def from_memory(x: Vec, dtype: DType) -> Vec:
    return x.ne(0) if dtype.kind is Kind.BOOL else x


def to_memory(x: Vec, dtype: DType) -> Vec:
    return x.convert("zext", x.type.of("i", 8)) if dtype.kind is Kind.BOOL else x


def native_cast(x: Vec, source: DType, target: DType, *, fits: bool) -> Vec | None:
    """A cast by one instruction, or by what LLVM makes of it; None where there is none."""
    to = register_type(target, x.type.lanes)
    signs = (source.kind is Kind.SIGNED, target.kind is Kind.SIGNED)
    if {source.name, target.name} == {"float16", "float32"} and x.builder.target.has_f16c:
        if target.bits == 16:
            return x.convert("fptrunc", x.type.of("f", 16)).convert("bitcast", to)
        return x.convert("bitcast", x.type.as_float).convert("fpext", to)
    if target.kind is Kind.BOOL or any(
        t.kind is Kind.FLOAT and t.bits < 32 for t in (source, target)
    ):
        return None
    if source.kind is Kind.FLOAT:
        if target.kind is Kind.FLOAT:
            return x.convert("fptrunc" if to.bits < x.type.bits else "fpext", to)
        name = "fptosi" if signs[1] else "fptoui"
        if fits:
            whole = x.convert(name, to)
            return x.builder.emit(f"freeze {to} {whole.text}", to)
        if to.bits < 32:  # one that saturates by itself goes lane by lane
            return None
        return x.builder.call(f"llvm.{name}.sat.{to.mangled}.{x.type.mangled}", to, x)
    if target.kind is Kind.FLOAT:
        if source.kind is Kind.BOOL:
            return None
        return x.convert("sitofp" if signs[0] else "uitofp", to)
    if to.bits < x.type.bits:
        return x.convert("trunc", to)
    return x.convert("sext" if signs[0] else "zext", to)
