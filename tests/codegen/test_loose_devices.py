"""Functions on a device that keeps to less than IEEE 754, as GPUs may: division a few units in the
last place off, denormals 0. What is said to be exact is exact there too, and every loop ends. NumPy
is the judge."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.maths import definitions
from arenite.codegen.maths.casts import SMALL_FLOATS
from arenite.dtype import BY_NAME
from tests.codegen import interpreter

F32 = BY_NAME["float32"]
TINY = np.finfo(np.float32).tiny
MOST_ROUNDS = 1000


class Loose(interpreter._Machine):
    """`units` in the last place are missing from quotients."""

    def __init__(self, units: int) -> None:
        super().__init__({}, fused=False)
        self.units = units
        self.n_rounds = 0

    def statement(self, stmt: ir.Stmt, names: dict[str, Any]) -> None:
        if isinstance(stmt, ir.While):
            while self.value(stmt.cond, names):
                self.n_rounds += 1
                assert self.n_rounds < MOST_ROUNDS, "a loop that does not end"
                self.block(stmt.body, names)
            return
        super().statement(stmt, names)

    def value(self, expr: ir.Expr, names: dict[str, Any]) -> Any:
        if not (isinstance(expr, ir.Binary) and expr.a.dtype == F32):
            return super().value(expr, names)
        a, b = (flushed(self.value(part, names)) for part in (expr.a, expr.b))
        if expr.op == "div":
            return flushed(self.quotient(a, b))
        made = interpreter.binary(expr.op, a, b, F32)
        return flushed(made) if isinstance(made, np.float32) else made

    def quotient(self, a: Any, b: Any) -> Any:
        exact = a / b
        if not np.isfinite(exact) or abs(exact) < 2 * TINY:
            return exact
        return np.int32(exact.view(np.int32) - self.units).view(np.float32)

    def call(self, function: ir.Function | None, *arguments: Any) -> Any:
        assert function is not None
        names = {p.name: x for p, x in zip(function.parameters, arguments, strict=True)}
        with np.errstate(all="ignore"):
            for stmt in function.body:
                self.statement(stmt, names)
            return self.value(function.result, names)


def flushed(x: Any) -> Any:
    return np.copysign(np.float32(0), x) if abs(x) < TINY else x


def pairs() -> list[tuple[Any, Any]]:
    """Equal ones, whole multiples, and magnitudes far apart."""
    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(-20, 20, 150)).astype(np.float32)
    b = np.exp(rng.uniform(-20, 20, 150)).astype(np.float32)
    a[:40] = b[:40]
    a[40:60] = b[40:60] * np.float32(3)
    a[60:80] = b[60:80] * np.float32(2**30)
    a[::3] *= -1
    a[::7] = [np.inf, np.nan, 0, -0.0, 3e4, 1, 5] * 3 + [2.0]
    b[::11] = [np.inf, np.nan, 1e-3, -2.5, 0, 1, 7] * 2
    return [*zip(a, b, strict=True)]


@pytest.mark.parametrize("units", [-2, 0, 1, 2])
@pytest.mark.parametrize("op", ["fmod", "floordiv"])
def test_remainders_are_exact_and_end_whatever_division_rounds_to(op: str, units: int) -> None:
    function = definitions(has_fma=False, is_ieee=False).op(op, F32)
    for a, b in pairs():
        found = Loose(units).call(function, a, b)
        with np.errstate(all="ignore"):
            wanted = np.fmod(a, b) if op == "fmod" else np.floor_divide(a, b)
        np.testing.assert_array_equal(found, wanted, err_msg=f"{op} of {a} and {b}")


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_denormals_of_small_floats_are_read_where_those_of_float32_are_zero(name: str) -> None:
    dtype = BY_NAME[name]
    function = definitions(has_fma=False, is_ieee=False).cast(dtype, F32)
    step = 37 if dtype.bits == 16 else 1
    codes = np.arange(0, 2**dtype.bits, step, dtype=f"uint{dtype.bits}").view(dtype.to_numpy())
    for code in codes:
        wanted = np.float32(code)
        found = Loose(0).call(function, code)
        np.testing.assert_array_equal(found, wanted, err_msg=repr(code))
        assert np.signbit(found) == np.signbit(wanted) or np.isnan(wanted)
    smallest = float(ml_dtypes.finfo(dtype.to_numpy()).smallest_subnormal)  # type: ignore[no-untyped-call]
    assert Loose(0).call(function, np.array(smallest, dtype.to_numpy())[()]) == smallest
