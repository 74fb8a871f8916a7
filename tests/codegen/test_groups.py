"""Loops for groups of threads: barriers where they are needed, refusals where they are missing, and
indices of 32 bits only where that is proven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check
from arenite.codegen.groups import grouped
from arenite.codegen.index_width import narrow_indices
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME
from arenite.errors import InvalidArgument, NotCompiled

F32, I64 = BY_NAME["float32"], BY_NAME["int64"]
N, TILE, V = ir.Name("n"), ir.Name("tile"), ir.Name("v")
IN, OUT = ir.ArrayArg("a", F32, "in"), ir.ArrayArg("b", F32, "inout")
THREADS = 64


def loaded(array: str, at: ir.Expr = V) -> ir.Load:
    return ir.Load(array, at, F32)


def vector(*body: ir.Stmt, stop: ir.Expr = N) -> ir.For:
    return ir.For("v", ir.index(0), stop, body, vector=True)


def plain(*body: ir.Stmt, arrays: tuple[ir.ArrayArg, ...] = (IN, OUT)) -> ir.LoopKernel:
    return ir.LoopKernel("k", arrays, ("n",), N, "tile", body)


def in_group(
    *body: ir.Stmt, shared: tuple[ir.SharedArray, ...] = (), threads: int = THREADS
) -> ir.GroupKernel:
    return ir.GroupKernel(*plain(*body).parts, threads=threads, shared=shared)


WRITE = vector(ir.Store("b", V, loaded("a")))
READ_BACK = vector(ir.Store("b", V, loaded("b", N - 1 - V)))


# Barriers


def test_a_barrier_parts_loops_of_which_one_stores() -> None:
    made = grouped(plain(WRITE, READ_BACK), THREADS)
    assert [type(stmt) for stmt in made.body] == [ir.For, ir.Barrier, ir.For]
    check(made)


def test_loops_that_only_read_need_none() -> None:
    total = ir.Accumulator("t", ir.Const(0.0, F32))
    reading = vector(ir.Accumulate("t", "add", loaded("a")))
    made = grouped(plain(total, reading, reading), THREADS)
    assert not any(isinstance(stmt, ir.Barrier) for stmt in made.body)
    check(made)


def test_the_end_of_a_loop_meets_its_beginning() -> None:
    rows = ir.For("row", ir.index(0), N, (WRITE,))
    made = grouped(plain(rows), THREADS)
    [loop] = made.body
    assert isinstance(loop, ir.For)
    assert isinstance(loop.body[0], ir.Barrier)
    check(made)


def test_what_has_no_vector_loop_is_done_by_one_thread() -> None:
    made = grouped(plain(ir.Store("b", TILE, loaded("a", TILE))), THREADS)
    assert made.threads == 1
    check(made)


@pytest.mark.parametrize(
    "body",
    [
        (WRITE, READ_BACK),
        (ir.For("row", ir.index(0), N, (WRITE,)),),
        (ir.Let("x", loaded("a", TILE)), WRITE),
        (WRITE, ir.Let("x", loaded("b", TILE))),
    ],
)
def test_a_missing_barrier_is_seen(body: tuple[ir.Stmt, ...]) -> None:
    with pytest.raises(InvalidArgument, match="no barrier"):
        check(in_group(*body))
    check(in_group(*body, threads=1))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ((vector(ir.Barrier()),), "only a loop over 0 .. 64"),
        ((ir.If(N < 3, (ir.Barrier(),)),), "under a condition"),
        (
            (
                ir.For(
                    "v",
                    ir.index(0),
                    ir.index(THREADS),
                    (ir.If(V < 3, (ir.Barrier(),)),),
                    vector=True,
                ),
            ),
            "under a condition",
        ),
        (
            (
                ir.Accumulator("t", ir.Const(0.0, F32)),
                ir.If(N < 3, (vector(ir.Accumulate("t", "add", loaded("a"))),)),
            ),
            "under a condition",
        ),
    ],
)
def test_barriers_stand_where_every_thread_comes_by(body: tuple[ir.Stmt, ...], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        check(in_group(*body))


def test_a_barrier_needs_a_group() -> None:
    with pytest.raises(InvalidArgument, match="no groups of threads"):
        check(plain(ir.Barrier()))


# Shared memory


def thread_loop(*body: ir.Stmt) -> ir.For:
    return ir.For("v", ir.index(0), ir.index(THREADS), body, vector=True)


SHARED = (ir.SharedArray("s", F32, THREADS),)
PUT = ir.Store("s", V, loaded("a"))
TAKE = ir.Store("b", V, loaded("s", THREADS - 1 - V))


def test_shared_memory_is_read_behind_a_barrier() -> None:
    check(in_group(thread_loop(PUT, ir.Barrier(), TAKE), shared=SHARED))
    with pytest.raises(InvalidArgument, match="read and write s with no barrier"):
        check(in_group(thread_loop(PUT, TAKE), shared=SHARED))
    again = ir.For("step", ir.index(0), N, (PUT, ir.Barrier(), TAKE))
    with pytest.raises(InvalidArgument, match="read and write s with no barrier"):
        check(in_group(thread_loop(again), shared=SHARED))
    again = replace(again, body=(*again.body, ir.Barrier()))
    check(in_group(thread_loop(again), shared=SHARED))


def test_iterations_dealt_out_in_turn_do_not_share() -> None:
    with pytest.raises(InvalidArgument, match="read a shared array that others write"):
        check(in_group(vector(PUT, TAKE), shared=SHARED))


SUMS = (ir.SharedArray("sums", F32, THREADS), ir.SharedArray("fours", F32, 8, 4))
FOREIGN = ir.Foreign("$sums[lane] = f32($n);", (N,), ("a",), ("sums", "fours"), ("a",), (32,))
RESULTS = vector(ir.Store("b", V, loaded("sums")), stop=ir.index(THREADS))


def test_foreign_text_is_checked_by_what_it_says_it_touches() -> None:
    made = in_group(FOREIGN, ir.Barrier(), RESULTS, shared=SUMS)
    check(made)
    narrow = narrow_indices(made, {"n": (1, 64)})
    check(narrow)
    assert "$sums[lane] = f32($n);" in kernel_text(narrow)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ((FOREIGN, RESULTS), "no barrier"),
        ((ir.If(N > 3, (FOREIGN,)),), "under a condition"),
        ((vector(FOREIGN),), "in a vector loop"),
        ((replace(FOREIGN, writes=("a",)),), "a is an input"),
        ((replace(FOREIGN, reads=("c",)),), "no array c"),
        ((replace(FOREIGN, uses=(ir.Name("m"),)),), "m is not defined"),
        ((replace(FOREIGN, teams=(24,)),), "no team"),
        ((replace(FOREIGN, teams=(128,)),), "no team"),
        ((ir.Let("t", loaded("fours", N)),), "only foreign text"),
    ],
)
def test_foreign_text_that_breaks_a_rule_is_refused(body: ir.Block, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        check(in_group(*body, shared=SUMS))


def test_a_group_prints_its_threads_and_shared_memory() -> None:
    text = kernel_text(in_group(thread_loop(PUT, ir.Barrier(), RESULTS), shared=SHARED))
    assert "64 threads each" in text
    assert "shared float32 s[64];" in text
    assert "barrier();" in text


# Indices


def narrowed(*body: ir.Stmt, n: tuple[int, int] = (1, 1000)) -> ir.GroupKernel:
    made = narrow_indices(grouped(plain(*body), THREADS), {"n": n})
    check(made)
    return made


def test_indices_become_int32_everywhere() -> None:
    made = narrowed(vector(ir.Store("b", TILE * 7 + V, loaded("a", V // 3 + V % 5))))
    assert made.index_dtype == ir.INT32
    text = kernel_text(made)
    assert "int64" not in text.replace("(int64)", "")
    assert "fmod(v, 5)" in text.replace(
        "(int32)", ""
    )  # of what is not negative, as devices have it


def test_an_index_may_wrap_on_the_way_where_it_is_used_under_a_mask() -> None:
    at = V * 2**30
    narrowed(vector(ir.Store("b", at, loaded("a", V), mask=V < 1)))


@pytest.mark.parametrize(
    "statement",
    [
        vector(ir.Store("b", V, loaded("a"), mask=V * 2**30 < 5)),
        vector(ir.Store("b", V * 2**30 // 3, loaded("a"))),
        vector(ir.Store("b", V, loaded("a")), stop=N * 2**30),
        vector(ir.Store("b", V, ir.Cast(V * 2**30, F32))),
    ],
)
def test_what_compares_divides_or_bounds_must_fit(statement: ir.Stmt) -> None:
    with pytest.raises(NotCompiled, match="indices of this device have 32 bits"):
        narrowed(statement)


def test_sizes_that_are_too_large_are_refused() -> None:
    narrowed(WRITE, n=(1, 2**31 - 1 - THREADS))
    with pytest.raises(NotCompiled, match=r"lies in 1 \.\. 4294967296"):
        narrowed(WRITE, n=(1, 2**32))


def test_elements_of_64_bits_are_refused() -> None:
    dtype = BY_NAME["uint64"]
    wide = ir.ArrayArg("a", dtype, "in")
    load = ir.Let("x", ir.Load("a", V, dtype))
    kernel = grouped(plain(vector(load), arrays=(wide, OUT)), THREADS)
    with pytest.raises(NotCompiled, match="a holds uint64"):
        narrow_indices(kernel, {"n": (1, 9)})


def test_an_int64_that_is_computed_with_is_refused_and_one_that_is_compared_is_two_words() -> None:
    wide = ir.ArrayArg("a", I64, "in")
    loaded = ir.Load("a", V, I64)
    for body, is_done in (
        (ir.Let("x", ir.Binary("lt", loaded, ir.index(7))), True),
        (ir.Let("x", ir.Binary("lt", loaded, ir.index(2**31 - 1))), False),
        (ir.Let("x", ir.Cast(loaded, BY_NAME["float32"])), False),
        (ir.Let("x", ir.Binary("lt", loaded + 1, ir.index(7))), False),
    ):
        kernel = grouped(plain(vector(body), arrays=(wide, OUT)), THREADS)
        if not is_done:
            with pytest.raises(NotCompiled, match="32 bits"):
                narrow_indices(kernel, {"n": (1, 9)})
            continue
        narrow = narrow_indices(kernel, {"n": (1, 9)})
        check(narrow)
        assert narrow.array("a").dtype == ir.INT32
