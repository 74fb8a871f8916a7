"""Waits and the bytes behind them, against every two launches looked at byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Var
from arenite.hazards import Role
from arenite.program.conflicts import waits_of
from arenite.program.launch_hazards import placed
from arenite.runtime.executable import Executable


def branches(x: arenite.Tensor, w: arenite.Tensor) -> arenite.Tensor:
    """Two chains of values of several sizes, each of which uses bytes of the other again."""
    a, b = x @ w, (x + 1) @ w
    for _ in range(4):
        a = (a @ w).sort()
        b = arenite.concat([b, b @ w], -1).sort()[:, 4:12] @ w
    return a @ w + b @ w


def looped(x: arenite.Tensor, w: arenite.Tensor) -> Any:
    def step(i: arenite.Tensor, state: arenite.Tensor) -> Any:
        return arenite.cond(state.sum() > 0, lambda: (state @ w).sort(), lambda: state + 1)

    return arenite.fori_loop(3, step, x) @ w


Spans = dict[tuple[int, int], set[Role]]


def touched_bytes(executable: Executable) -> list[dict[tuple[int, int], set[Role]]]:
    """What each launch does with every byte."""
    found = []
    for launch in placed(executable.compiled.launches, executable.places):
        spans: Spans = {}
        for one in launch.ranges or ():
            for byte in range(one.start, one.end):
                spans.setdefault((one.storage_id, byte), set()).add(one.role)
        found.append(spans)
    return found


def conflicting(before: Spans, after: Spans) -> set[tuple[int, int]]:
    shared = before.keys() & after.keys()
    return {byte for byte in shared if Role.WRITE in before[byte] | after[byte]}


@pytest.mark.parametrize(
    ("function", "rows"), [(branches, 8), (branches, Var("rows", 1, 8)), (looped, 8)]
)
def test_every_conflict_is_waited_for_and_every_wait_has_its_bytes(
    function: Callable[..., Any], rows: Any
) -> None:
    with arenite.compile(function, arenite.spec((rows, 8)), arenite.spec((8, 8))) as program:
        [executable] = program.executables
        waits = waits_of(executable.compiled, executable.places)
        touched = touched_bytes(executable)
        n = len(touched)
        order = np.eye(n, dtype=bool)
        for wait in waits:
            assert wait.before < wait.after
            order[:, wait.after] |= order[:, wait.before]
        for first, stop in executable.compiled.frame.skeleton.blocks.reshape(-1, 2).tolist():
            for after in range(first, stop):
                for before in range(first, after):
                    if conflicting(touched[before], touched[after]):
                        assert order[before, after], (before, after)
        names = [value.name for value in executable.compiled.values]
        for wait in waits:
            told = {
                (one.storage_id, byte)
                for one in wait.conflicts
                for byte in range(one.start, one.end)
            }
            assert told == conflicting(touched[wait.before], touched[wait.after])
            for one in wait.conflicts:
                assert one.kind.name in {"RAW", "WAR", "WAW"}
                if one.storage_id == 0:  # in the arena: where the plan has both
                    for value in (one.before, one.after):
                        slot = executable.plan.slots[names[int(value)]]
                        assert slot.offset <= one.start < one.end <= slot.end
        assert waits == sorted(waits, key=lambda wait: (wait.after, wait.before))


def test_reuse_of_bytes_is_told_from_data() -> None:
    with arenite.compile(branches, arenite.spec((8, 8)), arenite.spec((8, 8))) as program:
        [executable] = program.executables
        waits = waits_of(executable.compiled, executable.places)
        launches = executable.compiled.launches
        for wait in waits:
            before, after = launches[wait.before], launches[wait.after]
            handed = {*before.writes} & {*after.reads, *after.writes}
            kept = {*before.reads} & {*after.writes}
            assert wait.is_reuse == (not handed | kept)
        assert {wait.is_reuse for wait in waits} == {True, False}
        # Some values share a part of their bytes.
        names = [value.name for value in executable.compiled.values]
        sizes = [
            (one.end - one.start, *(executable.plan.slots[names[int(v)]].nbytes for v in one[1:3]))
            for wait in waits
            for one in wait.conflicts
        ]
        assert any(shared < max(sizes_of) for shared, *sizes_of in sizes)
