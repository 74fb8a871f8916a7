"""Values that one of two ways gives, where only a run knows which.

In: a condition, and what both ways give. Out: one value each. Tensors of the same number of axes
become one tensor; an axis that has another size on the other way is as long as it is found to be:

    both bounded       both are padded to the larger one, chosen from, and cut
    one has no bound   structure: native code returns, and the way that is taken is planned then

All else stays two values, an `Either`; what is done to it is done to both, until they are alike. A
way that makes no sense is an error of the run that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from arenite.dtype import INT64, Array
from arenite.errors import AreniteError
from arenite.frontends.onnx.inputs import StructureNeeded, WrongBranch
from arenite.frontends.onnx.values import AnyValue, Either, Shaped, Value, Wrong
from arenite.ir import Dim, Node, bounds, full, known_le, make, maximum
from arenite.ir.compose.basic import iota, pad, reshape
from arenite.ir.compose.counted_sizes import number_of
from arenite.ir.dim import Found, found_in, product, substitute
from arenite.ir.graph import found_sizes, topological
from arenite.ir.ops.control import cut
from arenite.ir.ops.host import HostFunction
from arenite.ir.ops.unbounded import Specialization, any_size, is_bounded, specialize
from arenite.ir.regions import rebuilt

if TYPE_CHECKING:
    from arenite.frontends.onnx.call import Call

Pair = tuple[Value, Value]

#: Ways that one value may come by, as long as these have no common type.
MAX_WAYS = 64


def merged(
    call: Call, condition: Node, then: Sequence[AnyValue], otherwise: Sequence[AnyValue]
) -> list[AnyValue]:
    """What comes out of two ways, value by value."""
    made: list[AnyValue] = [
        _merged(call, condition, a, b) for a, b in zip(then, otherwise, strict=True)
    ]
    # Those without bounds are planned together, so that equal sizes stay equal.
    places = [k for k, one in enumerate(made) if isinstance(one, Either) and _are_alike(one)]
    if places:
        pairs = [_tensors(made[k]) for k in places]
        for k, one in zip(places, _planned_in_run(call, condition, pairs), strict=True):
            made[k] = one
    return made


def distributed(call: Call, translate: Callable[[Call], list[AnyValue | None]]) -> list[AnyValue]:
    """An operator of which an input is an Either, on both ways."""
    condition = next(one.condition for one in call.inputs if isinstance(one, Either))
    ways: list[Sequence[AnyValue]] = []
    errors: list[AreniteError] = []
    for is_then in (True, False):
        inputs = [_on_way(one, condition, is_then) for one in call.inputs]
        wrong = next((one for one in inputs if isinstance(one, Wrong)), None)
        if wrong is None:
            try:
                outputs = translate(call.with_inputs(inputs))
                ways.append([one for one in outputs if one is not None])
                continue
            except StructureNeeded:
                raise
            except AreniteError as error:
                wrong = Wrong(error)
        errors.append(wrong.error)
        ways.append([wrong] * call.n_outputs)
    if len(errors) == 2:
        raise errors[0]
    count = min(map(len, ways))
    return merged(call, condition, ways[0][:count], ways[1][:count])


def _on_way(value: AnyValue | None, condition: Node, is_then: bool) -> AnyValue | None:
    while isinstance(value, Either) and value.condition is condition:
        value = value.then if is_then else value.otherwise
    return value


def shaped(call: Call, value: AnyValue) -> AnyValue:
    """An output of the model whose number of axes a run finds: its elements, and its shape."""
    if not isinstance(value, Either):
        return value
    sides = [shaped(call, one) for one in (value.then, value.otherwise)]
    if any(not isinstance(one, Value | Shaped | Wrong) for one in sides):
        call.refuse("a run finds whether an output of the model is a sequence or an optional")
    flat = [one.elements if isinstance(one, Shaped) else _flat(one) for one in sides]
    shapes = [one.shape if isinstance(one, Shaped) else _shape(one) for one in sides]
    elements, shape = merged(call, value.condition, *zip(flat, shapes, strict=True))
    assert isinstance(elements, Value)
    assert isinstance(shape, Value)
    return Shaped(elements, shape)


def _flat(value: AnyValue) -> AnyValue:
    if not isinstance(value, Value):
        return value
    return Value.of(reshape(value.node, (product(value.shape),)), is_string=value.is_string)


def _shape(value: AnyValue) -> AnyValue:
    return Value.of_sizes(list(value.shape)) if isinstance(value, Value) else value


def _merged(call: Call, condition: Node, a: AnyValue, b: AnyValue) -> AnyValue:
    if a is b:
        return a
    if isinstance(a, Wrong) and isinstance(b, Value):
        a = _failing(a, b)
    if isinstance(b, Wrong) and isinstance(a, Value):
        b = _failing(b, a)
    if isinstance(a, Value) and isinstance(b, Value):
        if a.dtype != b.dtype or a.is_string != b.is_string:
            call.fail(f"its branches give values of other types: {a} and {b}")
        if a.shape == b.shape:
            return Value.of(make("if", condition, a.node, b.node), is_string=a.is_string)
        if a.ndim == b.ndim:
            return _padded(call, condition, a, b) or Either(condition, a, b)
    if _ways(a) + _ways(b) > MAX_WAYS:
        call.refuse(f"a value has more than {MAX_WAYS} types, of which a run finds one")
    return Either(condition, a, b)


def _ways(value: AnyValue) -> int:
    return _ways(value.then) + _ways(value.otherwise) if isinstance(value, Either) else 1


def _failing(wrong: Wrong, like: Value) -> Value:
    """A tensor that no run can make; where sizes are found, it has none."""

    def fail(*_: Array) -> Array:
        raise WrongBranch(wrong.error)

    shape = tuple(0 if found_in(size) else size for size in like.shape)
    function = HostFunction(fail, str(wrong.error))
    node = make("host", function=function, shape=shape, dtype=like.dtype)
    return Value.of(node, is_string=like.is_string)


# Sizes with bounds.


def _padded(call: Call, condition: Node, a: Value, b: Value) -> Value | None:
    """Both with room for the larger one, chosen from, and cut; None where there is no bound."""
    room: list[Dim] = []
    for size, other in zip(a.shape, b.shape, strict=True):
        if size == other:
            room.append(size)
            continue
        ends = [_bound(call, one) for one in (size, other)]
        if not all(map(is_bounded, ends)):
            return None
        room.append(maximum(*ends))
    sides = [
        pad(one.node, [(0, end - had) for end, had in zip(room, one.shape, strict=True)])
        for one in (a, b)
    ]
    node = make("if", condition, *sides)
    for axis, (size, other) in enumerate(zip(a.shape, b.shape, strict=True)):
        if size != other:
            count = make("if", condition, _count(call, size), _count(call, other))
            node = make("gather", node, cut(iota(room[axis]), count), axis=axis)
    return Value.of(node, is_string=a.is_string)


def _bound(call: Call, size: Dim) -> Dim:
    """The largest that a size can be, which is known before a run where there is such a bound."""
    most = size
    while sizes := [one for one in found_in(most) if is_bounded(one)]:
        rows: dict[Found, Dim] = {}
        for one in sizes:
            maker = call.translator.maker(one)
            is_cut = maker is not None and maker.op == "cut"
            rows[one] = maker.inputs[0].shape[0] if maker is not None and is_cut else one.high
        most = substitute(most, rows)  # type: ignore[arg-type]
    return most if known_le(size, most) else bounds(size)[1]


def _count(call: Call, size: Dim) -> Node:
    """A size as a number, which is computed where it is found."""
    numbers = {}
    for one in found_in(size):
        maker = call.translator.maker(one)
        if maker is not None and maker.op == "cut":
            rows = _count(call, maker.inputs[0].shape[0])
            count = make("maximum", maker.inputs[1], full((), 0, INT64))
            numbers[one.name] = make("minimum", count, rows)
    return number_of(size, numbers)


# Sizes without bounds.


def _are_alike(either: Either) -> bool:
    a, b = either.then, either.otherwise
    return isinstance(a, Value) and isinstance(b, Value) and a.ndim == b.ndim


def _tensors(either: AnyValue) -> Pair:
    assert isinstance(either, Either)
    a, b = either.then, either.otherwise
    assert isinstance(a, Value)
    assert isinstance(b, Value)
    return a, b


def _planned_in_run(call: Call, condition: Node, pairs: Sequence[Pair]) -> list[Value]:
    """The way that is taken is planned once that is known, over what was there before it."""
    sides = [[pair[k].node for pair in pairs] for k in (1, 0)]
    roots = [node for side in sides for node in side]
    before = call.translator.nodes_in_scope()
    reached = topological(roots, before)
    inside = {*reached, *roots} - before
    used = dict.fromkeys(value for node in inside for value in node.inputs)
    captures = dict.fromkeys([*(node for node in roots if node in before),
                              *(node for node in used if node not in inside)])  # fmt: skip
    captures |= dict.fromkeys(node for node in inside if node.op in ("input", "parameter", "state"))
    # Sizes that were found before come with a value that has them.
    own = {size for node in captures for size in found_sizes(node)}
    for size in {size for node in inside for size in found_sizes(node)} - own:
        maker = call.translator.maker(size)
        if maker is not None and maker not in inside:
            captures[maker] = None

    def build(values: Sequence[Array], given: Sequence[Node]) -> list[Node]:
        side = sides[int(values[0])]
        mapping = dict(zip(captures, given, strict=True))
        new = rebuilt(side, mapping)
        return [new[node] for node in side]

    sizes: dict[tuple[Dim, Dim], Dim] = {}
    shapes = [
        tuple(
            size if size == other else sizes.setdefault((size, other), any_size())
            for size, other in zip(a.shape, b.shape, strict=True)
        )
        for a, b in pairs
    ]
    results = [(shape, a.dtype) for shape, (a, _) in zip(shapes, pairs, strict=True)]
    function = Specialization(build, call.where)
    made = specialize(function, [condition], list(captures), results)
    return [Value.of(node, is_string=a.is_string) for node, (a, _) in zip(made, pairs, strict=True)]
