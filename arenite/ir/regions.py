"""Regions in the making: what a body uses from outside becomes a capture, a parameter in it.

In: nodes built over parameters, and over whatever else was at hand. Out: a Region that depends on
its parameters alone, and the values to be given for the new ones. Subexpressions that do not
depend on the body's own parameters are captured as a whole, so they are computed once, before;
what takes no memory and no time to make up again stays inside, and so do views of what is captured.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence

from arenite.dtype import BOOL, INT64
from arenite.errors import InvalidArgument
from arenite.ir.dim import Found
from arenite.ir.graph import found_sizes, topological
from arenite.ir.node import Node, Origins
from arenite.ir.ops import OPS, Region, full, make, parameter
from arenite.ir.ops.control import cut
from arenite.ir.ops.unbounded import sizes_made


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
    parameters: Sequence[Node],
    results: Sequence[Node],
    origins: Origins | None = None,
    sizes: Collection[Found] = (),
) -> tuple[Region, tuple[Node, ...]]:
    """The region, and the captures that stand for its parameters behind the given ones; `sizes` are
    found by whoever enters it."""
    outside = _taken_out(parameters, results, sizes)
    captures = {node: parameter(node.shape, node.dtype) for node in outside}
    new = rebuilt(results, captures, origins)
    region = Region((*parameters, *captures.values()), tuple(new[node] for node in results))
    return region, tuple(captures)


def hoisted(region: Region, n_own: int, captures: Sequence[Node]) -> tuple[Region, list[Node]]:
    """The region with what does not depend on its first `n_own` parameters taken out of it, and the
    captures that stand for the others then. Captures that take nothing to make up go inside."""
    own, captured = region.parameters[:n_own], region.parameters[n_own:]
    outside = dict(zip(captured, captures, strict=True))
    moved = {one: value for one, value in outside.items() if OPS[value.op].storage == "made up"}
    for node in _taken_out(own, region.results):
        if node in moved:
            continue
        if node in outside:
            moved[node] = node
        else:
            # The same for every result of a loop, which all have this region.
            moved[node] = _moved.setdefault(node, parameter(node.shape, node.dtype))
    if all(old is new for old, new in moved.items()):
        return region, list(captures)
    new = rebuilt(region.results, moved)
    given = rebuilt(moved, outside)
    for old, made in (*new.items(), *given.items()):
        if made is not old and made.op != "parameter":
            _originals[made] = old
    kept = {old: one for old, one in moved.items() if one.op == "parameter"}
    inner = Region((*own, *kept.values()), tuple(new[node] for node in region.results))
    return inner, [given[node] for node in kept]


def original(node: Node) -> Node | None:
    """The node that `hoisted` made this one of."""
    return _originals.get(node)


#: What was taken out of a body, and the parameter that stands for it there.
_moved: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
_originals: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()


#: Families of ops that read their inputs from memory, in an order of their own.
_READS_WHOLE = frozenset({"indexing", "sort", "scan"})


def _taken_out(
    parameters: Sequence[Node], results: Sequence[Node], sizes: Collection[Found] = ()
) -> list[Node]:
    """The largest expressions that depend on none of the parameters, and are worth computing once.

    Where only one side of an `if` needs it, nothing that may fail: it would fail before the choice.
    """
    order = topological(results)
    depends = _dependent(order, parameters, sizes)
    inside: set[Node] = set()  # made up where it is needed
    may_fail: set[Node] = set()
    for node in order:
        if node in depends:
            continue
        if _stays_inside(node, inside):
            inside.add(node)
        elif OPS[node.op].family == "indexing" or any(v in may_fail for v in node.inputs):
            may_fail.add(node)
    needed = _needed(results) if may_fail else set()
    # Views are free to whoever can follow them; these would copy what they show in each iteration.
    read_whole = {
        value for node in order if OPS[node.op].family in _READS_WHOLE for value in node.inputs
    }
    packed = {node.inputs[1] for node in order if OPS[node.op].is_packed}
    packed = {node for node in packed if OPS[node.op].family == "movement"}
    read_whole |= packed
    # Products read rows or columns alike; others would read them crosswise in each iteration.
    crossed = {value for node in order if node.op != "matmul" for value in node.inputs}
    crossed |= {*results}
    found: dict[Node, None] = {}
    pending = [*reversed(results)]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        is_lazy = node in may_fail and node not in needed
        is_free = OPS[node.op].is_free and node not in read_whole
        is_free |= node.op == "permute" and node not in crossed
        if node in depends or is_free or is_lazy:
            pending += reversed(node.inputs)
        elif node not in inside or node in packed:
            found[node] = None
    return [node for node in found if node not in parameters]


def _dependent(
    order: Sequence[Node], parameters: Sequence[Node], sizes: Collection[Found]
) -> set[Node]:
    """The nodes that depend on parameters: on their values, or on a size found with these; on
    `sizes` too."""
    depends: set[Node] = set(parameters)
    found: set[Found] = set(sizes)
    n_known = -1
    while len(found) > n_known:
        n_known = len(found)
        for node in order:
            if node not in depends and (
                any(value in depends for value in node.inputs)
                or (found and not found.isdisjoint(found_sizes(node)))
            ):
                depends.add(node)
        found = {*sizes, *(size for node in depends for size in sizes_made(node))}
    return depends


def _needed(results: Sequence[Node]) -> set[Node]:
    """What is computed whichever sides of ifs are taken."""
    found: set[Node] = set()
    pending = [*results]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.inputs[:1] if node.op == "if" else node.inputs
    return found


def _stays_inside(node: Node, is_cheap: Collection[Node]) -> bool:
    if OPS[node.op].family == "movement":
        return all(value in is_cheap for value in node.inputs)
    return node.op == "constant" or OPS[node.op].storage == "made up"


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
