"""How many threads a process may keep busy, by its CPUs and its control group."""

from __future__ import annotations

import os

from arenite.errors import InvalidArgument

OWN_GROUP = "/proc/self/cgroup"
ALL_GROUPS = "/sys/fs/cgroup"

AnyPath = str | os.PathLike[str]


def chosen_n_threads(threads: int | None) -> int:
    """The number that was asked for; None: as many as the process may keep busy."""
    if threads is None:
        return default_n_threads()
    if threads < 1:
        raise InvalidArgument(f"a run needs at least one thread, not {threads}")
    return threads


def default_n_threads() -> int:
    """As many as the process may keep busy: its CPUs, and its group's share of them."""
    n_cpus = len(os.sched_getaffinity(0))
    quota = cgroup_cpus()
    return n_cpus if quota is None else max(1, min(n_cpus, int(quota)))


def cgroup_cpus(own: AnyPath = OWN_GROUP, root: AnyPath = ALL_GROUPS) -> float | None:
    """CPUs the process's control group may use, the least of its ancestors; None: no limit."""
    try:
        lines = _read(own).splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = os.fspath(root) if not controllers else os.path.join(root, "cpu")
        names = [name for name in path.split("/") if name]
        if ".." in names:
            names = []  # a group outside of what this process sees: only the root tells something
        for n in range(len(names) + 1):
            limit = _cpu_limit(os.path.join(base, *names[:n]))
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _cpu_limit(folder: str) -> float | None:
    try:
        if os.path.exists(os.path.join(folder, "cpu.max")):
            quota, period = _read(os.path.join(folder, "cpu.max")).split()
        else:
            quota = _read(os.path.join(folder, "cpu.cfs_quota_us"))
            period = _read(os.path.join(folder, "cpu.cfs_period_us"))
        limit = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number: no limit
        return None
    return limit if limit > 0 else None


def _read(path: AnyPath) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
