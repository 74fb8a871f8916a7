"""Profiles of segments as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arenite.program.limits import Limits
from arenite.runtime.profile import KernelTime, Profile


def joined(made: Sequence[tuple[str, Profile]], limits: Limits) -> Profile:
    """One profile of (name of the segment, profile) of all segments that were entered; a segment
    that was entered again is one with its runs added up. `limits` are those of a worker."""
    total = sum(one.seconds for _, profile in made for one in profile.kernels) or 1.0
    times: dict[str, KernelTime] = {}
    names: list[str] = []
    records = []
    for segment, profile in made:
        again = profile.records.copy()
        again["kernel"] += len(names)
        records.append(again)
        names += [f"{segment} {name}" for name in profile.names]
        for one in profile.kernels:
            name = f"{segment} {one.name}"
            times[name] = _sum(times.get(name), replace(one, name=name), total)
    return Profile(
        tuple(times.values()),
        sum(profile.wall_seconds for _, profile in made),
        np.concatenate(records) if records else np.empty(0),
        made[0][1].clocks_per_second if made else 1.0,
        names,
        sum(profile.n_lost for _, profile in made),
        limits,
    )


def _sum(known: KernelTime | None, one: KernelTime, total: float) -> KernelTime:
    """Two times of one kernel as one; rates are those of all its seconds. Where its limits differ,
    the one of the longer time is shown."""
    if known is None:
        return replace(one, share=one.seconds / total)
    seconds = known.seconds + one.seconds
    part = one.seconds / (seconds or 1.0)

    def mixed(before: float, now: float) -> float:
        return before + (now - before) * part

    longer = max(known, one, key=lambda time: time.seconds)
    is_alike = known.bound == one.bound
    return replace(
        known,
        seconds=seconds,
        n_runs=known.n_runs + one.n_runs,
        n_tiles=known.n_tiles + one.n_tiles,
        share=seconds / total,
        gops=mixed(known.gops, one.gops),
        gbytes=mixed(known.gbytes, one.gbytes),
        limit_share=mixed(known.limit_share, one.limit_share) if is_alike else longer.limit_share,
        bound=longer.bound,
    )
