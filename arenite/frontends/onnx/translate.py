"""A model's nodes become nodes of a Graph, one after the other.

In: a model as protobuf, who finds its tensors, and what each input is: a type, numbers that decide
structure, a sequence of these, or nothing. Out: a Graph, and what its outputs are in the model's
terms. Names are looked up outwards from the graph that uses them. A function of the model, or one
by which the standard defines an operator that has no handler, is translated where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from arenite.dtype import Array, DType
from arenite.errors import AreniteError, InvalidArgument, InvalidFile, NotSupported
from arenite.frontends.onnx import operators
from arenite.frontends.onnx.alternatives import distributed, shaped
from arenite.frontends.onnx.attributes import attributes, check_attributes
from arenite.frontends.onnx.call import Call, Unknown
from arenite.frontends.onnx.checks import (
    MAX_DEPTH,
    MAX_NODES,
    check,
    domain_of,
    functions_of,
    versions_of,
)
from arenite.frontends.onnx.inputs import Absent, StructureNeeded
from arenite.frontends.onnx.order import in_order
from arenite.frontends.onnx.registry import IMPURE, Handler, Output, handler_of
from arenite.frontends.onnx.shapes import folded_sizes
from arenite.frontends.onnx.strings import Strings
from arenite.frontends.onnx.structure import inputs_deciding, specialized, tied
from arenite.frontends.onnx.tensors import MAX_AXES
from arenite.frontends.onnx.values import (
    AnyValue,
    Either,
    Items,
    Maybe,
    Value,
    leaves_of,
    nodes_of,
    paths_of,
    resized,
)
from arenite.frontends.stored_tensor import quoted
from arenite.ir import Dim, Node, Origin, Origins, graph_input, topological
from arenite.ir.dim import Found, found_in
from arenite.ir.graph import Graph, everything, found_sizes
from arenite.ir.ops.unbounded import sizes_made

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto


@dataclass(frozen=True, slots=True)
class Argument:
    """An input that comes with each call."""

    shape: tuple[Dim, ...]
    dtype: DType
    is_string: bool = False


#: What an input is: numbers that are known decide structure, a tuple is a sequence.
Given: TypeAlias = "Argument | Array | Absent | tuple[Given, ...]"


class Source(Protocol):
    """A model's file."""

    path: str

    @property
    def strings(self) -> Strings:
        """Those of the file, and of calls in progress."""

    @property
    def model(self) -> ModelProto:
        """As protobuf."""

    def tensor(self, proto: TensorProto) -> Value:
        """A tensor of the file."""


@dataclass(frozen=True, slots=True)
class Translated:
    """`outputs` are the model's, by name; nodes in them are the graph's outputs, in order."""

    graph: Graph
    outputs: dict[str, AnyValue]


@dataclass(slots=True)
class Scope:
    """Names of one graph; `outer` has those it may use too."""

    outer: Scope | None = None
    values: dict[str, AnyValue | None] = field(default_factory=dict)
    #: Of the operator sets that nodes here are of.
    versions: Mapping[str, int] = field(default_factory=dict)
    #: Attributes of the function that this is the body of.
    attrs: Mapping[str, Any] = field(default_factory=dict)
    #: Tensors of the file that nobody has asked for yet, and who reads them.
    unread: dict[str, int] = field(default_factory=dict)
    read: Callable[[int], Value] | None = None

    def has(self, name: str) -> bool:
        """Whether a name is one of this graph."""
        return name in self.values or name in self.unread

    def find(self, name: str) -> AnyValue | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.unread and scope.read is not None:
                scope.values[name] = scope.read(scope.unread.pop(name))
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


def translate(source: Source, given: Mapping[str, Given]) -> Translated:
    """The graph of a model for inputs of these kinds."""
    return Translator(source).translate(given)


