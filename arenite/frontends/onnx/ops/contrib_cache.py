"""GroupQueryAttention of com.microsoft: heads that share keys, and a cache of keys and values.

How much of the cache is filled comes for each of the batch in `seqlens_k`: as a tensor, so that
which rows are new and which keys a query sees is found in a run.
"""

from __future__ import annotations

from arenite.dtype import INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.attention import scale_of
from arenite.frontends.onnx.ops.contrib_attention import (
    joined_heads,
    parts_of,
    rotated,
    split_heads,
)
from arenite.frontends.onnx.registry import MICROSOFT, Result, operator
from arenite.ir import Dim, Node, make, maximum
from arenite.ir.compose import neural
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    computing,
    concat,
    expand_dims,
    iota,
    reshape,
    size_like,
    where,
)
from arenite.ir.compose.indexing import linear_places
from arenite.ir.compose.reductions import reduce


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(call: Call) -> Result:
    _refuse_caches(call)
    q, k, v = _three_of_groups(call)
    batch, _, length, _ = q.shape
    # Of each of the batch: keys that are there already.
    ends = reshape(cast(call.node(5), INT64), (batch,))
    first = binary("maximum", ends + 1 - size_like(length, ends), 0)
    if call.attr("do_rotary", 0):
        places = expand_dims(first, 1) + along(iota(length), 1, 2)
        if call.has(9):
            places = reshape(cast(call.node(9), INT64), (batch, length))
        q, k = (rotated(call, one, places, (7, 8), 0, "rotary_interleaved") for one in (q, k))
    if call.has(3) != call.has(4):
        call.fail("past_key and past_value come together")
    [total] = call.sizes(6)
    if call.has(3):
        keys = maximum(total, call.node(3).shape[2])
        k, v = (_appended(call.node(at), new, first, keys) for at, new in ((3, k), (4, v)))
    seen = _seen(call, first, ends, length, k.shape[2])
    return joined_heads(_weighed(call, q, k, v, seen)), k, v


def _refuse_caches(call: Call) -> None:
    if any(
        call.attr(name, "NONE") not in ("", "NONE") for name in ("k_quant_type", "v_quant_type")
    ):
        call.refuse("a quantised cache")
    if call.attr("sliding_window_cache", 0):
        call.refuse("a cache as long as the window")
    if call.attr("qk_output", 0) or call.wants(3):
        call.refuse("the scores as an output")


def _three_of_groups(call: Call) -> tuple[Node, Node, Node]:
    heads, groups = call.need_attr("num_heads"), call.need_attr("kv_num_heads")
    if heads < 1 or groups < 1 or heads % groups:
        call.fail(f"{heads} heads in {groups} groups")
    q = call.node(0)
    if call.has(1) and call.has(2):
        parts = [q, call.node(1), call.node(2)]
    else:
        width = q.shape[-1] // (heads + 2 * groups)
        parts = parts_of(call, q, 2, [heads * width, groups * width, groups * width])
    counts = (heads, groups, groups)
    q, k, v = (split_heads(call, one, n) for one, n in zip(parts, counts, strict=True))
    if call.has(14) != call.has(15):
        call.fail("q_norm_weight and k_norm_weight come together")
    if call.has(14):
        eps = float(call.attr("qk_norm_epsilon", 1e-6))
        q, k = (neural.rms_norm(x, 1, call.node(at), eps) for x, at in ((q, 14), (k, 15)))
    return q, k, v


def _appended(past: Node, new: Node, first: Node, keys: Dim) -> Node:
    """The cache with new rows from `first` on, for each of the batch; behind them there are zeros.

    Rows are taken from both by their places.
    """
    batch, groups, length, width = new.shape
    room, whole = past.shape[2], concat([past, new], 2)
    at, start = along(iota(keys), 2, 3), reshape(first, (batch, 1, 1))
    inserted = at - start + size_like(room, at)
    rows = where(at >= start, inserted, at)
    is_there = at < start + size_like(length, start)
    numbers = [along(iota(batch), 0, 3), along(iota(groups), 1, 3), where(is_there, rows, 0)]
    places = linear_places(numbers, whole.shape[:3], (batch, groups, keys))
    flat = reshape(whole, (batch * groups * (room + length), width))
    return where(expand_dims(is_there, 3), make("gather", flat, places, axis=0), 0.0)


def _seen(call: Call, first: Node, ends: Node, length: Dim, keys: Dim) -> Node:
    """[batch, 1, queries, keys]; where a query stands for nothing, it sees what is there."""
    window, at = call.attr("local_window_size", -1), along(iota(keys), 3, 4)
    batch = first.shape[0]
    own = reshape(first, (batch, 1, 1, 1)) + along(iota(length), 2, 4)
    is_there = at <= reshape(ends, (batch, 1, 1, 1))
    if not call.attr("causal", 1):
        if window != -1:
            call.fail("a window of keys that is not causal")
        return is_there
    behind = own - at
    seen = is_there & (behind >= 0)
    return seen if window < 0 else seen & (behind < window)


def _weighed(call: Call, q: Node, k: Node, v: Node, seen: Node) -> Node:
    softcap, bias = float(call.attr("softcap", 0.0)), call.optional(10)
    added = None if bias is None else computing(bias)
    if k.dtype != q.dtype:
        k, v = cast(k, q.dtype), cast(v, q.dtype)
    if not softcap and not call.attr("smooth_softmax", 0) and not call.has(11):
        mask = seen if added is None else where(seen, added, float("-inf"))
        return neural.attention(q, k, v, mask, scale=scale_of(call, q, 0.0))
    batch, heads, length, width = q.shape
    groups, keys = k.shape[1:3]
    grouped = reshape(computing(q), (batch, groups, heads // groups, length, width))
    scores = _times(grouped, expand_dims(computing(k), 2), transpose_b=True)
    scores = reshape(scores, (batch, heads, length, keys)) * scale_of(call, q, 0.0)
    if softcap:
        scores = make("tanh", scores / softcap) * softcap
    if added is not None:
        scores = scores + added
    scores = where(seen, scores, float("-inf"))
    highest = reduce("max", scores, [3], keep=True)
    sink = None
    if call.has(11):
        sink = reshape(computing(call.node(11)), (1, heads, 1, 1))
    elif call.attr("smooth_softmax", 0):
        sink = highest * 0.0
    if sink is not None:
        highest = binary("maximum", highest, broadcast_to(sink, highest.shape))
    raised = make("exp", scores - highest)
    total = reduce("sum", raised, [3], keep=True)
    if sink is not None:
        total = total + make("exp", broadcast_to(sink, highest.shape) - highest)
    weights = reshape(raised / total, (batch, groups, heads // groups, length, keys))
    made = _times(weights, expand_dims(computing(v), 2), transpose_b=False)
    return cast(reshape(made, (batch, heads, length, v.shape[3])), q.dtype)


def _times(a: Node, b: Node, *, transpose_b: bool) -> Node:
    return make("matmul", a, b, transpose_a=False, transpose_b=transpose_b)
