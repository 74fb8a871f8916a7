"""How many threads a process may keep busy, by its CPUs and its control group."""

from __future__ import annotations

import os
from pathlib import Path


def default_n_threads() -> int:
    """As many as the process may keep busy: its CPUs, and its group's share of them."""
    n_cpus = len(os.sched_getaffinity(0))
    quota = cgroup_cpus()
    return n_cpus if quota is None else max(1, min(n_cpus, int(quota)))


def cgroup_cpus(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """CPUs the process's control group may use, the least of its ancestors; None: no limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root if not controllers else root / "cpu"
        folder = base / path.lstrip("/")
        while True:
            limit = _cpu_limit(folder)
            if limit is not None:
                limits.append(limit)
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent
    return min(limits, default=None)


def _cpu_limit(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        limit = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number: no limit
        return None
    return limit if limit > 0 else None
