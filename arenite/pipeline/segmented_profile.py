"""Profiles of segments as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arenite.runtime.profile import KernelTime, Profile


def joined(made: Sequence[tuple[int, Profile]]) -> Profile:
    """One profile of (number of the segment, profile) of all segments that were entered; a segment
    that was entered again is one with its runs added up."""
    total = sum(one.seconds for _, profile in made for one in profile.kernels) or 1.0
    times: dict[str, KernelTime] = {}
    names: dict[int, str] = {}
    records = []
    for number, profile in made:
        first = len(names)
        moved = {tick: first + k for k, tick in enumerate(profile.names)}
        names |= {moved[tick]: f"segment {number} {name}" for tick, name in profile.names.items()}
        again = profile.records.copy()
        again["tick"] = [moved[int(tick)] for tick in again["tick"]]
        records.append(again)
        for one in profile.kernels:
            name = f"segment {number} {one.name}"
            times[name] = _sum(times.get(name), replace(one, name=name), total)
    return Profile(
        tuple(times.values()),
        sum(profile.wall_seconds for _, profile in made),
        np.concatenate(records) if records else np.empty(0),
        made[0][1].clocks_per_second if made else 1.0,
        names,
        sum(profile.n_lost for _, profile in made),
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
