"""Regions in the making: what a body uses from outside becomes a capture, a parameter in it.

In: nodes built over parameters, and over whatever else was at hand. Out: a Region that depends on
its parameters alone, and the values to be given for the new ones. Subexpressions that do not
depend on the body's own parameters are captured as a whole, so they are computed once, before;
what takes no memory and no time to make up again stays inside, and so do views of what is captured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from arenite.errors import InvalidArgument
from arenite.ir.graph import topological
from arenite.ir.node import Node, Origins
from arenite.ir.ops import OPS, Region, full, make, parameter
from arenite.ir.ops.control import cut
from arenite.ir.ops.define import BOOL, INT64

#: Sources that a body makes up for itself.
_CHEAP = frozenset({"constant", "full", "iota", "size"})
#: Views that cost nothing where they are read.
_FREE = frozenset({"expand", "reshape", "slice"})


def rebuilt(
    roots: Iterable[Node], mapping: Mapping[Node, Node], origins: Origins | None = None
) -> dict[Node, Node]:
    """What every node the roots reach becomes when some are replaced, these among them.

    `origins` learns where the new nodes come from.
    """
    new = dict(mapping)
    for node in topological(roots, mapping):
        inputs = tuple(new[value] for value in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        made = new[node] = node if same else make(node.op, *inputs, **dict(node.attrs))
        if origins is not None and made is not node:
            origins.add(made, *origins.of(node))
    return new


def closed(
    parameters: Sequence[Node], results: Sequence[Node], origins: Origins | None = None
) -> tuple[Region, tuple[Node, ...]]:
    """The region, and the captures that stand for its parameters behind the given ones."""
    order = topological(results)
    depends: set[Node] = set(parameters)
    is_cheap: set[Node] = set()
    captures: dict[Node, Node] = {}

    def look_at(value: Node) -> None:
        while value.op in _FREE and value not in depends and value not in is_cheap:
            [value] = value.inputs
        if value not in depends and value not in is_cheap and value not in captures:
            captures[value] = parameter(value.shape, value.dtype)

    for node in order:
        if node in depends:
            continue
        if any(value in depends for value in node.inputs):
            depends.add(node)
            for value in node.inputs:
                look_at(value)
        elif _stays_inside(node, is_cheap):
            is_cheap.add(node)
    for node in results:
        look_at(node)
    new = rebuilt(results, captures, origins)
    region = Region((*parameters, *captures.values()), tuple(new[node] for node in results))
    return region, tuple(captures)


def _stays_inside(node: Node, is_cheap: Collection[Node]) -> bool:
    if OPS[node.op].family == "movement":
        return all(value in is_cheap for value in node.inputs)
    return node.op in _CHEAP


def loop(
    trips: Node,
    initial: Sequence[Node],
    body: tuple[Sequence[Node], Sequence[Node]],
    *,
    rows: Sequence[Node] = (),
    condition: Node | None = None,
    goes_on: Node | None = None,
    cut_rows: bool = False,
    origins: Origins | None = None,
) -> list[Node]:
    """The results of a loop: the carried values, then the rows, stacked.

    `body` is (parameters, following): the iteration number and the carried values, and what these
    become. `condition` is that before the first iteration, `goes_on` that after each. With
    `cut_rows` there are as many rows as iterations, also where a condition ended them; otherwise
    as many as the trip count, zero where there was no iteration.
    """
    parameters, following = body
    if cut_rows and rows and (condition is not None or goes_on is not None):
        # The number of iterations is carried along.
        done = make("add", parameters[0], full((), 1, INT64))
        counted = ((*parameters, parameter((), INT64)), (*following, done))
        start = [*initial, full((), 0, INT64)]
        made = loop(
            trips, start, counted, rows=rows, condition=condition, goes_on=goes_on, origins=origins
        )
        n = len(initial)
        return [*made[:n], *(cut(stacked, made[n]) for stacked in made[n + 1 :])]
    if len(following) != len(initial):
        raise InvalidArgument(
            f"a loop carries {len(initial)} values, and its body gives {len(following)}"
        )
    always = full((), True, BOOL)
    results = (goes_on if goes_on is not None else always, *following, *rows)
    region, captures = closed(parameters, results, origins)
    inputs = (trips, condition if condition is not None else always, *initial, *captures)
    return [
        make("loop", *inputs, body=region, carried=len(initial), index=index)
        for index in range(len(following) + len(rows))
    ]
