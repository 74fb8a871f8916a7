"""Loops whose values change their sizes: which axes grow is found by building the body.

In: a function that builds the body over parameters. It is called with the sizes the values have
before the loop; an axis that comes out with another size gets a size of its own, without a bound,
and the body is built again until nothing changes. Out: the results of a `growing_loop`, or of a
plain loop where no axis grows and the rows have a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from arenite.dtype import BOOL, INT64
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Found, found_in
from arenite.ir.node import Node, Origins, Shape
from arenite.ir.ops import full, make, parameter
from arenite.ir.ops.control import trip_size
from arenite.ir.ops.unbounded import any_size
from arenite.ir.regions import closed, loop

#: Iterations of a loop that only its condition ends.
FOR_EVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that a loop turns out to carry beside those it was given."""

    initial: Node
    parameter: Node  # what it is in the body at first
    following: Node


@dataclass(frozen=True, slots=True)
class Body:
    """What the body of a loop gives."""

    following: Sequence[Node]
    rows: Sequence[Node] = ()
    goes_on: Node | None = None  # always
    beside: Sequence[Carried] = ()  # of sizes that do not change


def growing(
    trips: Node,
    initial: Sequence[Node],
    build: Callable[[Node, Sequence[Node]], Body],
    *,
    condition: Node | None = None,
    origins: Origins | None = None,
    unread: Collection[int] = (),
) -> list[Node]:
    """The carried values after the last iteration, those carried beside them, then the rows of all
    iterations, stacked.

    `build` gets the iteration number and the carried values; `condition` is that before the first
    iteration. Carried values whose numbers are `unread` are not read by the body: they have the
    type it gives them, and are zeros where there is no iteration and theirs was another one.
    """
    number = parameter((), INT64)
    initial = list(initial)
    shapes = [node.shape for node in initial]
    entering: list[Found] = []
    while True:
        carried = [
            parameter(shape, node.dtype) for shape, node in zip(shapes, initial, strict=True)
        ]
        body = build(number, carried)
        retyped = [k for k in unread if _is_of_another_type(carried[k], body.following[k])]
        if retyped:
            for k in retyped:
                initial[k] = _zeros(body.following[k])
                shapes[k] = initial[k].shape
            continue
        made = _widened(carried, body.following, entering)
        if made == shapes:
            break
        shapes = made
    initial = [*initial, *(one.initial for one in body.beside)]
    carried += [one.parameter for one in body.beside]
    following = [*body.following, *(one.following for one in body.beside)]
    shapes += [one.initial.shape for one in body.beside]
    bound = trip_size(trips)
    if not entering and (not body.rows or (bound is not None and bound != FOR_EVER)):
        return loop(
            trips,
            initial,
            ((number, *carried), following),
            rows=body.rows,
            condition=condition,
            goes_on=body.goes_on,
            cut_rows=True,
            origins=origins,
        )
    always = full((), True, BOOL)
    results = (body.goes_on if body.goes_on is not None else always, *following, *body.rows)
    region, captures = closed((number, *carried), results, origins, entering)
    leaving = {size: any_size() for size in entering}
    n_rows = any_size()
    final = [tuple(_of(size, leaving) for size in shape) for shape in shapes]
    known = {var for node in (*initial, *captures) for size in node.shape for var in found_in(size)}
    inner: dict[Dim, Found] = {}
    for row in body.rows:
        sizes = [
            size if found_in(size) <= known else inner.setdefault(size, any_size())
            for size in row.shape
        ]
        final.append((n_rows, *sizes))
    inputs = (trips, condition if condition is not None else always, *initial, *captures)
    return [
        make(
            "growing_loop",
            *inputs,
            body=region,
            carried=len(initial),
            entering=tuple(entering),
            shapes=tuple(final),
            sizes=(*leaving.values(), *((n_rows,) if body.rows else ()), *inner.values()),
            index=index,
        )
        for index in range(len(final))
    ]


def _is_of_another_type(node: Node, wanted: Node) -> bool:
    return (node.ndim, node.dtype) != (wanted.ndim, wanted.dtype) or any(
        size != other and not found_in(other)
        for size, other in zip(node.shape, wanted.shape, strict=True)
    )


def _zeros(like: Node) -> Node:
    """Zeros in the sizes that are known before a run."""
    shape = tuple(0 if found_in(size) else size for size in like.shape)
    return full(shape, 0, like.dtype)


def _of(size: Dim, leaving: dict[Found, Found]) -> Dim:
    return leaving.get(size, size) if isinstance(size, Found) else size


def _widened(
    carried: Sequence[Node], following: Sequence[Node], entering: list[Found]
) -> list[Shape]:
    """The shapes of carried values, with new sizes where the body changes them."""
    if len(following) != len(carried):
        raise InvalidArgument(
            f"a loop carries {len(carried)} values, and its body gives {len(following)}"
        )
    shapes: list[Shape] = []
    for k, (one, made) in enumerate(zip(carried, following, strict=True)):
        if made.dtype != one.dtype:
            raise TypeMismatch(
                f"carried value {k} is {one.type_text} and becomes {made.type_text}: another dtype"
            )
        if made.ndim != one.ndim:
            raise ShapeMismatch(
                f"carried value {k} is {one.type_text} and becomes "
                f"{made.type_text}: sizes may change in a loop, the number of axes "
                "may not"
            )
        sizes: list[Dim] = []
        for before, after in zip(one.shape, made.shape, strict=True):
            if before != after and before not in entering:
                before = any_size()
                entering.append(before)
            sizes.append(before)
        shapes.append(tuple(sizes))
    return shapes
