"""What tuning has found, kept in the cache: the choices of a graph, and the times of a kernel.

In: a graph's digest, or a kernel's content. Out: names and numbers, checked when they are read; an
entry that does not pass is dropped. Nothing in an entry is run: a choice counts only where it is
one that the kernel's generator names itself.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arenite.pipeline.identity import identity
from arenite.runtime import cache

_SECTION = "tuning"
_log = logging.getLogger("arenite.pipeline")


@dataclass(frozen=True, slots=True)
class Times:
    """Best seconds of a launch, on one thread and on all; whether the bits were the usual ones."""

    alone: float
    together: float
    is_same: bool = True


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """What was measured of one kernel, by choice, and which choice it is."""

    chosen: str
    times: dict[str, Times]


def choices_of(digest: str) -> dict[str, str]:
    """The choices for the graph with this digest, by content of its kernels; none if not tuned."""
    key = _graph_key(digest)
    found = _read(key)
    if found is None:
        return {}
    if all(isinstance(part, str) for pair in found.items() for part in pair):
        return found
    _drop(key, "choices are texts")
    return {}


def keep_choices(digest: str, choices: Mapping[str, str]) -> None:
    """Keep these in place of what was there; none, where there are none."""
    if choices:
        _write(_graph_key(digest), dict(sorted(choices.items())))
    else:
        cache.default().drop(_graph_key(digest))


def times_of(content: str, about: str) -> KernelTimes | None:
    """What was measured of a kernel; `about` says on which sizes and threads."""
    key = _kernel_key(content, about)
    found = _read(key)
    if found is None:
        return None
    try:
        times = {
            name: Times(_seconds(alone), _seconds(together), bool(is_same))
            for name, (alone, together, is_same) in found["times"].items()
        }
        chosen = found["chosen"]
        if chosen not in times:
            raise ValueError("what is chosen was not measured")
        return KernelTimes(chosen, times)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        _drop(key, str(problem))
        return None


def keep_times(content: str, about: str, found: KernelTimes) -> None:
    times = {name: [t.alone, t.together, t.is_same] for name, t in found.times.items()}
    _write(_kernel_key(content, about), {"chosen": found.chosen, "times": times})


def _seconds(value: Any) -> float:
    if type(value) is not float or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is no time")
    return value


def _graph_key(digest: str) -> str:
    return cache.key_of("choices of a graph", digest, *identity())


def _kernel_key(content: str, about: str) -> str:
    return cache.key_of("times of a kernel", content, about, *identity())


def _read(key: str) -> dict[str, Any] | None:
    sections = cache.default().get(key)
    if sections is None:
        return None
    try:
        found = json.loads(bytes(sections[_SECTION]))
    except (KeyError, ValueError, RecursionError) as problem:
        _drop(key, str(problem))
        return None
    if isinstance(found, dict):
        return found
    _drop(key, "it is no object")
    return None


def _write(key: str, content: Mapping[str, Any]) -> None:
    cache.default().put(key, {_SECTION: json.dumps(content).encode()})


def _drop(key: str, why: str) -> None:
    _log.info("what tuning had found is dropped: %s", why)
    cache.default().drop(key)
