"""Products in slices of K, whose columns of B are copied while others are multiplied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.backends.cpu.build import build
from arenite.backends.cpu.gemm.blocking import Cut, Layout, as_slices, cut
from arenite.backends.cpu.gemm.rows import LIMIT, next_heights
from arenite.backends.cpu.gemm.slices import Sliced
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.target import Target
from arenite.dtype import float32
from arenite.ir.dim import Var, evaluate
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.made import TARGETS
from tests.codegen.products import Made, Shape, bound_of, check, numbers
from tests.codegen.run_kernels import Compiled

#: Columns of a group of register tiles.
WIDTHS = {"avx512": 32, "avx2": 16, "neon": 12}


def small(name: str) -> Target:
    """A target whose caches are so small that products of some hundred are cut as large ones."""
    return replace(targets.named(name), l2_nbytes=1 << 15, l3_nbytes=1 << 17)


def is_sliced(made: Made) -> bool:
    return isinstance(made.loops.details, Sliced)


def product(
    m: int, n: int, k: int, target: Target, *, batch: tuple[int, ...] = (), tb: bool = False
) -> Made:
    b = (n, k) if tb else (k, n)
    shape = Shape(m, n, k, batch, tb=tb)
    return Made(shape.product, [(*batch, m, k), (*batch, *b)], target=target)


def test_which_products_are_sliced() -> None:
    target = targets.named("avx512")
    assert is_sliced(product(128, 768, 3072, target))
    assert is_sliced(product(64, 4096, 4096, target))
    assert is_sliced(product(16, 4096, 4096, target))
    assert is_sliced(product(512, 768, 3072, target))
    assert not is_sliced(product(128, 768, 768, target)), "its rows stay in the cache as they lie"
    assert not is_sliced(product(128, 768, 3072, target, tb=True)), "it has to be turned round"
    assert is_sliced(product(128, 480, 9216, target))
    assert not is_sliced(product(128, 768, 3079, target)), "slices would not be equal"
    assert not is_sliced(product(8, 4096, 4096, target)), "B is read once"
    assert is_sliced(product(128, 768, 3072, target, batch=(8,)))
    assert not is_sliced(product(128, 768, 3072, target, batch=(40,))), "sums would fill memory"
    rows = Var("rows", 1, 500)
    later = Made(lambda x, y: x @ y, [(rows, 3072), (3072, 768)], target=target)
    assert not is_sliced(later), "tiles need not have time enough to copy"


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("m", [48, 50, 101, 128, 130])
def test_values(m: int, dtype: Any, name: str) -> None:
    made = check(Shape(m, 384, 192), dtype, small(name))
    assert is_sliced(made)


@pytest.mark.parametrize("name", TARGETS)
def test_batches(name: str) -> None:
    assert is_sliced(check(Shape(50, 384, 192, (3,)), np.float32, small(name)))
    assert is_sliced(check(Shape(50, 384, 192, (3,), b_batch=False), np.float32, small(name)))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("is_long", [False, True])
def test_what_follows_is_done_once(is_long: bool, name: str) -> None:
    def function(x: Tensor, y: Tensor, c: Tensor, d: Tensor) -> Tensor:
        made = x @ y + c
        return (made.tanh() * made.exp() + d).relu() if is_long else made * d

    arrays = [numbers((50, 192), 1) / 16, numbers((192, 384), 2), numbers((384,), 3)]
    arrays = [x.astype(np.float32) for x in [*arrays, numbers((50, 384), 4)]]
    made = Made(function, [x.shape for x in arrays], target=small(name))
    assert is_sliced(made)
    [got] = made.run(arrays)
    x, y, c, d = (array.astype(np.float64) for array in arrays)
    total = x @ y + c
    want = np.maximum(np.tanh(total) * np.exp(total) + d, 0) if is_long else total * d
    slope = np.exp(total) + 1 if is_long else np.abs(d)
    limit = (bound_of(x, y, 2.0**-24) + 1e-6 * (1 + np.abs(total))) * (slope + 1) * 3
    assert (np.abs(got - want) <= limit).all()


@pytest.mark.parametrize("name", TARGETS)
def test_no_bit_depends_on_slices_nor_on_the_order_of_tiles(name: str) -> None:
    """Sums are added up in the order of K as in one go: other ways to copy B give the same bits."""
    shape = Shape(50, 384, 192)
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape], target=small(name))
    assert is_sliced(made)
    [want] = made.run([a, b])
    [backwards] = made.run_backwards([a, b])
    [together] = made.run([a, b], splits=[(0, evaluate(made.built.tiles, {}))])
    np.testing.assert_array_equal(backwards.view(np.uint32), want.view(np.uint32))
    np.testing.assert_array_equal(together.view(np.uint32), want.view(np.uint32))
    choices = made.built.choices
    assert choices[0].endswith("b copied ahead")
    tried = {choice.split(", ")[-1]: choice for choice in choices}
    assert {*tried} == {"b in place", "b copied", "b copied ahead"}
    for choice in tried.values():
        other = Made(shape.product, [a.shape, b.shape], target=small(name))
        other.built = build(other.kernel, other.target, choice)
        other.compiled = Compiled(other.built.loops, other.target)
        [got] = other.run([a, b])
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), choice)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16], ids=str)
def test_narrow_operands_can_be_sliced(dtype: Any, name: str) -> None:
    """They are not by themselves, but tuning may try it."""
    shape = Shape(50, 384, 192)
    a, b = shape.operands(dtype)
    made = Made(shape.product, [a.shape, b.shape], dtype, small(name))
    assert not is_sliced(made)
    ahead = [choice for choice in made.built.choices if choice.endswith("ahead")]
    made.built = build(made.kernel, made.target, ahead[0])
    assert is_sliced(made)
    [got] = made.run([a, b])
    x, y = a.astype(np.float64), b.astype(np.float64)
    limit = bound_of(x, y, 2.0**-24) + 2.0**-11 * 1.01 * np.abs(x @ y)
    assert (np.abs(got.astype(np.float64) - x @ y) <= limit).all()


@given(
    rows=st.integers(1, 600),
    n_groups=st.integers(1, 60),
    depth=st.integers(1, 300).map(lambda n: 16 * n),
    name=st.sampled_from(sorted(WIDTHS)),
)
@settings(max_examples=200, deadline=None)
def test_tiles_have_time_to_copy_all_rows(rows: int, n_groups: int, depth: int, name: str) -> None:
    """Every row of the next stripe once, and no tile more than it has turns for."""
    target = targets.named(name)
    columns = n_groups * WIDTHS[name]
    layout = Layout(1, rows, columns, depth, depth, 1, 1, columns)
    usual = cut(layout, float32, float32, float32, target)
    made = usual if usual.slices or not usual.heights else as_slices(usual, layout, target)
    if made is None or made.slices is None:
        return
    assert depth % made.slices.depth == 0
    assert made.slices.depth % made.slices.chunk == 0
    assert columns % (made.copied_groups * made.columns * made.lanes) == 0
    assert made.block_columns % (made.copied_groups * made.columns * made.lanes) == 0
    turns = made.slices.depth // made.slices.chunk
    for n_rows in {min(rows, made.block_rows), rows % made.block_rows} - {0}:
        shares = copied(made, n_rows, made.slices.depth)
        assert max(shares) <= turns
        assert sum(shares) == made.slices.depth


def copied(made: Cut, n_rows: int, depth: int) -> list[int]:
    """Rows that each tile of a stripe copies, one after the other."""
    table, shares, before = next_heights(made.heights), list[int](), 0
    for group in range(made.copied_groups):
        row = 0
        while row < n_rows:
            row += table[min(n_rows - row, LIMIT)]
            now = (group * n_rows + row) * depth // (made.copied_groups * n_rows)
            shares.append(now - before)
            before = now
        assert row == n_rows
    return shares


@pytest.mark.parametrize("name", sorted(WIDTHS))
def test_code_is_made_for_other_machines(name: str) -> None:
    target = targets.named(name)
    made = product(96, 768, 3072, target)
    assert is_sliced(made)
    assert "prefetch" in lower(made.loops, target)
