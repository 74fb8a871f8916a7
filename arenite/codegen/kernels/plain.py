"""Kernels as plain loops, which every back end can lower: what builds them, by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arenite.codegen.kernels import (
    blocks,
    concat,
    narrow,
    selection,
    sort,
    special,
    suppression,
)
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.errors import NotCompiled
from arenite.ir.ops.define import OPS
from arenite.schedule.kernel import Kernel

#: By the op of the first stage; others are loops around the elements of all stages, and so is what
#: a builder leaves.
BUILDERS: dict[str, Callable[[Kernel], Built | None]] = {
    **blocks.BUILDERS,
    **concat.BUILDERS,
    **narrow.BUILDERS,
    **selection.BUILDERS,
    **sort.BUILDERS,
    **special.BUILDERS,
    **suppression.BUILDERS,
}


def build_own(kernel: Kernel) -> Built | None:
    """The loops of a kernel whose op has a builder of its own, else None."""
    builder = BUILDERS.get(kernel.stages[0].node.op)
    return None if builder is None else builder(kernel)


def build_plain(kernel: Kernel) -> Built:
    """The loops of any kernel; NotCompiled where there are none."""
    refuse_layouts(kernel)
    return build_own(kernel) or KernelBuilder(kernel).build()


def refuse_layouts(kernel: Kernel, own: str = "") -> None:
    """NotCompiled for ops whose operands lie as kernels of another back end read them: plain loops
    would take them for what they are elsewhere."""
    for stage in kernel.stages:
        op = OPS[stage.node.op]
        if op.backend not in ("", own):
            raise NotCompiled(
                f"{op.name} reads and writes layouts of device {op.backend!r}, which this device "
                f"does not have; compile the graph as it was before the passes of {op.backend!r}"
            )


@contextmanager
def with_origins(kernel: Kernel) -> Iterator[None]:
    """A NotCompiled inside says which lines the kernel comes from."""
    try:
        yield
    except NotCompiled as refusal:
        if not kernel.origins:
            raise
        lines = ", ".join(map(str, kernel.origins[:3]))
        raise NotCompiled(f"{refusal}; it comes from {lines}") from None
