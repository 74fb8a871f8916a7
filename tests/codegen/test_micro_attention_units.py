"""Tiles of one call go along together beside few queries: results are those of tile by tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from arenite.ir.dim import evaluate
from tests.codegen.attention_cases import Case, compare, made_of
from tests.codegen.building import same

CASES = {
    "units side by side": Case(heads=9, groups=3, queries=1, keys=140, lies="thd", kept=np.float16),
    "units behind each other": Case(heads=8, groups=4, queries=3, keys=129, depth=40, width=24),
    "batches": Case(batch=(2, 2), heads=6, groups=3, queries=2, keys=70, causal=True, offset=68),
    "parts": Case(heads=6, groups=3, queries=1, keys=700, chunk=200, kept=np.float16),
    "bytes": Case(heads=6, groups=2, queries=2, keys=300, kept=np.int8, lies="thd"),
    "a window": Case(heads=6, groups=3, queries=2, keys=500, causal=True, offset=498, window=200),
    "more units than tiles": Case(batch=(9,), heads=10, groups=5, queries=1, keys=20),
    "dots of many turns": Case(heads=4, groups=2, queries=1, keys=40, depth=205, width=70),
}


def ways_to_cut(n: int) -> Iterator[list[tuple[int, int]]]:
    """All tiles in one call, in calls of some, the last first."""
    yield [(0, n)]
    yield [(at, min(at + 2, n)) for at in range(0, n, 2)]
    yield [(n // 3, n), (0, n // 3)]


@pytest.mark.parametrize("name", CASES)
def test_tiles_of_one_call_are_as_by_themselves(name: str) -> None:
    case = CASES[name]
    arrays = case.operands()
    made = made_of(case)
    assert made.attention.decode_up_to
    [alone] = made.run(arrays)
    compare(case, arrays, alone)
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 1
    for splits in ways_to_cut(n_tiles):
        [got] = made.run(arrays, splits=splits)
        assert same(got, alone), splits


def test_more_units_than_tiles_are_taken_in_turns() -> None:
    case = CASES["more units than tiles"]
    n_units = case.batch[0] * case.groups
    assert evaluate(made_of(case).built.tiles, {}) < n_units


def test_keys_beyond_those_seen_are_never_read() -> None:
    """What is asked for ahead may lie behind the last key; what is read may not."""
    case = replace(CASES["units side by side"], causal=True, offset=100)
    q, k, v = case.operands()
    made = made_of(case)
    [wanted] = made.run([q, k, v])
    for x in (k, v):
        x[:, 101:] = np.nan
    [got] = made.run([q, k, v], splits=[(0, evaluate(made.built.tiles, {}))])
    assert same(got, wanted)
