"""Whole kernels in the loop IR: softmax, layer norm, gelu, embedding; and how tiles are split."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME
from tests.codegen.building import F32, I64, kernel, name, same, vector_for
from tests.codegen.run_kernels import RUNNABLE, Compiled, compiled

R, C, N = name("r"), name("c"), name("n")
AT = R * N + C
X = ir.Load("x", AT, F32)
WIDTHS = [1, 3, 16, 17, 64, 100, 257]


def f32(value: float) -> ir.Const:
    return ir.Const(value, F32)


def softmax() -> ir.LoopKernel:
    body = [
        ir.Accumulator("top", f32(float("-inf"))),
        vector_for("c", N, ir.Accumulate("top", "max", X)),
        ir.Accumulator("total", f32(0.0)),
        vector_for(
            "c",
            N,
            ir.Let("e", ir.Unary("exp", ir.Binary("sub", X, name("top", F32)))),
            ir.Accumulate("total", "add", name("e", F32)),
            ir.Store("y", AT, name("e", F32)),
        ),
        vector_for(
            "c",
            N,
            ir.Store("y", AT, ir.Binary("div", ir.Load("y", AT, F32), name("total", F32))),
        ),
    ]
    return kernel([("x", F32, "in"), ("y", F32, "out")], ["rows", "n"], body, name("rows"), "r")


def layer_norm() -> ir.LoopKernel:
    count = ir.Cast(N, F32)
    centred = ir.Binary("sub", X, name("mean", F32))
    variance = ir.Binary("div", name("squares", F32), count)
    scaled = ir.Binary("mul", centred, name("scale", F32))
    weight, bias = ir.Load("w", C, F32), ir.Load("b", C, F32)
    body = [
        ir.Accumulator("sum", f32(0.0)),
        vector_for("c", N, ir.Accumulate("sum", "add", X)),
        ir.Let("mean", ir.Binary("div", name("sum", F32), count)),
        ir.Accumulator("squares", f32(0.0)),
        vector_for("c", N, ir.Accumulate("squares", "add", ir.Binary("mul", centred, centred))),
        ir.Let("scale", ir.Unary("rsqrt", ir.Binary("add", variance, f32(1e-5)))),
        vector_for(
            "c",
            N,
            ir.Store("y", AT, ir.Binary("add", ir.Binary("mul", scaled, weight), bias)),
        ),
    ]
    arrays: Any = [("x", F32, "in"), ("w", F32, "in"), ("b", F32, "in"), ("y", F32, "out")]
    return kernel(arrays, ["rows", "n"], body, name("rows"), "r")


@pytest.mark.parametrize("target", RUNNABLE)
def test_softmax(target: str) -> None:
    code = compiled(softmax(), target)
    for n in WIDTHS:
        x = np.random.default_rng(n).standard_normal((5, n)).astype(np.float32) * 10
        y = np.zeros_like(x)
        code.run({"x": x, "y": y}, {"rows": 5, "n": n}, 5)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=3e-6, atol=1e-30)


@pytest.mark.parametrize("target", RUNNABLE)
def test_layer_norm_also_in_place(target: str) -> None:
    code = compiled(layer_norm(), target)
    for n in WIDTHS:
        rng = np.random.default_rng(n)
        x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, n), n, n))
        y = np.zeros_like(x)
        code.run({"x": x, "w": w, "b": b, "y": y}, {"rows": 4, "n": n}, 4)
        wide = x.astype(np.float64)
        moved = wide - wide.mean(1, keepdims=True)
        want = moved / np.sqrt((moved**2).mean(1, keepdims=True) + 1e-5) * w + b
        np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-5)
        code.run({"x": x, "w": w, "b": b, "y": x}, {"rows": 4, "n": n}, 4)
        assert same(x, y)


@pytest.mark.parametrize("target", RUNNABLE)
def test_gelu_on_bfloat16_storage(target: str) -> None:
    bf16 = BY_NAME["bfloat16"]
    i = name("i")
    x = ir.Cast(ir.Load("x", i, bf16), F32)
    inside = ir.Unary("erf", ir.Binary("mul", x, f32(math.sqrt(0.5))))
    value = ir.Binary("mul", ir.Binary("mul", x, f32(0.5)), ir.Binary("add", inside, f32(1.0)))
    store = ir.Store("y", i, ir.Cast(value, bf16))
    k = kernel([("x", bf16, "in"), ("y", bf16, "out")], ["n"], [vector_for("i", N, store)])
    data = np.linspace(-5, 5, 333).astype(np.float32).astype(bf16.to_numpy())
    y = np.zeros_like(data)
    compiled(k, target).run({"x": data, "y": y}, {"n": 333})
    exact = [v / 2 * (1 + math.erf(v * math.sqrt(0.5))) for v in data.astype(np.float64)]
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-8, atol=1e-7)


@pytest.mark.parametrize("target", RUNNABLE)
def test_rows_picked_by_an_index(target: str) -> None:
    row = ir.Load("ids", R, I64)
    body = [vector_for("c", N, ir.Store("y", AT, ir.Load("x", row * N + C, F32)))]
    arrays: Any = [("x", F32, "in"), ("ids", I64, "in"), ("y", F32, "out")]
    k = kernel(arrays, ["rows", "n"], body, name("rows"), "r")
    x = np.random.default_rng(0).standard_normal((50, 33)).astype(np.float32)
    ids = np.random.default_rng(1).integers(0, 50, 20)
    y = np.zeros((20, 33), np.float32)
    compiled(k, target).run({"x": x, "ids": ids, "y": y}, {"rows": 20, "n": 33}, 20)
    assert same(y, x[ids])


@pytest.fixture(scope="module", params=RUNNABLE)
def normalising(request: pytest.FixtureRequest) -> tuple[Compiled, Compiled]:
    return compiled(softmax(), request.param), compiled(layer_norm(), request.param)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.sets(st.integers(1, 22)), n=st.integers(1, 200), backwards=st.booleans())
def test_results_do_not_depend_on_how_tiles_are_split(
    normalising: tuple[Compiled, Compiled], cuts: set[int], n: int, backwards: bool
) -> None:
    rows = 23
    rng = np.random.default_rng(n)
    arrays = {
        "x": rng.standard_normal((rows, n)).astype(np.float32),
        "w": rng.standard_normal(n).astype(np.float32),
        "b": rng.standard_normal(n).astype(np.float32),
    }
    borders = [0, *sorted(cuts), rows]
    splits = list(pairwise(borders))
    for code in normalising:
        whole, pieces = np.zeros((2, rows, n), np.float32)
        sizes = {"rows": rows, "n": n}
        code.run({**arrays, "y": whole}, sizes, rows)
        code.run({**arrays, "y": pieces}, sizes, splits=splits[::-1] if backwards else splits)
        assert same(whole, pieces)
