"""Control flow: values that depend on which way a run takes, and how often.

    if(condition, a, b)                          a where the condition holds, else b; the other one
                                                 is not computed for it
    branch(condition, *captures; then, otherwise, index)
                                                 the same once it is decided what is computed where
    loop(trips, condition, *initial, *captures; body, carried, index)
    parameter                                    what a region is given from outside
    cut(x, count; size)                          the first `count` rows of x, or all there are;
                                                 `size` is that number, found while running

A region is a function of its parameters. The body of a loop takes the iteration number (int64[]),
the carried values and the captures; it gives a condition (bool[]: whether to go on), the carried
values for the next iteration, and rows. A loop runs while fewer than `trips` iterations are done
and the condition holds, so it may run not at all. Result `index` counts the carried values after
the last iteration, then the rows of all iterations stacked along a new axis 0. That axis has
`trips` entries, which then is a size; rows of iterations that a condition left out are zero. What
differs in `index` alone is one loop.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arenite.dtype import BOOL, INT64, Array, DType
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Found, bounds, maximum
from arenite.ir.node import Node, typed
from arenite.ir.ops.define import OPS, Attrs, Inferred, Sizes, define, is_dims, make
from arenite.ir.ops.sources import check_sizes


@dataclass(frozen=True, slots=True)
class Region:
    """Results over parameters; equal to another one of the same nodes."""

    parameters: tuple[Node, ...]
    results: tuple[Node, ...]

    def __repr__(self) -> str:
        return f"Region({len(self.parameters)} parameters, {len(self.results)} results)"


@dataclass(frozen=True, slots=True)
class LoopParts:
    """The inputs of a loop and the parameters and results of its body, by what they are."""

    trips: Node
    condition: Node
    initial: tuple[Node, ...]
    captures: tuple[Node, ...]
    iteration: Node
    carried: tuple[Node, ...]
    captured: tuple[Node, ...]  # parameters for the captures
    goes_on: Node
    following: tuple[Node, ...]  # the carried values for the next iteration
    rows: tuple[Node, ...]

    @property
    def read(self) -> tuple[Node, ...]:
        """The inputs that are read from memory: a trip count and a condition that are known are
        not."""
        trips = () if trip_size(self.trips) is not None else (self.trips,)
        condition = () if is_always(self.condition) else (self.condition,)
        return (*trips, *condition, *self.initial, *self.captures)


_numbers = itertools.count(1)
#: Sizes by the count they are, and the number of rows there are at the most.
_found: weakref.WeakKeyDictionary[Node, dict[Dim, Found]] = weakref.WeakKeyDictionary()


def parameter(shape: Sequence[Dim], dtype: DType) -> Node:
    """A new one, like no other."""
    return make("parameter", number=next(_numbers), shape=tuple(shape), dtype=dtype)


def cut(x: Node, count: Node) -> Node:
    """The first `count` rows of x. Sizes that one count makes of as many rows are one size."""
    rows = x.shape[0]
    known = _found.setdefault(count, {})
    size = known.get(rows)
    if size is None:  # another thread may have been quicker
        size = known.setdefault(rows, Found(f"found_{next(_numbers)}", 0, bounds(rows)[1]))
    return make("cut", x, count, size=size)


def regions_of(node: Node) -> tuple[Region, ...]:
    if OPS[node.op].family != "control":
        return ()
    return tuple(value for _, value in node.attrs if isinstance(value, Region))


def loop_parts(node: Node) -> LoopParts:
    return _parts(node.inputs, node.attr("body"), node.attr("carried"))


def _parts(inputs: Sequence[Node], body: Region, n: int) -> LoopParts:
    iteration, *given = body.parameters
    goes_on, *made = body.results
    return LoopParts(
        inputs[0],
        inputs[1],
        tuple(inputs[2 : 2 + n]),
        tuple(inputs[2 + n :]),
        iteration,
        tuple(given[:n]),
        tuple(given[n:]),
        goes_on,
        tuple(made[:n]),
        tuple(made[n:]),
    )


def trip_size(trips: Node) -> Dim | None:
    """The trip count where it is a size, not found while running."""
    if trips.op == "full":
        return max(0, int(trips.attr("value")))
    return maximum(trips.attr("value"), 0) if trips.op == "size" else None


def is_always(condition: Node) -> bool:
    """Whether a condition is known to hold."""
    return condition.op == "full" and bool(condition.attr("value"))


def is_never(condition: Node) -> bool:
    """Whether a condition is known not to hold."""
    return condition.op == "full" and not condition.attr("value")


def need_type(what: str, node: Node, shape: Sequence[Dim], dtype: DType) -> None:
    if node.dtype != dtype:
        raise TypeMismatch(f"{what} is {node.type_text}, not {typed(shape, dtype)}: another dtype")
    if node.shape != tuple(shape):
        raise ShapeMismatch(f"{what} is {node.type_text}, not {typed(shape, dtype)}: another shape")


def _infer_if(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    condition, then, otherwise = inputs
    need_type("if: the condition", condition, (), BOOL)
    need_type("if: what stands for false", otherwise, then.shape, then.dtype)
    return then.shape, then.dtype


def _if_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return arrays[1] if arrays[0] else arrays[2]


def need_index(op: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise InvalidArgument(f"{op}: result {index} of {count}")


def _infer_branch(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    condition, *captures = inputs
    need_type("branch: the condition", condition, (), BOOL)
    then, otherwise = attrs["then"], attrs["otherwise"]
    for region in (then, otherwise):
        _need_parameters("branch", region.parameters, captures)
    if len(then.results) != len(otherwise.results):
        raise InvalidArgument(
            f"branch: {len(then.results)} results on one side, {len(otherwise.results)} on the "
            "other"
        )
    index = attrs["index"]
    need_index("branch", index, len(then.results))
    made = then.results[index]
    need_type("branch: the other result", otherwise.results[index], made.shape, made.dtype)
    return made.shape, made.dtype


def _need_parameters(op: str, parameters: Sequence[Node], given: Sequence[Node]) -> None:
    if len(parameters) != len(given):
        raise InvalidArgument(f"{op}: {len(given)} values for {len(parameters)} parameters")
    for k, (one, value) in enumerate(zip(parameters, given, strict=True)):
        if one.op != "parameter":
            raise InvalidArgument(f"{op}: parameter {k} of a region is {one!r}")
        need_type(f"{op}: the value for parameter {k}", value, one.shape, one.dtype)


def _infer_loop(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    body, n, index = attrs["body"], attrs["carried"], attrs["index"]
    if not 0 <= n <= min(len(inputs) - 2, len(body.results) - 1):
        raise InvalidArgument(f"loop: {n} carried values do not fit its inputs and results")
    if len(body.parameters) != len(inputs) - 1:
        raise InvalidArgument(
            f"loop: {len(inputs) - 2} values and the iteration number for "
            f"{len(body.parameters)} parameters"
        )
    parts = _parts(inputs, body, n)
    need_type("loop: the trip count", parts.trips, (), INT64)
    need_type("loop: the first condition", parts.condition, (), BOOL)
    need_type("loop: the iteration number", parts.iteration, (), INT64)
    _need_parameters("loop", body.parameters[1:], inputs[2:])
    need_type("loop: the condition to go on", parts.goes_on, (), BOOL)
    for k, (first, following) in enumerate(zip(parts.initial, parts.following, strict=True)):
        need_type(f"loop: carried value {k}, as the body gives it,", following, first.shape,
                   first.dtype)  # fmt: skip
    need_index("loop", index, n + len(parts.rows))
    if index < n:
        return parts.initial[index].shape, parts.initial[index].dtype
    trips = trip_size(parts.trips)
    if trips is None:
        raise InvalidArgument(
            "loop: rows are stacked only where the trip count is a number or a size, not found "
            f"while running as {parts.trips!r} is"
        )
    row = parts.rows[index - n]
    return check_sizes("loop", (trips, *row.shape)), row.dtype


def _loop_operand(node: Node, value: Node) -> str | None:
    return "loop reads it from memory" if value in loop_parts(node).read else None


def _infer_cut(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, count = inputs
    need_type("cut: the count", count, (), INT64)
    if not x.ndim:
        raise ShapeMismatch(f"cut: {x.type_text} has no rows")
    if attrs["size"].low != 0 or attrs["size"].high < bounds(x.shape[0])[1]:
        raise InvalidArgument(f"cut: {attrs['size']} does not reach from 0 to {x.shape[0]}")
    return (attrs["size"], *x.shape[1:]), x.dtype


def _infer_parameter(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    return check_sizes("parameter", attrs["shape"]), attrs["dtype"]


def _in_its_graph(*_: Any) -> Array:
    raise InvalidArgument("control flow has a meaning in the run of its graph alone: ir.evaluate")


define(
    "parameter",
    "source",
    (0, 0),
    _infer_parameter,
    _in_its_graph,
    {"number": int, "shape": is_dims, "dtype": DType},
    storage="given",
)
define("if", "control", (3, 3), _infer_if, _if_reference)
define("cut", "control", (2, 2), _infer_cut, _in_its_graph, {"size": Found}, is_construct=True)
define(
    "branch",
    "control",
    (1, None),
    _infer_branch,
    _in_its_graph,
    {"then": Region, "otherwise": Region, "index": int},
    is_construct=True,
)
define(
    "loop",
    "control",
    (2, None),
    _infer_loop,
    _in_its_graph,
    {"body": Region, "carried": int, "index": int},
    operand=_loop_operand,
    is_construct=True,
)
