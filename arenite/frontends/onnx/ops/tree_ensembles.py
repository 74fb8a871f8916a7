"""Operators of ai.onnx.ml that forests and boosted trees become: TreeEnsemble, and the older ones
for classes and numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64, Array
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.class_scores import label, labels_of, opposite_joined, transformed
from arenite.frontends.onnx.ops.trees import MEMBER, Trees, aggregated, leaf_weights, said, walked
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.ir import Node, constant, make
from arenite.ir.compose import basic

FUNCTIONS = ["AVERAGE", "SUM", "MIN", "MAX"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
#: By number.
BRANCHES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(call: Call) -> Result:
    x = call.node(0)
    trees = _trees(call)
    function, transform = call.attr("aggregate_function", 1), call.attr("post_transform", 0)
    if function not in range(len(FUNCTIONS)) or transform not in range(len(TRANSFORMS)):
        call.fail(f"aggregate_function {function} and post_transform {transform}")
    sums = aggregated(trees, walked(call, trees, x), FUNCTIONS[function], x.dtype)
    return transformed(call, sums, TRANSFORMS[transform])


def _trees(call: Call) -> Trees:
    def ints(name: str) -> Array:
        return np.asarray(call.need_attr(name), np.int64)

    features = ints("nodes_featureids")
    n = len(features)
    n_leaves, n_targets = len(ints("leaf_targetids")), call.attr("n_targets", 1)
    if n_targets < 1:
        call.fail(f"n_targets is {n_targets}")
    splits, modes = _numbers(call, "nodes_splits"), _numbers(call, "nodes_modes").astype(np.int64)

    def children(side: str) -> Array:
        ids, are_leaves = ints(f"nodes_{side}nodeids"), ints(f"nodes_{side}leafs")
        if not len(ids) == len(are_leaves) == n:
            call.fail(f"{n} nodes and {len(ids)} of them that say where {side} leads")
        most = np.where(are_leaves != 0, n_leaves, n)
        if ((ids < 0) | (ids >= most)).any():
            call.fail(f"a node's {side} branch leads nowhere")
        return np.where(are_leaves != 0, ids + n, ids)

    tracks = np.asarray(call.attr("nodes_missing_value_tracks_true") or [0] * n, np.int64)
    roots = ints("tree_roots")
    sizes = {len(splits), len(modes), len(tracks), n}
    if len(sizes) > 1 or not n:
        call.fail(f"its nodes are described by lists of several lengths: {sorted(sizes)}")
    if ((roots < 0) | (roots >= n)).any():
        call.fail("a root is out of range")
    if ((modes < 0) | (modes > MEMBER)).any():
        call.fail("a node's mode is out of range")
    if (features < 0).any():
        call.fail("a node's feature is out of range")
    members: list[list[float]] = [[]]
    given = call.attr("membership_values")
    for one in [] if given is None else given.known.reshape(-1).tolist():
        members.append([]) if math.isnan(one) else members[-1].append(one)
    weights = leaf_weights(call, np.arange(n_leaves), ints("leaf_targetids"),
                           _numbers(call, "leaf_weights"), (n_leaves, n_targets))  # fmt: skip
    return Trees(roots, features, splits, modes, tracks, children("true"), children("false"),
                 *weights, members)  # fmt: skip


def _numbers(call: Call, name: str) -> Array:
    """A list of numbers, which a tensor may have in place of it."""
    tensor = call.attr(name if call.op == "TreeEnsemble" else f"{name}_as_tensor")
    if tensor is None:
        return np.asarray(call.attr(name) or [], np.float32)
    if tensor.known is None:
        call.refuse(f"{name} is too large")
    array: Array = tensor.known.reshape(-1)
    return array


# Before version 5.


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: Call) -> Result:
    n_targets = call.attr("n_targets", 1)
    trees = _listed_trees(call, "target", n_targets)
    x = _input(call)
    function = call.attr("aggregate_function", "SUM")
    if function not in FUNCTIONS:
        call.fail(f"aggregate_function {function!r}")
    sums = aggregated(trees, walked(call, trees, x), function, x.dtype)
    base = _base(call, n_targets, (0, n_targets))
    transform = call.attr("post_transform", "NONE")
    if transform != "NONE" and n_targets == 1:
        call.refuse(f"post_transform {transform} of one target, which runtimes do not agree on")
    return transformed(call, basic.cast(sums + basic.cast(base, x.dtype), FLOAT32), transform)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(call: Call) -> Result:
    labels = labels_of(call, "classlabels_int64s")
    trees = _listed_trees(call, "class", len(labels))
    x = _input(call)
    leaves = walked(call, trees, x)
    sums = aggregated(trees, leaves, "SUM", x.dtype)
    transform = call.attr("post_transform", "NONE")
    scored = np.flatnonzero(trees.are_said.any(0))
    if len(labels) > 2:
        scores = sums + basic.cast(_base(call, len(labels), (0, len(labels))), x.dtype)
        has_base = bool(call.attr("base_values") or call.attr("base_values_as_tensor"))
        known = scores if has_base else basic.where(said(trees, leaves), scores, -math.inf)
        best = make("argmax", known, axis=1)
        return label(call, labels, best), transformed(call, basic.cast(scores, FLOAT32), transform)
    if len(labels) != 2 or len(scored) != 1:
        call.refuse(f"{len(labels)} classes, of which its leaves speak of {len(scored)}")
    # Of two classes the leaves speak of one.
    [target] = scored.tolist()
    score = basic.slice_axis(sums, 1, target, target + 1)
    if target == 0:
        score = score + basic.cast(_base(call, 1, (0, 1)), x.dtype)
    elif call.attr("base_values") or call.attr("base_values_as_tensor"):
        call.refuse("base_values, where its leaves speak of the second class")
    is_probability = bool((trees.weights >= 0).all())
    is_second = basic.reshape(score > (0.5 if is_probability else 0.0), (-1,))
    scores = basic.cast(score, FLOAT32)
    if target == 1:
        joined = basic.concat([basic.binary("mul", scores, 0.0), scores], 1)
        joined = transformed(call, joined, transform)
    else:
        joined = opposite_joined(call, scores, is_probability, transform)
    return label(call, labels, basic.cast(is_second, leaves.dtype)), joined


def _input(call: Call) -> Node:
    x = call.node(0)
    return x if x.dtype == FLOAT64 else basic.cast(x, FLOAT32)


def _base(call: Call, width: int, lengths: tuple[int, ...]) -> Node:
    """Numbers that are added to each target's."""
    given = _numbers(call, "base_values")
    if len(given) not in lengths:
        call.refuse(f"{len(given)} base_values for {width} targets")
    return constant(given if len(given) else np.zeros(width, np.float32))


