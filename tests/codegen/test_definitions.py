"""Functions of scalars, run by the interpreter: right before any back end has touched them.

Judged by NumPy in wider floats, as `test_maths` judges the compiled ones, and by the interpreter's
own rules for what is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import EXPANSIONS, INTEGER_EXPANSIONS, definitions
from arenite.codegen.maths.definition import function_of
from arenite.codegen.printer import expression_text, kernel_text
from arenite.dtype import BY_NAME, DType, Kind
from tests.codegen import interpreter
from tests.codegen.building import kernel, same
from tests.codegen.test_casts import DTYPES, all_or_many, wanted
from tests.codegen.test_expressions import random_values
from tests.codegen.test_maths import BOUNDS, LEAST, errors, reference, units

F32, F64 = BY_NAME["float32"], BY_NAME["float64"]
FLOATS = pytest.mark.parametrize("dtype", [F32, F64], ids=str)
FUSED = pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
EXACT = "fmod mod floordiv copysign round floor ceil trunc sign isinf max min reciprocal rsqrt"


def call(function: ir.Function | None, fused: bool, *columns: Any) -> Any:
    assert function is not None
    rows = zip(*columns, strict=True)
    return np.array([interpreter.call(function, *row, fused=fused) for row in rows])


def samples(dtype: DType, n: int) -> Any:
    rng = np.random.default_rng(2)
    kind: Any = dtype.to_numpy()
    spread = [rng.uniform(-high, high, n).astype(kind) for high in (1, 10, 700)]
    great = np.exp(rng.uniform(8, 85, n)).astype(kind)
    return np.concatenate([random_values(rng, dtype, 2 * n), *spread, great, -great[: n // 2]])


@FLOATS
@FUSED
@pytest.mark.parametrize("op", [op for op in EXPANSIONS if op in BOUNDS])
def test_a_formula_keeps_its_bound(op: str, dtype: DType, fused: bool) -> None:
    function = definitions(has_fma=fused).op(op, dtype)
    assert function is not None
    x = [samples(dtype, 15)]
    if len(function.parameters) == 2:
        x.append(np.roll(x[0], 7))
    with np.errstate(all="ignore"):
        exact = reference(op, *x)
        unit = units(exact, dtype.to_numpy().type, LEAST.get(op, 0))
        found = errors(call(function, fused, *x), exact, unit)
    assert found.max() <= BOUNDS[op][0 if dtype == F32 else 1], x[0][np.argmax(found)]


@FLOATS
@FUSED
@pytest.mark.parametrize("op", EXACT.split())
def test_what_is_exact_is_exact(op: str, dtype: DType, fused: bool) -> None:
    function = definitions(has_fma=fused).op(op, dtype)
    assert function is not None
    x, y = samples(dtype, 15), np.roll(samples(dtype, 15), 5)
    got = call(function, fused, *[x, y][: len(function.parameters)])
    with np.errstate(all="ignore"):
        if len(function.parameters) == 1:
            want = np.array([interpreter.unary(op, value, dtype) for value in x])
        else:
            want = np.array(
                [interpreter.binary(op, *pair, dtype) for pair in zip(x, y, strict=True)]
            )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [BY_NAME[f"{s}int{n}"] for s in ("", "u") for n in (8, 32, 64)])
@pytest.mark.parametrize("op", INTEGER_EXPANSIONS)
def test_integers(op: str, dtype: DType) -> None:
    if op == "mulhi" and (dtype.kind is Kind.SIGNED or dtype.bits < 32):
        pytest.skip("mulhi is for uint32 and uint64")
    rng = np.random.default_rng(3)
    x, y = random_values(rng, dtype, 60), random_values(rng, dtype, 60)
    known = definitions(has_fma=True)
    if op in ir.UNARY_OPS:
        want = [interpreter.unary(op, value, dtype) for value in x]
        assert (call(known.op(op, dtype), True, x) == want).all()
        return
    if op == "pow":
        y = y % 100
    want = [interpreter.binary(op, a, b, dtype) for a, b in zip(x, y, strict=True)]
    assert (call(known.op(op, dtype), True, x, y) == want).all()
    for divisor in (1, 3, 8) if op in ("floordiv", "mod", "fmod") else ():
        by = np.full_like(x, divisor)
        want = [interpreter.binary(op, a, by[0], dtype) for a in x]
        assert (call(known.op(op, dtype, divisor), True, x, by) == want).all()


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts(source: DType) -> None:
    """Casts within them are the interpreter's, so each pair is judged by itself."""
    x = all_or_many(source)
    picked = slice(None, None, max(1, len(x) // 150))
    for target in DTYPES:
        if target != source:
            function = definitions(has_fma=True).cast(source, target)
            with np.errstate(all="ignore"):
                want = wanted(source, target)[picked]
            assert same(call(function, True, x[picked]), want), target


def _all(function: ir.Function) -> list[ir.Expr]:
    def inside(block: ir.Block) -> list[ir.Expr]:
        own = [expr for stmt in block for expr in ir.walk(*ir.expressions(stmt))]
        return own + [e for stmt in block for part in ir.blocks(stmt) for e in inside(part)]

    return [*inside(function.body), *ir.walk(function.result)]


@FUSED
def test_functions_of_32_bits_need_no_more(fused: bool) -> None:
    known = definitions(has_fma=fused, has_float64=False)
    for op in EXPANSIONS:
        function = known.op(op, F32)
        assert function is not None
        assert all(e.dtype == ir.BOOL or e.dtype.bits == 32 for e in _all(function)), op


@FUSED
def test_pow_without_float64(fused: bool) -> None:
    rng = np.random.default_rng(5)
    base = np.concatenate([rng.uniform(0, 10, 150), rng.uniform(0.9, 1.1, 150), samples(F32, 20)])
    exponent = np.concatenate([rng.uniform(-38, 38, 150), rng.uniform(-900, 900, 150)])
    x = base.astype(np.float32)
    y = np.resize(exponent, len(x)).astype(np.float32)
    function = definitions(has_fma=fused, has_float64=False).op("pow", F32)
    with np.errstate(all="ignore"):
        exact = reference("pow", x, y)
        found = errors(call(function, fused, x, y), exact, units(exact, np.float32))
    assert found.max() <= 1.5, (x[np.argmax(found)], y[np.argmax(found)])


def test_what_is_used_twice_is_computed_once_and_what_is_rare_stands_apart() -> None:
    x, s = ir.Name("x", F32), ir.Name("s", F32)
    square = x * x
    far = ir.Rare(square > 9.0, (square + 1.0) * (square + 1.0), square)
    turns = ir.Iterate((s,), (far,), s > square + 2.0, (s / (square + 2.0),), s)
    function = function_of("f", (x,), turns * x)
    assert expression_text(function.result) == "t1 * x"
    assert kernel_text(kernel([], [], function.body)).splitlines()[2:] == [
        "    const float32 t2 = x * x;",
        "    float32 t3 = t2;",
        "    if (t2 > 9.0f) {",
        "        t3 = (t2 + 1.0f) * (t2 + 1.0f);",
        "    }",
        "    float32 t1 = t3;",
        "    while (t1 > t2 + 2.0f) {",
        "        t1 = t1 / (t2 + 2.0f);",
        "    }",
        "}",
    ]


def test_every_op_has_a_function_or_is_what_devices_have() -> None:
    primitive = ir.COMPARISONS | {"add", "sub", "mul", "div", "neg"}
    floats = ir.FLOAT_UNARY_OPS | ir.FLOAT_BINARY_OPS | ir.ARITHMETIC_OPS | {"abs", "sign"}
    assert floats - {*EXPANSIONS} - primitive == {"abs", "sqrt", "isnan"}
    integers = (ir.BINARY_OPS - ir.FLOAT_BINARY_OPS) | {"abs", "sign"}
    assert integers - {*INTEGER_EXPANSIONS} - primitive == ir.BITWISE_OPS | ir.SHIFTS
