"""Which compiler and which machine code is for, as text for cache keys, without asking LLVM.

Kept apart from what compiles: whoever runs a program from the cache needs the keys alone.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from arenite.digests import digest_of
from arenite.errors import DeviceUnavailable
from arenite.lazy import folder_of

KIB = 2**10
MIB = 2**20

#: For the `define` line of every function. no-builtins: zero loops would become calls of memset;
#: nounwind and no uwtable: no unwind tables; the widths are a ceiling that narrow targets ignore.
FUNCTION_ATTRIBUTES = (
    'nounwind "no-builtins" "frame-pointer"="none" "no-stack-arg-probe" '
    '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
)

#: In this order. As fast as O2 in every family of kernels, at an eighth of its time. Strength
#: reduction is left to code generation: as a pass of its own it can break what the next one needs.
PASSES = (
    "always_inliner",
    "sroa",
    "instruction_combine",
    "simplify_cfg",
    "loop_rotate",
    "new_gvn",
    "instruction_combine",
)

CACHES = "/sys/devices/system/cpu/cpu0/cache"


@lru_cache(maxsize=1)
def compiler_identity() -> str:
    """llvmlite's version and our passes, without importing llvmlite: part of every cache key."""
    return f"llvmlite={_version()} passes={','.join(PASSES)} attributes={FUNCTION_ATTRIBUTES}"


def _version() -> str:
    folder = folder_of("llvmlite")
    if folder is None:
        return "none"
    with open(os.path.join(folder, "_version.py"), encoding="utf-8") as file:
        for line in file:
            for word in line.split("#")[0].replace('"', "'").split("'"):
                if word[:1].isdigit() and "." in word:
                    return word
    return "unknown"


@lru_cache(maxsize=1)
def host_identity() -> str:
    """Text that names this machine in cache keys, from what the system tells of its CPU."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            about = _first_processor(file.read())
    except OSError:
        import platform

        about = f"{platform.processor()} {platform.version()}"
    caches = " ".join(f"l{level}={nbytes}" for level, nbytes in sorted(cache_nbytes().items()))
    digest = digest_of(f"{about}\n{caches}".encode()).hex()[:32]
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


def cache_nbytes(folder: str | os.PathLike[str] = CACHES) -> dict[int, int]:
    """Bytes of the data cache at each level that the system tells of."""
    found: dict[int, int] = {}
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("index"))
    except OSError:
        return found

    def told(index: str, what: str) -> str:
        descriptor = os.open(os.path.join(folder, index, what), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 64).decode().strip()
        finally:
            os.close(descriptor)

    for index in names:
        try:
            kind, level, size = (told(index, what) for what in ("type", "level", "size"))
            factor = {"K": KIB, "M": MIB, "G": KIB * MIB}.get(size[-1:], 1)
            nbytes = int(size.rstrip("KMG")) * factor
            if kind in ("Data", "Unified") and nbytes > 0:
                found[int(level)] = nbytes
        except (OSError, ValueError):
            continue
    return found


def sources(*paths: str) -> bytes:
    """The content of our own files; nothing where they are not there: the version alone tells."""
    content = []
    try:
        for path in paths:
            with open(path, "rb") as file:
                content.append(file.read())
    except OSError:
        return b""
    return b"".join(content)


def machine() -> str:
    """x86_64 or aarch64."""
    name = os.uname().machine
    name = {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)
    if name not in ("x86_64", "aarch64"):
        raise DeviceUnavailable(f"code is generated for x86-64 and aarch64; this is {name!r}")
    return name
