"""An independent check of a graph; it runs between passes in the tests.

It walks the graph its own way and trusts nothing that was computed when nodes were made: types are
inferred again, attributes checked again, interning looked up, inputs accounted for.
"""

from __future__ import annotations

from itertools import pairwise

from arenite.errors import AreniteError, InvalidGraph
from arenite.ir.graph import Graph
from arenite.ir.node import Node, is_interned, typed
from arenite.ir.ops import OPS
from arenite.ir.ops.control import Region, regions_of
from arenite.ir.ops.define import check_call
from arenite.ir.ops.unbounded import sizes_entering, sizes_made


def verify(graph: Graph) -> None:
    """Nothing, or InvalidGraph naming the first node that breaks a rule, in bodies too."""
    reached = _reached(graph)
    _check_inputs(graph, reached)
    _check_states(graph, reached)
    _check_nodes(graph, reached)
    _check_sizes(graph)
    regions = list(dict.fromkeys(r for node in reached for r in regions_of(node)))
    seen = set(regions)
    while regions:
        region = regions.pop()
        inside = graph.of_region(region)
        within = _reached(inside)
        _check_parameters(region, within)
        _check_nodes(inside, within)
        inner = {r for node in within for r in regions_of(node)} - seen
        seen |= inner
        regions += inner


def _check_sizes(graph: Graph) -> None:
    """Sizes found while running are found somewhere."""
    nodes = graph.everything
    names = {size.name for node in nodes for size in (*sizes_made(node), *sizes_entering(node))}
    missing = [var.name for var in graph.found if var.name not in names]
    if missing:
        raise InvalidGraph(f"no cut of the graph says what size {missing[0]} is")


def _check_states(graph: Graph, reached: set[Node]) -> None:
    """States have names of their own, and become values of their type, once each."""
    names = sorted(node.attr("name") for node in reached if node.op == "state")
    for one, other in pairwise(names):
        if one == other:
            raise InvalidGraph(f"two states are called {one!r}")
    updated: set[Node] = set()
    for state, value in graph.updates:
        if state.op != "state":
            raise InvalidGraph(f"{state!r} is no state, and becomes {value!r}")
        if state in updated:
            raise InvalidGraph(f"state {state.attr('name')!r} becomes two values")
        updated.add(state)
        if (state.shape, state.dtype) != (value.shape, value.dtype):
            raise InvalidGraph(
                f"state {state.attr('name')!r}, {state.type_text}, becomes "
                f"{value.type_text}: another type"
            )


def _check_parameters(region: Region, reached: set[Node]) -> None:
    if len(set(region.parameters)) != len(region.parameters):
        raise InvalidGraph(f"{region!r} has a parameter twice")
    for node in region.parameters:
        if node.op != "parameter":
            raise InvalidGraph(f"{region!r} has {node!r} for a parameter")
    given = {node for node in reached if OPS[node.op].storage == "given"}
    strays = given - set(region.parameters)
    if strays:
        raise InvalidGraph(
            f"{region!r} depends on {min(map(repr, strays))}, which is outside; what a region "
            "needs from outside is a capture"
        )


def _check_nodes(graph: Graph, reached: set[Node]) -> None:
    for node in reached:
        _check_node(node)
    counts: dict[str, Node] = {}
    for node in reached:
        if node.op == "cut":
            name = node.attr("size").name
            if counts.setdefault(name, node.inputs[1]) is not node.inputs[1]:
                raise InvalidGraph(f"{node!r}: size {name} is the count of another cut")
    if set(graph.nodes) != reached | set(graph.inputs) or len(graph.nodes) != len(set(graph.nodes)):
        raise InvalidGraph("graph.nodes are not the nodes the outputs reach, each once")
    position = {node: i for i, node in enumerate(graph.nodes)}
    for node in reached:
        if any(position[value] >= position[node] for value in node.inputs):
            raise InvalidGraph(f"{node!r} stands before one of its inputs")


def _reached(graph: Graph) -> set[Node]:
    reached: set[Node] = set()
    frontier = {*graph.results, *(state for state, _ in graph.updates)}
    while frontier:
        reached |= frontier
        frontier = {value for node in frontier for value in node.inputs} - reached
    return reached


def _check_inputs(graph: Graph, reached: set[Node]) -> None:
    for i, node in enumerate(graph.inputs):
        if node.op != "input":
            raise InvalidGraph(f"graph input {i} is {node!r}, which is no input")
    for what in ("name", "index"):
        values = [node.attr(what) for node in graph.inputs]
        if len(set(values)) != len(values):
            raise InvalidGraph(f"two graph inputs have the same {what}: {values}")
    if any(node.op == "parameter" for node in reached):
        raise InvalidGraph("a parameter stands outside its region")
    strays = {node for node in reached if node.op == "input"} - set(graph.inputs)
    if strays:
        names = sorted(node.attr("name") for node in strays)
        raise InvalidGraph(f"the outputs depend on inputs the graph does not list: {names}")
    if len(set(graph.names)) != len(graph.names):
        raise InvalidGraph(f"two outputs have the same name: {graph.names}")


def _check_node(node: Node) -> None:
    definition = OPS.get(node.op)
    if definition is None:
        raise InvalidGraph(f"{node!r}: no such op")
    attrs = dict(node.attrs)
    if list(node.attrs) != sorted(node.attrs, key=lambda item: item[0]):
        raise InvalidGraph(f"{node!r}: attributes are not sorted: {list(attrs)}")
    try:
        check_call(definition, node.inputs, attrs)
        shape, dtype = definition.infer(node.inputs, attrs)
    except AreniteError as error:
        raise InvalidGraph(f"{node!r}: {error}") from error
    if shape != node.shape or dtype != node.dtype:
        raise InvalidGraph(f"{node!r}: its inputs and attributes give {typed(shape, dtype)}")
    if not is_interned(node):
        raise InvalidGraph(f"{node!r} is not the one node of its op, inputs and attributes")
