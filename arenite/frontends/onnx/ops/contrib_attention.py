"""Attention of com.microsoft: Attention, QAttention, MultiHeadAttention, RotaryEmbedding.

Masks are numbers that are added: `mask_filter_value` where nothing is to be seen, so that a query
whose keys are all hidden still weighs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.dtype import FLOAT32, INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.attention import behind_past, scale_of
from arenite.frontends.onnx.ops.contrib import only, standard
from arenite.frontends.onnx.ops.quantised import product_of, scaled, zero_point
from arenite.frontends.onnx.registry import MICROSOFT, Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node
from arenite.ir.compose import linear, neural
from arenite.ir.compose.basic import (
    along,
    broadcast_to,
    cast,
    computing,
    concat,
    expand_dims,
    iota,
    permute,
    reshape,
    slice_axis,
    where,
)


def split_heads(call: Call, x: Node, heads: int) -> Node:
    """[batch, heads, length, width] of [batch, length, heads * width]."""
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads != 0:
        call.fail(f"{heads} heads do not divide shape {x.shape}")
    return permute(reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def joined_heads(x: Node) -> Node:
    batch, heads, length, width = x.shape
    return reshape(permute(x, (0, 2, 1, 3)), (batch, length, heads * width))


def parts_of(call: Call, x: Node, axis: int, sizes: Sequence[Dim]) -> list[Node]:
    """Pieces of an axis, one after the other."""
    if sum(sizes[1:], sizes[0]) != x.shape[axis]:
        call.fail(f"axis {axis} of shape {x.shape} is not {' + '.join(map(str, sizes))} long")
    parts: list[Node] = []
    start: Dim = 0
    for size in sizes:
        parts.append(slice_axis(x, axis, start, start + size))
        start = start + size
    return parts


# Masks that are added.


def _hiding(call: Call, seen: Node, dtype_of: Node) -> Node:
    """0 where something is seen, and the number for hidden ones elsewhere."""
    wide = computing(dtype_of).dtype
    value = float(call.attr("mask_filter_value", -10000.0))
    return where(seen, cast(seen, wide) * 0.0, value)


def _mask(call: Call, index: int, batch: Dim, queries: Dim, keys: Dim) -> Node | None:
    """What is seen, [batch, 1, 1 or queries, keys]; None: all."""
    mask = call.optional(index)
    if mask is None:
        return None
    if mask.ndim == 1:
        places = along(iota(keys), 3, 4)
        wide = cast(mask, INT64)
        if mask.shape[0] == batch:
            return places < reshape(wide, (batch, 1, 1, 1))
        if mask.shape[0] != 2 * batch:
            call.refuse(f"a mask of shape {mask.shape} for a batch of {batch}")
        ends, starts = (
            reshape(slice_axis(wide, 0, k * batch, (k + 1) * batch), (batch, 1, 1, 1))
            for k in range(2)
        )
        return (places < ends) & (places >= starts)
    shapes: dict[int, tuple[Dim, ...]] = {2: (batch, keys), 3: (batch, queries, keys)}
    if mask.shape != shapes.get(mask.ndim):
        call.refuse(f"a mask of shape {mask.shape} for {queries} queries and {keys} keys")
    seen = mask > 0
    return reshape(seen, (batch, 1, 1, keys) if mask.ndim == 2 else (batch, 1, queries, keys))


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys and values, [batch, heads, length, width], of which `past` keys are old."""

    q: Node
    k: Node
    v: Node
    past: Dim = 0


@dataclass(frozen=True, slots=True)
class Places:
    """Which inputs of a node are what."""

    mask: int
    past: int
    bias: int | None = None


def _attended(call: Call, heads: Heads, places: Places) -> Node:
    """[batch, length, heads * width]"""
    q, k, v = heads.q, heads.k, heads.v
    batch, _, queries, _ = q.shape
    seen = _mask(call, places.mask, batch, queries, k.shape[2])
    added = None if seen is None else _hiding(call, seen, q)
    bias = None if places.bias is None else call.optional(places.bias)
    if bias is not None:
        bias = computing(bias)
        added = bias if added is None else added + bias
    made = neural.attention(
        q,
        k,
        v,
        added,
        scale=scale_of(call, q, 0.0),
        causal=bool(call.attr("unidirectional", 0)),
        offset=heads.past,
    )
    return joined_heads(made)


@operator("Attention", domain=MICROSOFT)
def attention(call: Call) -> Result:
    x, weights = call.node(0), call.node(1)
    if x.ndim != 3 or weights.ndim != 2:
        call.fail(f"an input of shape {x.shape} and weights of shape {weights.shape}")
    projected = computing(linear.matmul(x, weights))
    if call.has(2):
        projected = projected + computing(call.node(2))
    return _of_projected(call, cast(projected, x.dtype), Places(mask=3, past=4, bias=5))


@operator("QAttention", domain=MICROSOFT)
def quantised_attention(call: Call) -> Result:
    """Queries, keys and values are of a product of integers; all else is of real numbers."""
    x, weights = call.node(0), call.node(1)
    sums = product_of(x, zero_point(call, 6), weights, zero_point(call, 7))
    scale = reshape(call.node(3), ()) * _one_or_columns(call.node(4))
    projected = scaled(sums, cast(scale, FLOAT32)) + computing(call.node(2))
    return _of_projected(call, cast(projected, call.value(3).dtype), Places(mask=5, past=8))


