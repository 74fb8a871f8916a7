"""Casts between all dtypes that have whole bytes, against NumPy and ml_dtypes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.check import is_storable
from arenite.dtype import BY_NAME, DType, Kind
from tests.codegen import interpreter
from tests.codegen.building import name, same
from tests.codegen.run_kernels import RUNNABLE, compiled

DTYPES = [dtype for dtype in BY_NAME.values() if is_storable(dtype)]
NARROW = [dtype for dtype in DTYPES if dtype.kind is Kind.FLOAT and dtype.bits < 32]


def all_or_many(dtype: DType) -> Any:
    """Every pattern of up to 16 bits; of the wider, edges and a sample of all magnitudes."""
    rng = np.random.default_rng(3)
    if dtype.kind is Kind.BOOL:
        return np.array([False, True] * 20)
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}").view(dtype.to_numpy())
    bits = rng.integers(0, 1 << 63, 4000, np.uint64) * np.uint64(2)
    numbers = bits.view(np.uint8)[: 4000 * dtype.bits // 8].view(dtype.to_numpy())
    if dtype.kind is Kind.FLOAT:
        near = rng.uniform(-300, 300, 3000) * 2.0 ** rng.integers(-30, 30, 3000)
        halves = np.arange(-600, 600) / 4 * 2.0 ** rng.integers(-20, 12, 1200)
        edges = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 448.0, 464.0, 480.0, 65504.0, 65520.0]
        )
        parts = [x.astype(dtype.to_numpy()) for x in (near, halves, edges)]
        numbers = np.concatenate([numbers, *parts])
    else:
        limits = np.iinfo(dtype.to_numpy())
        edges = np.array([0, 1, limits.max, limits.min, 1 << 24, (1 << 24) + 1], dtype.to_numpy())
        small = rng.integers(0, 70000, 500).astype(dtype.to_numpy())
        numbers = np.concatenate([numbers, edges, small])
    return numbers


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_a_cast_gives_what_numpy_and_ml_dtypes_give(target: str, source: DType) -> None:
    targets = [dtype for dtype in DTYPES if dtype != source]
    x = all_or_many(source)
    load = ir.Load("x", name("i"), source)
    stores = tuple(
        ir.Store(f"y{at}", name("i"), ir.Cast(load, dtype)) for at, dtype in enumerate(targets)
    )
    outputs = [ir.ArrayArg(f"y{at}", dtype, "out") for at, dtype in enumerate(targets)]
    loop = ir.For("i", ir.index(0), name("n"), stores, True)
    arrays = (ir.ArrayArg("x", source, "in"), *outputs)
    kernel = ir.LoopKernel("casts", arrays, ("n",), ir.index(1), "tile", (loop,))
    got = {f"y{at}": np.zeros(len(x), dtype.to_numpy()) for at, dtype in enumerate(targets)}

    compiled(kernel, target).run({"x": x, **got}, {"n": len(x)})

    with np.errstate(all="ignore"):
        for at, dtype in enumerate(targets):
            want = wanted(source, dtype)
            assert same(got[f"y{at}"], want), f"{source} to {dtype}"


@lru_cache(maxsize=len(DTYPES))
def wanted(source: DType, target: DType) -> Any:
    """Found once for all that run a cast."""
    x = all_or_many(source)
    numpy = target.to_numpy()
    to_integer = source.kind is Kind.FLOAT and target.kind in (Kind.SIGNED, Kind.UNSIGNED)
    if to_integer or target.kind is Kind.BOOL:
        return np.array([interpreter.cast(v, source, target) for v in x], numpy)
    if target in NARROW and (source.kind is not Kind.FLOAT or source in NARROW):
        return x.astype(np.float32).astype(numpy)
    if target in NARROW and source.bits == 64:
        return _rounded_once(x, target)
    return x.astype(numpy)


def _rounded_once(x: Any, target: DType) -> Any:
    """float64 to a small float through a float32 that was rounded to odd."""
    near = x.astype(np.float32)
    above = np.abs(near.astype(np.float64)) > np.abs(x)
    down = np.where(above, near.view(np.uint32) - 1, near.view(np.uint32)).astype(np.uint32)
    inexact = (near.astype(np.float64) != x) & ~np.isnan(x)
    odd = np.where(inexact, down | 1, down).astype(np.uint32).view(np.float32)
    return odd.astype(target.to_numpy())
