"""Control flow: If, Loop, Scan.

Where tensors alone go through, they become control flow of the graph; what branches give may differ
in sizes and axes where only a run knows which is taken. Sequences and optionals in loops are
structure: then the trip count must be known, and the loop is unrolled while the model is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from arenite.dtype import BOOL, INT64
from arenite.errors import AreniteError
from arenite.frontends.onnx.alternatives import merged
from arenite.frontends.onnx.call import Call, Unknown
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.values import AnyValue, Value, Wrong
from arenite.ir import Dim, Node, bounds, full, make, maximum, size
from arenite.ir.compose import basic
from arenite.ir.compose.basic import binary
from arenite.ir.growing_loop import FOR_EVER, Body, growing
from arenite.ir.ops.control import trip_size

if TYPE_CHECKING:
    from onnx import GraphProto

#: Iterations of a loop that is unrolled.
MAX_UNROLLED = 1024
#: Iterations of a loop that nothing else ends.
MAX_TRIPS = 10**12


@operator("If")
def if_(call: Call) -> Result:
    condition = call.value(0)
    if condition.known is not None:
        taken = "then_branch" if bool(condition.known.reshape(-1)[0]) else "else_branch"
        return call.translator.graph(call.subgraph(taken), {})
    ways: list[list[AnyValue]] = []
    errors: list[AreniteError] = []
    for name in ("then_branch", "else_branch"):
        graph = call.subgraph(name)
        try:
            ways.append(call.translator.graph(graph, {}))
        except StructureNeeded:
            raise
        except AreniteError as error:
            # The way that is not taken need not make sense for the shapes at hand.
            errors.append(error)
            ways.append([Wrong(error)] * len(graph.output))
    then, otherwise = ways
    if len(then) != len(otherwise):
        call.fail(f"its branches give {len(then)} and {len(otherwise)} values")
    is_alike = not errors and all(map(_are_alike, then, otherwise))
    if len(errors) == 2 or (not is_alike and not call.is_found_in_run(0)):
        # What comes out is structure: one way is taken.
        raise Unknown(call, 0, errors[0] if errors else None)
    return merged(call, _truth(call, condition), then, otherwise)


def _are_alike(a: AnyValue, b: AnyValue) -> bool:
    return isinstance(a, Value) and isinstance(b, Value) and a.shape == b.shape


def _truth(call: Call, value: Value) -> Node:
    node = value.node
    if any(one != 1 for one in node.shape) or node.dtype != BOOL:
        call.fail(f"a condition is one bool, not {value}")
    return basic.reshape(node, ())


@operator("Loop")
def loop(call: Call) -> Result:
    body = call.subgraph("body")
    initial = [call.any(index) for index in range(2, len(call.inputs))]
    if len(body.input) != 2 + len(initial) or len(body.output) < 1 + len(initial):
        call.fail(
            f"it carries {len(initial)} values, and its body has {len(body.input)} inputs and "
            f"{len(body.output)} outputs"
        )
    tensors = [one for one in initial if isinstance(one, Value)]
    if len(tensors) < len(initial) or any(one.is_string for one in tensors):
        return _unrolled(call, initial)
    trips, condition = _trips(call), None
    if call.has(1) and not _is_always(call.value(1)):
        condition = _truth(call, call.value(1))
    carried = [one.node for one in tensors]
    unread = _unread(body)
    try:
        made = _looped(call, carried, trips, condition, unread)
        other = {k: carried[k] for k in unread if made[k].shape != carried[k].shape}
    except _OtherRank:
        made = _peeled(call, tensors, trips, unread)
        rows = [full((0, *one.shape[1:]), 0, one.dtype) for one in made[len(carried) :]]
        other = dict(enumerate([*carried, *rows]))
    if not other or (condition is None and _is_once(trips)):
        return made
    ran = binary("lt", 0, trips)
    if condition is not None:
        ran = binary("and", ran, condition)
    results = [Value.of(one) for one in made]
    ways = merged(call, ran, [results[k] for k in other], [Value.of(one) for one in other.values()])
    return [ways.pop(0) if k in other else one for k, one in enumerate(results)]


class _OtherRank(Exception):
    """A value that a loop carries gets another number of axes, and the body reads it."""


def _looped(
    call: Call,
    initial: Sequence[Node],
    trips: Node,
    condition: Node | None,
    unread: Sequence[int],
    n_before: int = 0,
) -> list[Node]:
    """The carried values after a loop, then its rows; of unread values without an iteration
    anything. `n_before` iterations were made before it."""

    def build(number: Node, carried: Sequence[Node]) -> Body:
        with _inside(call, trips):
            goes_on, *made = _iteration(
                call, Value.of(number + n_before if n_before else number), map(Value.of, carried)
            )
        nodes = [_tensor(call, one) for one in made]
        for k, (one, node) in enumerate(zip(carried, nodes, strict=False)):
            if one.ndim != node.ndim and k not in unread and not n_before:
                raise _OtherRank
        ends = None if _is_always(goes_on) else _truth(call, _value(call, goes_on))
        if ends is None and condition is None:
            _check_end(call, trips)
        own = frozenset((number, *carried))
        ends = None if ends is None else call.translator.with_sizes([ends], own)[0]
        nodes = call.translator.with_sizes(nodes, own)
        return Body(nodes[: len(initial)], nodes[len(initial) :], ends)

    return growing(
        trips, initial, build, condition=condition, origins=call.translator.origins, unread=unread
    )


def _iteration(call: Call, number: Value, carried: Iterable[AnyValue]) -> list[AnyValue]:
    """What the body gives: whether the loop goes on, what is carried, a row."""
    body = call.subgraph("body")
    values = [number, Value.of_known(np.asarray(True)), *carried]
    names = [one.name for one in body.input]
    return call.translator.graph(body, dict(zip(names, values, strict=True)))


def _peeled(call: Call, initial: Sequence[Value], trips: Node, unread: Sequence[int]) -> list[Node]:
    """A loop whose first iteration gives its values the types that they keep: that iteration by
    itself, then the others. As if there was one."""
    goes_on, *made = _iteration(call, Value.of_known(np.asarray(0, np.int64)), initial)
    nodes = [_tensor(call, one) for one in made]
    condition = None if _is_always(goes_on) else _truth(call, _value(call, goes_on))
    count = trip_size(trips)
    if count is None:
        trips = binary("sub", trips, 1)
    elif count != FOR_EVER:
        trips = size(maximum(count - 1, 0), INT64)
    n = len(initial)
    carried = _looped(call, nodes[:n], trips, condition, unread, n_before=1)
    rows = [
        basic.concat([basic.expand_dims(first, 0), rest], 0)
        for first, rest in zip(nodes[n:], carried[n:], strict=True)
    ]
    return [*carried[:n], *rows]


def _unread(body: GraphProto) -> list[int]:
    """Which carried values nothing reads, in the body and in graphs inside of it."""
    names = {one.name for one in body.output}
    waiting = [body]
    while waiting:
        for node in waiting.pop().node:
            names.update(node.input)
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    names.update(one.name for one in inner.output)
                    waiting.append(inner)
    return [k for k, one in enumerate(body.input[2:]) if one.name not in names]


def _is_once(trips: Node) -> bool:
    """Whether a loop that nothing else ends makes an iteration."""
    count = trip_size(trips)
    return count is not None and bounds(count)[0] > 0


def _trips(call: Call) -> Node:
    if not call.has(0):
        return full((), FOR_EVER, INT64)
    value = call.value(0)
    if value.sizes is not None:
        trips = call.size(0)
        return size(trips if not isinstance(trips, int) else max(0, trips), INT64)
    return basic.cast(basic.reshape(value.node, ()), INT64)


@contextmanager
def _inside(call: Call, trips: Node) -> Iterator[None]:
    """Loops inside of a loop are run so often."""
    count, before = trip_size(trips), call.translator.n_trips
    call.translator.n_trips *= count if isinstance(count, int) and 0 < count < FOR_EVER else 1
    try:
        yield
    finally:
        call.translator.n_trips = before


def _check_end(call: Call, trips: Node) -> None:
    """A loop that no condition ends has a count that can be reached."""
    count = trip_size(trips)
    if count == FOR_EVER:
        call.refuse("it has no trip count, and its condition stays true: it would never end")
    around = call.translator.n_trips
    if isinstance(count, int) and count * around > MAX_TRIPS:
        often = f", {around} times, as loops around it say" if around > 1 else ""
        call.refuse(
            f"it makes {count} iterations{often}, and its condition stays true: it would run for "
            f"days; {MAX_TRIPS} are the most"
        )


def _is_always(value: AnyValue) -> bool:
    known = value.known if isinstance(value, Value) else None
    return known is not None and bool(known.reshape(-1)[0])


def _value(call: Call, value: AnyValue) -> Value:
    if not isinstance(value, Value):
        call.refuse("its body gives a sequence or an optional where it carries tensors")
    return value


def _tensor(call: Call, value: AnyValue) -> Node:
    return _value(call, value).node


def _unrolled(call: Call, initial: Sequence[AnyValue]) -> Result:
    body = call.subgraph("body")
    trips = FOR_EVER
    if call.has(0):
        trips = call.integer(0)
        if MAX_UNROLLED < trips < FOR_EVER:
            call.refuse(f"a loop that carries sequences makes {trips} iterations, more than "
                        f"{MAX_UNROLLED}")  # fmt: skip
    goes_on = not call.has(1) or bool(call.known(1).reshape(-1)[0])
    carried = list(initial)
    rows: list[list[Node]] = [[] for _ in body.output[1 + len(initial) :]]
    done = 0
    while done < trips and goes_on:
        if done == MAX_UNROLLED:
            call.refuse(f"a loop that carries sequences makes more than {MAX_UNROLLED} iterations")
        number = Value.of_known(np.asarray(done, np.int64))
        condition, *made = _iteration(call, number, carried)
        known = _value(call, condition).known
        if known is None:
            call.refuse("a loop that carries sequences ends by what only a run knows")
        goes_on = bool(known.reshape(-1)[0])
        carried = made[: len(initial)]
        for row, one in zip(rows, made[len(initial) :], strict=True):
            row.append(_tensor(call, one))
        done += 1
    if rows and not done:
        call.refuse("a loop that carries sequences makes no iteration, so its rows have no type")
    return [*carried, *(_stacked(row) for row in rows)]


def _stacked(nodes: Sequence[Node]) -> Node:
    return basic.concat([basic.expand_dims(one, 0) for one in nodes], 0)


@operator("Scan", since=9)
def scan(call: Call) -> Result:
    n_scanned = call.need_attr("num_scan_inputs")
    values = [call.value(index) for index in range(len(call.inputs))]
    split = len(values) - n_scanned
    if n_scanned < 1 or split < 0:
        call.fail(f"{n_scanned} of its {len(values)} inputs are to be scanned")
    scanned = [one.node for one in values[split:]]
    axes = _per_input(call, "scan_input_axes", n_scanned)
    scanned = [_front(call, node, axis) for node, axis in zip(scanned, axes, strict=True)]
    backwards = _per_input(call, "scan_input_directions", n_scanned)
    return _scanned(call, [one.node for one in values[:split]], scanned, backwards)


@operator("Scan", since=8)
def scan_batches(call: Call) -> Result:
    """The first version: axis 0 counts batches, each scanned by itself."""
    n_scanned = call.need_attr("num_scan_inputs")
    if call.has(0):
        call.refuse("sequence_lens of the first version of Scan is not read")
    values = [call.node(index) for index in range(1, len(call.inputs))]
    split = len(values) - n_scanned
    batches = values[-1].shape[0]
    backwards = _per_input(call, "directions", n_scanned)

    def build(number: Node, carried: Sequence[Node]) -> Body:
        rows = [make("gather", one, number, axis=0) for one in values]
        return Body([], _scanned(call, rows[:split], rows[split:], backwards))

    return growing(size(batches, INT64), [], build, origins=call.translator.origins)


def _per_input(call: Call, name: str, count: int) -> list[int]:
    given: list[int] = call.attr(name) or [0] * count
    if len(given) != count:
        call.fail(f"{name} has {len(given)} entries for {count} values")
    return given


def _front(call: Call, node: Node, axis: int) -> Node:
    axis = call.axis(axis, node.ndim)
    return basic.permute(node, [axis, *(k for k in range(node.ndim) if k != axis)])


def _scanned(
    call: Call, initial: Sequence[Node], scanned: Sequence[Node], backwards: Sequence[int]
) -> list[Node]:
    """Final states, then stacked rows; what is scanned has its axis in front."""
    body = call.subgraph("body")
    lengths: set[Dim] = {node.shape[0] for node in scanned}
    if len(lengths) != 1:
        call.fail(f"what it scans has several lengths: {sorted(map(str, lengths))}")
    [length] = lengths
    n = len(initial)
    if len(body.input) != n + len(scanned) or len(body.output) < n:
        call.fail(f"its body has {len(body.input)} inputs for {n + len(scanned)} values")
    names = [one.name for one in body.input]
    trips = size(length, INT64)

    def place(number: Node, is_backwards: int) -> Node:
        return trips - 1 - number if is_backwards else number

    def build(number: Node, carried: Sequence[Node]) -> Body:
        rows = [
            make("gather", node, place(number, one), axis=0)
            for node, one in zip(scanned, backwards, strict=True)
        ]
        given: dict[str, AnyValue | None] = {
            name: Value.of(node) for name, node in zip(names, (*carried, *rows), strict=True)
        }
        made = [_tensor(call, one) for one in call.translator.graph(body, given)]
        made = call.translator.with_sizes(made, frozenset((number, *carried)))
        return Body(made[:n], made[n:])

    results = growing(trips, initial, build, origins=call.translator.origins)
    n_rows = len(results) - n
    axes = _per_input(call, "scan_output_axes", n_rows)
    directions = _per_input(call, "scan_output_directions", n_rows)
    rows = []
    for node, axis, is_backwards in zip(results[n:], axes, directions, strict=True):
        turned = basic.flip(node, [0]) if is_backwards else node
        rows.append(_behind(call, turned, axis))
    return [*results[:n], *rows]


def _behind(call: Call, node: Node, axis: int) -> Node:
    axis = call.axis(axis, node.ndim)
    order = list(range(1, node.ndim))
    order.insert(axis, 0)
    return basic.permute(node, order)
