"""How vectors reach memory: every stride, masks, gathers, tails; and nothing beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType
from tests.codegen import interpreter
from tests.codegen.building import F32, F64, I32, I64, Guarded, kernel, name, same, vector_for
from tests.codegen.run_kernels import RUNNABLE, compiled

DTYPES = [BY_NAME[text] for text in ("uint8", "int16", "float32", "float64", "bool", "bfloat16")]
LENGTHS = [0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 300]
N = name("n")
I = name("i")  # noqa: E741


def numbers(rng: np.random.Generator, dtype: DType, n: int) -> Any:
    return rng.integers(0, 100, n).astype(np.float32).astype(dtype.to_numpy())


def agree(k: ir.LoopKernel, arrays: dict[str, Any], sizes: dict[str, int], target: str) -> None:
    """The compiled kernel leaves the same bytes as the interpreter, and none around."""
    guarded = {key: Guarded(value, 3) for key, value in arrays.items()}
    compiled(k, target).run({key: value.array for key, value in guarded.items()}, sizes)
    interpreter.run(k, arrays, sizes)
    for key, value in guarded.items():
        value.check()
        assert same(value.array.copy(), arrays[key]), (key, sizes)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stride", [-3, -1, 0, 1, 2, 3, 4, 5])
def test_strided_loads_read_what_they_should(target: str, dtype: DType, stride: int) -> None:
    first = -stride * (N - 1) if stride < 0 else ir.index(0)
    load = ir.Load("x", I * stride + first, dtype)
    k = kernel(
        [("x", dtype, "in"), ("y", dtype, "out")],
        ["n"],
        [vector_for("i", N, ir.Store("y", I, load))],
    )
    code = compiled(k, target)
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        size = abs(stride) * max(n - 1, 0) + 1
        x, y = Guarded(numbers(rng, dtype, size), 1), Guarded(np.zeros(n, dtype.to_numpy()), 1)
        code.run({"x": x.array, "y": y.array}, {"n": n})
        want = {"x": x.array.copy(), "y": np.zeros(n, dtype.to_numpy())}
        interpreter.run(k, want, {"n": n})
        y.check()
        assert same(y.array.copy(), want["y"]), n


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("times", [2, 3, 4, 8])
def test_an_element_that_comes_several_times(target: str, dtype: DType, times: int) -> None:
    """All of its places, or under a mask the last of them alone; from 0 on and from elsewhere."""
    is_last = ir.Binary("eq", I % times, ir.index(times - 1))
    rng = np.random.default_rng(0)
    for mask in (None, is_last):
        load = ir.Load("x", I // times, dtype, mask)
        stores = vector_for("i", N, ir.Store("y", I, load))
        later = ir.For("i", ir.index(5), N, (ir.Store("y", I, load),), vector=True)
        for body in (stores, later):
            k = kernel([("x", dtype, "in"), ("y", dtype, "inout")], ["n"], [body])
            for n in (5, 8, 16, 24, 33, 70, 130):
                x, y = numbers(rng, dtype, -(-n // times)), numbers(rng, dtype, n)
                agree(k, {"x": x, "y": y}, {"n": n}, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", [BY_NAME["uint8"], F32, F64], ids=str)
def test_loops_of_known_lengths(target: str, dtype: DType) -> None:
    """What is left behind whole vectors is known, too."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 15, 16, 17, 18, 31, 33, 48, 66, 130):
        store = ir.Store("y", I, ir.Load("x", I, dtype))
        summed = ir.Accumulate("total", "add", ir.Cast(ir.Load("x", I, dtype), I64))
        body = [
            vector_for("i", ir.index(n), store),
            ir.Accumulator("total", ir.index(0)),
            vector_for("i", ir.index(n), summed),
            ir.Store("z", ir.index(0), name("total")),
        ]
        k = kernel([("x", dtype, "in"), ("y", dtype, "out"), ("z", I64, "out")], [], body)
        arrays = {"x": numbers(rng, dtype, n), "y": numbers(rng, dtype, n), "z": np.zeros(1, "i8")}
        agree(k, arrays, {}, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stride", [-2, -1, 1, 2, 3])
def test_strided_stores_write_only_their_elements(target: str, dtype: DType, stride: int) -> None:
    first = -stride * (N - 1) if stride < 0 else ir.index(0)
    store = ir.Store("y", I * stride + first, ir.Load("x", I, dtype))
    k = kernel([("x", dtype, "in"), ("y", dtype, "inout")], ["n"], [vector_for("i", N, store)])
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 16, 33, 70):
        size = abs(stride) * max(n - 1, 0) + 1
        arrays = {"x": numbers(rng, dtype, n), "y": numbers(rng, dtype, size)}
        agree(k, arrays, {"n": n}, target)


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_run_time_stride_and_a_negative_one(target: str) -> None:
    load = ir.Load("x", name("first") + I * name("stride"), F32)
    k = kernel(
        [("x", F32, "in"), ("y", F32, "out")],
        ["n", "stride", "first"],
        [vector_for("i", N, ir.Store("y", I, load))],
    )
    x = np.arange(400, dtype=np.float32)
    for n, stride, first in ((40, 7, 3), (33, -5, 399), (50, 0, 8), (19, 1, 0)):
        arrays = {"x": x.copy(), "y": np.zeros(n, np.float32)}
        agree(k, arrays, {"n": n, "stride": stride, "first": first}, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gather_does_not_touch_what_is_masked_off(target: str, dtype: DType) -> None:
    at = ir.Load("at", I, I64)
    inside = ir.Binary("and", ir.Binary("ge", at, ir.index(0)), ir.Binary("lt", at, name("m")))
    one = ir.Const(True, dtype) if dtype.name == "bool" else ir.Cast(ir.Const(1, I32), dtype)
    load = ir.Load("x", at, dtype, inside, one)
    k = kernel(
        [("x", dtype, "in"), ("at", I64, "in"), ("y", dtype, "out")],
        ["n", "m"],
        [vector_for("i", N, ir.Store("y", I, load))],
    )
    rng = np.random.default_rng(1)
    for n in (1, 8, 17, 40, 100):
        places = rng.integers(0, 30, n)
        places[rng.random(n) < 0.4] = rng.choice([-(2**40), 2**45, -1, 2**62])
        arrays = {"x": numbers(rng, dtype, 30), "at": places, "y": np.zeros(n, dtype.to_numpy())}
        agree(k, arrays, {"n": n, "m": 30}, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_padded_copy_and_a_masked_store(target: str, dtype: DType) -> None:
    """y[i] = x[i - 3] inside, 0 in the padding; z only where i is even."""
    inside = ir.Binary("and", ir.Binary("ge", I, ir.index(3)), ir.Binary("lt", I, name("m") + 3))
    even = ir.Binary("eq", I % 2, ir.index(0))
    load = ir.Load("x", I - 3, dtype, inside)
    k = kernel(
        [("x", dtype, "in"), ("y", dtype, "out"), ("z", dtype, "inout")],
        ["n", "m"],
        [vector_for("i", N, ir.Store("y", I, load), ir.Store("z", I, load, even))],
    )
    rng = np.random.default_rng(1)
    for m in (0, 1, 9, 32, 77):
        n = m + 7
        arrays = {
            "x": numbers(rng, dtype, m),
            "y": np.zeros(n, dtype.to_numpy()),
            "z": numbers(rng, dtype, n),
        }
        agree(k, arrays, {"n": n, "m": m}, target)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    "dtype", [BY_NAME[x] for x in ("uint8", "float16", "float32", "float64")], ids=str
)
def test_a_tile_transposes(target: str, dtype: DType) -> None:
    """y = x.T + z elementwise over the bits, all shapes around the tile's side."""
    j, rows, columns = name("j"), name("rows"), name("columns")
    load = ir.Load("x", j * columns + I, dtype)
    store = ir.Store("y", I * rows + j, load)
    k = kernel(
        [("x", dtype, "in"), ("y", dtype, "out")],
        ["rows", "columns"],
        [vector_for("i", columns, vector_for("j", rows, store))],
    )
    code = compiled(k, target)
    rng = np.random.default_rng(2)
    for height, width in ((0, 5), (1, 1), (7, 9), (16, 16), (17, 33), (32, 15), (50, 65)):
        x = numbers(rng, dtype, height * width).reshape(height, width)
        y = Guarded(np.zeros(x.size, dtype.to_numpy()), 2)
        code.run({"x": x, "y": y.array}, {"rows": height, "columns": width})
        y.check()
        assert same(y.array.copy(), np.ascontiguousarray(x.T).ravel()), x.shape


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_tile_with_arithmetic_on_both_orientations(target: str) -> None:
    j, n = name("j"), name("n")
    straight, turned = ir.Load("x", I * n + j, F64), ir.Load("x", j * n + I, F64)
    value = ir.Binary("sub", ir.Binary("mul", straight, ir.Const(2.0, F64)), name("t", F64))
    body = vector_for("j", n, ir.Let("t", turned), ir.Store("y", I * n + j, value))
    k = kernel([("x", F64, "in"), ("y", F64, "out")], ["n"], [vector_for("i", n, body)])
    for n_ in (3, 8, 20):
        x = np.random.default_rng(0).standard_normal((n_, n_))
        y = np.zeros((n_, n_))
        compiled(k, target).run({"x": x, "y": y}, {"n": n_})
        assert same(y, 2 * x - x.T)


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_in_place_is_safe_element_by_element(target: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 150))
    load = ir.Load("x", I, F32)
    store = ir.Store("y", I, ir.Binary("add", load, ir.Const(1.0, F32)))
    k = kernel([("x", F32, "in"), ("y", F32, "out")], ["n"], [vector_for("i", N, store)])
    x = np.arange(n, dtype=np.float32)
    compiled(k, target).run({"x": x, "y": x}, {"n": n})
    assert same(x, np.arange(n, dtype=np.float32) + 1)
