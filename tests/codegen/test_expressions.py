"""Random expressions of exactly rounded operations against the interpreter, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType, Kind
from tests.codegen import interpreter, targets
from tests.codegen.building import Guarded, elementwise, name, same
from tests.codegen.run_kernels import RUNNABLE, compiled

COMPUTED = [
    BY_NAME[text]
    for text in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
]
STORED = [
    *COMPUTED,
    *(BY_NAME[text] for text in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")),
]
LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 127, 128, 129, 255, 300]))

_UNARY = {
    Kind.FLOAT: "neg abs sign sqrt reciprocal floor ceil round trunc".split(),
    Kind.SIGNED: "neg abs sign not".split(),
    Kind.UNSIGNED: "neg abs sign not".split(),
    Kind.BOOL: ["not"],
}
_INTEGER = "add sub mul div floordiv mod fmod pow max min and or xor shift_left shift_right".split()
_BINARY = {
    Kind.FLOAT: "add sub mul div floordiv mod fmod max min".split(),
    Kind.SIGNED: _INTEGER,
    Kind.UNSIGNED: _INTEGER,
    Kind.BOOL: "and or xor max min".split(),
}


def random_values(rng: np.random.Generator, dtype: DType, n: int) -> Any:
    """All bit patterns, and more of those at the edges."""
    if dtype.kind is Kind.BOOL:
        return rng.integers(0, 2, n).astype(bool)
    bits = rng.integers(0, 256, n * dtype.bits // 8, np.uint8).view(dtype.to_numpy())
    if dtype.kind is Kind.FLOAT:
        edges = np.array([0.0, -0.0, 1.0, -1.5, 2.5, -0.5, np.inf, -np.inf, np.nan, 3e5, -7.0])
        with np.errstate(all="ignore"):
            edges = edges.astype(np.float32).astype(dtype.to_numpy())
    else:
        limits = np.iinfo(dtype.to_numpy())
        edges = np.array([0, 1, 2, 3, limits.max, limits.min, limits.max - 1], dtype.to_numpy())
        if dtype.kind is Kind.SIGNED:
            edges = np.append(edges, np.array([-1, -2, -3], dtype.to_numpy()))
    picked = edges[rng.integers(0, len(edges), n)]
    return np.where(rng.random(n) < 0.5, picked, bits)


@st.composite
def expressions(draw: Any, leaves: list[ir.Expr], dtype: DType, depth: int) -> ir.Expr:
    """An expression of the dtype over the leaves; missing leaves are cast or are constants."""
    fitting = [leaf for leaf in leaves if leaf.dtype == dtype]
    kinds = ["leaf"] if depth == 0 else ["leaf", "unary", "binary", "binary", "select", "cast"]
    kind = draw(st.sampled_from(kinds))

    def inside(wanted: DType) -> ir.Expr:
        chosen: ir.Expr = draw(expressions(leaves, wanted, depth - 1))
        return chosen

    if kind == "unary":
        return ir.Unary(draw(st.sampled_from(_UNARY[dtype.kind])), inside(dtype))
    if kind == "binary" and dtype.kind is Kind.BOOL and draw(st.booleans()):
        other = draw(st.sampled_from(COMPUTED))
        op = draw(st.sampled_from(sorted(ir.COMPARISONS)))
        return ir.Binary(op, inside(other), inside(other))
    if kind == "binary":
        return ir.Binary(draw(st.sampled_from(_BINARY[dtype.kind])), inside(dtype), inside(dtype))
    if kind == "select":
        return ir.Select(inside(BY_NAME["bool"]), inside(dtype), inside(dtype))
    if kind == "cast":
        return ir.Cast(inside(draw(st.sampled_from(COMPUTED))), dtype)
    if fitting:
        return draw(st.sampled_from(fitting))  # type: ignore[no-any-return]
    return ir.Cast(draw(st.sampled_from(leaves)), dtype)


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_expression_gives_what_numpy_gives(target: str, data: st.DataObject) -> None:
    inputs = data.draw(st.lists(st.sampled_from(STORED), min_size=1, max_size=3))
    output = data.draw(st.sampled_from(COMPUTED))
    loads: list[ir.Expr] = [ir.Load("abc"[at], name("i"), dtype) for at, dtype in enumerate(inputs)]
    expr = data.draw(expressions(loads, output, 4))
    kernel = elementwise(inputs, output, lambda *_: expr, data.draw(st.integers(0, 3)))
    n = data.draw(LENGTHS)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    arrays = {"abc"[at]: random_values(rng, dtype, n) for at, dtype in enumerate(inputs)}
    arrays["y"] = np.zeros(n, output.to_numpy())
    offset = data.draw(st.integers(0, 9))
    guarded = {key: Guarded(value, offset) for key, value in arrays.items()}

    compiled(kernel, target).run({key: value.array for key, value in guarded.items()}, {"n": n})
    interpreter.run(kernel, arrays, {"n": n})

    for value in guarded.values():
        value.check()
    assert same(guarded["y"].array.copy(), arrays["y"])


def _edges(dtype: DType) -> Any:
    rng = np.random.default_rng(7)
    return np.concatenate([random_values(rng, dtype, 150), random_values(rng, dtype, 33)])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_every_exact_op_of_every_dtype(target: str, dtype: DType) -> None:
    """One kernel with a store for each op, in vectors and in single elements."""
    a, b = (ir.Load(x, name("i"), dtype) for x in "ab")
    values: list[ir.Expr] = [ir.Unary(op, a) for op in _UNARY[dtype.kind]]
    values += [ir.Binary(op, a, b) for op in _BINARY[dtype.kind]]
    values += [ir.Binary(op, a, b) for op in sorted(ir.COMPARISONS)]
    if dtype.kind is Kind.FLOAT:
        values += [ir.Unary(op, a) for op in ("isnan", "isinf", "rsqrt")]
        values += [ir.Binary("copysign", a, b)]
    if dtype.kind is Kind.UNSIGNED and dtype.bits >= 32:
        values += [ir.Binary("mulhi", a, b)]
    if dtype.kind is not Kind.BOOL:
        values += [ir.Table((1, 2, 0), ir.Cast(a < b, ir.INT64) + ir.Cast(a < a, ir.INT64), dtype)]
        values += [ir.Rare(a < b, a, b)]
    stores = [ir.Store(f"y{at}", name("i"), value) for at, value in enumerate(values)]
    outputs = [ir.ArrayArg(f"y{at}", value.dtype, "out") for at, value in enumerate(values)]
    inputs = [ir.ArrayArg(x, dtype, "in") for x in "ab"]
    loop = ir.For("i", ir.index(0), name("n"), tuple(stores), True)
    kernel = ir.LoopKernel("ops", (*inputs, *outputs), ("n",), ir.index(1), "tile", (loop,))
    x = _edges(dtype)
    grid_a, grid_b = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(x[:37], x[37:74]))
    arrays = {"a": grid_a, "b": grid_b}
    arrays |= {f"y{at}": np.zeros(len(grid_a), v.dtype.to_numpy()) for at, v in enumerate(values)}
    judged = {key: value.copy() for key, value in arrays.items()}

    compiled(kernel, target).run(arrays, {"n": len(grid_a)})
    interpreter.run(kernel, judged, {"n": len(grid_a)})

    for at, value in enumerate(values):
        assert same(arrays[f"y{at}"], judged[f"y{at}"]), value


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", [BY_NAME["float32"], BY_NAME["float64"]], ids=str)
def test_fma_rounds_once_where_the_target_has_it_and_twice_elsewhere(
    target: str, dtype: DType
) -> None:
    kernel = elementwise([dtype] * 3, dtype, lambda *x: ir.Fma(*x))
    x = np.random.default_rng(5).uniform(-2, 2, (3, 1000)).astype(dtype.to_numpy())
    x[2] = -x[0] * x[1]  # all that is left is what a product rounds away
    y = np.zeros(1000, dtype.to_numpy())
    compiled(kernel, target).run(dict(zip("abcy", (*x, y), strict=True)), {"n": 1000})
    once = np.array([interpreter.fma(*parts) for parts in x.T])
    assert (y == (once if targets.named(target).has_fma else 0)).all()
    assert (once != 0).any()


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", [BY_NAME["float32"], BY_NAME["float64"]], ids=str)
def test_scaling_by_powers_of_two_and_the_error_of_a_product_are_exact(
    target: str, dtype: DType
) -> None:
    a, b = (ir.Load(x, name("i"), dtype) for x in "ab")
    rng = np.random.default_rng(6)
    reach = 190 if dtype.bits == 32 else 1100
    x = rng.uniform(-4, 4, 3000).astype(dtype.to_numpy())
    whole = rng.integers(-reach, reach, 3000).astype(dtype.to_numpy())
    for op, y in (("ldexp", whole), ("product_error", rng.permutation(x))):
        kernel = elementwise([dtype] * 2, dtype, lambda *_, op=op: ir.Binary(op, a, b))
        arrays = {"a": x, "b": y, "y": np.zeros_like(x)}
        judged = {key: value.copy() for key, value in arrays.items()}
        compiled(kernel, target).run(arrays, {"n": len(x)})
        interpreter.run(kernel, judged, {"n": len(x)})
        assert same(arrays["y"], judged["y"]), op