def _listed_trees(call: Call, of: str, n_targets: int) -> Trees:
    """Trees whose nodes, leaves among them, are listed by a number of the tree and one in it."""

    def ints(name: str) -> Array:
        return np.asarray(call.need_attr(name), np.int64)

    tree, node = ints("nodes_treeids"), ints("nodes_nodeids")
    modes = call.need_attr("nodes_modes")
    n = len(tree)
    columns: list[Any] = [node, modes, *(ints(f"nodes_{name}") for name in LISTS)]
    splits = _numbers(call, "nodes_values")
    tracks = np.asarray(call.attr("nodes_missing_value_tracks_true") or [0] * n, np.int64)
    if n_targets < 1 or not n or {len(one) for one in (*columns, splits, tracks)} != {n}:
        call.fail(f"its {n} nodes are described by lists of other lengths")
    if unknown := sorted(set(modes) - {*BRANCHES, "LEAF"}):
        call.refuse(f"nodes of mode {', '.join(unknown)}")
    rows = {key: k for k, key in enumerate(zip(tree.tolist(), node.tolist(), strict=True))}
    if len(rows) != n:
        call.fail("two of its nodes have the same number")
    is_leaf = np.asarray([mode == "LEAF" for mode in modes])
    inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    place = np.empty(n, np.int64)
    place[inner], place[leaves] = np.arange(len(inner)), len(inner) + np.arange(len(leaves))

    def places(trees: Array, nodes: Array) -> Array:
        try:
            found = [rows[key] for key in zip(trees.tolist(), nodes.tolist(), strict=True)]
        except (KeyError, ValueError):
            call.fail("it speaks of a node that is not there")
        return place[np.asarray(found, np.int64)]

    features, on_true, on_false = (one[inner] for one in columns[2:])
    _, first = np.unique(tree, return_index=True)
    speaking = places(ints(f"{of}_treeids"), ints(f"{of}_nodeids")) - len(inner)
    if (speaking < 0).any():
        call.refuse("a node that is no leaf has a weight")
    weights = leaf_weights(call, speaking, ints(f"{of}_ids"), _numbers(call, f"{of}_weights"),
                           (len(leaves), n_targets))  # fmt: skip
    codes = np.asarray([BRANCHES.index(modes[k]) for k in inner.tolist()], np.int64)
    return Trees(place[first], features, splits[inner], codes, tracks[inner],
                 places(tree[inner], on_true), places(tree[inner], on_false),
                 *weights, [[]])  # fmt: skip


LISTS = ["featureids", "truenodeids", "falsenodeids"]
