"""Parts: the bytes that a kernel touches of values which lie in the bytes of a state.

Several kernels of a run may write rows of one state; who reads other rows, or writes them, need not
wait for them. Every other value is written by one kernel, and whoever reads some of it waits for
that one as if it read all of it: there parts would change nothing.

    write(rows of layer 0, at 0)    bytes [0, n)        written
    state[1] @ weights              bytes [n, 2 n)      read: beside the write of layer 0
    write(rows of layer 1, at 1)    bytes [n, 2 n)      written, behind the read

In: what a kernel reads, as indices over its space. Out: hulls, where they are known and less than
all bytes of a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from arenite.ir import Dim, Node, bounds, known_le
from arenite.ir.ops.access import linear
from arenite.schedule.draft import Reads

#: The k-th of the inputs and outputs of a kernel, and bytes [start, end) of it.
Part = tuple[int, int, int]


def parts_of(
    reads: Reads,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    overwrites: Collection[tuple[Node, Node]],
    shared: Collection[Node],
) -> Iterator[Part]:
    """Of the values whose bytes others have too, `shared`; `overwrites` are (output, input)."""
    # What is written over is touched where it is written; what lies between two rows stays.
    rows_of = {old: _rows(new) for new, old in overwrites if old not in new.inputs[1:]}
    for k, node in enumerate(inputs):
        if node in shared:
            indices = [linear(index, node.shape) for index in reads[node] or ()]
            yield from _hull(k, node, rows_of.get(node, indices))
    for new, _ in overwrites:
        yield from _hull(len(inputs) + outputs.index(new), new, _rows(new))


def _rows(update: Node) -> list[Dim]:
    """The first and the last element that are replaced; nothing where they are not known."""
    _, rows, start = update.inputs
    axis = update.attr("axis")
    if start.op != "full" or start.ndim:
        return []
    at, last = start.attr("value"), start.attr("value") + rows.shape[axis] - 1
    if not (known_le(0, at) and known_le(at, last) and known_le(last + 1, update.shape[axis])):
        return []
    return [
        linear([at if k == axis else 0 for k in range(update.ndim)], update.shape),
        linear(
            [last if k == axis else size - 1 for k, size in enumerate(update.shape)], update.shape
        ),
    ]


def _hull(k: int, node: Node, positions: Sequence[Dim]) -> Iterator[Part]:
    """The bytes from the first to the last of these elements."""
    if not positions or node.dtype.is_block:
        return
    limits = [bounds(position) for position in positions]
    bits, nbytes = node.dtype.bits, bounds(node.nbytes)[1]
    start = max(0, min(low for low, _ in limits) * bits // 8)
    end = min(nbytes, -(-(max(high for _, high in limits) + 1) * bits // 8))
    if start < end and (start, end) != (0, nbytes):
        yield k, start, end
