"""Products against NumPy; convolution and attention where PyTorch's file has no case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir import Graph, Var, evaluate
from arenite.tensor import Tensor, einsum, spec
from tests.tensor.examples import ALL, BFLOAT16, INTS, array, quiet, same

F32, F64 = np.dtype("float32"), np.dtype("float64")


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ],
    ids=str,
)
def test_matmul_as_numpy(dtype: np.dtype[Any], a: Any, b: Any) -> None:
    x, y = array(dtype, a, 1, edges=False), array(dtype, b, 2, edges=False)
    wide = (x.astype(F64) @ y.astype(F64)).astype(dtype) if dtype.kind == "f" else x @ y
    same(Tensor(x) @ Tensor(y), wide)
    same(x @ Tensor(y), wide)
    same(np.matmul(Tensor(x), y), wide)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_products_wrap(dtype: np.dtype[Any]) -> None:
    x = array(dtype, (3, 40), edges=True)
    with quiet():
        same(Tensor(x) @ x.T, x @ x.T)
        same(Tensor(x).dot(x[0]), x.dot(x[0]))


def test_small_floats_accumulate_wide() -> None:
    ones = np.full((1, 3000), 1.0, BFLOAT16)
    same(Tensor(ones) @ ones.T, np.full((1, 1), 3000, BFLOAT16))


def test_dot_outer_tensordot_trace() -> None:
    a, b, c = array(F64, (2, 3), 1), array(F64, (4, 3, 2), 2, edges=False), np.array([1.0, 2, 3])
    a = np.nan_to_num(a, posinf=1, neginf=-1)
    same(Tensor(a).dot(c), a.dot(c))
    same(Tensor(c).dot(c), c.dot(c))
    same(Tensor(c).dot(2), c.dot(2))
    same(Tensor(a).dot(b), a.dot(b))
    same(Tensor(a).outer(c), np.outer(a, c))
    same(Tensor(b).tensordot(a, 0), np.tensordot(b, a, 0))
    same(Tensor(b).tensordot(a.T, 2), np.tensordot(b, a.T, 2))
    same(Tensor(b).tensordot(a, ((1, 2), (1, 0))), np.tensordot(b, a, ((1, 2), (1, 0))))
    same(Tensor(b).tensordot(a, (-2, 1)), np.tensordot(b, a, (-2, 1)))
    same(Tensor(a).trace(), np.trace(a))
    same(Tensor(a).trace(1), np.trace(a, 1))
    with pytest.raises(ShapeMismatch, match="trace is of a matrix"):
        Tensor(b).trace()
    with pytest.raises(ShapeMismatch, match="have other sizes"):
        Tensor(b).tensordot(a, ((0,), (0,)))


@pytest.mark.parametrize(
    "subscripts",
    [
        "ij,jk->ik",
        "ij,jk",
        "ij,jk->",
        "ij->ji",
        "ij->",
        "ij",
        "ii",
        "ii->i",
        "iji->j",
        "iij,jk->ki",
        "i,j->ij",
        "i,i",
        "i,i->i",
        "bij,bjk->bik",
        "bhqd,bhkd->bhqk",
        "...ij,...jk->...ik",
        "...ij,jk",
        "...,...->...",
        "...i->...",
        "a...b->b...",
        "ij,jk,kl->il",
        "ij,ik,il->jkl",
        "i,ij,j->",
        "ab,cd->ac",
        "ab,ab,ab->b",
        " i j , j k -> i k ",
    ],
)
def test_einsum_as_numpy(subscripts: str) -> None:
    sizes = {label: 2 + ord(label) % 3 for label in "abcdefghijklqk"}
    terms = subscripts.replace(" ", "").split("->")[0].split(",")
    arrays = []
    for i, term in enumerate(terms):
        inner, outer = term.replace("...", ""), (3, 2) if "..." in term else ()
        at = term.index("...") if outer else 0
        shape = [sizes[c] for c in inner]
        arrays.append(array(F64, [*shape[:at], *outer, *shape[at:]], i, edges=False))
    same(einsum(subscripts, *map(Tensor, arrays)), np.einsum(subscripts, *arrays), 1e-9)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_einsum_of_random_subscripts(data: st.DataObject) -> None:
    sizes = {label: data.draw(st.integers(0, 3)) for label in "abcd"}
    terms = data.draw(st.lists(st.text("abcd", max_size=4), min_size=1, max_size=3))
    labels = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(labels)))[: data.draw(st.integers(0, 4))]
    arrays = [array(F64, [sizes[c] for c in t], i, edges=False) for i, t in enumerate(terms)]
    subscripts = ",".join(terms) + "->" + result
    same(einsum(subscripts, *map(Tensor, arrays)), np.einsum(subscripts, *arrays), 1e-9)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk", [(2, 3)], "2 terms for 1 operands"),
        ("ijk", [(2, 3)], "term 'ijk' does not fit shape"),
        ("i", [(2, 3)], "term 'i' does not fit shape"),
        ("i1->i", [(2, 3)], "something else than letters"),
        ("ij->ii", [(2, 3)], "has a label twice"),
        ("ij->k", [(2, 3)], "one that no operand has"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "label 'j' is 3 and 4"),
    ],
)
def test_einsum_refuses(subscripts: str, shapes: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, ShapeMismatch), match=message):
        einsum(subscripts, *[Tensor(np.zeros(shape)) for shape in shapes])


def test_einsum_stretches_sizes_of_one() -> None:
    a, b = array(F64, (1, 3), edges=False), array(F64, (4, 3), edges=False)
    same(einsum("ij,ij->ij", Tensor(a), Tensor(b)), np.einsum("ij,ij->ij", a, b))


def conv_by_loops(x: Any, w: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    """The definition, one multiplication at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    size = (x.shape[2] - dilation * (w.shape[2] - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], w.shape[0], size), np.int64)
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for n, o, s in np.ndindex(*result.shape):
        for c, k in np.ndindex(*w.shape[1:]):
            channel = o // each_out * each_in + c
            result[n, o, s] += int(x[n, channel, s * stride + k * dilation]) * int(w[o, c, k])
    return result


