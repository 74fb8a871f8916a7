"""Products by weights, by how many rows there are: a kernel for few, another for many.

Where the number of rows is open, a launch has all of these kernels, and the one for its sizes is
taken when they are known. Where a row's sums must not depend on that number, there are two: for one
row, and for blocks of a few. Both add a row up in the same order.
"""

from __future__ import annotations

from dataclasses import replace

from arenite.backends.webgpu.block_rows import build_block_rows
from arenite.backends.webgpu.block_tiles import build_block_tiles
from arenite.backends.webgpu.few_rows import build_float_rows, can_be_few
from arenite.backends.webgpu.many_rows import build_many_rows, can_be_many
from arenite.backends.webgpu.ops import MOST_ROWS, NORMED_PRODUCT, PRODUCT
from arenite.backends.webgpu.products import ProductBuilder, is_product
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.ir.dim import Dim, Var, bounds, ceildiv, maximum, minimum
from arenite.schedule.kernel import Kernel

#: Rows that a group takes where a row's sums are the same among any number: in shared memory there
#: is room for whole turns of a team.
ROWS_ALIKE = 4


def build_fast_product(kernel: Kernel, same_sums: bool = False) -> Built | None:
    """The loops of a product whose sides lie so that they can be read fast; None for others."""
    if not is_product(kernel, "matmul", PRODUCT, NORMED_PRODUCT):
        return None
    builder = ProductBuilder(kernel)
    fewest, most = bounds(builder.n_rows)
    if not most:
        return None
    if same_sums and can_be_few(builder):
        return _rows_alike(builder, fewest, most)
    if most <= MOST_ROWS:
        return _few_rows(builder, most) if can_be_few(builder) else None
    of_many = builder.of_normed_rows()
    if not can_be_many(of_many):
        return None
    is_block = builder.weights[0].dtype.is_block
    with_few = isinstance(builder.n_rows, Var) and fewest <= MOST_ROWS and can_be_few(builder)
    # Kernels that are taken instead have the same arrays, without memory for parts.
    many = build_block_tiles(of_many) if is_block else build_many_rows(of_many, not with_few)
    return _with_few(builder, builder.n_rows, many) if with_few else many


def _few_rows(builder: ProductBuilder, most: int, n_blocks: Dim = 1) -> Built:
    build = build_block_rows if builder.weights[0].dtype.is_block else build_float_rows
    built = build(builder, most, n_blocks)
    if bounds(builder.n_rows)[0] > 0:
        return built
    # Text reads the first row: there is nothing to do without one.
    return replace(built, tiles=built.tiles * is_above(builder.n_rows, 0))


def _rows_alike(builder: ProductBuilder, fewest: int, most: int) -> Built:
    one = _few_rows(builder, 1)
    if most == 1:
        return one
    some = _few_rows(builder, ROWS_ALIKE, maximum(ceildiv(builder.n_rows, ROWS_ALIKE), 1))
    if fewest > 1 or not isinstance(builder.n_rows, Var):
        return some
    assert isinstance(one.loops, ir.GroupKernel)
    assert isinstance(some.loops, ir.GroupKernel)
    n_rows = builder.n_rows
    smaller = ((n_rows.symbol, 1, one.loops),)
    is_more = is_above(n_rows, 1)
    tiles = (1 - is_more) * one.tiles + is_more * some.tiles
    return replace(some, loops=replace(some.loops, smaller=smaller), tiles=tiles)


def _with_few(builder: ProductBuilder, n_rows: Dim, many: Built) -> Built:
    """The kernel for many rows, and those for one and for few that are taken instead."""
    assert isinstance(n_rows, Var)
    assert isinstance(many.loops, ir.GroupKernel)
    smaller = []
    tiles: Dim = 0
    below = 0
    for most in (1, MOST_ROWS):
        few = _few_rows(builder, most)
        assert isinstance(few.loops, ir.GroupKernel)
        smaller.append((n_rows.symbol, most, few.loops))
        tiles = tiles + (is_above(n_rows, below) - is_above(n_rows, most)) * few.tiles
        below = most
    tiles = tiles + is_above(n_rows, MOST_ROWS) * many.tiles
    return replace(many, loops=replace(many.loops, smaller=tuple(smaller)), tiles=tiles)


def is_above(size: Dim, most: int) -> Dim:
    """1 where a size is greater, else 0."""
    return minimum(maximum(size - most, 0), 1)
