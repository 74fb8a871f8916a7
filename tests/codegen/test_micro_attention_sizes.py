"""Attention whose sizes are known later; tiles in any order, rows whatever is beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arenite.backends.cpu.lowering.lower import lower
from arenite.ir.dim import Dim, Var, evaluate
from tests.codegen.attention_cases import Case, Made, check, compare, made_of
from tests.codegen.building import same
from tests.codegen.made import Array
from tests.codegen.run_kernels import RUNNABLE


@pytest.mark.parametrize("queries", [1, 5, 140])
def test_tiles_in_any_order_give_the_same_bits(queries: int) -> None:
    case = Case(batch=(3,), heads=6, groups=3, queries=queries, keys=200, causal=True, offset=60)
    arrays = case.operands()
    made = made_of(case)
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 2
    [first], [last] = made.run(arrays), made.run_backwards(arrays)
    assert same(first, last)


def test_more_blocks_than_tiles() -> None:
    case = Case(batch=(13,), heads=8, groups=4, queries=20, keys=20, depth=4, width=4)
    made = check(case)
    assert evaluate(made.built.tiles, {}) < 13 * 8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["", "add"])
def test_sizes_known_later(causal: bool, mask: str) -> None:
    batch, queries, keys = Var("batch", 1, 4), Var("queries", 1, 700), Var("keys", 1, 700)
    case = Case(heads=4, groups=2, depth=12, width=20, causal=causal, offset=9, mask=mask)
    case = replace(case, mask_axes="ts", lies="thd")
    shapes: list[tuple[Dim, ...]] = [
        (batch, queries, 4, 12),
        (batch, keys, 2, 12),
        (batch, keys, 2, 20),
    ]
    if mask:
        shapes.append((1, 1, queries, keys))
    made = Made(case, shapes)
    for b, t, s in [(1, 1, 1), (2, 1, 700), (1, 8, 130), (3, 9, 129), (1, 300, 257), (4, 128, 128)]:
        now = replace(case, batch=(b,), queries=t, keys=s)
        arrays = now.operands()
        compare(now, arrays, *made.run(arrays, {"batch": b, "queries": t, "keys": s}))


@pytest.mark.parametrize("groups", [8, 20, 40])
@pytest.mark.parametrize("kept", [None, np.float16, np.int8])
def test_many_wide_heads_make_no_large_kernel(kept: type | None, groups: int) -> None:
    # LLVM takes a second for a million characters, and more than in proportion for more.
    queries, keys = Var("queries", 0, 128), Var("keys", 0, 4096)
    case = Case(heads=40, groups=groups, depth=128, width=128, kept=kept, causal=True, offset=5)
    for n in (1, 4, queries):
        shapes: list[tuple[Dim, ...]] = [(1, 40, n, 128), *[(1, groups, keys, 128)] * 2]
        if kept is np.int8:
            shapes += [(1, groups, keys)] * 2
        made = Made(case, shapes)
        assert len(lower(made.built.loops, made.target)) < 1_000_000


def test_an_offset_known_later() -> None:
    past = Var("past", 0, 500)
    case = Case(heads=4, groups=2, queries=1, causal=True)
    for queries in (1, 20):
        later = replace(case, queries=queries, offset=past)  # type: ignore[arg-type]
        keys: Dim = past + queries
        made = Made(later, [(1, 4, queries, 8), (1, 2, keys, 8), (1, 2, keys, 8)])
        for n in (0, 3, 500):
            now = replace(case, queries=queries, offset=n, keys=n + queries)
            arrays = now.operands()
            compare(now, arrays, *made.run(arrays, {"past": n}))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    "case",
    [
        Case(heads=6, depth=21, width=13),
        Case(heads=2, depth=64, width=64, kept=np.int8),
        Case(heads=4, depth=3, width=70, window=37),
        Case(depth=16, width=16, window=130, dtype=np.float64),
        Case(depth=40, width=24, window=130, dtype=np.float16),
    ],
    ids=str,
)
def test_rows_do_not_depend_on_those_beside_them(case: Case, target: str) -> None:
    """Nor on whether their number was known: the last call is of a kernel of its own."""
    rows, past = Var("rows", 1, 300), Var("past", 0, 300)
    whole = replace(case, queries=300, keys=300, causal=True, spread=2.0)
    q, *others = whole.operands()
    later = replace(whole, offset=past)  # type: ignore[arg-type]
    seen: Dim = past + rows
    shapes = [tuple(seen if size == 300 else size for size in x.shape) for x in others]
    made = Made(later, [(1, case.heads, rows, case.depth), *shapes], target)

    def run(made: Made, at: int, n: int) -> Array:
        given = [x[:, :, : at + n] for x in others]
        [got] = made.run([q[:, :, at : at + n], *given], {"rows": n, "past": at})
        return got

    expected = run(made, 0, 300)
    for n in (1, 2, 7, 8, 9, 16, 33, 128):
        for at in range(0, 301 - n, max(n, 23)):
            assert same(run(made, at, n), expected[:, :, at : at + n]), (n, at)
    for n in (4, 20):
        fixed = replace(whole, queries=n, offset=300 - n)
        known = Made(fixed, [(1, case.heads, n, case.depth), *(x.shape for x in others)], target)
        [got] = known.run([q[:, :, 300 - n :], *others])
        assert same(got, expected[:, :, 300 - n :]), n
