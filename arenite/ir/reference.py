"""The oracle: a graph evaluated node by node, each by the reference rule of its op.

In: a graph, an array for each input, values for its variables (found in the inputs' shapes where
they stand there alone). Out: an array for each output, and what states become. Values are computed
when they are asked for, so the side of an `if` that is not taken costs and raises nothing; an
intermediate is dropped after its last use. Nothing is fast here; every device is judged by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from itertools import repeat

import numpy as np

from arenite.dtype import Array
from arenite.errors import BoundsError, InvalidArgument, InvalidGraph, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Expr, Var, check_binding
from arenite.ir.dim import evaluate as evaluate_dim
from arenite.ir.element import held_as, numpy_dtype
from arenite.ir.graph import Graph, found_sizes
from arenite.ir.node import Node, typed
from arenite.ir.ops import OPS, Region, parameter
from arenite.ir.ops.control import loop_parts, trip_size
from arenite.ir.ops.unbounded import bind_shape, sizes_entering, sizes_made


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array] | Sequence[Array] = (),
    bindings: Mapping[str, int] | None = None,
    states: MutableMapping[str, Array] | None = None,
) -> list[Array]:
    """The outputs. Inputs come in order or by name; they are never written to.

    `states` has arrays by name, zero where there is none, and gets what they become.
    """
    given = _given(graph, inputs)
    bound = bind(graph, given, bindings)
    before = {} if states is None else states
    held = {node: _state(node, before) for node in graph.states}
    with np.errstate(all="ignore"):
        results = _Evaluation(graph, given, bound, held).results()
    made = [np.array(array, order="C") for array in results]
    n = len(graph.outputs)
    for (state, _), array in zip(graph.updates, made[n:], strict=True):
        before[state.attr("name")] = array
    return made[:n]


def _state(node: Node, states: Mapping[str, Array]) -> Array:
    array = states.get(node.attr("name"))
    shape, dtype = held_as(tuple(evaluate_dim(size, {}) for size in node.shape), node.dtype)
    if array is None:
        return np.zeros(shape, dtype)
    if array.shape != shape:
        raise ShapeMismatch(f"state {_named(node)} got an array of shape {array.shape}")
    if array.dtype != dtype:
        raise TypeMismatch(f"state {_named(node)} got an array of {array.dtype}")
    return array


class _Evaluation:
    """One run of a graph, from the outputs down: what is not needed is not computed."""

    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[Array],
        bindings: dict[str, int],
        states: Mapping[Node, Array] | None = None,
    ) -> None:
        self.graph = graph
        self.bindings = bindings
        #: Who says what the sizes are that are found while running; in a body, each time anew.
        #: Of several cuts of one size the first, which needs none of the others.
        self._cuts = {
            size.name: node for node in reversed(graph.nodes) for size in sizes_made(node)
        }
        for name in self._cuts:
            bindings.pop(name, None)
        self.values: dict[Node, Array] = dict(zip(graph.inputs, arrays, strict=True))
        self.values |= states or {}
        self._kept = {*graph.inputs, *graph.results}
        self._uses = Counter(value for node in graph.nodes for value in set(node.inputs))
        #: Results of loops and branches: nodes that differ in the index alone are one run.
        self._runs: dict[Hashable, list[Array]] = {}

    def results(self) -> list[Array]:
        values = self.values
        pending = list(self.graph.results)
        while pending:
            node = pending[-1]
            if node in values:
                pending.pop()
                continue
            missing = [value for value in self._needed(node) if value not in values]
            if missing:
                pending += missing
                continue
            pending.pop()
            values[node] = self._value(node)
            for value in set(node.inputs):
                self._uses[value] -= 1
                if not self._uses[value] and value not in self._kept:
                    values.pop(value, None)
        return [values[node] for node in self.graph.results]

    def _needed(self, node: Node) -> Sequence[Node]:
        if node.op != "if":
            return (*node.inputs, *self._unknown_sizes(node)) if self._cuts else node.inputs
        condition, then, otherwise = node.inputs
        if condition not in self.values:
            return (condition,)
        return (then if self.values[condition] else otherwise,)

    def _unknown_sizes(self, node: Node) -> list[Node]:
        """The nodes that say what sizes in the type or attributes of `node` are."""
        names = {var.name for var in found_sizes(node) if var.name not in self.bindings}
        names.difference_update(size.name for size in sizes_made(node))
        return [cut for name in names if (cut := self._cuts.get(name)) not in (None, node)]

    def _value(self, node: Node) -> Array:
        if node.op == "if":
            return self.values[self._needed(node)[0]]
        if node.op == "cut":
            x, count = (self.values[value] for value in node.inputs)
            kept = x[: max(0, int(count))]
            self.bindings[node.attr("size").name] = len(kept)
            return kept
        arrays = [self.values[value] for value in node.inputs]
        if node.op == "arange":
            made = np.arange(max(0, int(arrays[0])))
            self.bindings[node.attr("size").name] = len(made)
            return made
        runs = {
            "branch": self._branch,
            "loop": self._loop,
            "growing_loop": self._loop,
            "specialize": self._specialize,
        }
        if node.op in runs:
            attrs = tuple(item for item in node.attrs if item[0] != "index")
            key = (node.op, node.inputs, attrs)
            if key not in self._runs:
                self._runs[key] = runs[node.op](node, arrays)
            index: int = node.attr("index")
            return self._runs[key][index]
        return evaluate_node(node, arrays, self.bindings)

    def _inside(self, region: Region, arrays: Sequence[Array]) -> list[Array]:
        return _Evaluation(self.graph.of_region(region), arrays, self.bindings).results()

    def _branch(self, node: Node, arrays: list[Array]) -> list[Array]:
        return self._inside(node.attr("then" if arrays[0] else "otherwise"), arrays[1:])

    def _loop(self, node: Node, arrays: list[Array]) -> list[Array]:
        trips, goes_on, *state = arrays
        parts, n = loop_parts(node), node.attr("carried")
        carried, captured = state[:n], state[n:]
        stacked: list[list[Array]] = [[] for _ in parts.rows]
        iteration = 0
        while iteration < int(trips) and goes_on:
            self._enter(node, parts.carried, carried)
            given = [np.asarray(iteration, np.int64), *carried, *captured]
            goes_on, *made = self._inside(node.attr("body"), given)
            carried = made[:n]
            for rows, row in zip(stacked, made[n:], strict=True):
                rows.append(row)
            iteration += 1
        if node.op == "loop":
            return [*carried, *map(self._all_rows, repeat(parts.trips), parts.rows, stacked)]
        if iteration:
            return self._learned(node, [*carried, *map(np.stack, stacked)])
        shapes = node.attr("shapes")[n:]
        known = self.bindings | {size.name: 0 for size in sizes_made(node)}
        none = [
            np.zeros([evaluate_dim(size, known) for size in shape], numpy_dtype(row.dtype))
            for shape, row in zip(shapes, parts.rows, strict=True)
        ]
        return self._learned(node, [*carried, *none])

    def _enter(self, node: Node, parameters: Sequence[Node], carried: Sequence[Array]) -> None:
        """Learn the sizes that carried values have in an iteration."""
        entering = sizes_entering(node)
        for size in entering:
            self.bindings.pop(size.name, None)
        for one, array in zip(parameters, carried, strict=True):
            if node.op == "growing_loop":
                what = "a carried value"
                bind_shape(what, one.shape, array.shape, entering, self.bindings)

    def _specialize(self, node: Node, arrays: list[Array]) -> list[Array]:
        n = node.attr("n_values")
        given = [parameter(value.shape, value.dtype) for value in node.inputs[n:]]
        results = tuple(node.attr("function").function(arrays[:n], given))
        return self._learned(node, self._inside(Region(tuple(given), results), arrays[n:]))

    def _learned(self, node: Node, arrays: list[Array]) -> list[Array]:
        """The results of a node that finds sizes by making them."""
        for size in sizes_made(node):
            self.bindings.pop(size.name, None)
        for shape, array in zip(node.attr("shapes"), arrays, strict=True):
            bind_shape(f"a result of {node.op}", shape, array.shape, sizes_made(node),
                       self.bindings)  # fmt: skip
        return arrays

    def _all_rows(self, trips: Node, row: Node, made: list[Array]) -> Array:
        """As many rows as the trip count says, zero where there was no iteration."""
        size = trip_size(trips)
        assert size is not None
        shape = [evaluate_dim(dim, self.bindings) for dim in (size, *row.shape)]
        rows = np.zeros(shape, numpy_dtype(row.dtype))
        for number, one in enumerate(made):
            rows[number] = one
        return rows


def evaluate_node(node: Node, arrays: list[Array], bindings: Mapping[str, int]) -> Array:
    """One node on the arrays of its inputs; the rule's result is held to the node's type."""
    shape = tuple(evaluate_dim(size, bindings) for size in node.shape)
    attrs = {name: _evaluated(value, bindings) for name, value in node.attrs}
    result = OPS[node.op].reference(arrays, attrs, shape, node.dtype)
    if (result.shape, result.dtype) != held_as(shape, node.dtype):
        raise InvalidGraph(
            f"the reference of {node!r} gave {result.dtype}{list(result.shape)}, not "
            f"{typed(shape, node.dtype)}"
        )
    return result


def bind(
    graph: Graph, arrays: Sequence[Array], bindings: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Values of the graph's variables; arrays are checked against the types of the inputs."""
    bound = dict(bindings or {})
    for node, array in zip(graph.inputs, arrays, strict=True):
        if array.ndim != node.ndim:
            raise ShapeMismatch(f"input {_named(node)} got an array of shape {array.shape}")
        if array.dtype != numpy_dtype(node.dtype):
            raise TypeMismatch(f"input {_named(node)} got an array of {array.dtype}")
        for size, actual in zip(node.shape, array.shape, strict=True):
            if isinstance(size, Var) and size.name not in bound:
                bound[size.name] = check_binding(size, actual)
    for node, array in zip(graph.inputs, arrays, strict=True):
        expected = tuple(evaluate_dim(size, bound) for size in node.shape)
        if expected != array.shape:
            raise ShapeMismatch(
                f"input {_named(node)} got an array of shape {array.shape}, not {expected}"
            )
    for var in graph.vars:
        if var.name not in bound:
            raise BoundsError(f"variable {var.name!r} stands in no input's shape; bind it")
    return bound


def _given(graph: Graph, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(graph.inputs):
            raise InvalidArgument(f"the graph has {len(graph.inputs)} inputs, not {len(inputs)}")
        return [np.asarray(array) for array in inputs]
    names = [node.attr("name") for node in graph.inputs]
    if set(names) != set(inputs):
        raise InvalidArgument(f"the graph has inputs {names}, not {list(inputs)}")
    return [np.asarray(inputs[name]) for name in names]


def _named(node: Node) -> str:
    return f"{node.attr('name')!r} ({node.type_text})"


def _evaluated(value: object, bindings: Mapping[str, int]) -> object:
    if isinstance(value, tuple):
        return tuple(_evaluated(item, bindings) for item in value)
    return evaluate_dim(value, bindings) if isinstance(value, Expr) else value
