"""Operators of ai.onnx.ml: trees, encoders.

A tree is walked for all rows at once: each step looks up, for every row and tree, the node it
stands at. Leaves lead to themselves, so that all walks are as long as the deepest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenite.dtype import BOOL, BY_NAME, INT64, Array, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.strings import on_host
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Node, constant, full, make, size
from arenite.ir.compose import basic, neural, reductions
from arenite.ir.element import numpy_dtype
from arenite.ir.growing_loop import Body, growing

STRINGS, INTS, FLOATS = "strings", "int64s", "floats"


@operator("Binarizer", domain=ML)
def binarizer(call: Call) -> Result:
    x = call.node(0)
    return basic.cast(x > call.attr("threshold", 0.0), x.dtype)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(call: Call) -> Result:
    value, places = call.value(0), call.node(1)
    count = basic.reshape(places, (-1,)) if places.ndim != 1 else places
    node = value.node if value.ndim != 1 else basic.expand_dims(value.node, 0)
    made = make("gather", node, basic.cast(count, INT64), axis=node.ndim - 1)
    return Value.of(made, is_string=value.is_string)


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(call: Call) -> Result:
    value = call.value(0)
    keys, are_texts = _labels(call, "keys")
    values, give_texts = _labels(call, "values")
    if len(keys) != len(values):
        call.fail(f"{len(keys)} keys and {len(values)} values")
    if are_texts != value.is_string:
        call.fail(f"its keys are {'strings' if are_texts else 'numbers'}, and its input is {value}")
    strings = call.translator.source.strings
    default = _default(call, values, give_texts)
    table: dict[Any, Any] = {_key(key): one for key, one in zip(keys, values, strict=True)}
    dtype = INT64 if give_texts else _dtype(values)

    def mapped(array: Array) -> Array:
        given = strings.texts(array) if are_texts else array
        made = np.asarray([table.get(_key(one), default) for one in given.reshape(-1).tolist()],
                          object if give_texts else numpy_dtype(dtype))  # fmt: skip
        made = made.reshape(array.shape)
        return strings.places(made) if give_texts else made

    return Value.of(on_host(mapped, [value.node], value.shape, dtype), is_string=give_texts)


def _key(key: Any) -> Any:
    return "a NaN" if isinstance(key, float) and math.isnan(key) else key


def _labels(call: Call, which: str) -> tuple[Array, bool]:
    """(labels, whether they are strings), of the one attribute that is given."""
    given = [kind for kind in (STRINGS, INTS, FLOATS) if call.attr(f"{which}_{kind}") is not None]
    tensor = call.attr(f"{which}_tensor")
    if len(given) + (tensor is not None) != 1:
        call.fail(f"one list of {which} is needed, and {len(given)} are given")
    if tensor is not None:
        known = tensor.known
        if known is None or known.ndim != 1:
            call.fail(f"{which}_tensor is no list of labels")
        texts = call.translator.source.strings.texts(known) if tensor.is_string else known
        return texts, tensor.is_string
    [kind] = given
    dtype = {STRINGS: object, INTS: np.int64, FLOATS: np.float32}[kind]
    return np.asarray(call.attr(f"{which}_{kind}"), dtype), kind == STRINGS


def _default(call: Call, values: Array, are_texts: bool) -> Any:
    tensor = call.attr("default_tensor")
    if tensor is not None:
        known = tensor.known
        texts = call.translator.source.strings.texts(known) if tensor.is_string else known
        return texts.reshape(-1)[0]
    if are_texts:
        return call.attr("default_string", "_Unused")
    if values.dtype.kind == "f":
        return call.attr("default_float", -0.0)
    return call.attr("default_int64", -1)


def _dtype(values: Array) -> DType:
    return BY_NAME[values.dtype.name]


# Trees.

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
COMPARISONS = {LEQ: "le", LT: "lt", GTE: "ge", GT: "gt", EQ: "eq", NEQ: "ne"}
MAX_DEPTH = 4096


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
    weights: Array  # of leaves
    targets: Array
    members: list[list[float]]  # of the inner nodes that ask for membership, in their order


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(call: Call) -> Result:
    x = call.node(0)
    if x.ndim != 2:
        call.fail(f"its input has {x.ndim} axes, not 2")
    trees = _trees(call)
    leaves = _walked(call, trees, x)
    n_targets = call.attr("n_targets", 1)
    if n_targets < 1:
        call.fail(f"n_targets is {n_targets}")
    sums = _aggregated(call, trees, leaves, n_targets, x.dtype)
    transform = call.attr("post_transform", 0)
    if transform == 1:
        return neural.softmax(sums, 1)
    if transform == 2:
        ones = make("exp", -sums) + 1.0
        return 1.0 / ones
    if transform != 0:
        call.refuse(f"post_transform {transform} (SOFTMAX_ZERO is 3, PROBIT 4)")
    return sums


def _trees(call: Call) -> Trees:
    def ints(name: str) -> Array:
        return np.asarray(call.need_attr(name), np.int64)

    def numbers(name: str) -> Array:
        known = call.need_attr(name).known
        if known is None:
            call.refuse(f"{name} is too large")
        array: Array = known.reshape(-1)
        return array

    features = ints("nodes_featureids")
    n = len(features)
    n_leaves = len(ints("leaf_targetids"))
    splits, modes = numbers("nodes_splits"), numbers("nodes_modes").astype(np.int64)

    def children(side: str) -> Array:
        ids, are_leaves = ints(f"nodes_{side}nodeids"), ints(f"nodes_{side}leafs")
        if not len(ids) == len(are_leaves) == n:
            call.fail(f"{n} nodes and {len(ids)} of them that say where {side} leads")
        most = np.where(are_leaves != 0, n_leaves, n)
        if ((ids < 0) | (ids >= most)).any():
            call.fail(f"a node's {side} branch leads nowhere")
        return np.where(are_leaves != 0, ids + n, ids)

    tracks = np.asarray(call.attr("nodes_missing_value_tracks_true") or [0] * n, np.int64)
    roots, weights, targets = ints("tree_roots"), numbers("leaf_weights"), ints("leaf_targetids")
    sizes = {len(splits), len(modes), len(tracks), n}
    if len(sizes) > 1 or len(weights) != n_leaves or not n:
        call.fail(f"its nodes are described by lists of several lengths: {sorted(sizes)}")
    if ((roots < 0) | (roots >= n)).any() or ((targets < 0) | (targets >= _targets(call))).any():
        call.fail("a root or a target is out of range")
    if ((modes < 0) | (modes > MEMBER)).any():
        call.fail("a node's mode is out of range")
    if (features < 0).any():
        call.fail("a node's feature is out of range")
    members: list[list[float]] = [[]]
    given = call.attr("membership_values")
    for one in [] if given is None else given.known.reshape(-1).tolist():
        members.append([]) if math.isnan(one) else members[-1].append(one)
    return Trees(roots, features, splits, modes, tracks, children("true"), children("false"),
                 weights, targets, members)  # fmt: skip


def _targets(call: Call) -> int:
    count: int = call.attr("n_targets", 1)
    return count


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


def _walked(call: Call, trees: Trees, x: Node) -> Node:
    """The leaf each row reaches in each tree."""
    n, n_leaves = len(trees.features), len(trees.weights)
    leaves = np.arange(n, n + n_leaves)

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
    trips = size(_depth(call, trees), INT64)
    [at] = growing(trips, [start], build, origins=call.translator.origins)
    return at - n


def _members(call: Call, trees: Trees, dtype: DType) -> Callable[[Node, Node], Node]:
    """Whether values are members of the sets of the nodes they stand at."""
    asking = np.flatnonzero(trees.modes == MEMBER)
    if len(asking) > len(trees.members):
        call.fail(f"{len(asking)} nodes ask for membership in {len(trees.members)} sets")
    widest = max(map(len, trees.members))
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


def _aggregated(call: Call, trees: Trees, leaves: Node, n_targets: int, dtype: DType) -> Node:
    """What the leaves say of each target."""
    weights = constant(trees.weights.astype(numpy_dtype(dtype)))
    weight = basic.expand_dims(make("gather", weights, leaves, axis=0), 2)
    target = basic.expand_dims(make("gather", constant(trees.targets), leaves, axis=0), 2)
    is_mine = basic.binary("eq", target, basic.iota(n_targets))
    function = call.attr("aggregate_function", 1)
    if function in (0, 1):
        total = reductions.reduce("sum", basic.where(is_mine, weight, 0.0), [1])
        return total / float(len(trees.roots)) if function == 0 else total
    if function not in (2, 3):
        call.fail(f"aggregate_function {function}")
    op, none = ("min", math.inf) if function == 2 else ("max", -math.inf)
    best = reductions.reduce(op, basic.where(is_mine, weight, none), [1])
    return basic.where(reductions.reduce("any", is_mine, [1]), best, 0.0)