def _one_or_columns(scale: Node) -> Node:
    return reshape(scale, ()) if all(size == 1 for size in scale.shape) else scale


def _of_projected(call: Call, projected: Node, places: Places) -> Result:
    """Attention of queries, keys and values that stand side by side."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if call.attr(name, 0):
            call.refuse(f"{name} is not supported")
    heads, width = call.need_attr("num_heads"), projected.shape[2]
    sizes = call.attr("qkv_hidden_sizes") or [width // 3] * 3
    if len(sizes) != 3:
        call.fail(f"qkv_hidden_sizes are three, not {sizes}")
    q, k, v = (split_heads(call, part, heads) for part in parts_of(call, projected, 2, sizes))
    n_past: Dim = 0
    if call.has(places.past):
        before = call.node(places.past)
        if before.ndim != 5:
            call.fail(f"a past of shape {before.shape} does not have five axes")
        n_past = before.shape[3]
        old = [reshape(slice_axis(before, 0, at, at + 1), before.shape[1:]) for at in range(2)]
        k, v = concat([old[0], k], 2), concat([old[1], v], 2)
    made = _attended(call, Heads(q, k, v, n_past), places)
    if not call.wants(1):
        return made
    return made, concat([expand_dims(k, 0), expand_dims(v, 0)], 0)


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(call: Call) -> Result:
    if call.has(8) or call.has(9):
        call.refuse("a past in one buffer with the present, and beams, are not supported")
    if call.wants(3):
        call.refuse("the weights as an output")
    q, k, v = _three(call)
    k, v, past = behind_past(call, k, v, 6)
    return _attended(call, Heads(q, k, v, past), Places(mask=4, past=6, bias=5)), k, v


def _three(call: Call) -> tuple[Node, Node, Node]:
    """Queries, keys and values by heads, with their bias."""
    heads, q = call.need_attr("num_heads"), call.node(0)
    bias = call.optional(3)
    if q.ndim == 5:
        if bias is not None:
            call.refuse("a bias of packed queries, keys and values")
        parts = [_of_packed(q, at) for at in range(3)]
        return parts[0], parts[1], parts[2]
    if q.ndim != 3 or not call.has(1):
        call.fail(f"queries of shape {q.shape}, and keys, are needed")
    given = call.node(1)
    if given.ndim == 5:
        if bias is not None:
            call.refuse("a bias of packed keys and values")
        k, v = (_of_packed(given, at) for at in range(2))
        return split_heads(call, q, heads), k, v
    if not call.has(2):
        call.fail("values are missing")
    parts = [q, given, call.node(2)]
    if bias is not None:
        if any(part.ndim != 3 for part in parts):
            part = slice_axis(bias, 0, 0, q.shape[2])
            parts[0] = cast(computing(q) + computing(part), q.dtype)
        else:
            pieces = parts_of(call, bias, 0, [part.shape[2] for part in parts])
            parts = [
                cast(computing(part) + computing(piece), part.dtype)
                for part, piece in zip(parts, pieces, strict=True)
            ]
    q, k, v = (part if part.ndim == 4 else split_heads(call, part, heads) for part in parts)
    return q, k, v


def _of_packed(x: Node, at: int) -> Node:
    """One of [batch, length, heads, 2 or 3, width] as [batch, heads, length, width]."""
    batch, length, heads, _, width = x.shape
    part = reshape(slice_axis(x, 3, at, at + 1), (batch, length, heads, width))
    return permute(part, (0, 2, 1, 3))


# Rotary positions.


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(call: Call) -> Result:
    x, places, cos = call.node(0), call.node(1), call.node(2)
    if call.attr("is_packed_batching", 0) or call.attr("scale", 1.0) != 1:
        call.refuse("packed batches, and scales, are not supported")
    width: Dim = 2 * cos.shape[1]
    heads = call.attr("num_heads", 0)
    if x.ndim == 3 and not heads:
        if not isinstance(x.shape[2], int) or not isinstance(width, int):
            call.refuse(f"an input of shape {x.shape} without num_heads")
        heads = x.shape[2] // width
    batch, length = x.shape[0], x.shape[1] if x.ndim == 3 else x.shape[2]
    if places.ndim == 1:
        places = reshape(cast(places, INT64), (1, 1)) + along(iota(length), 1, 2)
    return rotated(call, x, broadcast_to(places, (batch, length)), (2, 3), heads)


def rotated(
    call: Call, x: Node, places: Node, caches: tuple[int, int], heads: int, interleaved: str = ""
) -> Node:
    """x turned by the angles of its places; `caches` are the inputs with cosines and sines."""
    cos, sin = (call.value(index) for index in caches)
    attrs = {
        "num_heads": heads,
        "interleaved": call.attr(interleaved or "interleaved", 0),
        "rotary_embedding_dim": 2 * cos.shape[1],
    }
    inputs = [Value.of(x), cos, sin, Value.of(places)]
    return only(standard(call, "RotaryEmbedding", 23, inputs=inputs, attrs=attrs, outputs=["y"]))
