"""Graph: outputs, the inputs they may depend on, and everything between, in a fixed order.

What must hold: every `input` node the outputs reach is among `inputs`; the order of `nodes` depends
on the structure alone, so texts and digests are the same in every process. `nodes` are those of the
graph itself; the bodies of loops and branches are graphs of their own, `everything` has them too.
`updates` say what states become: (state, value) pairs, whose values are results like the outputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from arenite.dtype import DType
from arenite.errors import InvalidGraph
from arenite.ir.dim import Expr, Found, Var, found_in, variables
from arenite.ir.node import Node, Origins, attr_key
from arenite.ir.ops import OPS, BufferSource, ConstantData, Region
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.define import on_inputs
from arenite.ir.ops.host import HostFunction


def topological(roots: Iterable[Node], stop: Collection[Node] = ()) -> list[Node]:
    """Every node the roots reach, each once, after its inputs; not `stop` and what is behind."""
    return _visited(roots, set(stop))


def _visited(roots: Iterable[Node], done: set[Node]) -> list[Node]:
    """Nodes the roots reach that are not done yet, each after its inputs; they are done then."""
    order: list[Node] = []
    pending = list(roots)[::-1]
    while pending:
        node = pending[-1]
        if node in done:
            pending.pop()
            continue
        if done.issuperset(node.inputs):
            pending.pop()
            done.add(node)
            order.append(node)
        else:
            pending += [value for value in reversed(node.inputs) if value not in done]
    return order


def everything(roots: Iterable[Node]) -> list[Node]:
    """Every node the roots reach, and those in the regions they have, each once."""
    order: list[Node] = []
    done: set[Node] = set()
    seen: set[Region] = set()
    pending = [tuple(roots)]
    while pending:
        for node in _visited(pending.pop(), done):
            order.append(node)
            for region in regions_of(node):
                if region not in seen:
                    seen.add(region)
                    pending.append((*region.parameters, *region.results))
    return order


@dataclass(frozen=True)
class Graph:
    """`names` are those of the outputs; inputs carry their own."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    names: tuple[str, ...] = ()
    origins: Origins = field(default_factory=Origins, repr=False, compare=False)
    updates: tuple[tuple[Node, Node], ...] = ()

    def __post_init__(self) -> None:
        names = self.names or tuple(f"out{i}" for i in range(len(self.outputs)))
        if len(names) != len(self.outputs):
            raise InvalidGraph(f"{len(self.outputs)} outputs have {len(names)} names: {names}")
        object.__setattr__(self, "names", tuple(names))

    @staticmethod
    def of(outputs: Sequence[Node], origins: Origins | None = None) -> Graph:
        """The graph of some nodes, with the inputs they reach in the order of their index."""
        inputs = [node for node in topological(outputs) if node.op == "input"]
        inputs.sort(key=lambda node: node.attr("index"))
        known = Origins() if origins is None else origins.subset(everything(outputs))
        return Graph(tuple(inputs), tuple(outputs), (), known)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each after its inputs; the graph's inputs first."""
        return tuple(topological(self._roots))

    @cached_property
    def everything(self) -> tuple[Node, ...]:
        """All nodes, those of bodies and branches too."""
        has_bodies = any(map(regions_of, self.nodes))
        return tuple(everything(self._roots)) if has_bodies else self.nodes

    @property
    def _roots(self) -> tuple[Node, ...]:
        states = (state for state, _ in self.updates)
        return (*self.inputs, *states, *self.results)

    @property
    def results(self) -> tuple[Node, ...]:
        """What a run makes: the outputs, then what states become."""
        return (*self.outputs, *(value for _, value in self.updates))

    @cached_property
    def states(self) -> tuple[Node, ...]:
        """What lives from run to run, by name."""
        found = (node for node in self.nodes if node.op == "state")
        return tuple(sorted(found, key=lambda node: str(node.attr("name"))))

    @property
    def constants(self) -> list[Node]:
        """The arrays the graph brings along, in the order that saved programs count them by."""
        return [node for node in self.everything if OPS[node.op].storage == "constant"]

    def mapped(self, new: Mapping[Node, Node], origins: Origins) -> Graph:
        """The graph of what `new` has for the outputs and for what states become; what it has
        nothing for stays."""
        return Graph(
            self.inputs,
            tuple(new.get(node, node) for node in self.outputs),
            self.names,
            origins,
            tuple((state, new.get(value, value)) for state, value in self.updates),
        )

    def of_region(self, region: Region) -> Graph:
        """A body or a branch as a graph of its own; its inputs are the parameters."""
        return Graph(region.parameters, region.results, (), self.origins)

    @cached_property
    def vars(self) -> tuple[Var, ...]:
        """The variables in shapes and attributes, by name; not those found while running."""
        return tuple(var for var in self._variables if not isinstance(var, Found))

    @cached_property
    def found(self) -> tuple[Found, ...]:
        """The sizes that are found while running, by name."""
        return tuple(var for var in self._variables if isinstance(var, Found))

    @cached_property
    def _variables(self) -> tuple[Var, ...]:
        found: dict[str, Var] = {}
        for node in self.everything:
            for var in variables_of(node):
                if found.setdefault(var.name, var) != var:
                    other = found[var.name]
                    raise InvalidGraph(
                        f"variable {var.name!r} has bounds {other.low}..{other.high} and "
                        f"{var.low}..{var.high}, at {node!r}"
                    )
        return tuple(found[name] for name in sorted(found))

    def users(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node those that take it as an input, each once, in order."""
        return self._users

    @cached_property
    def _users(self) -> dict[Node, tuple[Node, ...]]:
        users: dict[Node, list[Node]] = {}
        for node in self.nodes:
            inputs = node.inputs
            for value in inputs if len(inputs) < 2 else dict.fromkeys(inputs):
                if value in users:
                    users[value].append(node)
                else:
                    users[value] = [node]
        return {node: tuple(users.get(node, ())) for node in self.nodes}

    def replace(self, mapping: Mapping[Node, Node]) -> Graph:
        """The graph with some nodes replaced and their users rebuilt; origins are carried over.

        A replacement is taken as it is: what it is made of is not replaced again. Bodies see what
        is replaced through their captures alone.
        """
        new: dict[Node, Node] = {}
        origins = self.origins.subset(self.everything)
        for node in self.nodes:
            if node in mapping:
                result = mapping[node]
                if result.shape != node.shape or result.dtype != node.dtype:
                    raise InvalidGraph(
                        f"{result!r} cannot replace {node!r}: {result.type_text} is another type"
                    )
            else:
                inputs = tuple(new[value] for value in node.inputs)
                same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
                result = node if same else on_inputs(node, inputs)
            new[node] = result
            origins.add(result, *self.origins.of(node))
        inputs = tuple(new[node] for node in self.inputs)
        inputs = tuple(node for node in inputs if node.op == "input")
        return replace(self.mapped(new, origins), inputs=inputs)

    def digest(self) -> str:
        """What the graph computes, hashed: equal in every process, constants by content. Buffers
        count as arguments: their shape, dtype and name are hashed, what is in them is not."""
        hashed = hashlib.blake2b(digest_size=20)
        buffers: dict[Hashable, int] = {}
        regions: dict[Region, int] = {}
        sizes: dict[str, int] = {}
        pending: list[Graph] = [self]
        while pending:
            pending += pending.pop()._hash_into(hashed, buffers, regions, sizes)
        names = [self.name_of(node) for node in self.constants]
        if any(names):  # which the plan shows
            hashed.update(repr(names).encode())
        return hashed.hexdigest()

    def name_of(self, node: Node) -> str | None:
        """What a node is called by who made the graph."""
        return next((origin.name for origin in self.origins.of(node) if origin.name), None)

    def _hash_into(
        self,
        hashed: hashlib.blake2b,
        buffers: dict[Hashable, int],
        regions: dict[Region, int],
        sizes: dict[str, int],
    ) -> list[Graph]:
        """Add this graph to a digest; the bodies met for the first time are still to be added."""
        numbers = {node: i for i, node in enumerate(self.nodes)}
        met: list[Graph] = []

        def content(value: Hashable) -> Hashable:
            if isinstance(value, tuple):
                return tuple(map(content, value))
            if isinstance(value, ConstantData):
                return "constant", value.digest
            if isinstance(value, BufferSource):
                return "buffer", buffers.setdefault(value.id, len(buffers))
            if isinstance(value, HostFunction):
                return "host", buffers.setdefault(value, len(buffers))
            if isinstance(value, Region):
                if value not in regions:
                    regions[value] = len(regions)
                    met.append(self.of_region(value))
                return "region", regions[value]
            if isinstance(value, Expr):
                return "size", _key(value, sizes)
            if isinstance(value, DType):
                return "dtype", value.name
            return attr_key(value)

        for node in self.nodes:
            inputs = tuple(numbers[value] for value in node.inputs)
            # A parameter is known by its place, not by the number it happened to get.
            attrs = () if node.op == "parameter" else node.attrs
            line = (node.op, inputs, content(attrs), content(node.shape), node.dtype.name)
            hashed.update(repr(line).encode())
        ends = [tuple(numbers[node] for node in side) for side in (self.inputs, self.outputs)]
        becomes = tuple((numbers[state], numbers[value]) for state, value in self.updates)
        hashed.update(repr((*ends, self.names, becomes)).encode())
        return met

    def __str__(self) -> str:
        from arenite.ir.printer import text

        return text(self)

    def __len__(self) -> int:
        return len(self.nodes)


def _key(size: Expr, found: dict[str, int]) -> str:
    """The key of a size; one found while running is known by its place, not by its name."""
    key = size.key
    for var in sorted(found_in(size), key=lambda var: var.name):
        number = found.setdefault(var.name, len(found))
        key = re.sub(rf"\b{var.symbol}\b", f"found {number}", key)
    return key


def found_sizes(node: Node) -> set[Found]:
    """Sizes found while running in the type and the attributes of a node."""
    return {var for var in variables_of(node) if isinstance(var, Found)}


def variables_of(node: Node) -> list[Var]:
    """The variables in the type and the attributes of a node."""
    found: list[Var] = []
    pending: list[object] = [value for _, value in reversed(node.attrs)]
    pending += reversed(node.shape)
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is int or kind is str:
            continue
        if isinstance(value, Expr):
            found += sorted(variables(value), key=lambda var: var.key)
        elif isinstance(value, tuple):
            pending += reversed(value)
    return found
