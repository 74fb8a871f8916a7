"""Ops that a device does not do, and why: in a mixed program they run on the CPU.

In: nodes of a graph, after the neutral passes. Out: for each whether the device refuses it, which
is tried by building it alone. What is found once is known for all nodes of the same kind.
"""

from __future__ import annotations

from collections.abc import Hashable

from arenite import passes
from arenite.codegen.kernel_choices import build_each
from arenite.errors import NotCompiled
from arenite.ir import OPS, Node, Origins
from arenite.ir.ops.control import regions_of
from arenite.pipeline.segment import SegmentSizes
from arenite.pipeline.sizes import FIRST_CAPACITY
from arenite.pipeline.stages import Segment
from arenite.program.backend import backend_of
from arenite.program.options import Options
from arenite.schedule import Kernel, fuse


class Fallback:
    """Decides node by node; `reasons` has those that were refused."""

    def __init__(self, options: Options, origins: Origins) -> None:
        self._origins = origins
        self._backend = backend_of(options.device)
        self._way = self._backend.ways(options)[0]
        self._build = self._backend.builder(options)
        self._known: dict[Hashable, str] = {}
        self.reasons: dict[Node, str] = {}

    def is_needed(self, node: Node) -> bool:
        """Whether the device refuses a node."""
        if node in self.reasons:
            return True
        if OPS[node.op].storage in ("given", "constant"):
            return False
        key = (node.op, node.attr_keys, node.shape, node.dtype, *map(_kind, node.inputs))
        if key not in self._known:
            self._known[key] = self._refusal(node)
        if self._known[key]:
            self.reasons[node] = self._known[key]
        return bool(self._known[key])

    def _refusal(self, node: Node) -> str:
        """Why the device does not do a node; "" if it does."""
        if regions_of(node):
            return f"{node.op}: control flow runs from the host"
        given = tuple(
            dict.fromkeys(one for one in node.inputs if OPS[one.op].storage != "constant")
        )
        sizes = SegmentSizes(Segment(0, given, (node,), (), self._origins))
        alone = sizes.sized(tuple(FIRST_CAPACITY for _ in sizes.unbounded)).graph
        try:
            neutral, _ = passes.run(alone, passes.NEUTRAL)
            schedule = fuse(passes.run(neutral, self._way)[0])
            for step in schedule.steps:
                if not isinstance(step, Kernel):
                    return f"{node.op}: what the host does between kernels"
            for _ in build_each(schedule.kernels, self._build, {}):
                pass
        except NotCompiled as refusal:
            return str(refusal)
        return ""


def _kind(node: Node) -> Hashable:
    """All of an input that decides; of a constant, itself."""
    is_constant = OPS[node.op].storage == "constant"
    return node if is_constant else (node.shape, node.dtype)
