"""What no bound is known of before a run: sizes, values that grow, and structure that is computed.

    arange(count; size)             0, 1, ... before `count`, int64[size]
    growing_loop(trips, condition, *initial, *captures;
                 body, carried, entering, shapes, sizes, index)
                                    as `loop`, but carried values may change their sizes from
                                    iteration to iteration, and there are as many rows as
                                    iterations
    specialize(*values, *captures; function, n_values, shapes, dtypes, sizes, index)
                                    what a function makes of the captures once it knows the values:
                                    axes, permutations, shapes

`entering` are the sizes that carried values have when an iteration begins, `sizes` those a node
finds, `shapes` the shapes of all results. Nodes that differ in `index` alone are one. Native code
returns before each of these: the sizes or the values are read, and what follows is planned then.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from arenite.dtype import BOOL, INT64, Array, DType
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Found, evaluate, variables
from arenite.ir.node import Node, Shape
from arenite.ir.ops.control import Region, need_index, need_type
from arenite.ir.ops.define import Attrs, Inferred, define, is_dims, make, tuple_of
from arenite.ir.ops.host import NamedFunction
from arenite.ir.ops.sources import check_sizes

#: More elements than any memory has: a size of this bound has none.
NO_BOUND = 2**48

#: Ops that only a program cut into segments can run.
CUTTING = frozenset({"arange", "growing_loop", "specialize"})

_numbers = itertools.count(1)
#: Sizes by the number they are.
_counted: weakref.WeakKeyDictionary[Node, Found] = weakref.WeakKeyDictionary()


class Specialization(NamedFunction):
    """A function of values and nodes that gives nodes."""

    __slots__ = ()


def any_size(least: int = 0) -> Found:
    """A new size without an upper bound."""
    return Found(f"unbounded_{next(_numbers)}", least, NO_BOUND)


def is_bounded(size: Dim) -> bool:
    """Whether a size has a bound."""
    return isinstance(size, int) or all(var.high < NO_BOUND for var in variables(size))


def arange(count: Node, least: int = 0) -> Node:
    """0, 1, ... before a number that is found while running, `least` at the least; of one number
    there is one size."""
    size = _counted.get(count)
    if size is None:  # another thread may have been quicker
        size = _counted.setdefault(count, any_size(least))
    return make("arange", count, size=size)


def specialize(
    function: Specialization,
    values: Sequence[Node],
    captures: Sequence[Node],
    results: Sequence[tuple[Shape, DType]],
) -> list[Node]:
    """What `function` makes of the captures; sizes of the results that `any_size` gave are found
    while running."""
    shapes = tuple(tuple(shape) for shape, _ in results)
    found = _unbounded(size for shape in shapes for size in shape)
    known = _unbounded(size for node in (*values, *captures) for size in node.shape)
    return [
        make(
            "specialize",
            *values,
            *captures,
            function=function,
            n_values=len(values),
            shapes=shapes,
            dtypes=tuple(dtype for _, dtype in results),
            sizes=tuple(size for size in found if size not in known),
            index=index,
        )
        for index in range(len(results))
    ]


def sizes_made(node: Node) -> tuple[Found, ...]:
    """The sizes that a node finds while running, for the graph it stands in."""
    if node.op in ("cut", "arange"):
        return (node.attr("size"),)
    if node.op in ("growing_loop", "specialize"):
        made: tuple[Found, ...] = node.attr("sizes")
        return made
    return ()


def bind_shape(
    what: str, shape: Shape, given: tuple[int, ...], new: Collection[Found], sizes: dict[str, int]
) -> None:
    """Learn `new` sizes from an array of a shape; what is known of the others must hold."""
    fits = len(shape) == len(given)
    for size, actual in zip(shape, given, strict=False):
        if size in new and isinstance(size, Found):
            fits &= sizes.setdefault(size.name, actual) == actual
        else:
            fits &= evaluate(size, sizes) == actual
    if not fits:
        known = {var.name: sizes[var.name] for size in shape for var in variables(size)}
        raise ShapeMismatch(f"{what} has shape {given}, which is not {tuple(shape)} with {known}")


def sizes_entering(node: Node) -> tuple[Found, ...]:
    """The sizes that are found anew in each iteration of a loop."""
    entering: tuple[Found, ...] = node.attr("entering") if node.op == "growing_loop" else ()
    return entering


def _unbounded(sizes: Iterable[Dim]) -> list[Found]:
    found = (size for size in sizes if isinstance(size, Found) and not is_bounded(size))
    return list(dict.fromkeys(found))


def _infer_arange(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    need_type("arange: the count", inputs[0], (), INT64)
    return (attrs["size"],), INT64


def _infer_growing_loop(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    body: Region = attrs["body"]
    n, shapes = attrs["carried"], attrs["shapes"]
    if not 0 <= n <= min(len(inputs) - 2, len(body.results) - 1):
        raise InvalidArgument(f"growing_loop: {n} carried values do not fit its inputs and results")
    if len(body.parameters) != len(inputs) - 1 or len(shapes) != len(body.results) - 1:
        raise InvalidArgument(
            f"growing_loop: {len(inputs) - 2} values for {len(body.parameters) - 1} parameters, "
            f"{len(shapes)} shapes for {len(body.results) - 1} results"
        )
    iteration, *given = body.parameters
    goes_on, *made = body.results
    need_type("growing_loop: the trip count", inputs[0], (), INT64)
    need_type("growing_loop: the first condition", inputs[1], (), BOOL)
    need_type("growing_loop: the iteration number", iteration, (), INT64)
    need_type("growing_loop: the condition to go on", goes_on, (), BOOL)
    entering, sizes = attrs["entering"], attrs["sizes"]
    for k, (first, one) in enumerate(zip(inputs[2:], given, strict=True)):
        is_carried = k < n
        _need_alike(f"the value for parameter {k}", first, one, entering if is_carried else ())
        if is_carried:
            _need_alike(f"carried value {k}, as the body gives it,", made[k], one, entering)
    for k, (shape, node) in enumerate(zip(shapes, made, strict=True)):
        wanted = given[k].shape if k < n else (None, *node.shape)
        fitting = len(shape) == len(wanted) and all(
            size == other or size in sizes for size, other in zip(shape, wanted, strict=True)
        )
        if not fitting:
            raise ShapeMismatch(f"growing_loop: result {k} of {node!r} has no shape {shape}")
    index = attrs["index"]
    need_index("growing_loop", index, len(made))
    return check_sizes("growing_loop", shapes[index]), made[index].dtype


def _need_alike(what: str, node: Node, wanted: Node, free: Sequence[Found]) -> None:
    """One type, but for sizes of `wanted` that are free."""
    shape = node.type_text
    if node.dtype != wanted.dtype:
        raise TypeMismatch(f"growing_loop: {what} is {shape}, not {wanted.dtype}: another dtype")
    if node.ndim != wanted.ndim or any(
        size != other and other not in free
        for size, other in zip(node.shape, wanted.shape, strict=True)
    ):
        raise ShapeMismatch(f"growing_loop: {what} is {shape}, not {wanted.type_text}")


def _infer_specialize(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    if not 0 < attrs["n_values"] <= len(inputs):
        raise InvalidArgument(f"specialize: {attrs['n_values']} values of {len(inputs)} inputs")
    if len(attrs["shapes"]) != len(attrs["dtypes"]):
        raise InvalidArgument("specialize: as many shapes as dtypes are needed")
    index = attrs["index"]
    need_index("specialize", index, len(attrs["shapes"]))
    return check_sizes("specialize", attrs["shapes"][index]), attrs["dtypes"][index]


def _in_its_graph(*_: Any) -> Array:
    raise InvalidArgument("what has no bound has a meaning in the run of its graph alone")


_ARE_SIZES, _ARE_SHAPES = tuple_of(Found), tuple_of(is_dims)

define("arange", "control", (1, 1), _infer_arange, _in_its_graph, {"size": Found})
define(
    "growing_loop",
    "control",
    (2, None),
    _infer_growing_loop,
    _in_its_graph,
    {
        "body": Region,
        "carried": int,
        "entering": _ARE_SIZES,
        "shapes": _ARE_SHAPES,
        "sizes": _ARE_SIZES,
        "index": int,
    },
)
define(
    "specialize",
    "control",
    (1, None),
    _infer_specialize,
    _in_its_graph,
    {
        "function": Specialization,
        "n_values": int,
        "shapes": _ARE_SHAPES,
        "dtypes": tuple_of(DType),
        "sizes": _ARE_SIZES,
        "index": int,
    },
)
