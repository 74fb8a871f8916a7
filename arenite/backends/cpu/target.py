"""What code is generated for: a CPU, its features, its registers and its caches.

In: the machine this process runs on, or a name. Out: a frozen `Target`. Code is always ELF for a
bare system, whatever the host runs, so that one linker serves all. `host()` asks LLVM and belongs
to the compiling side; `identity.host_identity()` names the same machine without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from arenite.backends.cpu.identity import KIB, MIB, cache_nbytes, machine

X86_64_TRIPLE = "x86_64-unknown-none-elf"
AARCH64_TRIPLE = "aarch64-unknown-none-elf"

#: x18 belongs to the system on macOS and Windows; outline atomics would be calls to a library.
AARCH64_FEATURES = "+neon,+reserve-x18,-outline-atomics"


@dataclass(frozen=True)
class Target:
    """A CPU to generate code for. Two equal targets get equal code."""

    triple: str
    cpu: str  # as LLVM names it
    features: str  # "+avx2,-avx512f,...": what it has and, against the name, what it lacks
    vector_bits: int  # 512, 256 or 128: the widest vector that is native
    n_vector_registers: int
    has_fma: bool
    has_vnni: bool  # u8 x s8 dot products into i32
    has_f16c: bool  # f32 to f16 and back in one instruction
    has_f16: bool  # f16 arithmetic
    has_bf16: bool  # bf16 dot products and conversion
    l1d_nbytes: int = 32 * KIB
    l2_nbytes: int = 512 * KIB
    l3_nbytes: int = 8 * MIB

    @property
    def is_x86(self) -> bool:
        return self.triple == X86_64_TRIPLE

    @property
    def l1d_ways(self) -> int:
        """Places in each set of the first cache. x86 finds a set by the bits of an address within a
        page, so a place in all sets is a page; other CPUs are taken for ones with eight."""
        return self.l1d_nbytes // (4 * KIB) if self.is_x86 else 8

    @property
    def identity(self) -> str:
        """Stable text that differs whenever generated code may differ."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


X86_64 = Target(
    triple=X86_64_TRIPLE,
    cpu="x86-64",
    features="",
    vector_bits=128,
    n_vector_registers=16,
    has_fma=False,
    has_vnni=False,
    has_f16c=False,
    has_f16=False,
    has_bf16=False,
)
AVX2 = replace(X86_64, cpu="x86-64-v3", vector_bits=256, has_fma=True, has_f16c=True)
AVX512 = replace(AVX2, cpu="x86-64-v4", vector_bits=512, n_vector_registers=32, l2_nbytes=MIB)
AVX512_VNNI = replace(AVX512, features="+avx512vnni", has_vnni=True)
NEON = Target(
    triple=AARCH64_TRIPLE,
    cpu="generic",
    features=AARCH64_FEATURES,
    vector_bits=128,
    n_vector_registers=32,
    has_fma=True,
    has_vnni=False,
    has_f16c=True,
    has_f16=False,
    has_bf16=False,
)


@lru_cache(maxsize=1)
def host() -> Target:
    """The machine this process runs on, by LLVM's knowledge of it."""
    import llvmlite.binding as llvm

    found = dict(llvm.get_host_cpu_features())
    return with_caches(of_features(machine(), llvm.get_host_cpu_name(), found))


def of_features(kind: str, cpu: str, found: Mapping[str, bool]) -> Target:
    """The target of this kind of machine with these features, by LLVM's names for them."""
    text = ",".join(f"{'+' if found[name] else '-'}{name}" for name in sorted(found))

    def has(*names: str) -> bool:
        return all(found.get(name, False) for name in names)

    if kind == "aarch64":
        return replace(
            NEON,
            cpu=cpu,
            features=",".join(part for part in (text, AARCH64_FEATURES) if part),
            has_vnni=has("dotprod"),
            has_f16=has("fullfp16"),
            has_bf16=has("bf16"),
        )
    wide = has("avx512f", "avx512bw", "avx512dq", "avx512vl")
    return replace(
        X86_64,
        cpu=cpu,
        features=text,
        vector_bits=512 if wide else 256 if has("avx2") else 128,
        n_vector_registers=32 if wide else 16,
        has_fma=has("fma"),
        has_vnni=has("avx512vnni") or has("avxvnni"),
        has_f16c=has("f16c"),
        has_f16=has("avx512fp16"),
        has_bf16=has("avx512bf16"),
    )


def with_caches(target: Target) -> Target:
    """The target with this machine's cache sizes, where the system tells them."""
    found = cache_nbytes()
    return replace(
        target,
        l1d_nbytes=found.get(1, target.l1d_nbytes),
        l2_nbytes=found.get(2, target.l2_nbytes),
        l3_nbytes=found.get(3, target.l3_nbytes),
    )
