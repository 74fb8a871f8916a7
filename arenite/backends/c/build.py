"""Which builder a kernel gets: plain loops for all of them, by the op it is made for."""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen.kernels.block_products import matmul_blocks, matmul_experts
from arenite.codegen.kernels.blocks import dequantise, rows_of_blocks
from arenite.codegen.kernels.build import Builder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.concat import Concat, is_concat
from arenite.codegen.kernels.narrow import build_packing, is_packing
from arenite.codegen.kernels.sort import build_sort, is_sort
from arenite.codegen.kernels.special import Draft, build_special, is_special
from arenite.errors import NotCompiled
from arenite.schedule.kernel import Kernel

#: Kernels that read blocks, or matrices that data chooses.
_OF_WEIGHTS: dict[str, Callable[[Draft], Built]] = {
    "dequantise": dequantise,
    "rows_of_blocks": rows_of_blocks,
    "matmul_blocks": matmul_blocks,
    "matmul_experts": matmul_experts,
}


def build(kernel: Kernel) -> Built:
    """The loops of a kernel; NotCompiled, with the lines it comes from, where there are none."""
    try:
        return _build(kernel)
    except NotCompiled as refusal:
        if not kernel.origins:
            raise
        lines = ", ".join(map(str, kernel.origins[:3]))
        raise NotCompiled(f"{refusal}; it comes from {lines}") from None


def _build(kernel: Kernel) -> Built:
    if is_sort(kernel):
        return build_sort(kernel)
    if is_special(kernel):
        return build_special(kernel)
    if is_packing(kernel):
        return build_packing(kernel)
    of_weights = _OF_WEIGHTS.get(kernel.stages[0].node.op)
    if of_weights is not None:
        return of_weights(Draft(kernel))
    if is_concat(kernel):
        return Concat(kernel).build()
    return Builder(kernel).build()
