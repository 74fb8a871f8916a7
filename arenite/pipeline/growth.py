"""A loop that grows, in native code up to a capacity: iterations without a way back to Python.

    room for C rows, n of them in use      p = the first n rows
    one iteration                          n becomes g(n), rows are written anew
    left when                              the loop is over, or the next iteration would not fit C

In: a `growing_loop` in whose body native code need not be left, where the size after an iteration
follows from that before. Out: its graph for a capacity, a plain loop. It is entered again with the
next capacity, so as often as the length has digits to the base 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arenite.dtype import BOOL, INT64
from arenite.ir.compose.basic import concat, pad, permute, slice_axis
from arenite.ir.compose.counted_sizes import number_of
from arenite.ir.dim import Dim, Found, Var, evaluate, found_in, minimum
from arenite.ir.graph import everything, found_sizes
from arenite.ir.node import Node, Origins, Shape
from arenite.ir.ops import Region, full, graph_input, make, parameter
from arenite.ir.ops import size as size_node
from arenite.ir.ops.control import cut, loop_parts
from arenite.ir.ops.unbounded import CUTTING, is_bounded, sizes_made
from arenite.ir.regions import loop
from arenite.ir.size_substitution import SizeSubstitution, substituted
from arenite.pipeline.sizes import FIRST_CAPACITY, Sized, capacity_for, sized_graph

#: Beside the sizes of a program: how many iterations are done. No size has such a name.
DONE = "iterations done"


@dataclass(eq=False, slots=True)
class Growth:
    """A loop that is run so; `axes` are those of the carried values that grow, or None."""

    number: int
    node: Node
    axes: tuple[int | None, ...]
    origins: Origins


def growing_axes(node: Node) -> tuple[int | None, ...] | None:
    """The axis of each carried value that grows; None where the loop cannot be run so."""
    body: Region = node.attr("body")
    inside = everything((*body.parameters, *body.results))
    if any(one.op in CUTTING for one in inside):
        return None
    parts, entering = loop_parts(node), set(node.attr("entering"))
    hidden = {size for one in inside for size in sizes_made(one)}
    if any(found_in(size) & (entering | hidden) for row in parts.rows for size in row.shape):
        return None
    grown: list[int | None] = []
    for one, following in zip(parts.carried, parts.following, strict=True):
        axes = [axis for axis, size in enumerate(one.shape) if size in entering]
        if len(axes) > 1 or any(found_in(following.shape[axis]) & hidden for axis in axes):
            return None
        # The size is found where the value is read.
        if axes and one not in _reached(body):
            return None
        grown.append(axes[0] if axes else None)
    return tuple(grown)


def _reached(body: Region) -> set[Node]:
    return set(everything(body.results))


class GrowthSizes:
    """The sizes a loop is entered with, and its graph for capacities of them."""

    def __init__(self, segment: Growth) -> None:
        self.segment = segment
        self._parts = loop_parts(segment.node)
        body: Region = segment.node.attr("body")
        inside = everything((*body.parameters, *body.results))
        hidden = {size for one in inside for size in sizes_made(one)}
        self._entering: tuple[Found, ...] = segment.node.attr("entering")
        named = {size for one in inside for size in found_sizes(one)}
        named -= hidden | set(self._entering)
        self.outside = tuple(sorted(named, key=lambda size: size.name))
        free = tuple(size for size in self.outside if not is_bounded(size))
        self.unbounded = (*free, *self._entering)
        self._n_free = len(free)
        #: What each entering size becomes in an iteration.
        self._next: dict[str, Dim] = {}
        for one, following, axis in zip(
            self._parts.carried, self._parts.following, segment.axes, strict=True
        ):
            size = None if axis is None else one.shape[axis]
            if isinstance(size, Found) and axis is not None:
                self._next[size.name] = following.shape[axis]

    def _needed(self, sizes: Mapping[str, int]) -> list[int]:
        """What must have room: each size, and what it becomes in the next iteration."""
        free = [sizes[size.name] for size in self.unbounded[: self._n_free]]
        return free + [
            max(sizes[size.name], evaluate(self._next[size.name], sizes)) for size in self._entering
        ]

    def capacities(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """What is to be compiled for these sizes, in the order of `unbounded`; then for how many
        rows."""
        room = [capacity_for(size) for size in self._needed(sizes)]
        n_rows = max(capacity_for(sizes[DONE] + 1), *room[self._n_free :], 0)
        return (*room, n_rows if self._parts.rows else 0)

    def tight(self, sizes: Mapping[str, int], slack: int) -> tuple[int, ...]:
        """The sizes themselves and a part of them, 1/slack; 0: no more than they are."""
        room = [size + (size // slack if slack else 0) for size in self._needed(sizes)]
        return (*room, FIRST_CAPACITY if self._parts.rows else 0)

    def sized(self, capacities: tuple[int, ...]) -> Sized:
        """The graph for these capacities."""
        *room, n_rows = capacities
        rooms = dict(zip([size.name for size in self.unbounded], room, strict=True))
        names: dict[str, str] = {}
        within: dict[str, Dim] = {}
        for k, size in enumerate((*self.outside, *self._entering)):
            within[size.name] = Var(f"entering_{k}", size.low, rooms.get(size.name, size.high))
            names[f"entering_{k}"] = size.name
        parts = self._parts
        n = len(parts.carried)
        left, goes_on, first = (
            graph_input("left", 0, (), INT64),
            graph_input("goes_on", 1, (), BOOL),
            graph_input("first", 2, (), INT64),
        )
        given = [
            graph_input(f"x{k}", 3 + k, _shape(one.shape, within), one.dtype)
            for k, one in enumerate((*parts.carried, *parts.captured))
        ]
        number = parameter((), INT64)
        body = _Body(self.segment, within, self._next, rooms)
        arrays = body.built(number, first + number, given[n:])
        origins = body.origins
        ends = [arrays.goes_on, *arrays.fits]
        trips: Node = left
        if parts.rows:
            trips = full((), n_rows, INT64)
            ends.append(arrays.done < left)
        carries_on = ends[0]
        for one in ends[1:]:
            carries_on = carries_on & one
        initial = [*body.entered(given[:n]), *body.counts_before, goes_on, full((), 0, INT64)]
        results = loop(
            trips,
            initial,
            ((number, *arrays.parameters), [*arrays.following, arrays.goes_on, arrays.done]),
            rows=arrays.rows,
            goes_on=carries_on,
            cut_rows=True,
            origins=origins,
        )
        m = len(arrays.following)
        outputs = [
            *body.left(results[:n], results[n:m]),
            *results[m + 2 :],
            results[m + 1],
            results[m],
        ]
        return sized_graph([left, goes_on, first, *given], outputs, names, origins)

    def named(self, capacities: tuple[int, ...]) -> dict[str, int]:
        """Capacities by what they are of."""
        *room, n_rows = capacities
        sizes = {size.name: c for size, c in zip(self.unbounded, room, strict=True)}
        return sizes | ({"rows": n_rows} if n_rows else {})


@dataclass(frozen=True, eq=False, slots=True)
class _Made:
    """One iteration over rooms."""

    parameters: list[Node]
    following: list[Node]
    rows: list[Node]
    goes_on: Node
    fits: list[Node]  # whether another iteration has room
    done: Node


class _Body:
    def __init__(
        self,
        growth: Growth,
        within: dict[str, Dim],
        following: dict[str, Dim],
        rooms: Mapping[str, int],
    ) -> None:
        self._growth = growth
        self._parts = loop_parts(growth.node)
        self._within = within
        self._next = following
        self._rooms = rooms
        self.origins = growth.origins.subset(everything(growth.node.attr("body").results))
        self._grown = [
            (k, axis, one.shape[axis])
            for k, (one, axis) in enumerate(zip(self._parts.carried, growth.axes, strict=True))
            if axis is not None
        ]

    @property
    def counts_before(self) -> list[Node]:
        """How many rows are in use when the loop is entered."""
        return [size_node(self._within[str(size)], INT64) for _, _, size in self._grown]

    def entered(self, given: list[Node]) -> list[Node]:
        """The carried values in rooms of their own, the axis that grows in front."""
        rooms = list(given)
        for k, axis, size in self._grown:
            rooms[k] = self._in_room(given[k], axis, self._rooms[str(size)])
        return rooms

    def left(self, rooms: list[Node], counts: list[Node]) -> list[Node]:
        """What of the rooms is in use, as it was."""
        values = list(rooms)
        for (k, axis, _), count in zip(self._grown, counts, strict=True):
            values[k] = _from_front(cut(rooms[k], count), axis)
        return values

    def built(self, number: Node, iteration: Node, captures: list[Node]) -> _Made:
        parts = self._parts
        outer = {name: dim for name, dim in self._within.items() if name not in self._next}
        rooms = [
            parameter(_shape(one.shape, outer), one.dtype) if axis is None else None
            for one, axis in zip(parts.carried, self._growth.axes, strict=True)
        ]
        sizes: dict[str, Dim] = dict(outer)
        counts = []
        values: list[Node | None] = list(rooms)
        for k, axis, size in self._grown:
            room = self._rooms[str(size)]
            shape = list(_shape(parts.carried[k].shape, {**outer, str(size): room}))
            shape.insert(0, shape.pop(axis))
            rooms[k] = held = parameter(tuple(shape), parts.carried[k].dtype)
            counts.append(parameter((), INT64))
            rows = cut(held, counts[-1])
            sizes[str(size)] = rows.shape[0]
            values[k] = _from_front(rows, axis)
        known = {parts.iteration: iteration}
        known |= dict(zip(parts.captured, captures, strict=True))
        known |= {
            one: value
            for one, value in zip(parts.carried, values, strict=True)
            if value is not None
        }
        substitution = SizeSubstitution(sizes, known, self.origins)
        substitution.add((parts.goes_on, *parts.following, *parts.rows))
        following = [substitution.new[node] for node in parts.following]
        now = {str(size): n for (_, _, size), n in zip(self._grown, counts, strict=True)}
        now |= {name: size_node(dim, INT64) for name, dim in outer.items()}
        after = [number_of(self._next[str(size)], now) for _, _, size in self._grown]
        then = now | {str(size): n for (_, _, size), n in zip(self._grown, after, strict=True)}
        fits: list[Node] = []
        for (k, axis, size), count in zip(self._grown, counts, strict=True):
            room, whole = self._rooms[str(size)], rooms[k]
            more = self._appended(k, axis)
            if more and whole is not None:
                added = concat([substitution.new[node] for node in more], axis)
                following[k] = make("update_slice", whole, _to_front(added, axis), count, axis=0)
            else:
                kept = minimum(following[k].shape[axis], room)
                following[k] = self._in_room(slice_axis(following[k], axis, 0, kept), axis, room)
            again = number_of(self._next[str(size)], then)
            fits.append(again <= full((), room, INT64))
        return _Made(
            [*(room for room in rooms if room is not None), *counts,
             parameter((), BOOL), parameter((), INT64)],
            [*following, *after],
            [substitution.new[node] for node in parts.rows],
            substitution.new[parts.goes_on],
            fits,
            number + 1,
        )  # fmt: skip

    def _appended(self, k: int, axis: int) -> tuple[Node, ...]:
        """What a carried value is continued with, where all that happens to it is this."""
        parts = self._parts
        following, one = parts.following[k], parts.carried[k]
        is_appended = following.op == "concat" and following.attr("axis") == axis
        if not is_appended or following.inputs[0] is not one or one in following.inputs[1:]:
            return ()
        more = following.inputs[1:]
        others = (*parts.following[:k], *parts.following[k + 1 :], *parts.rows, parts.goes_on)
        used = everything((*more, *others))
        # Its size is found where it is read.
        size = one.shape[axis]
        if one not in used and any(size in found_sizes(node) for node in used):
            return ()
        return more

    def _in_room(self, value: Node, axis: int, room: int) -> Node:
        """A value with the axis in front, and room behind it."""
        padding: list[tuple[Dim, Dim]] = [(0, 0)] * value.ndim
        padding[axis] = (0, room - value.shape[axis])
        return _to_front(pad(value, padding), axis)


def _to_front(value: Node, axis: int) -> Node:
    """An axis moved to the front."""
    return permute(value, [axis, *(k for k in range(value.ndim) if k != axis)])


def _from_front(value: Node, axis: int) -> Node:
    """The first axis back where it was."""
    axes = list(range(1, value.ndim))
    axes.insert(axis, 0)
    return permute(value, axes)


def _shape(shape: Shape, sizes: Mapping[str, Dim]) -> Shape:
    return tuple(substituted(size, sizes) for size in shape)
