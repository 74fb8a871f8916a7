"""Which builder a kernel gets: plain loops for all of them, by the op it is made for."""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen.kernels.block_products import matmul_blocks, matmul_experts
from arenite.codegen.kernels.blocks import dequantise, rows_of_blocks
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.plain import build_plain, with_origins
from arenite.codegen.kernels.special import RowKernel
from arenite.schedule.kernel import Kernel

#: Kernels that read blocks, or matrices that data chooses.
_OF_WEIGHTS: dict[str, Callable[[RowKernel], Built]] = {
    "dequantise": dequantise,
    "rows_of_blocks": rows_of_blocks,
    "matmul_blocks": matmul_blocks,
    "matmul_experts": matmul_experts,
}


def build(kernel: Kernel) -> Built:
    """The loops of a kernel; NotCompiled, with the lines it comes from, where there are none."""
    of_weights = _OF_WEIGHTS.get(kernel.stages[0].node.op)
    with with_origins(kernel):
        return build_plain(kernel) if of_weights is None else of_weights(RowKernel(kernel))