class Translator:
    """One walk over a model."""

    def __init__(self, source: Source) -> None:
        operators.load()
        self.source = source
        self.origins = Origins()
        self.functions = functions_of(source)
        self._versions = versions_of(source.model.opset_import)
        self._scopes: list[Scope] = []
        #: Nodes that were met so far, of functions and subgraphs too.
        self.n_nodes = 0
        #: Sizes found while running, with the first node that has them.
        self._finders: dict[Found, Node] = {}
        self._ranges: list[Node] = []
        #: Iterations of all loops around what is translated now, as far as they are known.
        self.n_trips = 1
        #: Random operators each have a number of their own.
        self.n_random = 0
        #: The node that could not be translated, and where it stands; not one that asks for more.
        self._failed: tuple[Call, Scope] | None = None
        self._error: AreniteError | None = None

    def translate(self, given: Mapping[str, Given]) -> Translated:
        """The whole model."""
        proto = self.source.model.graph
        check(self.source, self.functions)
        inputs: list[Node] = []
        values: dict[str, AnyValue | None] = {}
        for name, one in given.items():
            values[name] = _argument(name, one, inputs)
        results = self.graph(proto, values)
        outputs: dict[str, AnyValue] = {}
        for one, value in zip(proto.output, results, strict=True):
            end = Call(self, "output", "", 1, one.name, {}, [value], [one.name])
            outputs[one.name] = shaped(end, value)
        nodes = self.with_sizes([node for value in outputs.values() for node in nodes_of(value)])
        names = [path for name, value in outputs.items() for path in paths_of(name, value)]
        origins = self.origins.subset(everything(nodes))
        return Translated(Graph(tuple(inputs), tuple(nodes), tuple(names), origins), outputs)

    def with_sizes(
        self, nodes: list[Node], parameters: frozenset[Node] = frozenset()
    ) -> list[Node]:
        """Outputs that need who finds their sizes too: a shape may be all that was asked of it. Of
        a body, sizes that are found in it, over its parameters."""
        inside = everything(nodes)
        missing = {size for node in inside for size in found_sizes(node)}
        missing -= {size for node in inside for size in sizes_made(node)}
        # Those with which a loop's values enter an iteration are known inside of it alone.
        missing -= {s for one in inside if one.op == "growing_loop" for s in one.attr("entering")}
        if not missing:
            return nodes
        made = []
        for node in nodes:
            needed = {size for one in everything([node]) for size in found_sizes(one)}
            for size in sorted(needed & missing, key=lambda one: one.name):
                maker = self.maker(size)
                if not parameters:
                    assert maker is not None
                elif maker is None or parameters.isdisjoint(topological([maker])):
                    continue  # it comes with a parameter, or is found outside
                node = tied(node, maker)
            made.append(node)
        return made

    def maker(self, size: Found) -> Node | None:
        """Who finds a size; None where a loop does, for its body."""
        finder = self._finders.get(size)
        reached = [] if finder is None else topological([finder])
        return next((one for one in reached if size in sizes_made(one)), None)

    def nodes_in_scope(self) -> set[Node]:
        """What names stand for now, as far as it is computed."""
        found: set[Node] = set()
        for scope in self._scopes:
            for value in scope.values.values():
                leaves = () if value is None else leaves_of(value)
                found |= {one._node for one in leaves if one._node is not None}
        return found

    # Graphs.

    @property
    def scope(self) -> Scope:
        """Where names are looked up now."""
        return self._scopes[-1]

    def graph(self, proto: GraphProto, inputs: Mapping[str, AnyValue | None]) -> list[AnyValue]:
        """The outputs of a graph, given its inputs; it sees the names around it."""
        outer = self._scopes[-1] if self._scopes else None
        versions = outer.versions if outer else self._versions
        attrs = outer.attrs if outer else {}
        scope = Scope(outer, dict(inputs), versions, attrs)
        with self._inside(scope, "graphs"):
            scope.read = partial(self._stored, proto)
            for k, tensor in enumerate(proto.initializer):
                if tensor.name not in scope.values:
                    scope.unread.setdefault(tensor.name, k)
            for k, sparse in enumerate(proto.sparse_initializer):
                if sparse.values.name not in scope.values:
                    scope.unread.setdefault(sparse.values.name, ~k)
            for one in proto.input:
                if not scope.has(one.name):
                    raise InvalidFile(
                        f"{self.source.path}: input {quoted(one.name)} of graph "
                        f"{quoted(proto.name)} is not given"
                    )
            self._nodes(proto.node)
            return [self._output(one.name, "an output of the graph") for one in proto.output]

    def _stored(self, proto: GraphProto, index: int) -> Value:
        """A tensor of a graph; of sparse ones the index is inverted."""
        if index < 0:
            return operators.sparse(self.source, proto.sparse_initializer[~index])
        tensor = proto.initializer[index]
        value = self.source.tensor(tensor)
        if value._node is not None:
            self.origins.add(value.node, Origin(self.source.path, name=tensor.name))
        return value

    @contextmanager
    def _inside(self, scope: Scope, what: str) -> Iterator[None]:
        if len(self._scopes) >= MAX_DEPTH:
            raise InvalidFile(f"{self.source.path}: {what} are nested more than {MAX_DEPTH} deep")
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()

    def _output(self, name: str, what: str) -> AnyValue:
        try:
            value = self.scope.find(name)
        except KeyError:
            value = None
        if value is None:
            raise InvalidFile(f"{self.source.path}: {what}, {quoted(name)}, is made by no node")
        return value

    def _nodes(self, protos: Sequence[NodeProto]) -> None:
        for proto in in_order(protos):
            self._count_node()
            self._node(proto)

    def _count_node(self) -> None:
        self.n_nodes += 1
        if self.n_nodes > MAX_NODES:
            raise InvalidFile(
                f"{self.source.path} becomes more than {MAX_NODES} nodes, its functions and "
                "subgraphs counted each time they are used"
            )

    # Nodes.

    def where(self, op: str, name: str) -> str:
        """A node, for messages."""
        return f"{self.source.path}, node {quoted(name)} ({op})"

    def _node(self, proto: NodeProto) -> None:
        scope = self.scope
        domain = domain_of(proto.domain)
        label = proto.name or next((name for name in proto.output if name), "")
        inputs = [self._input(proto, label, name) for name in proto.input]
        attrs = attributes(proto, scope.attrs, self.source)
        version = scope.versions.get(domain, 1)
        call = Call(self, proto.op_type, domain, version, label, attrs, inputs, proto.output)
        outputs = self.call(call)
        for name, output in zip(proto.output, outputs, strict=False):
            if not name:
                continue
            if scope.has(name):
                raise InvalidFile(
                    f"{call.where}: its output {quoted(name)} is the name of something else too"
                )
            scope.values[name] = output
            for node in nodes_of(output) if output is not None else ():
                if node.ndim > MAX_AXES:
                    raise NotSupported(
                        f"{call.where}: its output {quoted(name)} has {node.ndim} axes; arrays "
                        f"have at most {MAX_AXES}"
                    )
                self.origins.add(node, Origin(self.source.path, name=label))
                for dim in node.shape:
                    for size in () if isinstance(dim, int) else found_in(dim):
                        self._finders.setdefault(size, node)

    def _input(self, proto: NodeProto, label: str, name: str) -> AnyValue | None:
        if not name:
            return None
        try:
            return self.scope.find(name)
        except KeyError:
            raise InvalidFile(
                f"{self.where(proto.op_type, label)}: its input {quoted(name)} is made by no node "
                "before it"
            ) from None

    def call(self, call: Call) -> list[AnyValue | None]:
        """The outputs of an operator or a function."""
        if any(isinstance(one, Either) for one in call.inputs):
            self._count_node()
            return [*distributed(call, self.call)]
        function = self.functions.get((call.domain, call.op, call.attr("overload") or ""))
        if function is not None:
            return self._function(function, call)
        check_attributes(call)
        handler = handler_of(call.domain, call.op, call.version)
        try:
            sizes = folded_sizes(call)
            if sizes is not None:
                return [sizes]
            if handler is None:
                return self._function(operators.defining_function(call), call)
            return self._handled(handler, call)
        except Unknown as unknown:
            if handler is not None and unknown.is_found_in_run:
                return [*specialized(call, handler)]
            self._failed, self._error = None, self._structure_needed(unknown)
            raise self._error from None
        except AreniteError as error:
            if error is not self._error:  # which a node inside has raised
                self._failed, self._error = (call, self.scope), error
            if isinstance(error, StructureNeeded) or str(error).startswith(self.source.path):
                raise
            self._error = type_kept(error, f"{call.where}: {error}")
            raise self._error from error
        except MemoryError:
            raise
        except Exception as error:
            # What a handler takes for granted, and a file need not keep to.
            self._failed = call, self.scope
            self._error = InvalidFile(
                f"{call.where} makes no sense, or Arenite makes none of it: "
                f"{type(error).__name__}: {str(error)[:300]}"
            )
            raise self._error from error

    def may_pass(self, sizes: Mapping[str, Dim]) -> bool:
        """Whether the node that was not translated may be, once its sizes are others, by name: it
        is tried alone."""
        if self._failed is None or self._failed[0].has_graphs:
            return True
        failed, error = self._failed, self._error
        call, scope = failed
        inputs = [
            one if one is None else resized(one, sizes, f"input {k}")
            for k, one in enumerate(call.inputs)
        ]
        again = call.with_inputs(inputs)
        try:
            with self._inside(scope, "graphs"):
                self.call(again)
            return True
        except StructureNeeded:
            return True
        except AreniteError:
            return self._failed is None
        finally:
            self._failed, self._error = failed, error

    def _handled(self, handler: Handler, call: Call) -> list[AnyValue | None]:
        n_ranges = len(self._ranges)
        made = handler(call)
        outputs = list(made) if isinstance(made, Sequence) else [made]
        if len(self._ranges) > n_ranges:
            outputs = [self._behind(one, self._ranges[n_ranges:]) for one in outputs]
        # What stands in a graph of the node may use any name around it.
        is_pure = (call.domain, call.op) not in IMPURE and not call.has_graphs
        is_constant = is_pure and all(_is_constant(one) for one in call.inputs if one is not None)
        return [_value(one, is_constant) for one in outputs]

    def _behind(self, output: Output, ranges: Sequence[Node]) -> Output:
        """An output after what finds its sizes."""
        node = output.node if isinstance(output, Value) else output
        if not isinstance(node, Node):
            return output
        for one in dict.fromkeys(ranges):
            if one.attr("size") in found_sizes(node) and one not in topological([node]):
                node = tied(node, one)
        return Value.of(node, is_string=isinstance(output, Value) and output.is_string)

    def add_range(self, node: Node) -> None:
        """A range whose length is a size of what an operator gives."""
        self._ranges.append(node)
        self._finders.setdefault(node.attr("size"), node)

    def _structure_needed(self, unknown: Unknown) -> AreniteError:
        call, index = unknown.call, unknown.index
        node = call.value(index).node
        names = inputs_deciding(node)
        what = f"{call.where}: its input {index} decides structure"
        if names:
            return StructureNeeded(names, f"{what}, and follows from {', '.join(names)}")
        if unknown.because is not None:
            return unknown.because
        return NotSupported(f"{what} and is only found while running, which is not supported here")

    def _function(self, function: FunctionProto, call: Call) -> list[AnyValue | None]:
        names = list(function.input)
        if len(call.inputs) > len(names):
            call.fail(f"it has {len(call.inputs)} inputs, and the function takes {len(names)}")
        given = dict.fromkeys(names) | dict(zip(names, call.inputs, strict=False))
        versions = versions_of(function.opset_import) or self.scope.versions
        defaults = {one.name: one for one in function.attribute_proto}
        attrs = operators.default_attributes(defaults, self.source) | dict(call.attrs)
        scope = Scope(None, given, versions, attrs)
        with self._inside(scope, "functions"):
            self._nodes(function.node)
            wanted = function.output[: max(len(call.outputs), 1)]
            return [self._output(name, f"an output of {call.op}") for name in wanted]


