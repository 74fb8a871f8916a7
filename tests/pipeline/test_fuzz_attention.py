"""Attention of random shapes, types and masks, judged by NumPy in float64, score by score.

Queries that see nothing, masks of the least numbers, no keys, bytes with scales, windows, heads
that share keys, operands in another order, and sizes known at the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import ir
from arenite.dtype import of as dtype_of
from arenite.ir.compose.neural import attention
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor

Array = NDArray[Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HIDDEN, LEAST = -np.inf, float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Case:
    batch: int
    groups: int
    ratio: int  # heads that share keys
    queries: Dim
    keys: Dim
    depth: int
    width: int
    stored: str  # dtype of keys and values
    is_causal: bool
    offset: Dim
    window: int | None
    mask: str  # "", "bool", "add"
    mask_shape: tuple[Dim, ...]
    heads_last: tuple[bool, ...]  # q, k, v and the result are [batch, tokens, heads, width]


def drawn(rng: np.random.Generator) -> Case:
    queries = int(rng.choice([1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 20, 33, 70]))
    keys = int(rng.choice([1, 2, 5, 16, 17, 100, 128, 130, 300]))
    if queries <= 4 and rng.random() < 0.3:
        keys = int(rng.integers(1024, 2600))
    batch, groups, ratio = (int(rng.integers(1, most)) for most in (3, 4, 9))
    depth = int(rng.choice([1, 3, 8, 16, 31, 64, 80, 96, 100, 128, 200, 256]))
    width = depth if rng.random() < 0.6 else int(rng.integers(1, 257))
    is_causal = rng.random() < 0.5
    offset: Dim = int(rng.integers(-3, keys + 3)) if is_causal else 0
    later_queries: Dim = Var("q", 0, queries) if rng.random() < 0.3 else queries
    later_keys: Dim = Var("k", 0, keys) if rng.random() < 0.4 else keys
    if is_causal and rng.random() < 0.5:
        offset = later_keys - later_queries
    mask = str(rng.choice(["", "", "bool", "add", "add"]))
    whole: tuple[Dim, ...] = (batch, groups * ratio, later_queries, later_keys)
    mask_shape = tuple(1 if rng.random() < 0.3 else size for size in whole)
    return Case(
        batch,
        groups,
        ratio,
        later_queries,
        later_keys,
        depth,
        width,
        str(rng.choice(["float32", "float32", "float16", "bfloat16", "int8"])),
        is_causal,
        offset,
        int(rng.integers(1, 60)) if is_causal and rng.random() < 0.4 else None,
        mask,
        mask_shape,
        tuple(rng.random() < 0.3 for _ in range(4)),
    )


def ordered(shape: tuple[Any, ...], heads_last: bool) -> tuple[Any, ...]:
    return (shape[0], shape[2], shape[1], *shape[3:]) if heads_last else shape


def graph_of(case: Case) -> Graph:
    q_shape = (case.batch, case.groups * case.ratio, case.queries, case.depth)
    k_shape = (case.batch, case.groups, case.keys, case.depth)
    shapes: list[tuple[Any, ...]] = [q_shape, k_shape, (*k_shape[:-1], case.width)]
    dtypes = [np.dtype("float32"), *[np.dtype(case.stored)] * 2]
    shapes = [ordered(shape, last) for shape, last in zip(shapes, case.heads_last, strict=False)]
    if case.mask:
        shapes.append(case.mask_shape)
        dtypes.append(np.dtype(bool if case.mask == "bool" else np.float32))
    if case.stored == "int8":
        shapes += [k_shape[:-1]] * 2
        dtypes += [np.dtype("float32")] * 2
    inputs = [
        ir.graph_input(f"x{n}", n, shape, dtype_of(dtype))
        for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    q, k, v = (
        ir.make("permute", node, axes=(0, 2, 1, 3)) if last else node
        for node, last in zip(inputs, case.heads_last[:3], strict=False)
    )
    scales = inputs[-2:] if case.stored == "int8" else (None, None)
    found = attention(
        q,
        k,
        v,
        inputs[3] if case.mask else None,
        causal=case.is_causal,
        offset=case.offset,
        window=case.window,
        k_scale=scales[0],
        v_scale=scales[1],
    )
    if case.heads_last[3]:
        found = ir.make("permute", found, axes=(0, 2, 1, 3))
    return Graph(tuple(inputs), (found,))


def arrays_for(case: Case, graph: Graph, rng: np.random.Generator, sizes: dict[str, int]) -> Any:
    found: list[Array] = []
    for number, node in enumerate(graph.inputs):
        shape = tuple(evaluate(size, sizes) for size in node.shape)
        dtype = node.dtype.to_numpy()
        if dtype == np.int8:
            found.append(rng.integers(-127, 128, shape).astype(np.int8))
        elif dtype.kind == "b":
            seen = rng.random(shape) < 0.6
            seen[rng.random(shape[:-1]) < 0.2] = False
            found.append(seen)
        elif number == 3 and case.mask:
            given = rng.standard_normal(shape)
            given[rng.random(shape) < 0.3] = rng.choice([HIDDEN, LEAST, -1e9])
            for value in (HIDDEN, LEAST):
                given[rng.random(shape[:-1]) < 0.2] = value
            found.append(given.astype(dtype))
        elif case.stored == "int8" and number >= len(graph.inputs) - 2:
            found.append(rng.uniform(0.001, 0.02, shape).astype(dtype))
        else:
            found.append(rng.standard_normal(shape).astype(dtype))
    return found


def judged(case: Case, arrays: list[Array], sizes: dict[str, int]) -> tuple[Array, Array]:
    """The results, and how far rounding in float32 may move them."""
    q, k, v = (
        array.astype(np.float64).transpose(ordered((0, 1, 2, 3), last))
        for array, last in zip(arrays[:3], case.heads_last, strict=False)
    )
    if case.stored == "int8":
        k, v = (x * s.astype(np.float64)[..., None] for x, s in ((k, arrays[-2]), (v, arrays[-1])))
    k, v = (np.repeat(x, case.ratio, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * float(case.depth) ** -0.5
    largest = np.abs(scores).max(axis=-1, keepdims=True, initial=0)
    if case.mask == "add":
        # A sum in float32: of the least number and a score it is that number.
        with np.errstate(over="ignore"):
            scores = (scores.astype(np.float32) + arrays[3]).astype(np.float64)
    seen = np.ones(scores.shape, bool)
    if case.mask == "bool":
        seen &= arrays[3]
    if case.is_causal:
        behind = np.arange(scores.shape[-2])[:, None] - np.arange(scores.shape[-1])
        behind = behind + evaluate(case.offset, sizes)
        seen &= behind >= 0
        if case.window is not None:
            seen &= behind < case.window
    scores = np.where(seen, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    bound = 4e-6 * (2 + largest) * (weights @ np.abs(v) + 1e-3)
    axes = ordered((0, 1, 2, 3), case.heads_last[3])
    return (weights @ v).transpose(axes), bound.transpose(axes)


@pytest.mark.parametrize("seed", range(20))
def test_random_attention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = drawn(rng)
    graph = graph_of(case)
    most = {size.name: size.high for size in (case.queries, case.keys) if isinstance(size, Var)}
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        for part in (1.0, rng.random(), 0.0)[: 3 if most else 1]:
            sizes = {name: round(high * part) for name, high in most.items()}
            arrays = arrays_for(case, graph, rng, sizes)
            [found], [other] = one(*arrays), two(*arrays)
            wanted, bound = judged(case, arrays, sizes)
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found, other)
            assert np.all(np.abs(found - wanted) <= bound), case


@pytest.mark.parametrize("dtype", [np.dtype("float16"), BFLOAT16], ids=str)
@pytest.mark.parametrize("queries", [3, 40])
def test_masks_wider_than_what_they_are_for(queries: int, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(queries)
    shapes = ((1, 2, queries, 16), (1, 2, 5, 16), (1, 2, 5, 16))
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    mask = np.zeros((1, 1, queries, 5), np.float32)
    mask[..., 0, :], mask[..., 1, 2:], mask[..., 2, :] = LEAST, LEAST, -1e9

    def spelled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.swapaxes(-1, -2)).astype("float32") * 0.25 + mask
        return scores.softmax().astype(dtype) @ v

    found = arenite.compile(spelled, *arrays, mask)(*arrays, mask)
    q, k, v = (array.astype(np.float32) for array in arrays)
    scores = q @ k.swapaxes(-1, -2) * np.float32(0.25) + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = weights / weights.sum(axis=-1, keepdims=True) @ v
    np.testing.assert_allclose(np.asarray(found).astype(np.float32), wanted, rtol=0.03, atol=0.02)


def test_a_scale_that_was_cast() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, 32)).astype(np.float32) for n in (6, 9, 9))
    root = Tensor.of_node(ir.constant(np.array([32.0**0.5], np.float32)))

    def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.swapaxes(-1, -2) / root.astype("int64").astype("float32")
        return scores.softmax() @ v

    found = arenite.compile(spelled, q, k, v)(q, k, v)
    weights = np.exp(q.astype(np.float64) @ k.swapaxes(-1, -2) / 5)
    wanted = weights / weights.sum(axis=-1, keepdims=True) @ v
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
