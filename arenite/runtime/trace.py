"""Trace: a profiled run over time, one lane a worker; of a profile, or read from a saved file.

What `Profile.to_chrome_trace` writes is read back, and so is what other tools write for
chrome://tracing: complete events, each with a name, a thread, a start and a length. A file may be
anybody's: nothing in it is trusted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from arenite.errors import InvalidFile
from arenite.records import NamedTuple
from arenite.runtime.profile import KernelTime, Profile

#: Bars that are kept, the longest, and kernels; so many can be drawn at once.
MAX_BARS = 20_000


class Bar(NamedTuple):
    """One kernel on one lane, tiles that follow each other as one; times in µs from the start."""

    lane: int
    name: int  # which of the names
    start: float
    end: float
    busy: float  # without what lies between tiles
    n_tiles: int


class Trace(NamedTuple):
    """What ran where and when."""

    lanes: tuple[str, ...]
    names: tuple[str, ...]
    bars: tuple[Bar, ...]
    n_left_out: int  # bars that are not among them
    kernels: tuple[KernelTime, ...]
    about: str = ""

    @property
    def wall_micros(self) -> float:
        """From the first start to the last end."""
        return max((bar.end for bar in self.bars), default=0.0)

    @classmethod
    def of(cls, profile: Profile) -> Trace:
        """That of a profile."""
        return cls._of_data(profile.trace_data(), "the profile")

    @classmethod
    def read(cls, text: str, path: str) -> Trace:
        """Of a saved file; InvalidFile where it is none."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidFile(f"{path} is no trace: it is not JSON ({error})") from None
        made = cls._of_data(data, path)
        if not made.bars:
            raise InvalidFile(
                f"{path} has no complete event (ph X, with name, ts and dur): there is nothing "
                "that ran; `arenite profile MODEL --trace FILE` writes a trace"
            )
        return made

    @classmethod
    def _of_data(cls, data: Any, path: str) -> Trace:
        events = data.get("traceEvents") if isinstance(data, dict) else data
        if not isinstance(events, list):
            raise InvalidFile(f'{path} is no trace: it has no list of "traceEvents"')
        told = data.get("arenite") if isinstance(data, dict) else None
        told = told if isinstance(told, dict) else {}
        lanes, names, bars = _bars(events, path)
        kernels = _told(told.get("kernels"), path) or _counted(names, bars)
        if len(kernels) > MAX_BARS:
            kernels = sorted(kernels, key=lambda one: -one.seconds)[:MAX_BARS]
        longest = sorted(bars, key=lambda bar: -bar.busy)[:MAX_BARS]
        in_order = sorted(longest, key=lambda bar: (bar.lane, bar.start))
        # Lanes and names that no bar has left are not told either.
        lane_of = {lane: k for k, lane in enumerate(sorted({bar.lane for bar in in_order}))}
        name_of = {name: k for k, name in enumerate(sorted({bar.name for bar in in_order}))}
        kept = [Bar(lane_of[one.lane], name_of[one.name], *one[2:]) for one in in_order]
        about = told.get("about")
        return cls(
            tuple(lanes[lane] for lane in lane_of),
            tuple(names[name] for name in name_of),
            tuple(kept),
            len(bars) - len(kept),
            tuple(kernels),
            about if isinstance(about, str) else "",
        )


def _bars(events: list[Any], path: str) -> tuple[list[str], list[str], list[Bar]]:
    """Lanes, names, and what ran, by lane and start."""
    threads: dict[str, str] = {}
    found: dict[str, list[tuple[float, float, str]]] = {}
    for event in events:
        if not isinstance(event, dict):
            raise InvalidFile(f"{path} is no trace: an event is {event!r:.60}, and no object")
        lane = f"{event.get('pid', 0)}/{event.get('tid', 0)}"
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            arguments = event.get("args")
            if isinstance(arguments, dict):
                threads[lane] = str(arguments.get("name", lane))
        if event.get("ph") == "X":
            start, length = (_number(event.get(key, 0), key, path) for key in ("ts", "dur"))
            found.setdefault(lane, []).append((start, length, str(event.get("name", ""))))
    first = min((start for some in found.values() for start, _, _ in some), default=0.0)
    names: dict[str, int] = {}
    bars: list[Bar] = []
    shown = {lane: threads.get(lane, f"thread {lane}") for lane in found}
    lanes = sorted(found, key=lambda lane: _in_order(shown[lane]))
    for number, lane in enumerate(lanes):
        last: Bar | None = None
        for start, length, name in sorted(found[lane]):
            which = names.setdefault(name, len(names))
            end = start - first + length
            if last is not None and last.name == which and start - first >= last.start:
                busy, n_tiles = last.busy + length, last.n_tiles + 1
                last = bars[-1] = Bar(number, which, last.start, max(end, last.end), busy, n_tiles)
            else:
                last = Bar(number, which, start - first, end, length, 1)
                bars.append(last)
    return [shown[lane] for lane in lanes], list(names), bars


def _in_order(text: str) -> list[tuple[int, str]]:
    """Sorts names as people do: thread 2 before thread 10."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _number(value: object, what: str, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidFile(f"{path} is no trace: {what} of an event is {value!r:.60}")
    if what == "dur" and value < 0:
        raise InvalidFile(f"{path} is no trace: an event takes {value} µs")
    return float(value)


def _counted(names: list[str], bars: Iterable[Bar]) -> list[KernelTime]:
    """What times alone tell."""
    seconds, tiles = [0.0] * len(names), [0] * len(names)
    for bar in bars:
        seconds[bar.name] += bar.busy * 1e-6
        tiles[bar.name] += bar.n_tiles
    total = sum(seconds) or 1.0
    return [
        KernelTime(name, took, 0, n, took / total, 0.0, 0.0, 0.0, "", "")
        for name, took, n in zip(names, seconds, tiles, strict=True)
    ]


def _told(rows: object, path: str) -> list[KernelTime]:
    """The table that our own traces have beside their events."""
    if not isinstance(rows, list):
        return []
    kinds: Mapping[str, type[Any] | tuple[type[Any], ...]] = {
        "str": str,
        "int": int,
        "float": (int, float),
        "tuple[str, ...]": (list, tuple),
    }
    for row in rows:
        for field in fields(KernelTime):
            value = row.get(field.name) if isinstance(row, dict) else None
            is_fine = isinstance(value, kinds[str(field.type)])
            if not is_fine or (isinstance(value, float) and not math.isfinite(value)):
                raise InvalidFile(f"{path}: {field.name} of a kernel is {value!r:.60}")
    names = [field.name for field in fields(KernelTime)]
    return [
        KernelTime(**{n: row[n] for n in names} | {"reads": tuple(map(str, row["reads"]))})
        for row in rows
    ]
