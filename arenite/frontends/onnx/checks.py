"""What is checked of a model before any node is translated: operators, functions, how many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.onnx.operators import is_known
from arenite.frontends.stored_tensor import quoted

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from arenite.frontends.onnx.translate import Source

#: (domain, name, overload)
FunctionKey: TypeAlias = tuple[str, str, str]

#: Nodes that a model may become, those of functions counted wherever they are called.
MAX_NODES = 1 << 18
#: Graphs in graphs, and functions in functions, the outermost counted.
MAX_DEPTH = 32
#: Unsupported operators that a message lists.
MAX_LISTED = 40


def domain_of(name: str) -> str:
    """A domain by the one name we use for it."""
    return "" if name == "ai.onnx" else name


def versions_of(imports: Iterable[object]) -> dict[str, int]:
    """Versions of operator sets by domain."""
    return {domain_of(one.domain): one.version for one in imports}  # type: ignore[attr-defined]


def functions_of(source: Source) -> dict[FunctionKey, FunctionProto]:
    """The functions of a model."""
    found: dict[FunctionKey, FunctionProto] = {}
    for one in source.model.functions:
        key = (domain_of(one.domain), one.name, one.overload)
        if key in found:
            raise InvalidFile(f"{source.path}: two functions are called {quoted(one.name)}")
        found[key] = one
    return found


def check_text(path: str, model: ModelProto) -> None:
    """Names are text: what is not comes as bytes from protobuf."""
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    graphs = [model.graph]
    texts: list[object] = [one.domain for one in model.opset_import]
    for function in model.functions:
        texts += [function.name, function.domain, function.overload]
        texts += [*function.input, *function.output]
        texts += [one.domain for one in function.opset_import]
        texts += [one.name for one in function.attribute_proto]
    for node in all_nodes(nodes):
        texts += [node.op_type, node.domain, node.name, node.overload, *node.input, *node.output]
        for one in node.attribute:
            texts += [one.name, one.ref_attr_name]
            graphs += [one.g] if one.HasField("g") else []
            graphs += one.graphs
    for graph in graphs:
        texts += [graph.name, *(one.name for one in graph.initializer)]
        texts += [one.name for one in (*graph.input, *graph.output)]
        texts += [one.values.name for one in graph.sparse_initializer]
    wrong = next((one for one in texts if isinstance(one, bytes)), None)
    if wrong is not None:
        raise InvalidFile(f"{path} has a name that is no text: {quoted(repr(wrong))}")


def check(source: Source, functions: Mapping[FunctionKey, FunctionProto]) -> None:
    """One error for what can't be translated."""
    _check_nesting(source, functions)
    _check_operators(source, functions)
    _check_functions(source, functions)


def key_of(node: NodeProto) -> FunctionKey:
    """The function that a node would call."""
    return domain_of(node.domain), node.op_type, node.overload


def _check_operators(source: Source, functions: Mapping[FunctionKey, FunctionProto]) -> None:
    """One NotSupported that lists every operator nobody handles, with node and version."""
    missing: dict[tuple[str, str, int], list[str]] = {}
    model = source.model
    bodies = [(model.graph.node, versions_of(model.opset_import))]
    bodies += [(one.node, versions_of(one.opset_import)) for one in functions.values()]
    for nodes, versions in bodies:
        for node in all_nodes(nodes):
            domain = domain_of(node.domain)
            version = versions.get(domain, 1)
            if key_of(node) not in functions and not is_known(domain, node.op_type, version):
                label = node.name or next((name for name in node.output if name), "")
                missing.setdefault((domain, node.op_type, version), []).append(label)
    if missing:
        raise NotSupported(
            f"{source.path} has operators that are not supported: {_listed(missing)}"
        )


def _listed(missing: Mapping[tuple[str, str, int], list[str]]) -> str:
    rows = []
    for (domain, op, version), labels in sorted(missing.items()):
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        node = f"(node {quoted(labels[0])}{more})"
        rows.append(f"{quoted(op)} of {quoted(domain)[1:-1] or 'ai.onnx'} {version} {node}")
    kept = rows[:MAX_LISTED]
    if len(rows) > MAX_LISTED:
        kept.append(f"{len(rows) - MAX_LISTED} more")
    return "; ".join(kept)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the graphs in their attributes."""
    pending = deque(nodes)
    while pending:
        node = pending.popleft()
        yield node
        for one in node.attribute:
            graphs: list[GraphProto] = [one.g] if one.HasField("g") else []
            for graph in (*graphs, *one.graphs):
                pending += graph.node


def _check_nesting(source: Source, functions: Mapping[FunctionKey, FunctionProto]) -> None:
    """Graphs in graphs are few, whichever of them a run would enter."""
    pending = [(1, node) for node in source.model.graph.node]
    pending += [(1, node) for one in functions.values() for node in one.node]
    while pending:
        depth, node = pending.pop()
        if depth > MAX_DEPTH:
            raise InvalidFile(f"{source.path}: graphs are nested more than {MAX_DEPTH} deep")
        for one in node.attribute:
            graphs: list[GraphProto] = [one.g] if one.HasField("g") else []
            pending += [(depth + 1, inner) for g in (*graphs, *one.graphs) for inner in g.node]


def _check_functions(source: Source, functions: Mapping[FunctionKey, FunctionProto]) -> None:
    """Functions call each other in no circle, and become a bounded number of nodes."""
    calls = {key: [key_of(node) for node in all_nodes(one.node)] for key, one in functions.items()}
    counts: dict[FunctionKey, int] = {}
    open_: set[FunctionKey] = set()
    pending = list(functions)
    while pending:
        key = pending[-1]
        if key in counts:
            pending.pop()
            continue
        inner = [one for one in calls[key] if one in functions]
        if key in open_:
            pending.pop()
            open_.discard(key)
            counts[key] = len(calls[key]) + sum(counts[one] for one in inner)
            continue
        open_.add(key)
        for one in inner:
            if one in open_:
                raise InvalidFile(f"{source.path}: function {quoted(one[1])} calls itself")
            if one not in counts:
                pending.append(one)
    nodes = [key_of(node) for node in all_nodes(source.model.graph.node)]
    count = len(nodes) + sum(counts.get(key, 0) for key in nodes)
    if count > MAX_NODES:
        raise InvalidFile(
            f"{source.path} becomes {count} nodes, its functions counted wherever they are called; "
            f"at most {MAX_NODES} are read"
        )
