"""Branches, loops and cuts of a graph as steps of its schedule, with the schedules inside them.

In: the nodes that are results of one of them. Out: a Branch, a Loop or a Cut. Rows that a body
reads as `captured[iteration]` become windows: parameters that are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from arenite.ir import OPS, Graph, Node, full, known_le, parameter, topological
from arenite.ir.ops.control import LoopParts, is_always, loop_parts, trip_size
from arenite.ir.regions import rebuilt
from arenite.schedule.kernel import Branch, Cut, HostCall, Kernel, Loop, Role, Schedule, Stage
from arenite.schedule.roots import is_in_memory


def construct(
    graph: Graph, nodes: Sequence[Node], fused: Callable[..., Schedule], numbers: Iterator[int]
) -> Branch | Loop | Cut | HostCall:
    """The step of a branch or a loop, of which `nodes` are results."""
    node = nodes[0]
    if node.op == "cut":
        source, count = node.inputs
        return Cut(source, count, node)
    if node.op == "host":
        return HostCall(node.inputs, node)
    outputs = tuple((one.attr("index"), one) for one in nodes)
    if node.op == "branch":
        condition, *captures = node.inputs
        then = fused(graph.of_region(node.attr("then")))
        otherwise = fused(graph.of_region(node.attr("otherwise")))
        return Branch(condition, tuple(captures), then, otherwise, outputs)
    return _loop(graph, node, outputs, fused, numbers)


def _loop(
    graph: Graph,
    node: Node,
    outputs: tuple[tuple[int, Node], ...],
    fused: Callable[..., Schedule],
    numbers: Iterator[int],
) -> Loop:
    parts = loop_parts(node)
    n = len(parts.initial)
    rows = tuple(index - n for index, _ in outputs if index >= n)
    results = [
        *(() if is_always(parts.goes_on) else (parts.goes_on,)),
        *(new for new, old in zip(parts.following, parts.carried, strict=True) if new is not old),
        *(parts.rows[k] for k in rows),
    ]
    on_condition = not (is_always(parts.condition) and is_always(parts.goes_on))
    zeros = tuple(
        _fill(one, next(numbers)) for index, one in outputs if index >= n and on_condition
    )
    windows = _windows(parts, results)
    new = rebuilt(results, {one: window for one, window, _ in windows}, graph.origins)
    parameters = (*node.attr("body").parameters, *(window for _, window, _ in windows))
    inside = Graph(parameters, tuple(new[one] for one in results), (), graph.origins)
    following = tuple(new.get(one, one) for one in parts.following)
    moved = replace(
        parts,
        goes_on=new.get(parts.goes_on, parts.goes_on),
        following=following,
        rows=tuple(new.get(one, one) for one in parts.rows),
    )
    return Loop(
        moved,
        fused(inside, carried=_overwritable(graph, node, moved)),
        rows,
        tuple((window, captured) for _, window, captured in windows),
        zeros,
        outputs,
    )


def _overwritable(graph: Graph, node: Node, parts: LoopParts) -> dict[Node, Node]:
    """The carried values that may be written over, by what follows on them: a kernel before the
    loop makes their initial value, for the loop alone."""
    made = (parts.goes_on, *parts.following, *parts.rows)
    found: dict[Node, Node] = {}
    for initial, one, following in zip(parts.initial, parts.carried, parts.following, strict=True):
        if not OPS[following.op].overwrites or following.inputs[0] is not one:
            continue
        is_elsewhere = is_in_memory(initial) or OPS[initial.op].is_construct
        if is_elsewhere or initial in graph.results or made.count(following) > 1:
            continue
        readers = [user for user in graph.nodes if initial in user.inputs]
        results = all(user.op == "loop" and user.inputs == node.inputs for user in readers)
        if results and node.inputs.count(initial) == 1:
            found[following] = one
    return found


def _windows(parts: LoopParts, results: list[Node]) -> list[tuple[Node, Node, Node]]:
    """(gather, parameter, captured): rows `captured[iteration]`, which are read where they lie."""
    trips = trip_size(parts.trips)
    if trips is None:
        return []
    captured = set(parts.captured)
    return [
        (node, parameter(node.shape, node.dtype), node.inputs[0])
        for node in topological(results)
        if node.op == "gather"
        and node.attr("axis") == 0
        and node.inputs[1] is parts.iteration
        and node.inputs[0] in captured
        and node not in results
        and known_le(trips, node.inputs[0].shape[0])
    ]


def _fill(node: Node, number: int) -> Kernel:
    """The kernel that makes a value zero before rows are written to it."""
    zero = full(node.shape, 0, node.dtype)
    return Kernel(
        name=f"zero_{number}",
        space=node.shape,
        axes=(),
        stages=(Stage(zero, Role.ROW),),
        inputs=(),
        outputs=(zero,),
        n_ops=0,
        border="rows that a loop with a condition may leave out are zero",
        number=number,
    )
