"""`arenite doctor`: what this machine has and lacks, to be pasted into a bug report."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from arenite import __version__
from arenite.cli import manner
from arenite.device.allocator import readable_nbytes

#: What a plain install brings along.
PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "tokenizers", "jinja2", "typer", "rich")


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say what this machine has: CPU features, threads, memory, versions, cache, what is missing.

    Exits with 1 when something that Arenite needs is missing.
    """
    facts, missing = examine()
    if json:
        manner.print_json("doctor", {"facts": facts, "missing": missing})
    else:
        manner.print_pairs("doctor", facts)
        for problem in missing:
            manner.err.print(f"missing: {problem}")
    return manner.EXIT_NO if missing else manner.EXIT_DONE


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
    from arenite.runtime.threads import default_n_threads

    facts["threads"] = f"{default_n_threads()} of {os.cpu_count()} CPUs"
    pages, page_nbytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    facts["memory"] = readable_nbytes(pages * page_nbytes)
    if facts["llvmlite"] != "not installed":
        _examine_target(facts, missing)
    _examine_cache(facts)
    return facts, missing


def _examine_target(facts: dict[str, str], missing: list[str]) -> None:
    from arenite.codegen.target import host
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


def _examine_cache(facts: dict[str, str]) -> None:
    from arenite.runtime import cache

    found = cache.default().info()
    where = found.why_in_memory if found.folder is None else str(found.folder)
    facts["cache"] = f"{where}, {found.n_entries} entries, {readable_nbytes(found.nbytes)}"
