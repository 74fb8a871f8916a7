"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64, Array
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.class_scores import label, labels_of, opposite_joined
from arenite.frontends.onnx.ops.strings import on_host
from arenite.frontends.onnx.ops.trees import check_table
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.ir import Node, constant, make
from arenite.ir.compose import basic, linear
from arenite.ir.compose.reductions import reduce

#: Of the probabilities of classes that pairs of them are to agree with (libsvm).
MAX_STEPS, TOLERANCE, LEAST = 100, np.float32(0.005), np.float32(1e-7)


@operator("SVMRegressor", domain=ML)
def svm_regressor(call: Call) -> Result:
    weights = _floats(call, "coefficients").reshape(-1, 1)
    x = basic.cast(call.node(0), FLOAT32)
    is_linear = not call.attr("n_supports", 0)
    kernels = x if is_linear else _kernels(call, x, len(weights))
    scores = linear.matmul(kernels, constant(weights)) + float(_floats(call, "rho")[0])
    if call.attr("post_transform", "NONE") != "NONE":
        call.refuse("a post_transform")
    if call.attr("one_class", 0):
        return basic.cast(scores > 0.0, FLOAT32) * 2.0 - 1.0
    return scores


@operator("SVMClassifier", domain=ML)
def svm_classifier(call: Call) -> Result:
    labels = labels_of(call, "classlabels_ints")
    counts = list(call.attr("vectors_per_class") or ())
    n = len(labels)
    if len(counts) != n or n < 2 or call.attr("post_transform", "NONE") != "NONE":
        call.refuse(f"{n} classes, vectors of {len(counts)} of them, or a post_transform")
    x = basic.cast(call.node(0), FLOAT32)
    check_table(call, n * (n - 1) // 2, max(n, sum(counts)), "weights for pairs of classes")
    kernels = basic.cast(_kernels(call, x, sum(counts)), FLOAT64)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    rho = _floats(call, "rho")[: len(pairs)]
    sums = linear.matmul(kernels, constant(_pair_weights(call, counts, pairs)))
    exact = sums + constant(rho.astype(np.float64))
    scores = basic.cast(exact, FLOAT32)
    is_first = basic.expand_dims(exact > 0.0, 2)
    first, second = (np.eye(n, dtype=np.int64)[[pair[k] for pair in pairs]] for k in (0, 1))
    votes = reduce("sum", basic.where(is_first, constant(first), constant(second)), [1])
    best = label(call, labels, make("argmax", votes, axis=1))
    if call.attr("prob_a"):
        a, b = (_floats(call, f"prob_{one}")[: len(pairs)] for one in "ab")
        shape = (x.shape[0], n)
        chances = basic.binary("add", scores * constant(a), constant(b))
        return best, on_host(lambda one: _agreed(one, n), [chances], shape, FLOAT32)
    return best, opposite_joined(call, scores, False, "NONE") if n == 2 else scores


def _floats(call: Call, name: str) -> Array:
    return np.asarray(call.need_attr(name), np.float32)


def _kernels(call: Call, x: Node, n_vectors: int) -> Node:
    """How like a vector each row is."""
    given = _floats(call, "support_vectors")
    if x.ndim != 2 or given.size != n_vectors * x.shape[1]:
        call.fail(f"{given.size} numbers of {n_vectors} vectors for an input of shape {x.shape}")
    vectors = given.reshape(n_vectors, -1)
    kind = call.attr("kernel_type", "LINEAR")
    gamma, offset, degree = [*_floats(call, "kernel_params").tolist(), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":
        apart = basic.expand_dims(x, 1) - constant(vectors)
        return make("exp", reduce("sum", apart * apart, [2]) * -gamma)
    product = linear.matmul(x, constant(vectors.T.copy()))
    if kind == "LINEAR":
        return product
    product = product * gamma + offset
    if kind == "POLY":
        return basic.binary("pow", product, degree)
    if kind != "SIGMOID":
        call.fail(f"kernel_type is {kind!r}")
    return make("tanh", product)


def _pair_weights(call: Call, counts: list[int], pairs: list[tuple[int, int]]) -> Array:
    """What each vector weighs between two classes: it has a weight for each class but its own."""
    n_vectors = sum(counts)
    given = _floats(call, "coefficients").astype(np.float64)
    if given.size != (len(counts) - 1) * n_vectors:
        call.fail(f"{given.size} coefficients for {n_vectors} vectors of {len(counts)} classes")
    given = given.reshape(-1, n_vectors)
    owner = np.repeat(np.arange(len(counts)), counts)
    made = np.zeros((n_vectors, len(pairs)))
    for k, (i, j) in enumerate(pairs):
        made[owner == i, k] = given[j - 1, owner == i]
        made[owner == j, k] = given[i, owner == j]
    return made


def _agreed(scores: Array, n: int) -> Array:
    """Probabilities of classes that agree best with those between pairs of them (Wu, Lin and Weng,
    2004), step by step as libsvm finds them: when it stops is part of its answer."""
    rows = len(scores)
    between = np.zeros((rows, n, n), np.float32)
    upper = np.triu_indices(n, 1)
    first = np.clip(1 / (1 + np.exp(scores)), LEAST, 1 - LEAST)
    between[:, upper[0], upper[1]] = first
    between[:, upper[1], upper[0]] = 1 - first
    q = -between.transpose(0, 2, 1) * between
    diagonal = (between**2).sum(1)
    q[:, range(n), range(n)] = diagonal
    p = np.full((rows, n), 1 / n, np.float32)
    going = np.arange(rows)
    for _ in range(MAX_STEPS):
        qp = np.einsum("rij,rj->ri", q[going], p[going])
        pqp = (p[going] * qp).sum(1)
        is_far = np.abs(qp - pqp[:, None]).max(1, initial=0) >= TOLERANCE / n
        going, qp, pqp = going[is_far], qp[is_far], pqp[is_far]
        if not len(going):
            break
        for k in range(n):
            step = (pqp - qp[:, k]) / diagonal[going, k]
            p[going, k] += step
            whole = 1 + step
            pqp = (pqp + step * (step * diagonal[going, k] + 2 * qp[:, k])) / whole / whole
            qp = (qp + step[:, None] * q[going, k]) / whole[:, None]
            p[going] /= whole[:, None]
    return p
