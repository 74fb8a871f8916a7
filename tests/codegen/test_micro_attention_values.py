"""Attention of numbers and masks that are out of the ordinary, and of what no query sees."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.ir.reference import evaluate as evaluate_graph
from tests.codegen.attention_cases import Case, check, compare, made_of


@pytest.mark.parametrize("queries", [3, 150])
def test_scores_that_grow_from_block_to_block(queries: int) -> None:
    """Every block of keys beats all before it by far, so that earlier results all but vanish."""
    case = Case(queries=queries, keys=600, depth=4, width=5)
    q, k, v = case.operands()
    q[...] = np.abs(q)
    k[...] = np.abs(k) * np.linspace(0, 60, case.keys, dtype=np.float32)[:, None]
    arrays = [q, k, v]
    made = made_of(case)
    compare(case, arrays, *made.run(arrays))
    flipped = [q, k[..., ::-1, :].copy(), v]
    compare(case, flipped, *made.run(flipped))


@pytest.mark.parametrize("queries", [2, 40])
def test_who_sees_nothing_gets_zeros(queries: int) -> None:
    case = Case(queries=queries, keys=300, mask="bool")
    q, k, v, mask = case.operands()
    mask[..., 1, :] = False
    mask[..., 0, :290] = False
    [got] = made_of(case).run([q, k, v, mask])
    assert (got[..., 1, :] == 0).all()
    compare(case, [q, k, v, mask], got)
    early = Case(queries=queries, keys=300, causal=True, offset=-1)
    [first] = check(early).run([q, k, v])
    assert (first[..., 0, :] == 0).all()


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["q", "k", "mask"])
def test_what_is_not_a_number_spreads_as_in_the_reference(
    place: str, bad: float, queries: int
) -> None:
    case = Case(queries=queries, keys=270, mask="add")
    arrays = case.operands()
    q, k, _, mask = arrays
    np.nan_to_num(mask, copy=False, neginf=-3.0)
    if place == "q":
        q[..., 1, 3] = bad
    elif place == "k":
        k[..., 200, 3] = bad
    else:
        mask[..., 1, 100] = bad
    made = made_of(case)
    [expected] = evaluate_graph(made.graph, arrays)
    [got] = made.run(arrays)
    assert (np.isnan(got) == np.isnan(expected)).all()
    fine = ~np.isnan(expected)
    assert np.abs(got[fine] - expected[fine]).max(initial=0) < 1e-5


def test_windows_skip_what_no_query_sees() -> None:
    """Keys before the window of all queries are never read: they may be anything."""
    for queries in (1, 3, 100):
        case = Case(queries=queries, keys=900, causal=True, offset=790, window=64)
        q, k, v = case.operands()
        made = made_of(case)
        wanted = made.run([q, k, v])
        for x in (k, v):
            x[..., : 790 - 63, :] = np.nan
        np.testing.assert_array_equal(made.run([q, k, v]), wanted)
