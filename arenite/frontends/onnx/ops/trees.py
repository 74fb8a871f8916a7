"""Trees of decisions, walked for all rows at once.

Each step looks up, for every row and tree, the node it stands at. Leaves lead to themselves, so
that all walks are as long as the deepest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenite.dtype import BOOL, INT64, Array, DType
from arenite.frontends.onnx.call import Call
from arenite.ir import Node, constant, full, make, size
from arenite.ir.compose import basic, reductions
from arenite.ir.element import numpy_dtype
from arenite.ir.growing_loop import Body, growing

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
COMPARISONS = {LEQ: "le", LT: "lt", GTE: "ge", GT: "gt", EQ: "eq", NEQ: "ne"}
MAX_DEPTH = 4096
#: Elements of a table that is made of lists in a file.
MAX_TABLE = 1 << 26


@dataclass(frozen=True, slots=True)
class Trees:
    """Nodes are numbered, inner ones first, then leaves."""

    roots: Array
    features: Array
    splits: Array
    modes: Array
    tracks_true: Array
    on_true: Array
    on_false: Array
    weights: Array  # of each leaf, for each target
    are_said: Array  # whether a leaf says something of a target
    members: list[list[float]]  # of the inner nodes that ask for membership, in their order


def check_table(call: Call, n_rows: int, n_columns: int, what: str) -> None:
    """Refuse a table that lists of a few numbers would make huge."""
    if n_rows * n_columns > MAX_TABLE:
        call.refuse(f"{n_rows} x {n_columns} {what}, where {MAX_TABLE} numbers are the most")


def leaf_weights(
    call: Call, leaves: Array, targets: Array, weights: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """What each leaf says of each target, and whether it says something."""
    if not len(leaves) == len(targets) == len(weights):
        call.fail("its leaves are described by lists of several lengths")
    if ((targets < 0) | (targets >= shape[1])).any():
        call.fail("a target is out of range")
    check_table(call, *shape, "weights of leaves for targets")
    made, are_said = np.zeros(shape, weights.dtype), np.zeros(shape, bool)
    np.add.at(made, (leaves, targets), weights)
    are_said[leaves, targets] = True
    return made, are_said


def _depth(call: Call, trees: Trees) -> int:
    """Steps of the longest walk."""
    n = len(trees.features)
    standing = np.unique(trees.roots)
    depth = 0
    while len(standing := standing[standing < n]):
        depth += 1
        if depth > n:
            call.fail("its nodes lead back to themselves")
        if depth > MAX_DEPTH:
            call.refuse(f"its trees are more than {MAX_DEPTH} deep")
        standing = np.unique([trees.on_true[standing], trees.on_false[standing]])
    return depth


def walked(call: Call, trees: Trees, x: Node) -> Node:
    """The leaf each row reaches in each tree."""
    n, n_leaves = len(trees.features), len(trees.weights)
    leaves = np.arange(n, n + n_leaves)
    if x.ndim != 2:
        call.fail(f"its input has {x.ndim} axes, not 2")
    width = x.shape[1]
    if isinstance(width, int) and (trees.features >= width).any():
        call.fail(f"a node looks at feature {trees.features.max()} of an input of {width}")

    def table(inner: Array, of_leaves: Any) -> Node:
        filling = np.broadcast_to(np.asarray(of_leaves, inner.dtype), (n_leaves,))
        return constant(np.concatenate([inner, filling]))

    features = table(trees.features, 0)
    splits = table(trees.splits.astype(numpy_dtype(x.dtype)), 0)
    modes, tracks = table(trees.modes, LEQ), table(trees.tracks_true, 0)
    on_true, on_false = table(trees.on_true, leaves), table(trees.on_false, leaves)
    shape = (x.shape[0], len(trees.roots))
    look_up: Callable[[Node, Node], Node] = lambda data, at: make("gather", data, at, axis=0)  # noqa: E731
    is_member = _members(call, trees, x.dtype)

    def build(_: Node, carried: Any) -> Body:
        [at] = carried
        value = make("gather_elements", x, look_up(features, at), axis=1)
        split, mode = look_up(splits, at), look_up(modes, at)
        holds = full(shape, False, BOOL)
        for kind in sorted(set(trees.modes.tolist())):
            yes = is_member(at, value) if kind == MEMBER else make(COMPARISONS[kind], value, split)
            holds = basic.where(basic.binary("eq", mode, int(kind)), yes, holds)
        if trees.tracks_true.any():
            is_missing = make("isnan", value)
            follows = basic.binary("ne", look_up(tracks, at), 0)
            holds = holds | is_missing & follows
        return Body([basic.where(holds, look_up(on_true, at), look_up(on_false, at))])

    start = basic.broadcast_to(constant(trees.roots), shape)
    depth = _depth(call, trees)
    if not depth:
        return start - n
    trips = size(depth, INT64)
    [at] = growing(trips, [start], build, origins=call.translator.origins)
    return at - n


def _members(call: Call, trees: Trees, dtype: DType) -> Callable[[Node, Node], Node]:
    """Whether values are members of the sets of the nodes they stand at."""
    asking = np.flatnonzero(trees.modes == MEMBER)
    if len(asking) > len(trees.members):
        call.fail(f"{len(asking)} nodes ask for membership in {len(trees.members)} sets")
    widest = max(map(len, trees.members))
    check_table(call, len(trees.members), widest, "members of sets")
    sets = np.full((len(trees.members), max(1, widest)), np.nan, numpy_dtype(dtype))
    for row, members in zip(sets, trees.members, strict=True):
        row[: len(members)] = members
    which = np.zeros(len(trees.features) + len(trees.weights), np.int64)
    which[asking] = np.arange(len(asking))
    tables = constant(sets), constant(which)

    def is_member(at: Node, value: Node) -> Node:
        rows = make("gather", tables[0], make("gather", tables[1], at, axis=0), axis=0)
        same = basic.binary("eq", rows, basic.expand_dims(value, value.ndim))
        return reductions.reduce("any", same, [value.ndim])

    return is_member


def said(trees: Trees, leaves: Node) -> Node:
    """Whether some tree says something of a target, for each row."""
    return reductions.reduce("any", make("gather", constant(trees.are_said), leaves, axis=0), [1])


def aggregated(trees: Trees, leaves: Node, function: str, dtype: DType) -> Node:
    """What the leaves say of each target."""
    weights = constant(trees.weights.astype(numpy_dtype(dtype)))
    weight = make("gather", weights, leaves, axis=0)
    if function in ("SUM", "AVERAGE"):
        total = reductions.reduce("sum", weight, [1])
        return total / float(len(trees.roots)) if function == "AVERAGE" else total
    op, none = ("min", math.inf) if function == "MIN" else ("max", -math.inf)
    is_mine = make("gather", constant(trees.are_said), leaves, axis=0)
    best = reductions.reduce(op, basic.where(is_mine, weight, none), [1])
    return basic.where(said(trees, leaves), best, 0.0)