@given(
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    kernel=st.integers(1, 3),
)
@settings(max_examples=30, deadline=None)
def test_integer_conv(stride: int, padding: int, dilation: int, groups: int, kernel: int) -> None:
    x = array(np.dtype("uint8"), (2, 4, 6))
    w = array(np.dtype("int8"), (4, 4 // groups, kernel))
    x16, w16 = x.astype(np.int32), w.astype(np.int32)
    expected = conv_by_loops(x16, w16, stride, padding, dilation, groups).astype(np.int32)
    same(Tensor(x16).conv(w16, None, stride, padding, dilation, groups), expected)


def test_conv_where_the_size_is_open() -> None:
    t = spec((Var("n", 0, 4), 2, Var("length", 5, 20))).argument("x", 0)
    w = array(F32, (3, 2, 3), 1, edges=False)
    strided, same_size = t.conv(w, stride=2, padding=1), t.conv(w, padding="same")
    up, pooled = t.conv_transpose(w.swapaxes(0, 1), stride=2), t.max_pool(2)
    assert same_size.shape[2] == t.shape[2]
    assert str(pooled.shape[2]) == "length//2"
    x = array(F32, (2, 2, 9), 2, edges=False)
    made = evaluate(Graph.of([strided.node, same_size.node, up.node, pooled.node]), [x])
    for result, expected in zip(
        made,
        [
            Tensor(x).conv(w, stride=2, padding=1),
            Tensor(x).conv(w, padding=1),
            Tensor(x).conv_transpose(w.swapaxes(0, 1), stride=2),
            Tensor(x).max_pool(2),
        ],
        strict=True,
    ):
        same(result, expected.numpy())


def test_padding_words() -> None:
    x, w = Tensor(array(F32, (1, 1, 7), edges=False)), array(F32, (1, 1, 3), edges=False)
    assert x.conv(w, padding="valid").shape == (1, 1, 5)
    assert x.conv(w, padding="same", stride=2).shape == (1, 1, 4)
    assert x.conv_transpose(w, padding="valid").shape == (1, 1, 9)


X = Tensor(np.zeros((1, 4, 6, 6), np.float32))
W = np.zeros((2, 4, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: X.conv(np.zeros((2, 3, 3, 3))), "has 4 channels, w .* takes 3"),
        (lambda: X.conv(np.zeros((3, 2, 3, 3)), groups=2), "w's 3 must divide by groups"),
        (lambda: X.conv(np.zeros((2, 4, 3))), "both need two axes"),
        (lambda: X.conv(np.zeros((2, 4, 8, 3))), "a kernel of 8 does not fit 6 padded"),
        (lambda: X.conv(W, stride=0), "are positive"),
        (lambda: X.conv(W, padding=-1), "is not negative"),
        (lambda: X.conv(W, stride=(1, 2, 3)), "one for each of 2 axes"),
        (lambda: X.conv(W, padding=(1, 2, 3)), "not one for each of 2 axes"),
        (lambda: X.conv(W, padding="full"), "'same', 'valid' or numbers, not 'full'"),
        (lambda: X.conv(W, bias=np.zeros(3)), r"bias of shape \(3,\) for the 2 channels"),
        (lambda: X.conv_transpose(np.zeros((3, 2, 3, 3))), "has 4 channels, w .* takes 3"),
        (lambda: X.conv_transpose(W.swapaxes(0, 1), padding="same"), "give output_padding"),
        (lambda: X.conv_transpose(W.swapaxes(0, 1), output_padding=-1), "output_padding"),
        (lambda: X.conv_transpose(W.swapaxes(0, 1), padding=9), "may be negative"),
        (lambda: X.max_pool((2,) * 5), "pooling over 5 axes"),
        (lambda: X.max_pool(7), "7 elements do not fit axis 2"),
        (lambda: X.max_pool(2, 0), "one positive number each"),
        (lambda: X.astype("int32").avg_pool(2), "avg_pool is of floats"),
        (lambda: X @ np.zeros((5, 6)), "the 6 columns of the first are not the 5 rows"),
        (lambda: X @ Tensor(2.0), "takes no scalars"),
        (lambda: Tensor([1.0, 2]) @ [1.0, 2, 3], "the 2 columns"),
        (lambda: X.attention(X, X[0]), r"takes \[..., heads, length, width\]"),
        (lambda: X.attention(X[:, :3], X[:, :3]), "a multiple of theirs"),
        (lambda: X.attention(X, X, np.zeros((5, 6))), "does not stretch to scores"),
        (lambda: X.attention(X, X, np.zeros((1,) * 5)), "attention: mask"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(wrong: Any, message: str) -> None:
    with pytest.raises((ShapeMismatch, InvalidArgument), match=message):
        wrong()


def test_attention_offsets_and_small_cases() -> None:
    q, k, v = (array(F32, shape, i, edges=False) for i, shape in enumerate([(3, 8)] * 3))
    scores = q.astype(F64) @ k.T.astype(F64) / np.sqrt(8)
    weights = np.exp(scores)
    expected = (weights / weights.sum(-1, keepdims=True)) @ v
    same(Tensor(q).attention(k, v), expected.astype(F32), 1e-5)
    # The last query of three, asked alone, sees what it saw among them.
    whole = Tensor(q).attention(k, v, causal=True).numpy()
    same(Tensor(q[2:]).attention(k, v, causal=True, offset=2), whole[2:], 1e-5)
    # A query that sees nothing gives zeros.
    same(Tensor(q[:1]).attention(k, v, causal=True, offset=-1), np.zeros((1, 8), F32))
    n = Var("n", 1, 8)
    with pytest.raises(NotSupported, match="give a scale"):
        spec((1, 2, n)).argument("x", 0).attention(np.zeros((1, 2, 3)), np.zeros((1, 2, 3)))


def windows_by_loops(
    size: int, window: int, stride: int, padding: int, dilation: int, is_ceil: bool
) -> list[list[int]]:
    """The places each window sees, as PyTorch's documents have it: with ceil_mode one more may hang
    over the end, if it does not start in the padding behind it."""
    span = size + 2 * padding - dilation * (window - 1) - 1
    count = (-(-span // stride) if is_ceil else span // stride) + 1
    if is_ceil and (count - 1) * stride >= size + padding:
        count -= 1
    starts = [k * stride - padding for k in range(count)]
    return [
        [s + t * dilation for t in range(window) if 0 <= s + t * dilation < size] for s in starts
    ]


@given(
    size=st.integers(1, 40),
    window=st.integers(1, 5),
    stride=st.integers(1, 6),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
    is_ceil=st.booleans(),
)
@example(size=36, window=1, stride=2, padding=0, dilation=1, is_ceil=True)
@settings(max_examples=60, deadline=None)
def test_pooling_of_any_window(
    size: int, window: int, stride: int, padding: int, dilation: int, is_ceil: bool
) -> None:
    assume(padding <= window // 2 and dilation * (window - 1) < size + 2 * padding)
    x = np.random.default_rng(size).integers(-50, 50, (2, 3, size)).astype(F32)
    seen = windows_by_loops(size, window, stride, padding, dilation, is_ceil)
    shape = (window, stride, padding, dilation, is_ceil)
    assume(all(seen))
    most = np.stack([x[..., places].max(-1) for places in seen], -1)
    mean = np.stack([x[..., places].mean(-1, dtype=F64) for places in seen], -1)
    same(Tensor(x).max_pool(*shape), most)
    same(Tensor(x).avg_pool(*shape, count_include_pad=False), mean.astype(F32), 1e-6)


@pytest.mark.parametrize("stride", [2, 3])
def test_ceil_mode_of_open_sizes(stride: int) -> None:
    t = spec((1, 1, Var("n", 3, 9))).argument("x", 0)
    most = t.max_pool(2, stride, 1, ceil_mode=True)
    mean = t.avg_pool(2, stride, 1, ceil_mode=True, count_include_pad=False)
    graph = Graph.of([most.node, mean.node])
    for size in range(3, 10):
        x = np.random.default_rng(size).integers(-50, 50, (1, 1, size)).astype(F32)
        seen = windows_by_loops(size, 2, stride, 1, 1, True)
        got = evaluate(graph, [x])
        same(got[0], np.stack([x[..., places].max(-1) for places in seen], -1))
        same(got[1], np.stack([x[..., places].mean(-1) for places in seen], -1), 1e-6)
