"""Bytes made of floats: what needs no bounds, no rounding of its own, no question about NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.pipeline import compile_graph
from tests.passes.byte_graphs import (
    BYTES,
    given_tensor,
    known,
    ops_of,
)
from tests.passes.lists import PASSES


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_cast_needs_no_bounds_before_it(kind: Any, is_exact: bool) -> None:
    info = np.iinfo(kind)
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 126.7, 127.5, 128, 254.9, 256, -127.9])
    x = np.concatenate([x, -x, [1e30, -1e30, -128.5, -129.5]]).astype(np.float32)
    low, high = float(info.min), float(info.max)
    if not is_exact:
        low, high = low + 1, high - 1
    graph = Graph.of([given_tensor(x).clip(low, high).astype(kind).node])
    made, _ = run(graph, PASSES)
    assert ("maximum" in ops_of(made)) == ("minimum" in ops_of(made)) == (not is_exact)
    expected = np.nan_to_num(np.trunc(np.clip(x, low, high)), nan=0.0).astype(kind)
    [interpreted] = reference.evaluate(made, [x])
    np.testing.assert_array_equal(interpreted, expected)
    with compile_graph(graph) as program:
        np.testing.assert_array_equal(program(x)[0], expected)


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("zero", [0, 3, -128, 131, 65536, 65537, 2.5])
def test_rounded_floats_become_bytes(kind: Any, zero: float) -> None:
    info = np.iinfo(kind)
    near = np.arange(-300, 300) / np.float32(2.0) - np.float32(int(zero))
    ends = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 2.0**22 + 0.5, 2.0**23 + 1, 2.0**31, 1e-30]
    x = np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), ends])
    x = x.astype(np.float32)
    graph = Graph.of([(given_tensor(x).round() + float(zero)).astype(kind).node])
    made, _ = run(graph, PASSES)
    assert ("round" in ops_of(made)) == (zero in (65537, 2.5))
    sums = np.rint(x) + np.float32(zero)
    expected = np.trunc(np.clip(np.nan_to_num(sums, nan=0.0), info.min, info.max)).astype(kind)
    [interpreted] = reference.evaluate(made, [x])
    np.testing.assert_array_equal(interpreted, expected)
    with compile_graph(graph) as program:
        np.testing.assert_array_equal(program(x)[0], expected)


@pytest.mark.parametrize(
    ("scale", "is_finite"),
    [(0.01, True), (-1e28, True), (1e31, False), (np.inf, False), (np.nan, False)],
)
def test_scaled_integers_are_not_asked_whether_they_are_nan(scale: float, is_finite: bool) -> None:
    x = np.array([0, 1, -1, 12750, -12750, 2**31 - 1, -(2**31)], np.int32)
    scales = np.full(x.shape, scale, np.float32)
    numbers = given_tensor(x).astype(np.float32) * known(scales)
    both = numbers + given_tensor(x).astype(np.float32) * 0.5
    graph = Graph.of([numbers.round().astype(np.int8).node, both.round().astype(np.int8).node])
    made, _ = run(graph, PASSES)
    assert ("isnan" in ops_of(made)) == (not is_finite)
    with np.errstate(all="ignore"):
        real = x.astype(np.float32) * scales
        sums = [real, real + x.astype(np.float32) * np.float32(0.5)]
    for result, exact in zip(reference.evaluate(made, [x]), sums, strict=True):
        expected = np.clip(np.rint(np.nan_to_num(exact, nan=0.0)), -128, 127).astype(np.int8)
        np.testing.assert_array_equal(result, expected)
