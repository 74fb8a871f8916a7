"""`arenite doctor`: what this machine has and lacks, to be pasted into a bug report."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from arenite import __version__
from arenite.cli import output
from arenite.device.allocator import readable_nbytes

#: What a plain install brings along.
PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "onnx", "tokenizers", "jinja2", "typer", "rich")


def doctor(
    speed: Annotated[
        bool,
        typer.Option("--speed", help="Measure what a core computes and reads; takes a second."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say what this machine has: CPU features, threads, memory, versions, cache, what is missing.

    With --speed also what a core does at most, by which profiles judge kernels: run it while the
    machine is idle. Exits with 1 when something that Arenite needs is missing.
    """
    facts, missing = examine()
    measured = measure() if speed and "cpu" in facts else None
    if json:
        told = {} if measured is None else {"speed": asdict(measured)}
        output.print_json("doctor", {"facts": facts, "missing": missing, **told})
    else:
        output.print_pairs("doctor", facts | ({} if measured is None else measured.facts()))
        for problem in missing:
            output.err.print(f"missing: {problem}")
    return output.EXIT_NO if missing else output.EXIT_DONE


def examine() -> tuple[dict[str, str], list[str]]:
    """Facts by name, and what is missing, with what to do about it."""
    missing: list[str] = []
    facts = {
        "arenite": __version__,
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
            missing.append(f"{name}: pip install {name}")
    if sys.platform != "linux":
        missing.append(f"native code runs on Linux so far, not on {sys.platform}")
        return facts, missing
    from arenite.program.threads import default_n_threads

    facts["threads"] = f"{default_n_threads()} of {os.cpu_count()} CPUs"
    pages, page_nbytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    facts["memory"] = readable_nbytes(pages * page_nbytes)
    if facts["llvmlite"] != "not installed":
        _examine_target(facts, missing)
    _examine_webgpu(facts)
    _examine_cache(facts)
    return facts, missing


@dataclass(frozen=True)
class Speed:
    """What a core does at most, in units of 10**9 a second; what all read of memory at once."""

    float32_gflops: float
    float64_gflops: float
    int8_gops: float
    read_gbytes: dict[str, float]  # by where it lies
    n_cores: int
    memory_gbytes_of_all: float

    def facts(self) -> dict[str, str]:
        reads = ", ".join(f"{name} {rate:.0f}" for name, rate in self.read_gbytes.items())
        together = f"{self.n_cores} cores read" if self.n_cores > 1 else "all cores read"
        return {
            "a core does": f"{self.float32_gflops:.0f} GFLOP/s in float32, "
            f"{self.float64_gflops:.0f} in float64, {self.int8_gops:.0f} Gop/s in int8",
            "a core reads": f"{reads} GB/s",
            together: f"memory {self.memory_gbytes_of_all:.0f} GB/s together",
        }


def measure() -> Speed:
    """The limits of this machine, measured now."""
    from arenite.backends.cpu.driver.limits import limits
    from arenite.program.threads import default_n_threads

    with output.working("measuring"):
        alone, n_cores = limits(), default_n_threads()
        of_all = n_cores * limits(n_cores).read_gbytes
    reads = {one.name: one.read_gbytes for one in alone.caches} | {"memory": alone.read_gbytes}
    return Speed(alone.gflops, alone.float64_gflops, alone.int8_gops, reads, n_cores, of_all)


def _examine_target(facts: dict[str, str], missing: list[str]) -> None:
    from arenite.backends.cpu.target import host
    from arenite.errors import AreniteError

    try:
        target = host()
    except AreniteError as error:
        missing.append(str(error))
        return
    extras = {
        "FMA": target.has_fma,
        "VNNI": target.has_vnni,
        "F16C": target.has_f16c,
        "f16": target.has_f16,
        "bf16": target.has_bf16,
    }
    facts["cpu"] = f"{target.cpu}, vectors of {target.vector_bits} bits"
    facts["instructions"] = ", ".join(name for name, is_there in extras.items() if is_there)
    caches = (target.l1d_nbytes, target.l2_nbytes, target.l3_nbytes)
    facts["caches"] = ", ".join(readable_nbytes(nbytes) for nbytes in caches)


def _examine_webgpu(facts: dict[str, str]) -> None:
    """The adapters by their numbers, or why there is none."""
    from arenite.device.webgpu_adapters import adapters_for, quiet_wayland
    from arenite.errors import DeviceUnavailable

    try:
        with quiet_wayland():
            found = [adapter.info for adapter in adapters_for("webgpu")]
    except DeviceUnavailable as reason:
        facts["webgpu"] = str(reason)
        return
    for number, info in enumerate(found):
        facts[f"webgpu:{number}"] = (
            f"{info['device']} ({info['adapter_type']}, {info['backend_type']})"
        )


def _examine_cache(facts: dict[str, str]) -> None:
    from arenite.program import cache

    store = cache.default().info()
    where = store.why_in_memory if store.folder is None else str(store.folder)
    facts["cache"] = f"{where}, {store.n_entries} entries, {readable_nbytes(store.nbytes)}"
