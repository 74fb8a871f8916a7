"""One run of a program that is cut: from segment to segment.

In: the stages of a graph, and arrays. Out: arrays. Values live from the stage that makes them to
the last that reads them, and are counted as long as they live.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from arenite.dtype import Array
from arenite.errors import (
    AreniteError,
    BoundsError,
    OutOfMemory,
    RunCancelled,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.ir import Graph, Node, parameter, typed
from arenite.ir.dim import Found, evaluate
from arenite.ir.element import numpy_dtype
from arenite.ir.ops.control import loop_parts
from arenite.ir.ops.unbounded import NO_BOUND, bind_shape, sizes_entering, sizes_made
from arenite.pipeline.growth import DONE
from arenite.pipeline.memory_use import MemoryUse, Name, Rows
from arenite.pipeline.segment_cache import OpenSegment, SegmentCache
from arenite.pipeline.stages import AnySegment, Call, Segment, StagedGraph, Staging
from arenite.pipeline.targets import Targets, room_in, targets_of

Values: TypeAlias = dict[Node, Array]
Sizes: TypeAlias = dict[str, int]

#: Of a frame whose results go into new arrays.
NO_TARGETS: Mapping[Node, Array] = {}
#: Values of structure whose programs are kept, for each place that asks for them.
MAX_VALUES = 16


class Specializations:
    """Frames by the values of structure that they are for."""

    def __init__(self, staging: Staging, segments: SegmentCache) -> None:
        self._staging = staging
        self._segments = segments
        self._frames: dict[Call, OrderedDict[object, StagedGraph]] = {}
        self.n_made = 0

    def obtain(self, call: Call, values: Sequence[Array]) -> StagedGraph:
        """What the function gives for these values, in stages; made when they come first."""
        known = self._frames.setdefault(call, OrderedDict())
        key = tuple((array.shape, array.dtype.str, array.tobytes()) for array in values)
        frame = known.get(key)
        if frame is None:
            frame = known[key] = self._staging.frame(self._graph(call.node, values))
            self.n_made += 1
            if len(known) > MAX_VALUES:
                _, gone = known.popitem(last=False)
                self._forget(gone)
        known.move_to_end(key)
        return frame

    def _forget(self, frame: StagedGraph) -> None:
        """Give up a frame, and what was made for values inside it."""
        self._segments.forget(frame.segments)
        for call in frame.calls:
            for inner in self._frames.pop(call, {}).values():
                self._forget(inner)

    def _graph(self, node: Node, values: Sequence[Array]) -> Graph:
        function = node.attr("function")
        given = tuple(parameter(one.shape, one.dtype) for one in node.inputs[len(values) :])
        results = tuple(function.function([array.copy() for array in values], given))
        wanted = list(zip(node.attr("shapes"), node.attr("dtypes"), strict=True))
        if len(results) != len(wanted):
            raise ShapeMismatch(
                f"{function.name} was to give {len(wanted)} results and gave {len(results)}"
            )
        for made, (shape, dtype) in zip(results, wanted, strict=True):
            if made.ndim != len(shape) or made.dtype != dtype:
                problem = TypeMismatch if made.dtype != dtype else ShapeMismatch
                raise problem(
                    f"{function.name} was to give {typed(shape, dtype)} and gave "
                    f"{typed(made.shape, made.dtype)}; correct it, or what it is said to give"
                )
        return Graph(given, results)

    @property
    def n_segments(self) -> int:
        frames = [frame for known in self._frames.values() for frame in known.values()]
        return sum(len(frame.segments) for frame in frames)


class SegmentedRun:
    """`enter` runs a segment on arrays, and writes to those of the caller that are not None."""

    def __init__(
        self,
        segments: SegmentCache,
        special: Specializations,
        memory: MemoryUse,
        enter: Callable[[OpenSegment, list[Array], list[Array | None]], list[Array]],
    ) -> None:
        self._segments = segments
        self._special = special
        self._memory = memory
        self._enter = enter
        self._is_cancelled = False
        self._inside: OpenSegment | None = None  # what native code is in

    def whole(
        self,
        frame: StagedGraph,
        arrays: Sequence[Array],
        sizes: Sizes,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The results of the outermost frame, as arrays of their own; the first of them in `out`,
        where that is given."""
        for array in (*arrays, *(out or ())):
            self._memory.lend(array)
        sizes = dict(sizes)
        if out is None:
            return _owned(self._frame(frame, arrays, sizes), arrays)
        targets = Targets(frame, out, arrays)
        results = self._frame(frame, arrays, sizes, targets.by_node, targets.check)
        n = len(out)
        # What is handed through is copied to `out` as it is, unless that comes to lie on it.
        outputs = results[:n] if targets.is_apart else _owned(results[:n], arrays)
        others = _owned(results[n:], arrays)
        return [*targets.write(outputs, sizes), *others]

    def cancel(self) -> None:
        """From another thread: end the segment that runs now, and enter no other."""
        self._is_cancelled = True
        inside = self._inside
        if inside is not None:
            inside.executable.cancel()

    def _frame(
        self,
        frame: StagedGraph,
        arrays: Sequence[Array],
        sizes: Sizes,
        targets: Mapping[Node, Array] = NO_TARGETS,
        check: Callable[[Sizes], None] | None = None,
    ) -> list[Array]:
        """The results, in `targets` where they can be written there; `sizes` learns those that are
        found on the way, which `check` may refuse."""
        values: Values = {}
        try:
            for node, array in zip(frame.inputs, arrays, strict=True):
                self._keep(values, node, array)
            for stage in frame.stages:
                if check is not None:
                    check(sizes)
                if stage.segment is not None:
                    self._segment(stage.segment, values, sizes, targets)
                for call in stage.calls:
                    getattr(self, f"_on_{call.node.op}")(call, values, sizes, targets)
                for node in stage.dropped:
                    if node in values:
                        self._memory.drop(values.pop(node))
            return [values[node] for node in frame.results]
        finally:
            for array in values.values():
                self._memory.drop(array)

    def _keep(self, values: Values, node: Node, array: Array, is_lent: bool = False) -> None:
        values[node] = array
        name = None if is_lent else lambda: f"{node.op} {typed(array.shape, node.dtype)}"
        self._memory.add(array, name)

    def _segment(
        self, segment: Segment, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        given = [values[node] for node in segment.inputs]
        rooms = [room_in(targets.get(node), node, sizes) for node in segment.outputs]
        results = self._native(segment, given, sizes, rooms)
        n = len(segment.outputs)
        for node, array, room in zip(segment.outputs, results[:n], rooms, strict=True):
            self._keep(values, node, array, is_lent=room is not None)
        for one, count in zip(segment.found, results[n:], strict=True):
            sizes[one.size.name] = int(count)

    def _native(
        self,
        segment: AnySegment,
        given: list[Array],
        sizes: Sizes,
        rooms: Sequence[Array | None] = (),
    ) -> list[Array]:
        """What native code makes of arrays; the first results in `rooms`, but for None."""
        if self._is_cancelled:
            raise RunCancelled("the run was cancelled; the Executable can be called again")
        lent_nbytes = sum(room.nbytes for room in rooms if room is not None)
        program = self._segments.obtain(segment, sizes, self._memory, lent_nbytes)
        program.n_entered += 1
        self._inside = program
        try:
            out = [*rooms, *[None] * (len(program.sized.graph.outputs) - len(rooms))]
            results = self._enter(program, [*given, *program.sized.extra_inputs(sizes)], out)
        except MemoryError as problem:
            if isinstance(problem, AreniteError):
                raise
            room = ", ".join(f"{name} up to {size}" for name, size in program.capacities.items())
            raise OutOfMemory(
                f"there is no memory for segment {segment.number}, planned for {room}: {problem}"
            ) from None
        finally:
            self._inside = None
        self._memory.count_arenas()
        return results

    # What is done between segments.

    def _on_arange(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        """The range itself is made up where it is read."""
        count = int(values[call.node.inputs[0]])
        if count >= NO_BOUND:
            raise BoundsError(f"arange: {count} elements are more than any memory has")
        size: Found = call.node.attr("size")
        if count < size.low > 0:
            raise BoundsError(f"arange: {count} elements, where there are {size.low} or more")
        sizes[size.name] = max(0, count)

    def _on_branch(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        condition, *given = (values[node] for node in call.node.inputs)
        otherwise, then = call.frames
        side = then if condition else otherwise
        results = self._frame(side, given, sizes, targets_of(call, side, targets))
        self._made(call, values, results, targets)

    def _on_specialize(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        given = [values[node] for node in call.node.inputs]
        n = call.node.attr("n_values")
        frame = self._special.obtain(call, given[:n])
        results = self._frame(frame, given[n:], sizes, targets_of(call, frame, targets))
        self._learn(call.node, results, sizes)
        self._made(call, values, results, targets)

    def _on_loop(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        """A plain loop with a cut in its body: rows of iterations that were left out are zero."""
        node = call.node
        n = node.attr("carried")
        results = self._iterated(call, values, sizes, targets)
        for k, row in enumerate(loop_parts(node).rows):
            stacked = results[n + k]
            trips = max(0, int(values[node.inputs[0]]))
            if stacked is None or len(stacked) < trips:
                shape = [evaluate(size, sizes) for size in row.shape] if stacked is None else []
                inner = tuple(shape) if stacked is None else stacked.shape[1:]
                whole = np.zeros((trips, *inner), numpy_dtype(row.dtype))
                if stacked is not None:
                    whole[: len(stacked)] = stacked
                results[n + k] = whole
        made_rows = [array for array in results if array is not None]
        self._made(call, values, made_rows, targets)

    def _on_growing_loop(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> None:
        node = call.node
        n = node.attr("carried")
        results = self._iterated(call, values, sizes, targets)
        none = sizes | {size.name: 0 for size in sizes_made(node)}
        arrays = [
            np.zeros([evaluate(size, none) for size in node.attr("shapes")[k]],
                     numpy_dtype(loop_parts(node).rows[k - n].dtype))
            if array is None else array
            for k, array in enumerate(results)
        ]  # fmt: skip
        self._learn(node, arrays, sizes)
        self._made(call, values, arrays, targets)

    def _iterated(
        self, call: Call, values: Values, sizes: Sizes, targets: Mapping[Node, Array]
    ) -> list[Array | None]:
        """The carried values, then the rows of all iterations; None where there was none."""
        parts, n = loop_parts(call.node), call.node.attr("carried")
        trips, goes_on, *given = (values[node] for node in call.node.inputs)
        carried, captured = given[:n], given[n:]
        entering = sizes_entering(call.node)
        into = {node.attr("index"): targets.get(node) for node in call.nodes}
        rows = [
            Rows(self._memory, f"rows {k} of a loop", into.get(n + k))
            for k in range(len(parts.rows))
        ]
        for k, array in enumerate(carried):
            self._memory.add(array, _carried_name(k, array))
        done = 0
        try:
            while done < int(trips) and goes_on:
                inner = dict(sizes)
                for size in entering:
                    inner.pop(size.name, None)
                for one, array in zip(parts.carried, carried, strict=True):
                    bind_shape("a carried value", one.shape, array.shape, entering, inner)
                given = [*carried, *captured]
                step = self._once if call.growth is None else self._many
                goes_on, n_done, results = step(call, given, (done, int(trips)), inner)
                done += n_done
                for k, array in enumerate(results[:n]):
                    self._memory.add(array, _carried_name(k, array))
                    self._memory.drop(carried[k])
                    carried[k] = array
                for stack, some in zip(rows, results[n:], strict=True):
                    stack.extend(some)
        finally:
            for array in carried:
                self._memory.drop(array)
        return [*carried, *(stack.take() for stack in rows)]

    def _once(
        self, call: Call, given: list[Array], at: tuple[int, int], sizes: Sizes
    ) -> tuple[Array, int, list[Array]]:
        """One iteration: whether to go on, 1, the carried values and the rows."""
        [body] = call.frames
        n = call.node.attr("carried")
        goes_on, *rows = self._frame(body, [np.asarray(at[0], np.int64), *given], sizes)
        return goes_on, 1, [*rows[:n], *(row[None] for row in rows[n:])]

    def _many(
        self, call: Call, given: list[Array], at: tuple[int, int], sizes: Sizes
    ) -> tuple[Array, int, list[Array]]:
        """Iterations as long as there is room: whether to go on, how many, values and rows."""
        assert call.growth is not None
        done, trips = at
        left, first = np.asarray(trips - done, np.int64), np.asarray(done, np.int64)
        numbers = [left, np.asarray(True), first]
        *rows, n_done, goes_on = self._native(call.growth, [*numbers, *given], sizes | {DONE: done})
        return goes_on, int(n_done), rows

    def _learn(self, node: Node, results: Sequence[Array], sizes: Sizes) -> None:
        """The sizes that a node finds by making its results."""
        for size in sizes_made(node):
            sizes.pop(size.name, None)
        for shape, array in zip(node.attr("shapes"), results, strict=True):
            bind_shape(f"a result of {node.op}", shape, array.shape, sizes_made(node), sizes)

    def _made(
        self,
        call: Call,
        values: Values,
        results: Sequence[Array],
        targets: Mapping[Node, Array],
    ) -> None:
        for node in call.nodes:
            array, target = results[node.attr("index")], targets.get(node)
            is_lent = target is not None and np.may_share_memory(array, target)
            self._keep(values, node, array, is_lent)


def _carried_name(k: int, array: Array) -> Name:
    return lambda: f"carried value {k}, {array.dtype}{list(array.shape)}"


def _owned(results: Sequence[Array], lent: Sequence[Array]) -> list[Array]:
    """Results as arrays of their own: what was lent, and what comes a second time, as copies."""
    taken = set(map(id, lent))
    copies = []
    for array in results:
        copies.append(array.copy() if id(array) in taken else array)
        taken.add(id(array))
    return copies
