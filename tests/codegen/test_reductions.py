"""Reductions, scans, branches and nests; the same bits however tiles are dealt out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType, Kind
from tests.codegen import interpreter
from tests.codegen.building import F32, I32, I64, kernel, name, same, serial_for, vector_for
from tests.codegen.run_kernels import RUNNABLE, compiled

DTYPES = [
    BY_NAME[text]
    for text in "bool int8 uint8 int16 int32 uint32 int64 uint64 float32 float64".split()
]
LENGTHS = [0, 1, 2, 8, 15, 16, 17, 63, 64, 65, 100, 128, 129, 300]
N = name("n")
I = name("i")  # noqa: E741


def ops_of(dtype: DType) -> list[str]:
    if dtype.kind is Kind.BOOL:
        return ["and", "or", "xor", "max", "min"]
    if dtype.kind is Kind.FLOAT:
        return ["add", "mul", "max", "min"]
    return ["add", "mul", "max", "min", "and", "or", "xor"]


def neutral(op: str, dtype: DType) -> ir.Const:
    numpy = dtype.to_numpy()
    if dtype.kind is Kind.BOOL:
        return ir.Const(op in ("and", "min"), dtype)
    if op in ("max", "min"):
        if dtype.kind is Kind.FLOAT:
            return ir.Const(float("-inf") if op == "max" else float("inf"), dtype)
        limits = np.iinfo(numpy)
        return ir.Const(int(limits.min if op == "max" else limits.max), dtype)
    value = {"mul": 1, "and": -1 if dtype.kind is Kind.SIGNED else (1 << dtype.bits) - 1}.get(op, 0)
    return ir.Const(float(value) if dtype.kind is Kind.FLOAT else value, dtype)


def values(dtype: DType, n: int) -> Any:
    rng = np.random.default_rng(n)
    if dtype.kind is Kind.BOOL:
        return rng.random(n) < 0.9
    if dtype.kind is Kind.FLOAT:
        return rng.uniform(0.5, 1.5, n).astype(dtype.to_numpy())
    return rng.integers(0, 256, n * dtype.bits // 8, np.uint8).view(dtype.to_numpy())


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_reduction_of_every_dtype(target: str, dtype: DType) -> None:
    """All of them in one vector loop, beside a loop of its own for each."""
    ops = ops_of(dtype)
    load = ir.Load("x", I, dtype)
    declared = [ir.Accumulator(f"{op}_{kind}", neutral(op, dtype)) for op in ops for kind in "ab"]
    joint = vector_for("i", N, *(ir.Accumulate(f"{op}_a", op, load) for op in ops))
    alone = [vector_for("i", N, ir.Accumulate(f"{op}_b", op, load)) for op in ops]
    names = [f"{op}_{kind}" for op in ops for kind in "ab"]
    stores = [ir.Store("y", ir.index(at), name(x, dtype)) for at, x in enumerate(names)]
    k = kernel(
        [("x", dtype, "in"), ("y", dtype, "out")], ["n"], [*declared, joint, *alone, *stores]
    )
    code = compiled(k, target)
    for n in LENGTHS:
        x = values(dtype, n)
        got, want = (np.zeros(len(names), dtype.to_numpy()) for _ in range(2))
        code.run({"x": x, "y": got}, {"n": n})
        interpreter.run(k, {"x": x, "y": want}, {"n": n})
        if dtype.kind is Kind.FLOAT:
            tolerance = 1e-4 if dtype.bits == 32 else 1e-12
            np.testing.assert_allclose(got, want, rtol=tolerance)
            exact = [at for at, x in enumerate(names) if x.startswith("m") and "mul" not in x]
            got, want = got[exact], want[exact]
        assert same(got, want), n


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_anywhere_is_the_result(target: str, op: str) -> None:
    body = [
        ir.Accumulator("m", neutral(op, F32)),
        vector_for("i", N, ir.Accumulate("m", op, ir.Load("x", I, F32))),
        ir.Store("y", ir.index(0), name("m", F32)),
    ]
    code = compiled(kernel([("x", F32, "in"), ("y", F32, "out")], ["n"], body), target)
    for n in (1, 16, 40, 100):
        for place in {0, n // 2, n - 1}:
            x = np.arange(n, dtype=np.float32)
            x[place] = np.nan
            y = np.zeros(1, np.float32)
            code.run({"x": x, "y": y}, {"n": n})
            assert np.isnan(y[0]), (n, place)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    "dtype", [BY_NAME[x] for x in ("float32", "int8", "uint32", "float64")], ids=str
)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_reductions_give_the_first_of_equals(target: str, dtype: DType, op: Any) -> None:
    body = [
        ir.Accumulator("best", neutral(op[3:], dtype)),
        ir.Accumulator("at", ir.index(2**63 - 1)),
        vector_for("i", N, ir.AccumulateArg("best", "at", op, ir.Load("x", I, dtype), I)),
        ir.Store("y", ir.index(0), name("at")),
    ]
    k = kernel([("x", dtype, "in"), ("y", I64, "out")], ["n"], body)
    code = compiled(k, target)
    rng = np.random.default_rng(5)
    for n in LENGTHS[1:]:
        for extra in (None, np.nan, np.inf, -np.inf):
            x = rng.integers(0, 9, n).astype(dtype.to_numpy())
            if extra is not None and dtype.kind is Kind.FLOAT:
                x[rng.random(n) < 0.3] = extra
            y = np.zeros(1, np.int64)
            code.run({"x": x, "y": y}, {"n": n})
            assert y[0] == getattr(np, op)(x), (n, x)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("unroll", [0, 1, 3])
def test_columns_are_reduced_lane_by_lane(target: str, unroll: int) -> None:
    rows, columns, c = name("rows"), name("columns"), name("c")
    inside = (
        ir.Accumulator("s", ir.Const(0.0, F32)),
        serial_for(
            "r", rows, ir.Accumulate("s", "add", ir.Load("x", name("r") * columns + c, F32))
        ),
        ir.Store("y", c, name("s", F32)),
    )
    k = kernel(
        [("x", F32, "in"), ("y", F32, "out")],
        ["rows", "columns"],
        [vector_for("c", columns, *inside, unroll=unroll)],
    )
    code = compiled(k, target)
    for height, width in ((0, 3), (1, 1), (5, 17), (40, 100), (3, 64)):
        x = np.random.default_rng(0).standard_normal((height, width)).astype(np.float32)
        y = np.full(width, 9, np.float32)
        want = {"x": x.ravel(), "y": y.copy()}
        code.run({"x": x, "y": y}, {"rows": height, "columns": width})
        interpreter.run(k, want, {"rows": height, "columns": width})
        assert same(y, want["y"])


@pytest.mark.parametrize("target", RUNNABLE)
def test_partial_results_stay_apart_across_a_serial_loop(target: str) -> None:
    """Integers, so that any order is exact; read and accumulated again after the nest."""
    r = name("r")
    row = vector_for("i", N, ir.Accumulate("s", "add", ir.Load("x", r * N + I, I32)))
    other = vector_for("i", N, ir.Accumulate("top", "max", ir.Load("x", r * N + I, I32)))
    body = [
        ir.Accumulator("s", ir.Const(7, I32)),
        ir.Accumulator("top", ir.Const(-100, I32)),
        serial_for("r", name("rows"), row, other),
        ir.Store("y", ir.index(0), name("s", I32)),
        vector_for("i", N, ir.Accumulate("s", "add", ir.Load("x", I, I32))),
        ir.Store("y", ir.index(1), name("s", I32)),
        ir.Store("y", ir.index(2), name("top", I32)),
    ]
    k = kernel([("x", I32, "in"), ("y", I32, "out")], ["rows", "n"], body)
    code = compiled(k, target)
    for rows, n in ((0, 4), (1, 1), (5, 3), (4, 70), (3, 0)):
        x = np.random.default_rng(1).integers(-9, 9, max(rows, 1) * n).astype(np.int32)
        got, want = np.zeros(3, np.int32), np.zeros(3, np.int32)
        code.run({"x": x, "y": got}, {"rows": rows, "n": n})
        interpreter.run(k, {"x": x, "y": want}, {"rows": rows, "n": n})
        assert same(got, want), (rows, n)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("unroll", [0, 2, 5])
def test_a_scan_a_recurrence_and_a_compaction(target: str, unroll: int) -> None:
    """Running sum; `set`; and writing the positions of the positive ones one after another."""
    load = ir.Load("x", I, I32)
    positive = ir.Binary("gt", load, ir.Const(0, I32))
    found = (ir.Store("where", name("count"), I), ir.Accumulate("count", "add", ir.index(1)))
    previous = ir.Binary("sub", load, name("last", I32))
    body = [
        ir.Accumulator("sum", ir.Const(0, I32)),
        ir.Accumulator("last", ir.Const(5, I32)),
        ir.Accumulator("count", ir.index(0)),
        serial_for(
            "i",
            N,
            ir.Accumulate("sum", "add", load),
            ir.Store("y", I, name("sum", I32)),
            ir.Store("steps", I, previous),
            ir.Accumulate("last", "set", load),
            ir.If(positive, found, (ir.Accumulate("sum", "add", ir.Const(1, I32)),)),
            unroll=unroll,
        ),
        ir.Store("where", N, name("count")),
    ]
    k = kernel(
        [("x", I32, "in"), ("y", I32, "out"), ("steps", I32, "out"), ("where", I64, "out")],
        ["n"],
        body,
    )
    code = compiled(k, target)
    for n in (0, 1, 4, 5, 11, 64):
        x = np.random.default_rng(n).integers(-9, 9, n).astype(np.int32)
        got: dict[str, Any] = {
            "x": x,
            "y": np.zeros(n, np.int32),
            "steps": np.zeros(n, np.int32),
            "where": np.full(n + 1, -1),
        }
        want = {key: value.copy() for key, value in got.items()}
        code.run(got, {"n": n})
        interpreter.run(k, want, {"n": n})
        for key in got:
            assert same(got[key], want[key]), (key, n)


@pytest.mark.parametrize("target", RUNNABLE)
def test_branches_in_a_vector_loop_and_around_one(target: str) -> None:
    load = ir.Load("x", I, F32)
    positive = ir.Binary("gt", load, ir.Const(0.0, F32))
    big = ir.Binary("gt", name("n"), ir.index(20))
    guarded = ir.Load("x", I * 1000, F32)  # far outside, but never where the branch is taken
    inside = ir.If(
        positive,
        (
            ir.Let("twice", ir.Binary("add", load, load)),
            ir.Store("y", I, name("twice", F32)),
            ir.Accumulate("m", "max", name("twice", F32)),
            ir.If(ir.Binary("lt", load, ir.Const(-1.0, F32)), (ir.Store("y", I, guarded),)),
        ),
        (ir.Store("z", I, load), ir.Accumulate("c", "add", ir.Const(1, I32))),
    )
    body = [
        ir.Accumulator("m", ir.Const(float("-inf"), F32)),
        ir.Accumulator("c", ir.Const(0, I32)),
        vector_for("i", N, inside),
        ir.If(
            big,
            (vector_for("i", N, ir.Accumulate("m", "max", ir.Load("z", I, F32))),),
            (ir.Accumulate("m", "set", ir.Const(-3.0, F32)),),
        ),
        ir.Store("out", ir.index(0), name("m", F32)),
        ir.Store("out", ir.index(1), ir.Cast(name("c", I32), F32)),
    ]
    k = kernel(
        [("x", F32, "in"), ("y", F32, "inout"), ("z", F32, "inout"), ("out", F32, "out")],
        ["n"],
        body,
    )
    code = compiled(k, target)
    for n in LENGTHS:
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        got = {"x": x, "y": np.full(n, 5, np.float32), "z": np.full(n, 6, np.float32)}
        got["out"] = np.zeros(2, np.float32)
        want = {key: value.copy() for key, value in got.items()}
        code.run(got, {"n": n})
        interpreter.run(k, want, {"n": n})
        for key in got:
            assert same(got[key], want[key]), (key, n)


@pytest.mark.parametrize("target", RUNNABLE)
def test_require_sets_the_error_word_once(target: str) -> None:
    at = ir.Load("at", I, I64)
    inside = ir.Binary("and", ir.Binary("ge", at, ir.index(0)), ir.Binary("lt", at, ir.index(10)))
    body = vector_for(
        "i",
        N,
        ir.Require(inside, ir.index(7 << 32 | 3)),
        ir.Store("y", I, ir.Load("x", at, F32, inside)),
    )
    k = kernel([("x", F32, "in"), ("at", I64, "in"), ("y", F32, "out")], ["n"], [body])
    x, places = np.arange(10, dtype=np.float32), np.arange(40) % 10
    good, bad = compiled(k, target), compiled(k, target)
    good.run({"x": x, "at": places, "y": np.zeros(40, np.float32)}, {"n": 40})
    assert good.error.value == 0
    for place in (0, 17, 39):
        wrong = places.copy()
        wrong[place] = 2**50
        bad.error.value = 0
        bad.run({"x": x, "at": wrong, "y": np.zeros(40, np.float32)}, {"n": 40})
        assert bad.error.value == 7 << 32 | 3
    bad.error.value = 99
    bad.run({"x": x, "at": wrong, "y": np.zeros(40, np.float32)}, {"n": 40})
    assert bad.error.value == 99


@pytest.mark.parametrize("target", RUNNABLE)
def test_what_does_not_vary_leaves_the_loop_also_with_control_flow(target: str) -> None:
    """Remainders and integer powers are loops themselves; here they are invariants."""
    first, second = (ir.Load("x", ir.index(at), F32) for at in (0, 1))
    inner = ir.Binary("mod", name("s", F32), second)
    outer = ir.Binary("mod", ir.Binary("mul", first, ir.Const(1000.0, F32)), second)
    power = ir.Cast(ir.Binary("pow", N, name("r")), F32)
    value = ir.Binary("add", ir.Binary("add", inner, outer), power)
    total = ir.Binary("add", value, ir.Load("x", I, F32))
    body = [
        ir.Accumulator("s", ir.Const(0.0, F32)),
        vector_for("i", N, ir.Accumulate("s", "max", ir.Load("x", I, F32))),
        serial_for("r", ir.index(3), vector_for("i", N, ir.Store("y", name("r") * N + I, total))),
        ir.If(
            N > 5,
            (vector_for("i", N, ir.Store("y", I, ir.Binary("add", inner, outer))),),
            (vector_for("i", N, ir.Store("y", I, inner)),),
        ),
    ]
    k = kernel([("x", F32, "in"), ("y", F32, "out")], ["n"], body)
    code = compiled(k, target)
    for n in (2, 5, 40, 100):
        x = np.random.default_rng(n).uniform(0.5, 9, n).astype(np.float32)
        got, want = np.zeros(3 * n, np.float32), np.zeros(3 * n, np.float32)
        code.run({"x": x, "y": got}, {"n": n})
        interpreter.run(k, {"x": x, "y": want}, {"n": n})
        assert same(got, want), n


def test_a_kernel_may_ask_which_worker_runs_it() -> None:
    store = ir.Store("y", ir.WORKER, ir.Const(9, I32))
    k = kernel([("y", I32, "out")], [], [store])
    y = np.zeros(1, np.int32)
    compiled(k).run({"y": y}, {})
    assert y[0] == 9
