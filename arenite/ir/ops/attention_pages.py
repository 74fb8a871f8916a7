"""Attention of rows of many texts, whose keys and values lie in pages of one pool.

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

from arenite.dtype import DType
from arenite.errors import IndexOutOfRange, ShapeMismatch
from arenite.ir.dim import bounds, exact_quotient
from arenite.ir.element import rounded
from arenite.ir.node import Node, Shape
from arenite.ir.ops.attention import Operands, need_dtypes, viewed_operand, weights_of
from arenite.ir.ops.define import (
    Array,
    Attrs,
    Inferred,
    Sizes,
    at_least,
    define,
    is_number,
    need_index_dtype,
)
from arenite.ir.ops.elementwise import FUNCTION


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
