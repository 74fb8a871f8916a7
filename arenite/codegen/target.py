"""What code is generated for: a CPU, its features, its registers and its caches.

In: the machine this process runs on, or a name. Out: a frozen `Target`. Code is always ELF for a
bare system, whatever the host runs, so that one linker serves all. `host()` asks LLVM and belongs
to the compiling side; `host_identity()` names the same machine without importing llvmlite.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

from arenite.errors import DeviceUnavailable, InvalidArgument

KIB = 2**10
MIB = 2**20

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
    page_nbytes: int = 4 * KIB
    l1d_nbytes: int = 32 * KIB
    l2_nbytes: int = 512 * KIB
    l3_nbytes: int = 8 * MIB

    @property
    def is_x86(self) -> bool:
        return self.triple == X86_64_TRIPLE

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

_BY_NAME = {
    "x86-64": X86_64,
    "avx2": AVX2,
    "avx512": AVX512,
    "avx512vnni": AVX512_VNNI,
    "neon": NEON,
}


def named(name: str) -> Target:
    """The target "host", or one of the fixed ones, whose code any such CPU can run."""
    if name == "host":
        return host()
    if name not in _BY_NAME:
        raise InvalidArgument(f"no target {name!r}; there are: host, {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


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
    """The target with this machine's cache and page sizes, where the system tells them."""
    found = cache_nbytes()
    return replace(
        target,
        page_nbytes=os.sysconf("SC_PAGE_SIZE"),
        l1d_nbytes=found.get(1, target.l1d_nbytes),
        l2_nbytes=found.get(2, target.l2_nbytes),
        l3_nbytes=found.get(3, target.l3_nbytes),
    )


def cache_nbytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the data cache at each level that the system tells of."""
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            factor = {"K": KIB, "M": MIB, "G": KIB * MIB}.get(size[-1:], 1)
            nbytes = int(size.rstrip("KMG")) * factor
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and nbytes > 0:
            found[level] = nbytes
    return found


@lru_cache(maxsize=1)
def host_identity() -> str:
    """Text that names this machine in cache keys, from what the system tells of its CPU."""
    try:
        about = _first_processor(Path("/proc/cpuinfo").read_text())
    except OSError:
        import platform

        about = f"{platform.processor()} {platform.version()}"
    caches = " ".join(f"l{level}={nbytes}" for level, nbytes in sorted(cache_nbytes().items()))
    digest = hashlib.sha256(f"{about}\n{caches}".encode()).hexdigest()[:32]
    return f"{machine()}-{sys.platform}-{digest}"


#: What two processors of one kind have in common; clock rates and core numbers change.
_CPUINFO_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


def _first_processor(cpuinfo: str) -> str:
    kept = []
    for line in cpuinfo.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _CPUINFO_FIELDS:
            kept.append(f"{name.strip()}:{' '.join(sorted(value.split()))}")
    return "\n".join(sorted(kept))


def machine() -> str:
    """x86_64 or aarch64."""
    name = os.uname().machine
    name = {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)
    if name not in ("x86_64", "aarch64"):
        raise DeviceUnavailable(f"code is generated for x86-64 and aarch64; this is {name!r}")
    return name
