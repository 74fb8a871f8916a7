"""Attention, kept whole because a kernel computes it without its scores in memory.

    attention(q[..., H, T, D], k[..., G, S, D], v[..., G, S, E], mask?, k_scale?, v_scale?;
              scale, causal, offset, window)                          [..., H, T, E]

    scores = scale * q . k + mask        weights = softmax of them        result = weights . v

Heads of k and v are each for a group of those of q. Keys and values are floats no wider than q, or
int8 with one scale for each key of each head, k_scale[..., G, S] and v_scale[..., G, S]: a number
then stands for itself times the scale. `causal`: query i sees keys up to i + offset, and of these
the last `window`, or all where that is 0. True in a bool mask is seen; other masks are of the dtype
of q, or float32 where that is narrower, and only -inf hides. Who sees nothing gets zeros.

Attention of rows of many texts, whose keys and values lie in pages of one pool.

    attention_pages(q[T, H, D], k[N, G, D], v[N, G, E], table[S, P], text[T], position[T],
                    k_scale?, v_scale?; scale, window, page)                        [T, H, E]

A page is `page` rows of the pool. Text s has its keys 0..page-1 in page table[s, 0] of k, and so
on; row t of q, which is at a position of one of the texts, sees its keys up to that position, and
of these the last `window`, or all where that is 0. Heads, dtypes and scales, k_scale[N, G] and
v_scale[N, G], are as in `attention`. A text, a position or a page that is not there is an error of
the run; of the table it reads the pages of keys that are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arenite.dtype import BOOL, FLOAT32, INT8, Array, DType, Kind
from arenite.errors import IndexOutOfRange, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, bounds, exact_quotient
from arenite.ir.element import rounded
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import is_readable_in_place
from arenite.ir.ops.define import (
    FLOAT,
    Attrs,
    Checks,
    Inferred,
    Sizes,
    at_least,
    define,
    is_dim,
    is_number,
    need_index_dtype,
    need_kind,
)
from arenite.ir.ops.elementwise import FUNCTION


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of an attention by what they are."""

    q: Node
    k: Node
    v: Node
    mask: Node | None = None
    k_scale: Node | None = None
    v_scale: Node | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Those that there are, in the order that the op takes."""
        given = (self.q, self.k, self.v, self.mask, self.k_scale, self.v_scale)
        return tuple(node for node in given if node is not None)


def operands(inputs: tuple[Node, ...]) -> Operands:
    """What the inputs of an attention are: a fourth is the mask, scales come in pairs."""
    q, k, v, *others = inputs
    scales = others[-2:] if len(others) > 1 else (None, None)
    return Operands(q, k, v, others[0] if len(others) % 2 else None, *scales)


def heads_a_group(q: Node, k: Node) -> Dim:
    """Heads of q for each of k; where there are none of either, 1."""
    heads = exact_quotient(q.shape[-3], k.shape[-3])
    assert heads is not None
    return heads


def need_dtypes(given: Operands) -> None:
    q, k, v = given.q, given.k, given.v
    need_kind("attention", q, FLOAT)
    scales = [node for node in (given.k_scale, given.v_scale) if node is not None]
    for node in (k, v):
        if not scales:
            need_kind("attention", node, FLOAT)
        elif node.dtype != INT8:
            raise TypeMismatch(
                f"attention: keys and values that have scales are int8, not {node.type_text}"
            )
    if k.dtype != v.dtype:
        raise TypeMismatch(f"attention: dtypes {k.dtype} and {v.dtype} of keys and values differ")
    if k.dtype.kind is Kind.FLOAT and k.dtype != q.dtype and k.dtype.bits >= q.dtype.bits:
        raise TypeMismatch(
            f"attention: dtypes {q.dtype} and {k.dtype}: keys and values are as wide as queries, "
            "or narrower"
        )
    for node in scales:
        need_kind("attention", node, FLOAT)


def infer_attention(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    given = operands(inputs)
    q, k, v, mask = given.q, given.k, given.v, given.mask
    need_dtypes(given)
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if not (q.ndim == k.ndim == v.ndim >= 3):
        raise ShapeMismatch(f"attention takes [..., heads, length, width], not {shapes}")
    *batch, heads, length, width = q.shape
    *batch_k, groups, keys, width_k = k.shape
    is_multiple = exact_quotient(heads, groups) is not None
    if batch != batch_k or k.shape[:-1] != v.shape[:-1] or width != width_k or not is_multiple:
        raise ShapeMismatch(
            f"attention: {shapes}: batch and width must be equal, k and v as long as each other, "
            "and the heads of q a multiple of theirs"
        )
    if mask is not None:
        taken = (BOOL, q.dtype, FLOAT32) if q.dtype.bits < 32 else (BOOL, q.dtype)
        if mask.dtype not in taken:
            raise TypeMismatch(
                f"attention: the mask is {' or '.join(map(str, taken))}, not {mask.dtype}"
            )
        scores = (*batch, heads, length, keys)
        if mask.ndim != q.ndim or any(
            a not in (1, b) for a, b in zip(mask.shape, scores, strict=True)
        ):
            raise ShapeMismatch(
                f"attention: a mask of shape {mask.shape} does not stretch to scores {scores}"
            )
    for scales in (given.k_scale, given.v_scale):
        if scales is not None and scales.shape != k.shape[:-1]:
            raise ShapeMismatch(
                f"attention: scales of shape {scales.shape}: one for each key is {k.shape[:-1]}"
            )
    if attrs["window"] and not attrs["causal"]:
        raise InvalidArgument(
            f"attention: a window of {attrs['window']} keys ends with the last one that a query "
            "sees; say causal=True"
        )
    return (*batch, heads, length, v.shape[-1]), q.dtype


def masked_scores(arrays: list[Array], attrs: Attrs) -> tuple[Array, Array]:
    """The scores after the mask, and the values of each head."""
    q, k, v = (array.astype(np.float64) for array in arrays[:3])
    others = arrays[3:]
    if len(others) > 1:
        k, v = (
            x * one.astype(np.float64)[..., None] for x, one in ((k, others[-2]), (v, others[-1]))
        )
    groups = max(k.shape[-3], 1)
    k, v = (np.repeat(x, q.shape[-3] // groups, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * attrs["scale"]
    if attrs["causal"]:
        queries, keys = scores.shape[-2:]
        behind = np.arange(queries)[:, None] + attrs["offset"] - np.arange(keys)
        seen = behind >= 0
        if attrs["window"]:
            seen &= behind < attrs["window"]
        scores = np.where(seen, scores, -np.inf)
    if len(others) % 2:
        mask = others[0]
        if mask.dtype == np.bool_:
            scores = np.where(mask, scores, -np.inf)
        else:
            scores = scores + mask.astype(np.float64)
    return scores, v


def weights_of(scores: Array) -> tuple[Array, Array, Array]:
    """exp of the scores beside the highest of each query, that, and their sum."""
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    return weights, highest, weights.sum(axis=-1, keepdims=True)


def _attention_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    scores, v = masked_scores(arrays, attrs)
    weights, _, total = weights_of(scores)
    return rounded(weights @ v / np.where(total == 0, 1, total), dtype)


ATTRS: Checks = {"scale": is_number, "causal": bool, "offset": is_dim, "window": at_least(0)}


def attention_work(node: Node) -> tuple[Shape, int]:
    """The shape of the scores, and what the work on one of them costs."""
    q, k, v = node.inputs[:3]
    widths = bounds(q.shape[-1])[1] + bounds(v.shape[-1])[1]
    return (*q.shape[:-1], k.shape[-2]), 2 * widths + FUNCTION


def viewed_operand(node: Node, value: Node, *, in_runs: bool = False) -> str | None:
    """Views are read where their elements lie."""
    if is_readable_in_place(value, in_runs=in_runs):
        return None
    return f"{node.op} reads it from memory"


define(
    "attention",
    "contraction",
    (3, 6),
    infer_attention,
    _attention_reference,
    ATTRS,
    work=attention_work,
    operand=viewed_operand,
    rereads=True,
    reads_views=True,
    writes_views=True,
)


@dataclass(frozen=True, slots=True)
class PagesOperands:
    """The inputs of an attention over pages by what they are."""

    values: Operands
    table: Node
    text: Node
    position: Node


def pages_operands(inputs: tuple[Node, ...]) -> PagesOperands:
    """What the inputs are."""
    q, k, v, table, text, position, *scales = inputs
    return PagesOperands(Operands(q, k, v, None, *scales), table, text, position)


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    given = pages_operands(inputs)
    q, k, v = given.values.q, given.values.k, given.values.v
    need_dtypes(given.values)
    shapes = f"attention_pages: q {q.shape}, k {k.shape}, v {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 3:
        raise ShapeMismatch(f"{shapes}: each has rows, heads and a width")
    rows, heads, width = q.shape
    is_multiple = exact_quotient(heads, k.shape[1]) is not None
    if k.shape[:2] != v.shape[:2] or width != k.shape[2] or not is_multiple:
        raise ShapeMismatch(
            f"{shapes}: k and v have as many rows and heads, k the width of q, and the heads of q "
            "are a multiple of theirs"
        )
    pool = k.shape[0]
    if not isinstance(pool, int) or pool % attrs["page"]:
        raise ShapeMismatch(f"{shapes}: the rows of k are no whole pages of {attrs['page']}")
    wanted: dict[str, tuple[Node, Shape | None]] = {
        "table": (given.table, None),
        "text": (given.text, (rows,)),
        "position": (given.position, (rows,)),
    }
    for name, (value, shape) in wanted.items():
        need_index_dtype("attention_pages", f"the {name}", value)
        if value.ndim != 2 if shape is None else value.shape != shape:
            takes = "[texts, pages]" if shape is None else str(shape)
            raise ShapeMismatch(f"{shapes}: the {name} is {takes}, not {value.shape}")
    for scales in (given.values.k_scale, given.values.v_scale):
        if scales is not None and scales.shape != k.shape[:2]:
            raise ShapeMismatch(f"{shapes}: scales of shape {scales.shape}, not {k.shape[:2]}")
    return (rows, heads, v.shape[2]), q.dtype


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    q, k, v = (array.astype(np.float64) for array in arrays[:3])
    table, texts, positions = arrays[3:6]
    if len(arrays) > 6:
        k_scale, v_scale = (one.astype(np.float64)[..., None] for one in arrays[6:])
        k, v = k * k_scale, v * v_scale
    page, window = attrs["page"], attrs["window"]
    result = np.zeros(shape)
    for row, (text, position) in enumerate(zip(texts, positions, strict=True)):
        keys = np.arange(max(0, position + 1 - window) if window else 0, position + 1)
        _check("text", text, table.shape[0])
        _check("position", position, table.shape[1] * page)
        pages = table[text, keys // page]
        for one in pages:
            _check("page", one, k.shape[0] // page)
        places = pages * page + keys % page
        ratio = q.shape[1] // max(k.shape[1], 1)
        seen_k, seen_v = (np.repeat(x[places], ratio, axis=1) for x in (k, v))
        scores = np.einsum("hd,khd->hk", q[row], seen_k) * attrs["scale"]
        weights, _, total = weights_of(scores)
        result[row] = np.einsum("hk,khe->he", weights / total, seen_v)
    return rounded(result, dtype)


def _check(what: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise IndexOutOfRange(f"attention_pages: {what} {index} is not within 0..{size - 1}")


def _work(node: Node) -> tuple[Shape, int]:
    """The shape of the scores at the most, and what the work on one of them costs."""
    q, _, v, table = node.inputs[:4]
    widths = bounds(q.shape[-1])[1] + bounds(v.shape[-1])[1]
    return (*q.shape[:-1], table.shape[1] * node.attr("page")), 2 * widths + FUNCTION


define(
    "attention_pages",
    "contraction",
    (6, 8),
    _infer,
    _reference,
    {"scale": is_number, "window": at_least(0), "page": at_least(1)},
    work=_work,
    operand=viewed_operand,
    rereads=True,
    reads_views=True,
)
