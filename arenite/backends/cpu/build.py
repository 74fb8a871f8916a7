"""Which builder a kernel gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import arenite.backends.cpu.attention.build as attention
import arenite.backends.cpu.attention.pages as attention_pages
import arenite.backends.cpu.blocks.build as blocks
import arenite.backends.cpu.blocks.experts as experts
import arenite.backends.cpu.blocks.load as block_values
import arenite.backends.cpu.bytes.build as byte_products
import arenite.backends.cpu.conv.build as channels_last
import arenite.backends.cpu.conv.depthwise_build as depthwise
import arenite.backends.cpu.conv.panels_build as panels
import arenite.backends.cpu.conv.winograd_build as winograd
from arenite.backends.cpu.columns import Columns
from arenite.backends.cpu.gemm.build import build_product
from arenite.backends.cpu.gemm.plain import build_contraction
from arenite.backends.cpu.target import Target
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.plain import build_own, with_origins
from arenite.ir import OPS, bounds
from arenite.schedule.kernel import Kernel

#: The loops of a kernel, cut as a choice says, or None where they do not fit it.
Build: TypeAlias = Callable[[Kernel, Target, str], Built | None]

#: By the op of the first stage.
BUILDERS: dict[str, Build] = {
    **attention.BUILDERS,
    **attention_pages.BUILDERS,
    **block_values.BUILDERS,
    **blocks.BUILDERS,
    **byte_products.BUILDERS,
    **channels_last.BUILDERS,
    **depthwise.BUILDERS,
    **experts.BUILDERS,
    **panels.BUILDERS,
    **winograd.BUILDERS,
}


def build(kernel: Kernel, target: Target, choice: str = "") -> Built:
    """The loops of a kernel, cut as one of its `choices` says if that is given; NotCompiled, with
    the lines it comes from, where there are none."""
    with with_origins(kernel):
        built = build_own(kernel)
        for builder in () if built is not None else _builders(kernel):
            built = builder(kernel, target, choice)
            if built is not None:
                break
        if built is not None:
            return built
        rows = Columns(kernel, target)
        return rows.build() if rows.are_worth_it else KernelBuilder(kernel).build()


def _builders(kernel: Kernel) -> list[Build]:
    """Those that may fit a kernel, the best first."""
    node = kernel.stages[0].node
    own = [BUILDERS[node.op]] if node.op in BUILDERS else []
    if not OPS[node.op].is_contraction:
        return own
    # What has no elements has nothing to cut into tiles.
    return [*own, build_product, build_contraction] if bounds(node.nbytes)[1] > 0 else []
