"""Attention and what belongs to it: FlexAttention, RotaryEmbedding, LinearAttention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arenite.dtype import FLOAT32, INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.linear_attention import linear_attention
from arenite.frontends.onnx.registry import PREVIEW, Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node, known_le, make
from arenite.ir.compose import neural
from arenite.ir.compose.basic import (
    along,
    binary,
    cast,
    computing,
    concat,
    iota,
    pad,
    permute,
    reshape,
    size_like,
    slice_axis,
    where,
)
from arenite.ir.compose.indexing import counted_from_front
from arenite.ir.compose.reductions import reduce

#: Keys that any memory holds: a wider window is none.
MAX_WINDOW = 1 << 40


@dataclass(frozen=True, slots=True)
class Band:
    """Which keys a query at its own place p sees: from p - left to p + right; None is no end."""

    left: int | None
    right: int | None


@operator("Attention", since=23)
def attention(call: Call) -> Result:
    q, k, v = (call.node(n) for n in range(3))
    is_packed = q.ndim == 3
    if is_packed:
        heads, groups = call.need_attr("q_num_heads"), call.need_attr("kv_num_heads")
        q, k, v = _heads(call, q, heads), _heads(call, k, groups), _heads(call, v, groups)
    if not q.ndim == k.ndim == v.ndim == 4:
        call.fail(f"queries {q.shape}, keys {k.shape} and values {v.shape} are not all 3-D or 4-D")
    k, v, past = behind_past(call, k, v, 4)
    lengths = cast(call.node(6), INT64) if call.has(6) else None
    if lengths is not None and call.has(4):
        call.fail("nonpad_kv_seqlen says where a cache outside ends, and a past is given too")
    if lengths is not None and lengths.shape != q.shape[:1]:
        call.fail(f"nonpad_kv_seqlen has shape {lengths.shape}, not one number for each sample")
    band = _band(call)
    mask = _mask(call, k.shape[2])
    scale = scale_of(call, q)
    if call.attr("softcap", 0.0) or call.wants(3):
        seen = _visible(q, k, past, band, lengths)
        made, scores = _spelled(call, q, k, v, _joined(mask, seen, q), scale)
    else:
        made, scores = _whole(q, k, v, mask, scale, past, band, lengths), None
    if is_packed:
        shape = (made.shape[0], made.shape[2], made.shape[1] * made.shape[3])
        made = reshape(permute(made, (0, 2, 1, 3)), shape)
    return made, k, v, scores


def behind_past(call: Call, k: Node, v: Node, at: int) -> tuple[Node, Node, Dim]:
    """Keys and values behind those that two inputs have, and how many these are."""
    if call.has(at) != call.has(at + 1):
        call.fail("past_key and past_value come together")
    if not call.has(at):
        return k, v, 0
    past_k, past_v = call.node(at), call.node(at + 1)
    return concat([past_k, k], 2), concat([past_v, v], 2), past_k.shape[2]


def scale_of(call: Call, q: Node, missing: float | None = None) -> float:
    """The attribute or, where that is missing, 1 over the root of the width."""
    scale, width = call.attr("scale", missing), q.shape[-1]
    if scale != missing:
        return float(scale)
    if not isinstance(width, int) or width == 0:
        call.refuse(f"queries of width {width} without a scale")
    return float(width**-0.5)


def _heads(call: Call, x: Node, heads: int) -> Node:
    """[batch, heads, length, width] of [batch, length, heads * width]."""
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads != 0:
        call.fail(f"{heads} heads do not divide shape {x.shape}")
    split = reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return permute(split, (0, 2, 1, 3))


def _band(call: Call) -> Band:
    left, right = call.attr("left_window_size", -1), call.attr("right_window_size", -1)
    if left < -1 or right < -1:
        call.fail(f"windows of {left} and {right} keys; -1 is no window")
    if call.attr("is_causal", 0):
        right = 0
    ends = (None if one < 0 or one > MAX_WINDOW else one for one in (left, right))
    return Band(*ends)


def _mask(call: Call, keys: Dim) -> Node | None:
    """The mask with four axes, and as long as there are keys."""
    mask = call.optional(3)
    if mask is None:
        return None
    if not 1 <= mask.ndim <= 4:
        call.fail(f"a mask of shape {mask.shape}")
    mask = reshape(mask, (1,) * (4 - mask.ndim) + mask.shape)
    length = mask.shape[3]
    if length == keys or length == 1:
        return mask
    if not known_le(length, keys):
        call.refuse(f"a mask for {length} keys, of which there are {keys}: not known to be as many")
    hidden = False if mask.dtype.name == "bool" else -math.inf
    return pad(mask, [(0, 0), (0, 0), (0, 0), (0, keys - length)], hidden)


def _whole(
    q: Node,
    k: Node,
    v: Node,
    mask: Node | None,
    scale: float,
    past: Dim,
    band: Band,
    lengths: Node | None,
) -> Node:
    """By the op that has a kernel: it knows where the keys that a query sees end."""
    window: int | None = None
    causal, offset = False, past
    if lengths is None and band.right is not None:
        causal, offset = True, past + band.right
        window = None if band.left is None else band.left + band.right + 1
        band = Band(None, None)
    mask = _joined(mask, _visible(q, k, past, band, lengths), q)
    if k.dtype.bits > q.dtype.bits or k.dtype != v.dtype:
        k, v = cast(k, q.dtype), cast(v, q.dtype)
    return neural.attention(q, k, v, mask, scale=scale, causal=causal, offset=offset, window=window)


def _visible(q: Node, k: Node, past: Dim, band: Band, lengths: Node | None) -> Node | None:
    """What a query sees by its place, [1 or batch, 1, 1 or query, key]; None: everything."""
    keys = along(iota(k.shape[2]), 3, 4)
    seen: list[Node] = []
    first = size_like(past, keys)
    if lengths is not None:
        ends = reshape(lengths, (lengths.shape[0], 1, 1, 1))
        seen.append(keys < ends)
        first = ends - size_like(q.shape[2], ends)
    if band.left is not None or band.right is not None:
        behind = along(iota(q.shape[2]), 2, 4) + first - keys
        if band.left is not None:
            seen.append(behind <= band.left)
        if band.right is not None:
            seen.append(behind >= -band.right)
    made: Node | None = None
    for one in seen:
        made = one if made is None else made & one
    return made


def _joined(mask: Node | None, seen: Node | None, q: Node) -> Node | None:
    """One mask: bool, or numbers that are added."""
    wide = q.dtype if q.dtype.bits >= 32 else FLOAT32
    if mask is not None and mask.dtype.name != "bool" and mask.dtype != q.dtype:
        mask = cast(mask, wide)
    if mask is None or seen is None:
        return seen if mask is None else mask
    return mask & seen if mask.dtype.name == "bool" else where(seen, mask, -math.inf)


def _spelled(
    call: Call, q: Node, k: Node, v: Node, mask: Node | None, scale: float
) -> tuple[Node, Node]:
    """For soft caps, and where scores or weights are an output too."""
    scores = _scores(call, q, k, scale)
    shown = [scores]
    softcap = call.attr("softcap", 0.0)
    if softcap:
        scores = make("tanh", scores / softcap) * softcap
    shown.append(scores)
    if mask is not None and mask.dtype.name == "bool":
        scores = where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + cast(mask, scores.dtype)
    shown.append(scores)
    weights = _weights(scores)
    shown.append(weights)
    mode = call.attr("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(shown):
        call.fail(f"qk_matmul_output_mode is {mode}, not 0, 1, 2 or 3")
    made = _mixed(cast(weights, computing(v).dtype), v)
    return cast(made, q.dtype), cast(shown[mode], q.dtype)


def _weights(scores: Node) -> Node:
    """Softmax over the last axis; zeros where nothing is seen."""
    last = scores.ndim - 1
    highest = reduce("max", scores, [last], keep=True)
    is_none = binary("eq", highest, -math.inf)
    raised = make("exp", scores - where(is_none, 0.0, highest))
    total = reduce("sum", raised, [last], keep=True)
    return raised / where(binary("eq", total, 0.0), 1.0, total)


def _scores(call: Call, q: Node, k: Node, scale: float) -> Node:
    """scale * q . k for each head of q, in float32 at least."""
    batch, heads, length, width = q.shape
    groups, keys = k.shape[1:3]
    if heads % groups != 0 or width != k.shape[3]:
        call.fail(f"queries of shape {q.shape} for keys of shape {k.shape}")
    grouped = reshape(computing(q), (batch, groups, heads // groups, length, width))
    shared = reshape(computing(k), (batch, groups, 1, keys, width))
    made = make("matmul", grouped, shared, transpose_a=False, transpose_b=True)
    return reshape(made, (batch, heads, length, keys)) * scale


def _mixed(weights: Node, v: Node) -> Node:
    batch, heads, length, keys = weights.shape
    groups, width = v.shape[1], v.shape[3]
    grouped = reshape(weights, (batch, groups, heads // groups, length, keys))
    shared = reshape(computing(v), (batch, groups, 1, keys, width))
    made = make("matmul", grouped, shared, transpose_a=False, transpose_b=False)
    return reshape(made, (batch, heads, length, width))


@operator("FlexAttention", domain=PREVIEW)
def flex_attention(call: Call) -> Result:
    q, k, v = (call.node(n) for n in range(3))
    if not q.ndim == k.ndim == v.ndim == 4:
        call.fail(f"queries {q.shape}, keys {k.shape} and values {v.shape} are not all 4-D")
    scale = scale_of(call, q)
    is_plain = call.attr("score_mod") is None and call.attr("prob_mod") is None
    if is_plain:
        return neural.attention(q, k, v, scale=scale)
    default = q.dtype if q.dtype.name == "float64" else FLOAT32
    dtype = call.dtype_attr("softmax_precision", default)
    scores = _changed(call, "score_mod", cast(_scores(call, q, k, scale), dtype))
    weights = _changed(call, "prob_mod", cast(_weights(computing(scores)), dtype))
    return cast(_mixed(cast(weights, computing(v).dtype), v), q.dtype)


def _changed(call: Call, name: str, x: Node) -> Node:
    """What a subgraph makes of scores or weights."""
    if call.attr(name) is None:
        return x
    graph = call.subgraph(name)
    if len(graph.input) != 1 or len(graph.output) != 1:
        call.fail(f"{name} takes {len(graph.input)} values and gives {len(graph.output)}, not one")
    [made] = call.translator.graph(graph, {graph.input[0].name: Value.of(x)})
    if not isinstance(made, Value) or made.shape != x.shape or made.dtype != x.dtype:
        call.fail(f"{name} gives {made!r}, not what it takes, {Value.of(x)!r}")
    return made.node


@operator("RotaryEmbedding", since=23)
def rotary_embedding(call: Call) -> Result:
    given, cos, sin = (call.node(n) for n in range(3))
    x = given
    if x.ndim == 3:
        x = _heads(call, x, call.need_attr("num_heads"))
    if x.ndim != 4:
        call.fail(f"an input of shape {x.shape} is not 3-D or 4-D")
    width = x.shape[3]
    rotated = call.attr("rotary_embedding_dim", 0) or width
    if not isinstance(rotated, int) or rotated % 2 or not known_le(rotated, width):
        call.fail(f"{rotated} of {width} elements of a head are turned")
    angles = []
    for cache in (cos, sin):
        if call.has(3):
            places = counted_from_front(call.node(3), cache.shape[0])
            cache = make("gather", cache, places, axis=0)
        if cache.ndim != 3 or cache.shape[2] != rotated // 2:
            call.fail(f"a cache of shape {cache.shape} for {rotated} elements that are turned")
        angles.append(computing(reshape(cache, (cache.shape[0], 1, *cache.shape[1:]))))
    wide = computing(slice_axis(x, 3, 0, rotated))
    shape = wide.shape
    if call.attr("interleaved", 0):
        pairs = reshape(wide, (*shape[:3], rotated // 2, 2))
        one, two = (reshape(slice_axis(pairs, 4, k, k + 1), (*shape[:3], rotated // 2))
                    for k in range(2))  # fmt: skip
    else:
        one, two = (slice_axis(wide, 3, k * rotated // 2, (k + 1) * rotated // 2) for k in range(2))
    turned = [
        one * angles[0] - two * angles[1],
        one * angles[1] + two * angles[0],
    ]
    if call.attr("interleaved", 0):
        made = concat([reshape(part, (*part.shape, 1)) for part in turned], 4)
        made = reshape(made, shape)
    else:
        made = concat(turned, 3)
    made = cast(made, x.dtype)
    if rotated != width:
        made = concat([made, slice_axis(x, 3, rotated, width)], 3)
    if given.ndim == 3:
        made = reshape(permute(made, (0, 2, 1, 3)), given.shape)
    return made


operator("LinearAttention", since=27)(linear_attention)
