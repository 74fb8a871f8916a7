"""Loops over the elements of a window that end where the padding of its image begins.

    max over k in 0..3 of padded x[h + k - 1]      k in max(0, 1 - h) .. min(3, H + 1 - h)

Where padding changes nothing (-inf in a max, 0 in a sum) it need not be looked at. Only serial
loops end so; along the vector axis elements are read under a mask.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.loops import Axis, Nest
from arenite.codegen.kernels.values import index_expr, neutral
from arenite.ir import Node, ceildiv
from arenite.ir.ops.access import Guard, Index, coefficient, sources

#: Guards that hold as far as the loop over a reduced axis goes.
Ends: TypeAlias = dict[Axis, list[Guard]]


def ends_of(loops: Nest, op: str, node: Node, index: Index, stored: Container[Node]) -> Ends:
    """Of loops that reduce one value by `op`: its element at `index`, in variables of the loops."""
    while node not in stored and node.op == "window":
        [source] = sources(node, index)
        node, index = source.node, source.index
    if node in stored or node.op != "pad" or not _changes_nothing(node, op):
        return {}
    ends: Ends = {}
    for guard in sources(node, index)[0].guards:
        steps = {axis: coefficient(guard.position, axis.var) for axis in loops.axes}
        moving = [axis for axis in loops.reduced if steps[axis] != 0]
        if len(moving) != 1 or (loops.vector is not None and steps[loops.vector] != 0):
            continue
        step = steps[moving[0]]
        if isinstance(step, int) and step > 0:
            ends.setdefault(moving[0], []).append(guard)
    return ends


def _changes_nothing(pad: Node, op: str) -> bool:
    """Whether combining with what is padded leaves a value as it was."""
    return op in ("add", "max", "min") and pad.attr("value") == neutral(op, pad.dtype)


def ended(loop: ir.For, axis: Axis, guards: Sequence[Guard]) -> ir.For:
    """The loop over an axis, as far as guards hold."""
    for guard in guards:
        step = coefficient(guard.position, axis.var)
        assert isinstance(step, int)
        first = guard.position - step * axis.var  # where the loop begins
        start = ir.Binary("max", loop.start, index_expr(ceildiv(-first, step)))
        stop = ir.Binary("min", loop.stop, index_expr(ceildiv(guard.size - first, step)))
        loop = replace(loop, start=start, stop=stop)
    return loop
