"""What tuning has found, kept in the cache: how kernels are to be cut, and the times they took.

In: a kernel's content, or a graph. Out: names and numbers, checked when they are read; an entry
that does not pass is dropped. Nothing in an entry is run: a choice counts only where it is one that
the kernel's generator names itself. All programs with a kernel share what was found of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arenite import saved_json
from arenite.ir.interface import GraphInterface
from arenite.pipeline.identity import identity
from arenite.program import cache
from arenite.program.options import USUAL, Options
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.ir.graph import Graph

_SECTION = "tuning"
_log = logging.getLogger("arenite.pipeline")


class Times(NamedTuple):
    """Best seconds of a launch, under each condition; whether its bits were the usual ones."""

    seconds: tuple[float, ...]
    is_same: bool = True


class KernelTimes(NamedTuple):
    """What was measured of one kernel, by choice, and which choice it is."""

    chosen: str
    times: dict[str, Times]


def all_choices() -> dict[str, str]:
    """The choices that differ from the usual, by content of the kernel; none before any tuning."""
    key = _choices_key()
    saved = _read(key)
    if saved is None:
        return {}
    if all(isinstance(choice, str) for choice in saved.values()):
        return saved
    _drop(key, "a choice is a text")
    return {}


def choices_of(graph: Graph | GraphInterface, options: Options = USUAL) -> dict[str, str]:
    """Those of them that are about kernels of this graph."""
    chosen = all_choices()
    if not chosen:
        return {}
    asked = (repr(options), *identity(options))
    key = cache.key_of("kernels of a graph", graph.digest(), *asked)
    saved = _read(key)
    if saved is None:
        from arenite.pipeline.contents import contents_of

        saved = dict.fromkeys(contents_of(GraphInterface.of(graph).graph, options), True)
        _write(key, saved)
    return {content: chosen[content] for content in saved if content in chosen}


def keep_choice(content: str, choice: str | None) -> None:
    """From now on the kernel is cut so; None: as usual. What others keep meanwhile stays."""
    key = _choices_key()
    with cache.default().holding(key):
        before = all_choices()
        after = {one: kept for one, kept in before.items() if one != content}
        if choice is not None:
            after[content] = choice
        if after != before:
            _write(key, after)


def times_of(
    content: str, about: str, choices: Sequence[str], n_conditions: int
) -> KernelTimes | None:
    """What was measured of a kernel with these choices; `about` names the conditions."""
    key = _kernel_key(content, about)
    saved = _read(key)
    if saved is None:
        return None
    try:
        times = {
            name: Times(tuple(map(_second, seconds)), bool(is_same))
            for name, (seconds, is_same) in saved["times"].items()
        }
        if {len(one.seconds) for one in times.values()} != {n_conditions}:
            raise ValueError("times are missing")
        if choices[0] not in times or not times.keys() <= set(choices):
            raise ValueError("times are of other choices")
        chosen = saved["chosen"]
        if not times[chosen].is_same:
            raise ValueError("what was chosen gives other bits")
        return KernelTimes(chosen, times)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        _drop(key, str(problem))
        return None


def keep_times(content: str, about: str, found: KernelTimes) -> None:
    times = {name: [one.seconds, one.is_same] for name, one in found.times.items()}
    _write(_kernel_key(content, about), {"chosen": found.chosen, "times": times})


def _second(value: Any) -> float:
    if type(value) is not float or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is no time")
    return value


def _choices_key() -> str:
    return cache.key_of("choices", *identity())


def _kernel_key(content: str, about: str) -> str:
    return cache.key_of("times of a kernel", content, about, *identity())


def _read(key: str) -> dict[str, Any] | None:
    sections = cache.default().get(key)
    if sections is None:
        return None
    try:
        content = saved_json.loads(bytes(sections[_SECTION]))
    except (KeyError, ValueError, RecursionError) as problem:
        _drop(key, str(problem))
        return None
    if isinstance(content, dict):
        return content
    _drop(key, "it is no object")
    return None


def _write(key: str, content: Mapping[str, Any]) -> None:
    cache.default().put(key, {_SECTION: saved_json.dumps(content).encode()})


def _drop(key: str, why: str) -> None:
    _log.info("what tuning had found is dropped: %s", why)
    cache.default().drop(key)
