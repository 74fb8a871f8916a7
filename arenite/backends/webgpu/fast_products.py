"""Products by weights, by how many rows there are: a kernel for few, another for many.

Where the number of rows is open, a launch has all of these kernels, and the one for its sizes is
taken when they are known.
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
from arenite.ir.dim import Dim, Var, bounds, maximum, minimum
from arenite.schedule.kernel import Kernel


def build_fast_product(kernel: Kernel) -> Built | None:
    """The loops of a product whose sides lie so that they can be read fast; None for others."""
    if not is_product(kernel, "matmul", PRODUCT, NORMED_PRODUCT):
        return None
    builder = ProductBuilder(kernel)
    fewest, most = bounds(builder.n_rows)
    if most <= MOST_ROWS:
        return _few_rows(builder, most) if can_be_few(builder) else None
    of_many = builder.of_normed_rows()
    if not can_be_many(of_many):
        return None
    is_block = builder.weights[0].dtype.is_block
    many = build_block_tiles(of_many) if is_block else build_many_rows(of_many)
    is_open = isinstance(builder.n_rows, Var) and fewest <= MOST_ROWS
    return _with_few(builder, builder.n_rows, many) if is_open and can_be_few(builder) else many


def _few_rows(builder: ProductBuilder, most: int) -> Built:
    build = build_block_rows if builder.weights[0].dtype.is_block else build_float_rows
    return build(builder, most)


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
