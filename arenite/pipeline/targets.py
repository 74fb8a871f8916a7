"""Arrays of a caller for the results of a program that is cut, while it runs.

In: `out`, and the arrays that are read. Out: for each node that is a result the array it can be
written to where it is made; ShapeMismatch as soon as sizes are found that do not go into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.lib.array_utils import byte_bounds

from arenite.dtype import Array
from arenite.ir.dim import Dim, bounds, evaluate, found_in
from arenite.ir.node import Node
from arenite.pipeline.stages import Call, StagedGraph
from arenite.program.arguments import capacity_of, in_place, overlaps, unfitting, write_to

#: What a run has changed where it turns out that a result does not fit.
UNCHANGED = "the run has ended, states are as they were, arrays of out= may be half written"


class Targets:
    """`out` for the first results of a frame, in a run that reads `lent`."""

    def __init__(self, frame: StagedGraph, out: Sequence[Array], lent: Sequence[Array]) -> None:
        spans = [byte_bounds(array) for array in lent if array.size]
        self._out = out
        self._results = frame.results[: len(out)]
        #: Whether no array of `out` has bytes of one that is read.
        self.is_apart = not any(overlaps(array, spans) for array in out)
        self.by_node: dict[Node, Array] = {}
        for node, array in zip(self._results, out, strict=True):
            if in_place(array, spans) and node.dtype.bits >= 8:
                self.by_node.setdefault(node, array)

    def check(self, sizes: Mapping[str, int]) -> None:
        """ShapeMismatch where sizes that are known by now do not go into an array."""
        for node, array in zip(self._results, self._out, strict=True):
            known = [known_size(dim, sizes) for dim in node.shape]
            if None not in known:
                shape = tuple(size for size in known if size is not None)
                if shape != array.shape and capacity_of(node.shape, sizes) != array.shape:
                    raise unfitting(array, shape, UNCHANGED)

    def write(self, results: list[Array], sizes: Mapping[str, int]) -> list[Array]:
        """The results in `out`, those that are not there copied."""
        capacities = [capacity_of(node.shape, sizes) for node in self._results]
        return write_to(self._out, results, capacities, UNCHANGED)


def targets_of(call: Call, frame: StagedGraph, targets: Mapping[Node, Array]) -> dict[Node, Array]:
    """Those of a call for the results of the frame that is run for it."""
    targets_by_node: dict[Node, Array] = {}
    for node in call.nodes:
        result = frame.results[node.attr("index")]
        if node in targets and result not in frame.inputs:
            targets_by_node.setdefault(result, targets[node])
    return targets_by_node


def room_in(array: Array | None, node: Node, sizes: Mapping[str, int]) -> Array | None:
    """Where a segment can write a node: the array, if it is of its size, or its first rows. Of rows
    that the segment itself will find, there is room for the most there may be."""
    if array is None or array.ndim != node.ndim:
        return None
    known = [known_size(dim, sizes) for dim in node.shape]
    if None in known[1:]:
        return None
    wanted = tuple(
        bounds(dim)[1] if size is None else size
        for dim, size in zip(node.shape, known, strict=True)
    )
    if array.shape == wanted:
        return array
    if capacity_of(node.shape, sizes) == array.shape:
        return array[: wanted[0]]
    return None


def known_size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """A size, unless it is to be found."""
    if isinstance(dim, int):
        return dim
    return evaluate(dim, sizes) if all(v.name in sizes for v in found_in(dim)) else None
