"""Which builder a kernel gets: plain loops for all of them, by the op it is made for."""

from __future__ import annotations

from arenite.codegen.kernels import block_products
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.plain import build_plain, with_origins
from arenite.schedule.kernel import Kernel


def build(kernel: Kernel) -> Built:
    """The loops of a kernel; NotCompiled, with the lines it comes from, where there are none."""
    builder = block_products.BUILDERS.get(kernel.stages[0].node.op, build_plain)
    with with_origins(kernel):
        return builder(kernel)
