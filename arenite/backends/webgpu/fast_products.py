"""Products by weights, by how many rows there are: a kernel for few, another for many.

Where the number of rows is open, a launch has all of these kernels, and the one for its sizes is
taken when they are known.
"""

from __future__ import annotations

from arenite.backends.webgpu.few_rows import MOST_ROWS, build_few_rows, can_be_few
from arenite.backends.webgpu.ops import PRODUCT
from arenite.backends.webgpu.products import ProductBuilder, is_product
from arenite.codegen.kernels.built import Built
from arenite.ir.dim import bounds
from arenite.schedule.kernel import Kernel


def build_fast_product(kernel: Kernel) -> Built | None:
    """The loops of a product whose sides lie so that they can be read fast; None for others."""
    if not is_product(kernel, "matmul", PRODUCT):
        return None
    builder = ProductBuilder(kernel)
    if not can_be_few(builder):
        return None
    fewest, most = bounds(builder.n_rows)
    if most <= MOST_ROWS:
        return build_few_rows(builder, most)
    return None
