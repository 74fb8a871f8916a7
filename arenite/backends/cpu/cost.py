"""What a launch is estimated to take on one core: for deciding what threads share, nothing else."""

from __future__ import annotations

from collections.abc import Callable

from arenite.ir import OPS, Dim, product
from arenite.schedule import Kernel

#: What a core does in a nanosecond.
OPERATIONS_A_NS = 16
PRODUCT_OPERATIONS_A_NS = 64
MAP_COST_A_NS = 32
NBYTES_A_NS = 16


def estimated_ns(kernel: Kernel, size_of: Callable[[Dim], int]) -> int:
    """What a launch is estimated to take."""
    is_product = any(OPS[stage.node.op].is_contraction for stage in kernel.stages)
    a_ns = PRODUCT_OPERATIONS_A_NS if is_product else OPERATIONS_A_NS
    return max(
        size_of(kernel.operations) // a_ns,
        size_of(product(kernel.space)) * kernel.map_cost // MAP_COST_A_NS,
        size_of(kernel.reads_nbytes + kernel.writes_nbytes) // NBYTES_A_NS,
    )
