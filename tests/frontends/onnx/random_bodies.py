"""Proposals of nodes for random models: graphs in graphs, sequences and optional values. Bodies are
random themselves: nodes of all families that end with the shape they began with."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from tests.frontends.onnx.random_models import MAX_NESTING, Dropped, ModelBuilder, Value
from tests.frontends.onnx.random_nodes import is_small

info = helper.make_tensor_value_info


def _kind(x: Value) -> int:
    return int(helper.np_dtype_to_tensor_dtype(x.array.dtype))


def _chain(b: ModelBuilder, start: Value, n: int) -> tuple[list[NodeProto], Value]:
    """Nodes from a value to one of its type and shape, seen by nobody outside."""
    from tests.frontends.onnx.random_families import FAMILIES

    if b.nesting >= MAX_NESTING:
        raise Dropped
    n_nodes, n_values, n_stored = len(b.nodes), len(b.values), len(b.stored)
    b.nesting += 1
    b.values.append(start)
    try:
        for _ in range(4 * n):
            try:
                with b.attempt():
                    b.rng.choice(b.rng.choice(FAMILIES))(b)
            except Dropped:
                continue
            if len(b.nodes) - n_nodes >= n:
                break
        fitting = [
            one
            for one in b.values[n_values + 1 :]
            if one.name not in b.closed and _is_like(one, start)
        ]
        if fitting:
            end = fitting[-1]
        else:
            [end] = b.add(b.rng.choice(["Tanh", "Sigmoid", "Relu"]), [start])
        return list(b.nodes[n_nodes:]), end
    except Dropped:
        del b.stored[n_stored:]
        raise
    finally:
        b.nesting -= 1
        del b.nodes[n_nodes:]
        del b.values[n_values:]


def _is_like(one: Value, other: Value) -> bool:
    return one.array.dtype == other.array.dtype and all(
        a.shape == b.shape for a, b in zip(one.arrays, other.arrays, strict=True)
    )


def _graph(
    b: ModelBuilder,
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
) -> GraphProto:
    return helper.make_graph(nodes, b.fresh("body"), inputs, outputs)


def branch(b: ModelBuilder) -> None:
    """Either of two functions of a value, by a truth that a run finds."""
    x = b.pick(is_small)
    flag = b.pick(lambda one: one.is_exact and one.array.dtype.kind in "biuf" and all(one.least))
    [row] = b.add("Reshape", [flag, b.const([-1])], exact=True)
    [first] = b.add("Gather", [row, b.const(0)], exact=True, axis=0)
    [condition] = b.add("Cast", [first], exact=True, to=TensorProto.BOOL)
    graphs, ends = [], []
    for _ in range(2):
        nodes, end = _chain(b, x, b.rng.randint(1, 4))
        name = b.fresh("out")
        nodes.append(helper.make_node("Identity", [end.name], [name]))
        graphs.append(_graph(b, nodes, [], [info(name, _kind(x), [None] * x.array.ndim)]))
        ends.append(end)
    [found] = b.add("If", [condition], steps=1 + max(one.depth for one in ends),
                    then_branch=graphs[0], else_branch=graphs[1])  # fmt: skip
    found.scale = max(found.scale, *(one.scale for one in ends))
    found.unit = max(found.unit, *(one.unit for one in ends))


def loop(b: ModelBuilder) -> None:
    """x becomes half of a function of x, a few times; each step is let out too. It ends when the
    count does, or when the body says so."""
    x = b.pick(is_small)
    if b.opset < 11:
        raise Dropped
    acc = Value(b.fresh("acc"), x.arrays, False, x.depth, x.scale, x.unit)
    nodes, end = _chain(b, acc, b.rng.randint(1, 4))
    i, go, on, halved, row = (b.fresh(one) for one in ("i", "go", "on", "half", "row"))
    n_trips = b.rng.randint(0, 4)
    if b.rng.random() < 0.5:
        nodes.append(helper.make_node("Identity", [go], [on]))
    else:
        nodes.append(helper.make_node("Less", [i, b.const(b.rng.randint(0, 3))], [on]))
    half = b.const(0.5, x.array.dtype)
    nodes += [
        helper.make_node("Mul", [end.name, half], [halved]),
        helper.make_node("Tanh", [halved], [row]),
    ]
    open_ = [None] * x.array.ndim
    body = _graph(
        b,
        nodes,
        [info(i, TensorProto.INT64, []), info(go, TensorProto.BOOL, []),
         info(acc.name, _kind(x), open_)],
        [info(on, TensorProto.BOOL, []), info(halved, _kind(x), open_), info(row, _kind(x), open_)],
    )  # fmt: skip
    depth = (max(end.depth - acc.depth, 0) + 2) * max(n_trips, 1)
    count = b.const(n_trips) if b.rng.random() < 0.8 else ""
    if not count and not any(node.op_type == "Less" for node in nodes):
        raise Dropped  # it would not end
    # Rows of no trips at all have sizes that ONNX Runtime does not know.
    n_outputs = 1 if n_trips == 0 and count else 2
    first = b.const(True, bool)
    found = b.add("Loop", [count, first, x], n_outputs, body=body, steps=depth)
    for one in found:
        one.scale, one.unit = max(one.scale, end.scale), max(one.unit, end.unit)
    if not count or b.inputs.keys() & {count, first} or body.node[-3].op_type == "Less":
        b.closed |= {one.name for one in found[1:]}  # a run finds how many rows it has


def scan(b: ModelBuilder) -> None:
    """Sums of rows so far, of a function of each row."""
    x = b.pick(lambda one: is_small(one) and one.array.ndim >= 2 and all(one.least))
    if b.opset < 11:
        raise Dropped
    rows = [one[0] for one in x.arrays]
    row = Value(b.fresh("row"), rows, False, x.depth, x.scale, x.unit)
    nodes, end = _chain(b, row, b.rng.randint(1, 3))
    acc, total, out = (b.fresh(one) for one in ("acc", "sum", "out"))
    nodes += [
        helper.make_node("Add", [acc, end.name], [total]),
        helper.make_node("Identity", [total], [out]),
    ]
    open_ = [None] * rows[0].ndim
    kind = _kind(x)
    body = _graph(
        b,
        nodes,
        [info(acc, kind, open_), info(row.name, kind, open_)],
        [info(total, kind, open_), info(out, kind, open_)],
    )
    [first] = b.add("Gather", [x, b.const(0)], exact=True, axis=0)
    found = b.add("Scan", [first, x], 2, body=body, num_scan_inputs=1,
                  scan_input_directions=[b.rng.randint(0, 1)],
                  scan_output_directions=[b.rng.randint(0, 1)],
                  steps=max(end.depth - row.depth, 0) + 2)  # fmt: skip
    for one in found:
        one.scale, one.unit = max(one.scale, end.scale), max(one.unit, end.unit)


def sequence(b: ModelBuilder) -> None:
    """A few values as a sequence, and one of them back, or all as one."""
    x = b.pick(lambda one: one.array.ndim > 0 and one.array.dtype.kind in "fi")
    if b.opset < 11:
        raise Dropped
    names = [b.fresh() for _ in range(3)]
    if b.rng.random() < 0.5:
        nodes = [helper.make_node("SequenceConstruct", [x.name] * b.rng.randint(1, 3), names[:1])]
    else:
        nodes = [helper.make_node("SplitToSequence", [x.name], names[:1],
                                  axis=b.rng.randrange(x.array.ndim))]  # fmt: skip
    end = b.rng.choice(["SequenceAt", "ConcatFromSequence", "SequenceLength"])
    if end == "SequenceAt":
        nodes.append(helper.make_node(end, [names[0], b.const(b.rng.choice([0, -1]))], names[2:]))
    elif end == "SequenceLength":
        nodes.append(helper.make_node(end, names[:1], names[2:]))
    else:
        nodes.append(helper.make_node(end, names[:1], names[2:], axis=b.rng.choice([0, -1]),
                                      new_axis=b.rng.randint(0, 1)))  # fmt: skip
    b.add_nodes(nodes, names[2:], exact=True)


def optional(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype.kind in "fi")
    if b.opset < 18:
        raise Dropped
    names = [b.fresh() for _ in range(2)]
    end = b.rng.choice(["OptionalGetElement", "OptionalHasElement"])
    nodes = [
        helper.make_node("Optional", [x.name], names[:1]),
        helper.make_node(end, names[:1], names[1:]),
    ]
    b.add_nodes(nodes, names[1:], exact=True)
