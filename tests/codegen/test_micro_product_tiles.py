"""Tiles of products: in any order, together or apart, wherever operands lie, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arenite.backends.cpu.gemm.gemv import PAGE_NBYTES, page_columns
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.vector import I64, Builder
from arenite.codegen import loop_ir as ir
from arenite.ir.dim import evaluate
from tests.codegen import targets
from tests.codegen.made import TARGETS, Array, plain
from tests.codegen.products import Made, Shape, check
from tests.codegen.run_kernels import Compiled


@pytest.mark.parametrize(
    "shape", [Shape(200, 300, 200), Shape(1, 3000, 600), Shape(90, 400, 800, tb=True)]
)
def test_tiles_may_run_in_any_order(shape: Shape) -> None:
    """So results do not depend on the number of threads."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 1
    [forwards] = made.run([a, b])
    [backwards] = made.run_backwards([a, b])
    np.testing.assert_array_equal(forwards.view(np.uint32), backwards.view(np.uint32))


@pytest.mark.parametrize(
    "shape", [Shape(1, 3000, 600), Shape(5, 2100, 300), Shape(1, 5000, 128, tb=True)], ids=str
)
def test_tiles_may_run_together(shape: Shape) -> None:
    """However many of them a launch is given at once, no bit changes."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 1
    [one_by_one] = made.run([a, b])
    for splits in ([(0, n_tiles)], [(1, n_tiles), (0, 1)], [(0, 0), (0, n_tiles)]):
        [together] = made.run([a, b], splits=splits)
        np.testing.assert_array_equal(together.view(np.uint32), one_by_one.view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 70, 530, tb=True),
        Shape(1, 5, 300, tb=True),
        Shape(3, 37, 290, tb=True),
        Shape(1, 1030, 43),
        Shape(4, 2050, 9),
    ],
    ids=str,
)
def test_more_than_the_caches_hold(shape: Shape, name: str, dtype: Any) -> None:
    check(shape, dtype, replace(targets.named(name), l3_nbytes=1 << 10))


@pytest.mark.parametrize(
    "shape",
    [Shape(20, 70, 30), Shape(2, 1100, 40), Shape(20, 40, 200, tb=True), Shape(30, 33, 17, (3,))],
)
def test_a_tile_writes_what_its_loops_say(shape: Shape) -> None:
    """The kernel's own loops, compiled as loops, write the same elements in each tile."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    untiled = Made(shape.product, [a.shape, b.shape])
    untiled.compiled = Compiled(plain(made.loops), targets.host())
    for tile in range(evaluate(made.built.tiles, {})):
        [got] = made.run([a, b], tiles=[tile])
        [want] = untiled.run([a, b], tiles=[tile])
        np.testing.assert_array_equal(got != 0, want != 0)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_expressions_made_while_emitting_stay_apart() -> None:
    """Each is gone when the next is made, and must not be taken for it."""
    loops = Made(lambda x, y: x @ y, [(3, 4), (4, 5)]).loops
    lowering = Lowering(Builder(targets.host()), loops)
    lowering.bind("tile", lowering.builder.emit("add i64 0, 0", I64))
    made = [lowering.value(ir.Name("tile") + k, SCALAR).text for k in range(1, 100)]
    assert len({*made}) == len(made)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 40, 300, tb=True),
        Shape(1, 40, 100, tb=True),
        Shape(4, 40, 300, tb=True),
        Shape(1, 1040, 50),
        Shape(20, 60, 50),
    ],
    ids=str,
)
def test_results_do_not_depend_on_where_operands_lie(shape: Shape, target: str) -> None:
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape], target=target)
    [want] = made.run([a, b])
    for offset in (0, 4, 16, 20, 32, 44, 60):
        [got] = made.run([_at(a, offset), _at(b, 60 - offset)])
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        (Shape(1, 3072, 9), np.float32),
        (Shape(1, 5120, 40), np.float32),  # two tiles
        (Shape(1, 2048, 7, (2,)), np.float32),
        (Shape(1, 3072, 6), np.float64),
        (Shape(1, 4096, 6), np.float16),
    ],
    ids=str,
)
def test_columns_end_with_pages_wherever_these_begin(shape: Shape, dtype: Any, target: str) -> None:
    """Of integers, so that every sum is exact."""
    a, b = (np.rint(x * 2) for x in shape.operands(dtype))
    made = Made(shape.product, [a.shape, b.shape], dtype, target)
    assert page_columns(made.loops.product, targets.named(target)) > 0
    want = a.astype(np.int64) @ b.astype(np.int64)
    n_tiles = evaluate(made.built.tiles, {})
    for offset in (0, 8, 16, 56, 520, 2048, 3064, 3072, 3080, 4088):
        for splits in ([(k, k + 1) for k in range(n_tiles)], [(0, n_tiles)]):
            [got] = made.run([a, _at(b, offset, PAGE_NBYTES)], splits=splits)
            np.testing.assert_array_equal(got, want)


def test_what_is_streamed_by_pages() -> None:
    host = targets.host()

    def columns(shape: Shape, dtype: Any = np.float32, target: targets.Target = host) -> int:
        a, b = shape.operands(dtype)
        made = Made(shape.product, [a.shape, b.shape], dtype, target)
        return page_columns(made.loops.product, target)

    assert columns(Shape(1, 3072, 9)) == columns(Shape(1, 4096, 9)) == 1024
    assert columns(Shape(1, 3072, 9), np.float64) == 512
    assert columns(Shape(1, 3000, 9)) == 0  # rows lie each in another way
    assert columns(Shape(1, 1024, 9)) == 0  # all of a row is no more than a page
    assert columns(Shape(2, 3072, 9)) == 0
    assert columns(Shape(1, 3072, 9, tb=True)) == 0
    # Memory is read in longer runs.
    assert columns(Shape(1, 3072, 9), target=replace(host, l3_nbytes=1 << 10)) == 0


def _at(values: Array, offset: int, line: int = 64) -> Array:
    """The same numbers, so many bytes after the beginning of a line of a cache, or of a page."""
    raw = np.empty(values.nbytes + 2 * line, np.uint8)
    start = -raw.ctypes.data % line + offset
    place = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    place[...] = values
    return place
