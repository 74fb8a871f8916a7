"""Which builder a kernel gets."""

from __future__ import annotations

from arenite.backends.cpu.attention.build import build_attention, is_attention
from arenite.backends.cpu.blocks.build import build_packed
from arenite.backends.cpu.blocks.experts import build_experts, chooses
from arenite.backends.cpu.blocks.load import build_blocks, reads_blocks
from arenite.backends.cpu.bytes.build import build_bytes
from arenite.backends.cpu.columns import Columns
from arenite.backends.cpu.conv.build import build_conv
from arenite.backends.cpu.conv.depthwise_build import build_depthwise
from arenite.backends.cpu.conv.panels_build import build_panels
from arenite.backends.cpu.conv.winograd_build import build_winograd
from arenite.backends.cpu.gemm.build import build_product
from arenite.backends.cpu.gemm.plain import Contraction
from arenite.backends.cpu.target import Target
from arenite.codegen.kernels.build import Builder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.concat import Concat, is_concat
from arenite.codegen.kernels.narrow import build_packing, is_packing
from arenite.codegen.kernels.sort import build_sort, is_sort
from arenite.codegen.kernels.special import build_special, is_special
from arenite.errors import NotCompiled
from arenite.ir.dim import bounds
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import CONTRACTIONS


def build(kernel: Kernel, target: Target, choice: str = "") -> Built:
    """The loops of a kernel, cut as one of its `choices` says if that is given; NotCompiled, with
    the lines it comes from, where there are none."""
    try:
        return _build(kernel, target, choice)
    except NotCompiled as refusal:
        if not kernel.origins:
            raise
        lines = ", ".join(map(str, kernel.origins[:3]))
        raise NotCompiled(f"{refusal}; it comes from {lines}") from None


def _build(kernel: Kernel, target: Target, choice: str) -> Built:
    if is_sort(kernel):
        return build_sort(kernel)
    if is_special(kernel):
        return build_special(kernel)
    if is_packing(kernel):
        return build_packing(kernel)
    if reads_blocks(kernel):
        return build_blocks(kernel)
    if chooses(kernel):
        return build_experts(kernel, target)
    if is_attention(kernel):
        return build_attention(kernel, target)
    if is_concat(kernel):
        return Concat(kernel).build()
    # What has no elements has nothing to cut into tiles.
    products = [stage.node for stage in kernel.stages if stage.node.op in CONTRACTIONS]
    if any(bounds(node.nbytes)[1] > 0 for node in products):
        made = (
            build_bytes(kernel, target, choice)
            or build_packed(kernel, target, choice)
            or build_panels(kernel, target, choice)
            or build_conv(kernel, target, choice)
            or build_depthwise(kernel, target, choice)
            or build_winograd(kernel, target, choice)
            or build_product(kernel, target, choice)
        )
        if made is not None:
            return made
        blocked = Contraction(kernel, target)
        if blocked.block is not None and blocked.nest.vector_is_outer:
            return blocked.build()
    rows = Columns(kernel, target)
    return rows.build() if rows.are_worth_it else Builder(kernel).build()
