"""Sequences and optionals.

How many values a sequence has and whether an optional has one is known while a model is read; so
they cost nothing in a run. A place in a sequence that only a run knows is looked up among its
values, stacked, where these have one shape.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.values import AnyValue, Items, Maybe, Value
from arenite.ir import Dim, Node, make
from arenite.ir.compose import basic
from arenite.ir.compose.indexing import counted_from_front

#: Values that a sequence is made of at once, each a piece of the graph.
MAX_PARTS = 1 << 14


@operator("SequenceEmpty")
def sequence_empty(call: Call) -> Result:
    return Items((), call.dtype_attr("dtype") if call.attr("dtype") else None)


@operator("SequenceConstruct")
def sequence_construct(call: Call) -> Result:
    values = tuple(call.value(index) for index in range(len(call)))
    if not values:
        call.fail("it needs an input")
    return Items(_alike(call, values), values[0].dtype)


def _alike(call: Call, values: tuple[Value, ...]) -> tuple[Value, ...]:
    kinds = {(one.dtype, one.is_string) for one in values}
    if len(kinds) > 1:
        call.fail("a sequence has values of one type of elements")
    return values


def _place(call: Call, index: int, length: int) -> int:
    place = call.integer(index)
    if not -length <= place < length:
        call.fail(f"place {place} in a sequence of {length} values")
    return place % length


@operator("SequenceInsert")
def sequence_insert(call: Call) -> Result:
    values = list(call.items(0).values)
    n = len(values)
    if call.has(2):
        place = call.integer(2)
        if not -n <= place <= n:
            call.fail(f"place {place} in a sequence of {n} values")
        place = place + n if place < 0 else place
    else:
        place = n
    values.insert(place, call.value(1))
    return Items(_alike(call, tuple(values)), call.value(1).dtype)


@operator("SequenceErase")
def sequence_erase(call: Call) -> Result:
    values = list(call.items(0).values)
    if not values:
        call.fail("nothing can be erased from an empty sequence")
    del values[_place(call, 1, len(values)) if call.has(1) else -1]
    return Items(tuple(values), call.items(0).dtype)


@operator("SequenceAt")
def sequence_at(call: Call) -> Result:
    values = call.items(0).values
    place = call.value(1)
    if place.known is not None or len({one.shape for one in values}) != 1:
        chosen: Value = values[_place(call, 1, len(values))]
        return chosen
    stacked = basic.concat([basic.expand_dims(one.node, 0) for one in values], 0)
    index = basic.cast(basic.reshape(place.node, ()), INT64)
    found = make("gather", stacked, counted_from_front(index, len(values)), axis=0)
    return Value.of(found, is_string=values[0].is_string)


@operator("SequenceLength")
def sequence_length(call: Call) -> Result:
    return Value.of_known(np.asarray(len(call.items(0).values), np.int64))


@operator("ConcatFromSequence")
def concat_from_sequence(call: Call) -> Result:
    values = call.items(0).values
    if not values:
        call.fail("an empty sequence has nothing to concatenate")
    nodes = [one.node for one in values]
    is_new = bool(call.attr("new_axis", 0))
    axis = call.axis(call.need_attr("axis"), nodes[0].ndim + is_new)
    if is_new:
        nodes = [basic.expand_dims(node, axis) for node in nodes]
    return Value.of(basic.concat(nodes, axis), is_string=values[0].is_string)


@operator("SplitToSequence")
def split_to_sequence(call: Call) -> Result:
    value = call.value(0)
    node = value.node
    axis = call.some_axis(call.attr("axis", 0), node.ndim)
    size = node.shape[axis]
    keeps = True
    if not call.has(1):
        keeps = bool(call.attr("keepdims", 1))
        lengths: list[Dim] = [1] * _number(call, size)
    elif call.value(1).ndim == 0:
        step = call.integer(1)
        if step < 1:
            call.fail(f"parts of {step}")
        # The standard leaves `keepdims` to a split that is not given; exporters write both.
        keeps = step != 1 or bool(call.attr("keepdims", 1))
        count = _number(call, size)
        lengths = [min(step, count - start) for start in range(0, count, step)]
    else:
        lengths = call.sizes(1)
    parts: list[Node] = []
    start: Dim = 0
    for length in lengths:
        part = basic.slice_axis(node, axis, start, start + length)
        if not keeps:
            part = basic.reshape(part, (*node.shape[:axis], *node.shape[axis + 1 :]))
        parts.append(part)
        start = start + length
    if start != size:
        call.fail(f"parts of {lengths} do not make up an axis of {size}")
    made = tuple(Value.of(one, is_string=value.is_string) for one in parts)
    return Items(made, value.dtype)


def _number(call: Call, size: Dim) -> int:
    if not isinstance(size, int):
        call.refuse(f"into how many parts an axis of {size} is split must be known")
    if size > MAX_PARTS:
        call.refuse(f"{size} values in a sequence; at most {MAX_PARTS} are made of one axis")
    return size


@operator("SequenceMap")
def sequence_map(call: Call) -> Result:
    body = call.subgraph("body")
    length = len(call.items(0).values)
    names = [one.name for one in body.input]
    made: list[list[AnyValue]] = [[] for _ in body.output]
    for k in range(length):
        given: dict[str, AnyValue | None] = {}
        for name, value in zip(names, call.inputs, strict=True):
            if isinstance(value, Items):
                if len(value.values) != length:
                    call.fail(f"sequences of {length} and {len(value.values)} values")
                given[name] = value.values[k]
            else:
                given[name] = value
        for results, one in zip(made, call.translator.graph(body, given), strict=True):
            results.append(one)
    return [Items(tuple(results)) for results in made]


@operator("Optional")
def optional(call: Call) -> Result:
    return Maybe(_content(call.any(0))) if call.has(0) else Maybe(None)


@operator("OptionalHasElement")
def optional_has_element(call: Call) -> Result:
    has = call.has(0) and _content(call.any(0)) is not None
    return Value.of_known(np.asarray(has))


@operator("OptionalGetElement")
def optional_get_element(call: Call) -> Result:
    content = _content(call.any(0))
    if content is None:
        call.fail("the optional has no value")
    return content


def _content(value: AnyValue) -> Value | Items | None:
    content = value.value if isinstance(value, Maybe) else value
    assert content is None or isinstance(content, Value | Items)
    return content
