"""Products and convolutions of no rows, columns, images or channels, of known sizes and of sizes
that are found to be 0 in a run; NumPy says what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Tensor, Var, ir
from arenite.errors import ShapeMismatch
from arenite.ir.dim import Dim, evaluate

KINDS: dict[str, Any] = {"floats": np.float32, "halves": np.float16, "bytes": np.uint8}


def summed(x: Tensor) -> Any:
    """Bytes are summed in words."""
    return x.astype("int32") if x.dtype.kind.value != "float" else x


def known(shape: tuple[int, ...], kind: str) -> Any:
    """Constant weights, all ones; of bytes signed ones."""
    dtype = np.int8 if kind == "bytes" else KINDS[kind]
    return summed(Tensor.of_node(ir.constant(np.ones(shape, dtype))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_later", [False, True], ids=["known", "found later"])
@pytest.mark.parametrize("sizes", [(0, 7, 20), (5, 7, 0), (5, 0, 20), (0, 1, 19), (0, 0, 0)])
def test_products(sizes: tuple[int, int, int], is_later: bool, kind: str) -> None:
    rows, depth, columns = sizes
    n: Dim = Var("n", 0, 9) if is_later else rows
    x = arenite.spec((n, depth), KINDS[kind])
    given = np.ones((rows, depth), KINDS[kind])
    with arenite.compile(lambda x: summed(x) @ known((depth, columns), kind) + 1, x) as program:
        got = program(given)
    np.testing.assert_array_equal(got, np.full((rows, columns), depth + 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_later", [False, True], ids=["known", "found later"])
@pytest.mark.parametrize("image", [(24,), (1, 24), (5, 6), (2, 3, 4)], ids=str)
def test_convolutions_of_no_images(image: tuple[int, ...], is_later: bool, kind: str) -> None:
    sides: list[Dim] = [*image]
    if is_later:
        sides = [Var(f"side{k}", 1, 30) for k in range(len(image))]
    cases = [(1, 8, 20), (2, 4, 5), (6, 1, 1), (6, 1, 3)]  # groups, channels of one, in and out
    n_images: Dim = Var("n", 0, 3) if is_later else 0
    specs = [arenite.spec((n_images, g * inner, *sides), KINDS[kind]) for g, inner, _ in cases]

    def network(*images: Tensor) -> Any:
        results = []
        for x, (groups, inner, outer) in zip(images, cases, strict=True):
            wide = summed(x)
            one = wide.conv(known((groups * outer, inner, *[1] * len(image)), kind), groups=groups)
            three = known((groups * outer, inner, *[3] * len(image)), kind)
            results += [one + wide.conv(three, padding=1, groups=groups), one.sum()]
        return tuple(results)

    with arenite.compile(network, *specs) as program:
        results = program(*(np.ones((0, g * inner, *image), KINDS[kind]) for g, inner, _ in cases))
    for got, total, (groups, _, outer) in zip(results[::2], results[1::2], cases, strict=True):
        assert got.shape == (0, groups * outer, *image)
        assert total == 0


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 5, 5), (3, 0, 5), (0, 4, 5)], ids=str)
def test_rows_in_two_axes_that_may_be_none(shape: tuple[int, int, int]) -> None:
    x, w = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((60, (3, 4, 5)), (35, (5, 7))))
    x = np.resize(x, shape)

    def network(x: Tensor) -> Any:
        rows = x.reshape(x.shape[0] * x.shape[1], 5)
        return x @ w, rows * 2.0, rows.sum(1), x.transpose(1, 0, 2).reshape(rows.shape) @ w

    with arenite.compile(network, arenite.spec((Var("a", 0, 3), Var("b", 0, 5), 5))) as program:
        program.verify()
        got = program(x)
    rows = x.reshape(shape[0] * shape[1], 5)
    expected = [x @ w, rows * 2, rows.sum(1), x.transpose(1, 0, 2).reshape(rows.shape) @ w]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


HEADS, KEYS, BATCH, QUERIES = (Var(n, 0, 40) for n in ("heads", "keys", "batch", "queries"))


def attended(q: Any, k: Any, v: Any) -> Any:
    """Of as many heads, in NumPy; who sees no key gets zeros."""
    weights = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1e-30)


@pytest.mark.parametrize("width", [8, 300], ids=["one kernel", "written out"])
@pytest.mark.parametrize(
    ("q", "k"),
    [
        ((2, HEADS, 5), (2, HEADS, 7)),
        ((HEADS * 3, 1), (HEADS, 2100)),
        ((BATCH, 2, 5), (BATCH, 2, 7)),
        ((2, QUERIES, 3), (2, QUERIES, 3)),
        ((2, 1), (2, KEYS)),
        ((0, 5), (0, 7)),
        ((0, 5), (3, 7)),
        ((2, 0), (2, 7)),
        ((2, 5), (2, 0)),
    ],
    ids=str,
)
def test_attention(q: tuple[Dim, ...], k: tuple[Dim, ...], width: int) -> None:
    shapes = [(*q, width), (*k, width), (*k, width)]
    specs = [arenite.spec(shape) for shape in shapes]
    with arenite.compile(lambda q, k, v: q.attention(k, v), *specs) as program:
        program.verify()
        for n in (0, 2):
            sizes = dict.fromkeys(("heads", "keys", "batch", "queries"), n)
            rng = np.random.default_rng(n)
            given = [
                rng.standard_normal([evaluate(d, sizes) for d in shape]).astype(np.float32)
                for shape in shapes
            ]
            heads, groups = given[0].shape[-3], given[1].shape[-3]
            of_each = [np.repeat(x, heads // max(groups, 1), -3) for x in given[1:]]
            np.testing.assert_allclose(program(*given), attended(given[0], *of_each), 1e-4, 1e-5)


def test_heads_that_may_be_shared_by_none_are_refused() -> None:
    groups = Var("groups", 0, 5)
    specs = [arenite.spec(shape) for shape in ((5, 7, 8), (groups, 7, 8), (groups, 7, 8))]
    with pytest.raises(ShapeMismatch, match="the heads of q a multiple of theirs"):
        arenite.compile(lambda q, k, v: q.attention(k, v), *specs)
    with pytest.raises(ShapeMismatch, match="the heads of q a multiple of theirs"):
        arenite.compile(
            lambda q, k: q.attention(k, k), arenite.spec((5, 7, 8)), arenite.spec((0, 7, 8))
        )
