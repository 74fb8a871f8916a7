"""Which modules a warm start may not import: those that build or compile."""

from __future__ import annotations

from collections.abc import Iterable

#: Rooms above the back ends that only compiling needs.
ROOMS = ("codegen", "schedule", "passes")
#: What of the CPU's folder runs programs; all else makes them.
RUNS = {"backend", "identity", "load", "compiling.loader", "driver", "execution"}


def compiling(modules: Iterable[str]) -> set[str]:
    """Those of these modules that make programs."""
    found = {name for name in modules if name.split(".")[0] == "llvmlite"}
    for name in modules:
        inside = name.removeprefix("arenite.")
        in_cpu = inside.removeprefix("backends.cpu.")
        runs = in_cpu == inside or in_cpu == "compiling" or {in_cpu, in_cpu.split(".")[0]} & RUNS
        if inside.split(".")[0] in ROOMS or name.endswith("_ir") or not runs:
            found.add(name)
    return found