def type_kept(error: AreniteError, message: str) -> AreniteError:
    """An error of the same class that says more, or the nearest that can be made of a message; what
    would be a wrong argument of a caller is a file's."""
    kind = InvalidFile if type(error) is InvalidArgument else type(error)
    try:
        return kind(message)
    except TypeError:
        return InvalidFile(message)


def _argument(name: str, given: Given, inputs: list[Node]) -> AnyValue | None:
    if isinstance(given, Argument):
        node = graph_input(name, len(inputs), given.shape, given.dtype)
        inputs.append(node)
        return Value.of(node, is_string=given.is_string)
    if isinstance(given, Absent):
        return Maybe(None)
    if isinstance(given, tuple):
        items = [_argument(f"{name}.{k}", one, inputs) for k, one in enumerate(given)]
        return Items(tuple(items))
    return Value.of_known(np.asarray(given))


def _value(output: Output, is_constant: bool) -> AnyValue | None:
    if isinstance(output, Node):
        return Value.of(output, is_constant=is_constant)
    if isinstance(output, Value) and is_constant:
        output.is_constant = True
    return output


def _is_constant(value: AnyValue) -> bool:
    if isinstance(value, Items):
        return all(map(_is_constant, value.values))
    if isinstance(value, Maybe):
        return value.value is None or _is_constant(value.value)
    return isinstance(value, Value) and value.is_constant
