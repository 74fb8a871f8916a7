"""Casts from and to types narrower than a byte, of all types and all patterns and edge values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir.graph import Graph
from tests.pipeline.narrow import (
    FLOATS,
    NARROW,
    as_float_code,
    as_integer,
    every,
    inputs_of,
    integers,
    name_of,
    numpy_of,
    run,
)

Array = NDArray[Any]

BOOL = BY_NAME["bool"]
#: All that is cast from and to.
WIDE = [dtype for dtype in BY_NAME.values() if dtype.has_numpy]


def edges(dtype: DType) -> Array:
    """Values of a type that casts to narrow ones may get wrong."""
    if dtype in NARROW:
        return every(dtype)
    if dtype == BOOL:
        return np.array([False, True, True])
    if dtype.kind is Kind.COMPLEX:
        parts = edges(BY_NAME["float32" if dtype.bits == 64 else "float64"])
        made = np.empty(parts.shape, numpy_of(dtype))
        made.real, made.imag = parts, parts[::-1]
        return made
    if dtype.kind is not Kind.FLOAT:
        limits = np.iinfo(numpy_of(dtype))
        near = [n for n in range(-40, 41) if limits.min <= n <= limits.max]
        return np.array([limits.min, limits.max, limits.max - 1, *near], numpy_of(dtype))
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 7.5, 8.0, 15.0, 0.5, 1.0, 3.0, 16.0, 1e3]
    ties += [0.03125, 0.09375, 0.1875, 0.3125, 7.25, 7.75, 26.0, 30.0]
    some = np.array([0.0, *ties, 1e-30, 200.0, 1e30, np.inf, np.nan])
    with np.errstate(over="ignore"):
        exact = np.concatenate([some, -some]).astype(numpy_of(dtype))
    if dtype.bits >= 32:
        up, down = (
            np.nextafter(exact, exact.dtype.type(9e9)),
            np.nextafter(exact, exact.dtype.type(0)),
        )
        exact = np.concatenate([exact, up, down])
    return exact


@pytest.mark.parametrize("target", NARROW, ids=name_of)
def test_every_type_is_cast_to_a_narrow_one(target: DType) -> None:
    sources = [dtype for dtype in (*WIDE, *NARROW) if dtype != target]
    arrays = [edges(dtype) for dtype in sources]
    nodes = inputs_of(arrays, sources)
    graph = Graph(tuple(nodes), tuple(ir.make("cast", x, dtype=target) for x in nodes))
    for array, source, made in zip(arrays, sources, run(graph, arrays), strict=True):
        assert made.dtype == numpy_of(target)
        array = array.real  # of a complex number the other part is dropped
        if source.kind in (Kind.FLOAT, Kind.COMPLEX):
            given: list[Any] = [float(value) for value in array.astype(np.float64)]
        else:
            given = [int(value) for value in array]
        if target in FLOATS:
            # Of NaN some types have one alone, which has no sign.
            is_nan = [value != value for value in given]
            judged = np.array([as_float_code(value, target) for value in given], np.uint8)
            without_sign = np.uint8((1 << target.bits - 1) - 1)
            judged[is_nan] &= without_sign
            codes = np.array(made.view(np.uint8))
            codes[is_nan] &= without_sign
            assert codes.tolist() == judged.tolist(), source
        elif source.kind in (Kind.FLOAT, Kind.COMPLEX):
            whole = [as_integer(value, target) for value in given]
            assert made.astype(np.int8).tolist() == whole, source
        else:
            assert made.tobytes() == integers(given, target).tobytes(), source


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_floats_are_rounded_as_ml_dtypes_does(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    for name in ("float32", "float64"):
        array = (4 * rng.standard_normal(3001)).astype(name)
        array[:4] = np.nan, -np.nan, np.inf, -np.inf
        x = ir.graph_input("x", 0, array.shape, BY_NAME[name])
        [made] = run(Graph((x,), (ir.make("cast", x, dtype=dtype),)), [array])
        assert made.tobytes() == array.astype(numpy_of(dtype)).tobytes()


@pytest.mark.parametrize("source", NARROW, ids=name_of)
def test_a_narrow_type_is_cast_to_every_other(source: DType) -> None:
    array = every(source)
    x = ir.graph_input("x", 0, array.shape, source)
    graph = Graph((x,), tuple(ir.make("cast", x, dtype=dtype) for dtype in WIDE))
    numbers = array.astype(np.float32)
    for dtype, made in zip(WIDE, run(graph, [array]), strict=True):
        if dtype.kind is Kind.UNSIGNED and source in FLOATS:
            judged = np.trunc(np.maximum(numbers, 0)).astype(numpy_of(dtype))
        elif dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            judged = numbers.astype(np.int64).astype(numpy_of(dtype))
        else:
            judged = numbers.astype(numpy_of(dtype))
        assert made.dtype == judged.dtype
        assert made.tobytes() == judged.tobytes(), dtype


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_bits_are_kept_from_one_narrow_type_to_another(bits: int) -> None:
    dtypes = [dtype for dtype in NARROW if dtype.bits == bits]
    arrays = [every(dtype) for dtype in dtypes]
    nodes = inputs_of(arrays, dtypes)
    made = [ir.make("bitcast", x, dtype=dtype) for x in nodes for dtype in dtypes]
    mask = np.uint8((1 << bits) - 1)
    for node, result in zip(made, run(Graph(tuple(nodes), tuple(made)), arrays), strict=True):
        assert result.dtype == numpy_of(node.dtype)
        assert (result.view(np.uint8) & mask).tolist() == list(range(1 << bits)), node
