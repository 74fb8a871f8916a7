"""Structure that a model computes: sizes, axes, counts.

What follows from constants or from shapes is known while a model is read, what follows from a few
numbers among the inputs with each call: a program is made for those. All else is found in a run:

    a size      the length of a range that is made of it; programs are planned for capacities
    the rest    native code returns, and what an operator makes of the numbers is compiled then
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.dtype import BOOL, INT64, Array, Kind
from arenite.errors import AreniteError, BoundsError, ShapeMismatch
from arenite.frontends.onnx.registry import Handler, Result
from arenite.frontends.onnx.values import AnyValue, Value
from arenite.ir import Dim, Node, bounds, constant, full, make, parameter, product
from arenite.ir import size as size_node
from arenite.ir.compose.basic import binary, cast, iota, reshape, slice_axis, where
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import found_in
from arenite.ir.element import numpy_dtype
from arenite.ir.graph import found_sizes, topological
from arenite.ir.ops.define import OPS
from arenite.ir.ops.host import HostFunction
from arenite.ir.ops.unbounded import Specialization, any_size, arange, specialize

if TYPE_CHECKING:
    from arenite.frontends.onnx.call import Call

#: Elements of an input up to which it may decide structure: a program is made for its numbers.
MAX_DECIDING, MAX_DECIDING_FLOATS = 64, 8

#: Sizes that one input of an operator may have a run find.
MAX_SIZES = 64

#: Ops whose results a run finds.
_FOUND = frozenset({"parameter", "state", "cut", "arange", "growing_loop", "specialize", "host"})


def is_data(node: Node) -> bool:
    """Whether a value follows from what only a run knows, and not from a few numbers alone."""
    reached = topological([node])
    is_whole = all(OPS[one.op].family != "reduction" for one in reached)
    return any(
        one.op in _FOUND or found_sizes(one) or (one.op == "input" and not _decides(one, is_whole))
        for one in reached
    )


def _decides(node: Node, is_whole: bool) -> bool:
    """Whether an input may be structure: it has few numbers, or is a row of integers of which each
    has a meaning of its own."""
    is_float = node.dtype.kind is Kind.FLOAT
    count = product(node.shape)
    is_small = isinstance(count, int) and count <= (
        MAX_DECIDING_FLOATS if is_float else MAX_DECIDING
    )
    return is_small or (is_whole and node.ndim <= 1 and not is_float)


def inputs_deciding(node: Node) -> list[str]:
    """Inputs of the model that a value follows from, where these are all it takes."""
    if is_data(node):
        return []
    return [one.attr("name") for one in topological([node]) if one.op == "input"]


# Sizes.


def sizes_in_run(call: Call, index: int, signed: bool = False) -> list[Dim]:
    """The elements of an input as sizes, of which some are found in a run; `signed` ones may be
    negative, and are differences of sizes."""
    sizes: list[Dim] = []
    count = product(call.node(index).shape)
    if not isinstance(count, int) or count > MAX_SIZES:
        call.refuse(f"input {index} has {count} sizes, which a run finds; {MAX_SIZES} are the most")
    for place, one in enumerate(_elements(call.node(index))):
        if not isinstance(one, Node):
            sizes.append(one)
        elif signed:
            less = -one
            sizes.append(_part(call, one) - _part(call, less))
        else:
            what = f"element {place} of its input {index} is a size, and was found to be"
            number = checked(call, what, one, lambda one: one >= 0)
            sizes.append(found_size(call, number, least_of(one)))
    return sizes


def _part(call: Call, number: Node) -> Dim:
    return found_size(call, binary("maximum", cast(number, INT64), 0))


def _elements(node: Node) -> list[Dim | Node]:
    """The elements of integers, in order: those that are known, and numbers to be found."""
    if node.op == "concat" and node.ndim == 1:
        return [element for one in node.inputs for element in _elements(one)]
    if node.op == "reshape" or (node.op == "cast" and node.inputs[0].dtype.kind is Kind.SIGNED):
        return _elements(node.inputs[0])
    count = product(node.shape)
    assert isinstance(count, int)
    if node.op in ("size", "full"):
        return [node.attr("value")] * count
    if node.op == "constant":
        known = Value.of(node, is_constant=True).known
        return [] if known is None else [int(one) for one in known.reshape(-1)]
    flat = reshape(node, (count,))
    return [reshape(slice_axis(flat, 0, k, k + 1), ()) for k in range(count)]


def checked(call: Call, what: str, number: Node, *rest: Any) -> Node:
    """A number that a run finds, for which `holds(number, *others)` must be true; else `what` is
    said, with the numbers. `rest` are the others, and who tells."""
    *others, holds = rest
    where_ = call.where

    def check(*arrays: Array) -> Array:
        numbers = [int(one) for one in arrays]
        if not holds(*numbers):
            raise BoundsError(f"{where_}: {what} {', '.join(map(str, numbers))}")
        return arrays[0]

    nodes = [cast(one, INT64) for one in (number, *others)]
    return make("host", *nodes, function=HostFunction(check, what), shape=(), dtype=INT64)


#: Ops whose elements are those of their first input, some of them, or these rounded.
_KEEPING = frozenset(
    {"reshape", "slice", "expand", "permute", "max", "min", "cast", "ceil", "floor"}
)


def least_of(node: Node) -> int:
    """What elements are at the least, as far as it shows; no less than 0. A NaN is a number
    once it is cast, and less: who relies on it looks in the run."""
    if _is_made_up(node):
        known = Value.of(node, is_constant=True).known
        is_number = known is not None and known.size and np.isfinite(known).all()
        return max(0, int(known.min())) if is_number and known is not None else 0
    if node.op == "size":
        return max(0, bounds(node.attr("value"))[0])
    if node.op in ("maximum", "minimum"):
        a, b = map(least_of, node.inputs)
        return max(a, b) if node.op == "maximum" else min(a, b)
    return least_of(node.inputs[0]) if node.op in _KEEPING else 0


def found_size(call: Call, count: Node, least: int = 0) -> Dim:
    """The size that a number is; what has it comes behind."""
    made = arange(count, least)
    size = made.shape[0]
    call.translator.add_range(made)
    return size


def most_apart(first: Node, last: Node) -> int | None:
    """How far one number is behind another at the most, where that is known: of min(i + 1, n) and i
    it is 1, though a run finds both."""
    base, shift = distance(first)
    found: list[int] = []
    pending = [(last, -shift)]
    while pending:
        node, behind = pending.pop()
        node, more = distance(node)
        if node is base:
            found.append(max(0, behind + more))
        elif node.op == "minimum":
            pending += [(one, behind + more) for one in node.inputs]
    return min(found, default=None)


def distance(node: Node) -> tuple[Node, int]:
    """An integer as another one and a known distance from it; what lies between may be whole
    numbers as floats."""
    far, found = 0, (node, 0)
    while True:
        if node.dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            found = node, far
        is_view = node.op in ("reshape", "slice", "expand")
        if is_view or (node.op == "cast" and node.dtype.bits >= 32):
            if product(node.inputs[0].shape) != 1:
                return found
            node = node.inputs[0]
            continue
        known = [one for one in node.inputs if _is_made_up(one)]
        if node.op != "add" or len(known) != 1:
            return found
        step = Value.of(known[0], is_constant=True).known
        assert step is not None
        number = float(step.reshape(-1)[0])
        if not number.is_integer():
            return found
        far += int(number)
        node = next(one for one in node.inputs if one is not known[0])


def _is_made_up(node: Node) -> bool:
    return all(one.op in ("constant", "full", "reshape", "expand") for one in topological([node]))


def gathered(x: Node, axis: int, start: Dim | Node, length: Dim) -> Node:
    """A part of an axis; where it begins, and how long it is, only a run may know."""
    places = iota(length)
    if start != 0:
        first = start if isinstance(start, Node) else size_node(start, INT64)
        places = places + first
    return make("gather", x, places, axis=axis)


def reshaped_in_run(call: Call, x: Node, shape: Sequence[Dim]) -> Node:
    """A shape that only a run can tell to have as many elements."""
    total, count = product(x.shape), product(shape)
    sides = [size_node(one, INT64) for one in (total, count)]
    is_same = checked(call, "elements there are, and are wanted:", *sides, lambda a, b: a == b)
    start = is_same - sides[0]
    return reshape(gathered(reshape(x, (total,)), 0, start, count), shape)


def resized_in_run(call: Call, x: Node, shape: Sequence[Dim]) -> Node:
    """The same elements, where a shape is written in other sizes that only a run can tell to be
    the same; sizes that no run finds stay as they are."""
    if x.ndim != len(shape):
        return x
    for axis, (size, wanted) in enumerate(zip(x.shape, shape, strict=True)):
        if size == wanted or not (found_in(size) or found_in(wanted)):
            continue
        sides = [size_node(one, INT64) for one in (size, wanted)]
        what = f"elements of axis {axis} there are, and are wanted:"
        is_same = checked(call, what, *sides, lambda a, b: a == b)
        x = gathered(x, axis, is_same - sides[0], wanted)
    return x


def same_sized(call: Call, x: Node, axis: int, other: Node, along: int) -> tuple[Node, Node]:
    """Two tensors, of which an axis of each is as long as the other's, though a run may have found
    both of these sizes."""
    size, wanted = x.shape[axis], other.shape[along]
    if isinstance(wanted, int) and not isinstance(size, int):
        return _with_size(call, x, axis, wanted), other
    return x, _with_size(call, other, along, size)


def _with_size(call: Call, x: Node, axis: int, size: Dim) -> Node:
    shape = list(x.shape)
    shape[axis] = size
    return resized_in_run(call, x, shape)


def aligned(call: Call, *nodes: Node, but: int | None = None) -> list[Node]:
    """Operands that go together where a run finds some of their sizes: as many as the others have,
    or 1; they may differ along the axis `but`."""
    made = list(nodes)
    ndim = max(one.ndim for one in nodes)
    for axis in range(-ndim, 0):
        if but is not None and axis == but - ndim:
            continue
        having = [k for k, one in enumerate(made) if one.ndim >= -axis and one.shape[axis] != 1]
        sizes = list(dict.fromkeys(made[k].shape[axis] for k in having))
        if len(sizes) < 2 or not any(map(found_in, sizes)):
            continue
        count = _broadcast_size(call, sizes)
        known = [one for one in sizes if isinstance(one, int)]
        start: Node | int = count - known[0] if known else 0  # 0, once it is checked
        wanted = known[0] if known else found_size(call, count)
        for k in having:
            is_one = binary("eq", size_node(made[k].shape[axis], INT64), 1)
            steps = where(is_one, full((), 0, INT64), full((), 1, INT64))
            places = iota(wanted) * steps + start
            made[k] = make("gather", made[k], places, axis=made[k].ndim + axis)
    return made


def _broadcast_size(call: Call, sizes: Sequence[Dim]) -> Node:
    where_ = call.where

    def check(*arrays: Array) -> Array:
        found = {int(one) for one in arrays} - {1}
        if len(found) > 1:
            raise ShapeMismatch(f"{where_}: sizes of one axis were found to be {sorted(found)}")
        return np.asarray(found.pop() if found else 1, np.int64)

    nodes = [size_node(one, INT64) for one in sizes]
    function = HostFunction(check, "sizes that are equal, or 1")
    return make("host", *nodes, function=function, shape=(), dtype=INT64)


def tied(node: Node, maker: Node) -> Node:
    """The same value, after a size was found."""
    # A truth that always holds, and that only a run of the maker can tell.
    is_any = reduce("any", cast(maker, BOOL), range(maker.ndim))
    holds = cast(is_any, INT64) >= 0
    zeros = full(node.shape, 0, node.dtype)
    other = full(node.shape, 1, node.dtype) if node is zeros else zeros
    return where(holds, node, other)


# Anything else.


def specialized(call: Call, handler: Handler) -> list[Value]:
    """What an operator gives, compiled in a run for the numbers that it asks for."""
    asked, results = _probed(call, handler)
    values = [call.node(index) for index in asked]
    others = {
        index: one.node
        for index, one in enumerate(call.inputs)
        if isinstance(one, Value) and index not in asked and not one.is_constant
    }

    def build(arrays: Sequence[Array], given: Sequence[Node]) -> list[Node]:
        known = {k: Value.of_known(one) for k, one in zip(asked, arrays, strict=True)}
        nodes = {k: Value.of(one) for k, one in zip(others, given, strict=True)}
        inputs = [(known | nodes).get(k, one) for k, one in enumerate(call.inputs)]
        return [one.node for one in _tensors(call, handler(call.with_inputs(inputs)))]

    shapes = [tuple(any_size() for _ in range(one.ndim)) for one in results]
    types = [(shape, one.dtype) for shape, one in zip(shapes, results, strict=True)]
    function = Specialization(build, call.where)
    made = specialize(function, values, list(others.values()), types)
    return [Value.of(node) for node in made]


def _probed(call: Call, handler: Handler) -> tuple[list[int], list[Value]]:
    """The inputs whose numbers are structure, and outputs of the right types: found by trying the
    operator on tensors of one element, with numbers that may make sense."""
    from arenite.frontends.onnx.call import Unknown

    asked: list[int] = []
    error: AreniteError | None = None
    for start, step in ((0, 1), (1, 0), (0, 0)):
        while True:
            inputs = [
                _probe(one, (start, step) if index in asked else None)
                for index, one in enumerate(call.inputs)
            ]
            try:
                return asked, _tensors(call, handler(call.with_inputs(inputs)))
            except Unknown as unknown:
                if unknown.index in asked or not call.is_found_in_run(unknown.index):
                    call.refuse(f"input {unknown.index} decides structure, and a run finds it")
                asked.append(unknown.index)
            except AreniteError as problem:
                error = error or problem
                break
    assert error is not None
    raise error


def _probe(value: AnyValue | None, line: tuple[int, int] | None) -> AnyValue | None:
    if not isinstance(value, Value) or value.is_constant:
        return value
    if line is not None:
        sizes = [one if isinstance(one, int) else 1 for one in value.shape]
        numbers = line[0] + line[1] * np.arange(int(np.prod(sizes))).reshape(sizes)
        return Value.of(constant(numbers.astype(numpy_dtype(value.dtype)), value.dtype),
                        is_constant=True)  # fmt: skip
    return Value.of(parameter((1,) * value.ndim, value.dtype))


def _tensors(call: Call, made: Result) -> list[Value]:
    outputs = made if isinstance(made, Sequence) else [made]
    values = [Value.of(one) if isinstance(one, Node) else one for one in outputs]
    if any(not isinstance(one, Value) or one.is_string for one in values):
        call.refuse("what is no tensor of numbers depends on structure that a run finds")
    return values  # type: ignore[return-value]
