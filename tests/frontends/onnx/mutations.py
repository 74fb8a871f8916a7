"""Models made wrong in many small ways, by a seeded generator: their bytes, and what they say.

`mutated_model` changes the parsed model: attributes, types and shapes, names, nodes, versions.
`mutated_bytes` changes bytes of the file outside of its weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    defs,
    helper,
    numpy_helper,
)

INTEGERS = (
    0, 1, -1, 2, -2, 3, 7, -7, 64, 1000, 10**6, 10**9, -(10**9), 2**31 - 1, 2**31, -(2**31),
    10**12, 10**15, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e38, -1e38, 1e9, float("inf"), float("-inf"),
          float("nan"))  # fmt: skip
TEXTS = ("", "bogus", "SAME_UPPER", "VALID", "NOTSET", "linear", "cubic", "reflect", "add", "sum",
         "\u00e9\n\x00", "ij,jk->ik", "...i->", "A" * 3000)  # fmt: skip
TYPES = (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 20, 21, 22, 23, 24, 25, 99, -1)
VERSIONS = (0, 1, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            99, -1)  # fmt: skip


def graphs_of(model: ModelProto) -> list[GraphProto]:
    """The graph of a model and those in its nodes."""
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for one in node.attribute:
                found += [one.g] if one.HasField("g") else []
                found += one.graphs
    return found


def nodes_of(model: ModelProto) -> list[NodeProto]:
    nodes = [node for graph in graphs_of(model) for node in graph.node]
    return nodes + [node for one in model.functions for node in one.node]


def _some_node(model: ModelProto, rng: random.Random) -> NodeProto | None:
    nodes = nodes_of(model)
    return rng.choice(nodes) if nodes else None


def _some_attribute(model: ModelProto, rng: random.Random) -> AttributeProto | None:
    found = [one for node in nodes_of(model) for one in node.attribute]
    return rng.choice(found) if found else None


def _names(model: ModelProto) -> list[str]:
    names = [name for node in nodes_of(model) for name in (*node.input, *node.output)]
    return [*names, *(one.name for one in model.graph.initializer), "", "nobody"]


# Attributes.


def _attribute_value(model: ModelProto, rng: random.Random) -> None:
    one = _some_attribute(model, rng)
    if one is None:
        return
    if one.type == AttributeProto.INT:
        one.i = rng.choice(INTEGERS)
    elif one.type == AttributeProto.FLOAT:
        one.f = rng.choice(FLOATS)
    elif one.type == AttributeProto.STRING:
        one.s = rng.choice(TEXTS).encode()
    elif one.type == AttributeProto.INTS and one.ints:
        one.ints[rng.randrange(len(one.ints))] = rng.choice(INTEGERS)
    elif one.type == AttributeProto.FLOATS and one.floats:
        one.floats[rng.randrange(len(one.floats))] = rng.choice(FLOATS)
    elif one.type == AttributeProto.STRINGS and one.strings:
        one.strings[rng.randrange(len(one.strings))] = rng.choice(TEXTS).encode()
    elif one.type == AttributeProto.TENSOR:
        _change_tensor(one.t, rng)


def _attribute_length(model: ModelProto, rng: random.Random) -> None:
    one = _some_attribute(model, rng)
    for values in () if one is None else (one.ints, one.floats, one.strings):
        if values and rng.random() < 0.5:
            values.pop()
        elif values:
            values.append(values[0])


def _attribute_kind(model: ModelProto, rng: random.Random) -> None:
    """A value of another type under the name."""
    one = _some_attribute(model, rng)
    if one is None:
        return
    value = rng.choice([1, 10**9, 1.5, "text", [1, 2], [0.5], ["a"], [10**15] * 3])
    one.CopyFrom(helper.make_attribute(one.name, value))


def _attribute_declared(model: ModelProto, rng: random.Random) -> None:
    """Another type is said than the value has."""
    one = _some_attribute(model, rng)
    if one is not None:
        one.type = rng.choice(range(15))  # type: ignore[assignment]


def _attribute_gone(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is not None and node.attribute:
        node.attribute.pop(rng.randrange(len(node.attribute)))


def _attribute_twice(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is not None and node.attribute:
        node.attribute.append(rng.choice(node.attribute))


def _attribute_new(model: ModelProto, rng: random.Random) -> None:
    """One that the operator may have, with a value that it may not."""
    node = _some_node(model, rng)
    if node is None or not defs.has(node.op_type):
        return
    known = defs.get_schema(node.op_type).attributes
    had = {one.name for one in node.attribute}
    new = sorted(set(known) - had)
    if not new:
        return
    name = rng.choice(new)
    kind: int = known[name].type.value  # type: ignore[attr-defined]
    values = {
        1: rng.choice(FLOATS), 2: rng.choice(INTEGERS), 3: rng.choice(TEXTS),
        6: [rng.choice(FLOATS)], 7: [rng.choice(INTEGERS) for _ in range(rng.randint(1, 5))],
        8: [rng.choice(TEXTS)],
    }  # fmt: skip
    node.attribute.append(helper.make_attribute(name, values.get(kind, 1)))


def _attributes_swapped(model: ModelProto, rng: random.Random) -> None:
    one, other = _some_node(model, rng), _some_node(model, rng)
    if one is None or other is None:
        return
    mine, its = list(one.attribute), list(other.attribute)
    del one.attribute[:], other.attribute[:]
    one.attribute.extend(its)
    other.attribute.extend(mine)


# Tensors and types.


def _change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTEGERS)
    elif kind == 1:
        tensor.data_type = rng.choice(TYPES)
    elif kind == 2:
        if rng.random() < 0.5 and tensor.dims:
            tensor.dims.pop()
        else:
            tensor.dims.append(1)
    else:
        _change_numbers(tensor, rng)


def _change_numbers(tensor: TensorProto, rng: random.Random) -> None:
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError):
        return
    if not array.size or array.dtype.kind not in "iuf":
        return
    at = rng.randrange(array.size)
    if array.dtype.kind == "f":
        array.reshape(-1)[at] = rng.choice(FLOATS[:6])
    else:
        limits = np.iinfo(array.dtype)
        number = max(min(rng.choice(INTEGERS), int(limits.max)), int(limits.min))
        array.reshape(-1)[at] = number
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _some_tensor(model: ModelProto, rng: random.Random, most: int = 1 << 62) -> TensorProto | None:
    found = [one for graph in graphs_of(model) for one in graph.initializer]
    found += [a.t for node in nodes_of(model) for a in node.attribute if a.HasField("t")]
    found = [one for one in found if one.ByteSize() < most]
    return rng.choice(found) if found else None


def _tensor(model: ModelProto, rng: random.Random) -> None:
    tensor = _some_tensor(model, rng)
    if tensor is not None:
        _change_tensor(tensor, rng)


def _small_tensor(model: ModelProto, rng: random.Random) -> None:
    """Axes, shapes, pads, k: numbers that decide structure."""
    tensor = _some_tensor(model, rng, 200)
    if tensor is not None:
        _change_numbers(tensor, rng)


def _input_type(model: ModelProto, rng: random.Random) -> None:
    if not model.graph.input:
        return
    kind = rng.choice(model.graph.input).type.tensor_type
    choice = rng.randrange(4)
    if choice == 0:
        kind.elem_type = rng.choice(TYPES)
    elif choice == 1 and kind.shape.dim:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_value = rng.choice(INTEGERS)
    elif choice == 2 and kind.shape.dim:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_param = rng.choice(["n", "m", ""])
    elif kind.shape.dim and rng.random() < 0.5:
        kind.shape.dim.pop()
    else:
        kind.shape.dim.add().dim_value = rng.choice([0, 1, 2, 5])


# Nodes and names.


def _input_renamed(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is not None and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def _inputs_swapped(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is not None and len(node.input) > 1:
        names = list(node.input)
        rng.shuffle(names)
        node.input[:] = names


def _inputs_count(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is None:
        return
    if node.input and rng.random() < 0.5:
        node.input.pop()
    else:
        node.input.append(rng.choice(_names(model)))


def _outputs_changed(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is None:
        return
    choice = rng.randrange(3)
    if choice == 0:
        node.output.append(rng.choice(["more", *_names(model)]))
    elif node.output and choice == 1:
        node.output.pop()
    elif node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))


def _nodes_changed(model: ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(graphs_of(model)).node
    if not nodes:
        return
    one, other = rng.randrange(len(nodes)), rng.randrange(len(nodes))
    choice = rng.randrange(3)
    if choice == 0:
        nodes.pop(one)
    elif choice == 1:
        nodes.append(nodes[one])
    else:
        first = NodeProto()
        first.CopyFrom(nodes[one])
        nodes[one].CopyFrom(nodes[other])
        nodes[other].CopyFrom(first)


def _operator_changed(model: ModelProto, rng: random.Random) -> None:
    node = _some_node(model, rng)
    if node is not None:
        names = sorted({one.name for one in defs.get_all_schemas() if not one.domain})
        node.op_type = rng.choice([*names, "Nothing", ""])
        if rng.random() < 0.1:
            node.domain = rng.choice(["com.microsoft", "ai.onnx.ml", "own"])


def _version_changed(model: ModelProto, rng: random.Random) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice(VERSIONS)


def _graph_ends(model: ModelProto, rng: random.Random) -> None:
    graph = rng.choice(graphs_of(model))
    ends = graph.input if rng.random() < 0.5 else graph.output
    choice = rng.randrange(3)
    if choice == 0 and ends:
        ends.pop(rng.randrange(len(ends)))
    elif choice == 1 and ends:
        ends.append(ends[0])
    elif ends:
        rng.choice(ends).name = rng.choice(_names(model))


MUTATIONS: Sequence[Callable[[ModelProto, random.Random], None]] = (
    _attribute_value, _attribute_value, _attribute_value, _attribute_length, _attribute_kind,
    _attribute_declared, _attribute_gone, _attribute_twice, _attribute_new, _attribute_new,
    _attributes_swapped, _tensor, _small_tensor, _small_tensor, _input_type, _input_renamed,
    _inputs_swapped, _inputs_count, _outputs_changed, _nodes_changed, _operator_changed,
    _version_changed, _graph_ends,
)  # fmt: skip


def mutated_model(model: ModelProto, rng: random.Random) -> bytes:
    """The bytes of a model with one change, or a few."""
    made = ModelProto()
    made.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(MUTATIONS)(made, rng)
    data: bytes = made.SerializeToString()
    return data


def mutated_bytes(data: bytes, gaps: Sequence[tuple[int, int]], rng: random.Random) -> bytes:
    """A file with some bytes changed within `gaps`, (start, stop) of what is no weight."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        start, stop = rng.choice(gaps)
        at = min(rng.randrange(start, stop), len(made) - 1)
        choice = rng.randrange(6)
        if choice == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif choice == 2:
            del made[at : at + rng.randint(1, 16)]
        elif choice == 3:
            made[at:at] = rng.randbytes(rng.randint(1, 16))
        elif choice == 4:
            end = at + rng.randint(1, 64)
            made[at:at] = made[at:end]
        elif rng.random() < 0.1:
            del made[at:]
        if not made:
            made = bytearray(b"\x08")
    return bytes(made)
