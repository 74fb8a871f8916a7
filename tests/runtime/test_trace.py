"""Traces: read back what was written, and refuse what is none."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import InvalidFile
from arenite.runtime import trace as traces
from arenite.runtime.trace import Trace


def event(name: str, start: float, length: float, thread: int = 0) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 0, "tid": thread, "ts": start, "dur": length}


def test_a_profile_is_read_back_from_its_file() -> None:
    def chain(x: arenite.Tensor) -> arenite.Tensor:
        for _ in range(3):
            x = (x @ x).softmax(-1)
        return x

    x = np.eye(64, dtype=np.float32)
    with arenite.compile(chain, arenite.spec((64, 64)), threads=2) as program:
        profile = program.profile(x)
    found = Trace.read(profile.to_chrome_trace(), "a file")
    assert found == Trace.of(profile)
    assert found.kernels == profile.kernels
    assert found.wall_micros == pytest.approx(profile.wall_seconds * 1e6)
    assert sum(bar.n_tiles for bar in found.bars) == len(profile.records)
    busy = sum(bar.busy for bar in found.bars)
    assert busy == pytest.approx(1e6 * sum(one.seconds for one in profile.kernels), rel=1e-6)


def test_tiles_that_follow_each_other_on_a_thread_are_one_bar() -> None:
    events = [
        event("a", 10, 2),
        event("a", 13, 2),
        event("b", 16, 1),
        event("a", 18, 1),
        event("a", 12, 3, thread=1),
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "second"}},
        {"ph": "C", "name": "counter"},
    ]
    found = Trace.read(json.dumps(events), "another tool's")
    assert found.lanes == ("second", "thread 0/0")
    shown = [(found.lanes[bar.lane], found.names[bar.name], *bar[2:]) for bar in found.bars]
    assert shown == [
        ("second", "a", 2, 5, 3, 1),
        ("thread 0/0", "a", 0, 5, 4, 2),
        ("thread 0/0", "b", 6, 7, 1, 1),
        ("thread 0/0", "a", 8, 9, 1, 1),
    ]
    assert [(one.name, one.n_tiles) for one in found.kernels] == [("a", 4), ("b", 1)]
    assert [one.seconds for one in found.kernels] == pytest.approx([8e-6, 1e-6])
    assert [one.share for one in found.kernels] == pytest.approx([8 / 9, 1 / 9])


def test_of_many_bars_the_longest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_BARS", 3)
    events = [event(f"k{k}", 10 * k, k + 1, thread=k // 2) for k in range(8)]
    found = Trace.read(json.dumps({"traceEvents": events}), "a file")
    shown = [(found.lanes[bar.lane], found.names[bar.name], bar.busy) for bar in found.bars]
    assert shown == [("thread 0/2", "k5", 6), ("thread 0/3", "k6", 7), ("thread 0/3", "k7", 8)]
    assert found.n_left_out == 5
    assert (len(found.lanes), len(found.names)) == (2, 3)
    assert [one.name for one in found.kernels] == ["k7", "k6", "k5"]
    assert sum(one.share for one in found.kernels) == pytest.approx((6 + 7 + 8) / 36)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("3", "no list of"),
        ("{}", "no list of"),
        ('{"traceEvents": {}}', "no list of"),
        ('{"traceEvents": []}', "no complete event"),
        ("[3]", "an event is 3, and no object"),
        ('[{"ph": "X", "ts": "0"}]', "ts of an event is '0'"),
        ('[{"ph": "X", "ts": NaN}]', "ts of an event is nan"),
        ('[{"ph": "X", "dur": 1e999}]', "dur of an event is inf"),
        ('[{"ph": "X", "dur": -1}]', "takes -1"),
        ('[{"ph": "X", "ts": true}]', "ts of an event is True"),
    ],
    ids=range(13),
)
def test_what_is_no_trace_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=re.escape(message)):
        Trace.read(text, "f.json")


@pytest.mark.parametrize(
    ("key", "value"), [("name", 3), ("seconds", "1"), ("gops", float("nan")), ("reads", "x")]
)
def test_a_table_of_kernels_that_is_none_is_refused(key: str, value: object) -> None:
    row = {"name": "k", "seconds": 1.0, "n_runs": 1, "n_tiles": 1, "share": 1.0, "gops": 1.0}
    row |= {"gbytes": 1.0, "limit_share": 0.5, "bound": "memory", "origin": "", "reads": ["w"]}
    data = {"traceEvents": [event("k", 0, 1)], "arenite": {"kernels": [row]}}
    [kernel] = Trace.read(json.dumps(data), "f.json").kernels
    assert (kernel.bound, kernel.reads) == ("memory", ("w",))
    row[key] = value
    with pytest.raises(InvalidFile, match=f"{key} of a kernel is"):
        Trace.read(json.dumps(data), "f.json")
