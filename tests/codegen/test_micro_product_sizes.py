"""Products whose sizes are known later, or are zero: one kernel serves them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.ir.dim import Var, bounds
from arenite.tensor import Tensor
from tests.codegen.made import TARGETS
from tests.codegen.products import Made, Shape, bound_of, numbers


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("least", [1, 100])
def test_sizes_known_later(least: int, tb: bool, target: str) -> None:
    rows, columns, depth = Var("rows", least, 400), Var("columns", 1, 300), Var("depth", 1, 900)
    shape = Shape(1, 1, 1, tb=tb)
    b_shape = (columns, depth) if tb else (depth, columns)

    def function(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return (shape.product(x, y) + c).relu()

    made = Made(function, [(rows, depth), b_shape, (columns,)], target=target)
    assert made.loops
    tried = [(1, 1, 1), (1, 300, 900), (13, 33, 40), (100, 31, 800), (170, 9, 70), (400, 130, 129)]
    for m, n, k in [size for size in tried if size[0] >= least]:
        one = Shape(m, n, k, tb=tb)
        a, b = one.operands(np.float32)
        bias = numbers((n,), 5)
        sizes = {"rows": m, "columns": n, "depth": k}
        [got] = made.run([a, b, bias], sizes)
        left, right = one.views(a.astype(np.float64), b.astype(np.float64))
        want = np.maximum(left @ right + bias, 0)
        limit = bound_of(left, right, 2.0**-24) + 1e-6 * (1 + np.abs(want))
        assert (np.abs(got - want) <= limit).all(), (m, n, k)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(("n", "k"), [(96, 100), (1030, 60), (41, 800)])
def test_rows_known_later(n: int, k: int, tb: bool, target: str) -> None:
    rows = Var("rows", 1, 200)
    shape = Shape(1, n, k, tb=tb)
    b = shape.operands(np.float32)[1]
    made = Made(shape.product, [(rows, k), b.shape], target=target)
    for m in (1, 2, 3, 5, 8, 9, 13, 40, 96, 97, 168, 169, 199):
        one = Shape(m, n, k, tb=tb)
        a, b = one.operands(np.float32)
        [got] = made.run([a, b], {"rows": m})
        left, right = one.views(a.astype(np.float64), b.astype(np.float64))
        assert (np.abs(got - left @ right) <= bound_of(left, right, 2.0**-24)).all(), m


def test_scratch_does_not_grow_with_rows() -> None:
    """Where rows are known later, tiles are bounded, and so is what is planned for them."""
    shape = Shape(1, 3072, 768, tb=True)
    few, many = (
        Made(shape.product, [(Var("rows", 1, most), 768), (3072, 768)]).built
        for most in (200, 100_000)
    )
    assert few.scratch
    assert bounds(many.scratch[0].nbytes)[1] == bounds(few.scratch[0].nbytes)[1]


@pytest.mark.parametrize("shape", [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0))], ids=str)
def test_sizes_of_zero(shape: Any) -> None:
    a, b = (np.ones(s, np.float32) for s in shape)
    made = Made(lambda x, y: x @ y, [a.shape, b.shape])
    [got] = made.run([a, b])
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize(
    "names", ["k block sum", "acc group first_row", "column depth part", "depth k stripe"]
)
@pytest.mark.parametrize("tb", [False, True])
def test_a_size_may_have_any_name(names: str, tb: bool) -> None:
    rows, columns, depth = (Var(name, 1, 1100) for name in names.split())
    shape = Shape(7, 1030, 130, tb=tb)
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [(rows, depth), (columns, depth) if tb else (depth, columns)])
    [got] = made.run([a, b], dict(zip(names.split(), (7, 1030, 130), strict=True)))
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    assert (np.abs(got - left @ right) <= bound_of(left, right, 2.0**-24)).all()
