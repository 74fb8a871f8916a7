"""Attention in one kernel: against NumPy in float64, within the bound of its rounding.

Whatever is written lies between guards, scratch too, and scratch begins as NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.codegen import loop_ir as ir
from arenite.dtype import of as dtype_of
from arenite.errors import NotCompiled
from tests.codegen.attention_cases import BFLOAT16, Case, check, made_of
from tests.codegen.run_kernels import RUNNABLE


@st.composite
def cases(draw: st.DrawFn) -> Case:
    groups = draw(st.integers(1, 3))
    causal = draw(st.booleans())
    keys = draw(st.one_of(st.integers(1, 30), st.integers(1, 400)))
    return Case(
        batch=draw(st.sampled_from([(), (1,), (2,), (2, 2)])),
        heads=groups * draw(st.sampled_from([1, 2, 3, 7])),
        groups=groups,
        queries=draw(st.one_of(st.integers(1, 10), st.integers(1, 300))),
        keys=keys,
        depth=draw(st.integers(1, 80)),
        width=draw(st.integers(1, 80)),
        lies=draw(st.sampled_from(["htd", "htd", "thd", "hdt"])),
        causal=causal,
        window=draw(st.sampled_from([0, 1, 5, 40, 200])) if causal else 0,
        kept=draw(st.sampled_from([None, None, np.float16, np.int8])),
        scales=draw(st.sampled_from([np.float32, np.float16])),
        offset=draw(st.one_of(st.just(0), st.integers(-keys, 2 * keys))),
        mask=draw(st.sampled_from(["", "", "bool", "add"])),
        mask_axes=draw(st.sampled_from(["bhts", "ts", "s", "bs", "hs", "bt", ""])),
    )


@given(cases(), st.sampled_from(RUNNABLE))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_attention_of_any_shape(case: Case, target: str) -> None:
    check(case, target)


@given(cases(), st.integers(1, 8), st.integers(1, 300), st.sampled_from(RUNNABLE))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_parts_of_any_shape(case: Case, queries: int, chunk: int, target: str) -> None:
    lies = "htd" if case.lies == "hdt" else case.lies
    queries = min(queries, 32 // (case.heads // case.groups))
    check(replace(case, queries=queries, lies=lies, chunk=chunk), target)


def test_parts_of_many_queries_are_refused() -> None:
    case = Case(queries=9, keys=30, chunk=10)
    with pytest.raises(NotCompiled, match="has 9 queries; parts are made of at most 8"):
        made_of(case)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_parts_of_small_floats(dtype: Any) -> None:
    case = Case(queries=3, keys=700, chunk=128, causal=True, offset=600, dtype=dtype)
    assert check(case).built.loops.array("out0").dtype == dtype_of("float32")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("queries", [1, 6, 40, 133])
@pytest.mark.parametrize("causal", [False, True])
def test_other_floats(queries: int, causal: bool, dtype: Any) -> None:
    case = Case(queries=queries, keys=150, depth=40, width=24, causal=causal, dtype=dtype)
    if causal:
        check(replace(case, heads=6, groups=2, offset=30))
    else:
        check(replace(case, lies="thd", mask="add", mask_axes="ts"))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("depth", [1, 16, 64, 129, 256])
@pytest.mark.parametrize("queries", [1, 4, 70])
def test_widths(depth: int, queries: int, target: str) -> None:
    check(Case(queries=queries, keys=90, depth=depth, width=257 - depth), target)


def test_rows_a_page_apart() -> None:
    case = Case(heads=16, groups=16, queries=70, keys=140, depth=64, width=64, lies="thd")
    assert check(case).attention.copies_k
    assert not check(replace(case, heads=12, groups=12)).attention.copies_k


def test_forms_are_chosen() -> None:
    def forms(case: Case) -> tuple[int, bool]:
        made = made_of(case).attention
        return made.decode_up_to, made.has_panels

    case = Case(keys=40, depth=16, width=16)
    assert forms(replace(case, queries=3)) == (8, False)
    assert forms(replace(case, queries=64)) == (0, True)
    assert forms(replace(case, queries=3, lies="hdt")) == (0, True)
    assert made_of(replace(case, queries=77)).attention.has_narrow
    assert not made_of(replace(case, queries=64)).attention.has_narrow
    shared = replace(case, heads=12, groups=3)  # four heads share keys
    assert made_of(replace(shared, queries=1)).attention.decode_blocks == ir.index(3)
    assert forms(replace(shared, queries=8)) == (8, False)
    assert forms(replace(shared, queries=8, groups=1)) == (0, True)
    assert forms(replace(shared, queries=1, heads=40, groups=1)) == (1, False)


@pytest.mark.parametrize(
    "case",
    [
        Case(queries=5, keys=9, causal=True, offset=2),
        Case(queries=40, keys=30, heads=4, mask="bool", lies="thd"),
        Case(queries=1, keys=30, heads=4, mask="add", mask_axes="hs"),
        Case(queries=2, keys=30, causal=True, offset=3, chunk=7),
        Case(queries=5, keys=30, causal=True, offset=20, window=6),
        Case(queries=3, keys=30, heads=4, mask="add", kept=np.int8, lies="thd"),
    ],
    ids=str,
)
def test_the_loops_mean_the_same(case: Case) -> None:
    check(case, is_plain=True)


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (np.float64, np.float16),
        (np.float64, np.int8),
        (np.float32, BFLOAT16),
        (np.float16, np.int8),
    ],
    ids=str,
)
def test_keys_narrower_than_queries(dtype: Any, kept: Any, queries: int) -> None:
    case = Case(heads=6, queries=queries, keys=300, depth=24, width=40, dtype=dtype, kept=kept)
    check(replace(case, lies="thd", causal=True, offset=250, window=90))
    check(replace(case, mask="add", mask_axes="ts"))
