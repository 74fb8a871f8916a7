"""LinearAttention: a state of keys by values, which each time changes and each query reads."""

from __future__ import annotations

from arenite.dtype import INT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result
from arenite.ir import Dim, Node, full, make, parameter, size
from arenite.ir.compose.basic import cast, computing, permute, reshape
from arenite.ir.regions import loop

#: Update rules: whether the state decays, and whether values are corrected by what it holds.
RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


def linear_attention(call: Call) -> Result:
    q, k, v = (call.node(n) for n in range(3))
    heads, groups = call.need_attr("q_num_heads"), call.need_attr("kv_num_heads")
    rule = call.attr("update_rule", "gated_delta")
    if rule not in RULES:
        call.fail(f"update_rule is {rule!r}, not one of {', '.join(RULES)}")
    if heads < 1 or groups < 1 or heads % groups or not q.ndim == k.ndim == v.ndim == 3:
        call.fail(f"{heads} and {groups} heads for shapes {q.shape}, {k.shape} and {v.shape}")
    decays, corrects = RULES[rule]
    batch, time = q.shape[:2]
    width, v_width = k.shape[2] // groups, v.shape[2] // groups
    scale = call.attr("scale", 0.0)
    if not scale:
        if not isinstance(width, int) or width == 0:
            call.refuse(f"keys of width {width} without a scale")
        scale = width**-0.5

    # By time: queries [group, head of it, key], keys [group, key, 1], values [group, 1, value].
    queries = _by_time(call, q, (groups, heads // groups, width))
    keys = _by_time(call, k, (groups, width, 1))
    values = _by_time(call, v, (groups, 1, v_width))
    shape = (batch, groups, width, v_width)
    past = call.optional(3)
    if past is not None and past.shape != shape:
        call.fail(f"past_state has shape {past.shape}, not {shape}")
    initial = full(shape, 0.0, queries.dtype) if past is None else cast(past, queries.dtype)

    step, state = parameter((), INT64), parameter(shape, queries.dtype)

    def now(x: Node) -> Node:
        return make("gather", x, step, axis=0)

    held = state
    if decays:
        decay = _packed(call, 4)
        kept = groups if decay.shape[2] == groups else groups * width
        inner = (groups, kept // groups, 1)
        held = held * make("exp", now(_by_time(call, decay, inner)))
    key, value = now(keys), now(values)
    if corrects:
        beta = _packed(call, 5)
        rate = _by_time(call, beta, (groups if beta.shape[2] == groups else 1, 1, 1))
        found = make("matmul", key, held, transpose_a=True, transpose_b=False)
        value = now(rate) * (value - found)
    following = held + key * value
    read = make("matmul", now(queries), following, transpose_a=False, transpose_b=False)
    last, rows = loop(size(time, INT64), [initial], ((step, state), (following,)), rows=[read])
    made = permute(rows * scale, (1, 0, 2, 3, 4))
    result = reshape(made, (batch, time, heads * v_width))
    return cast(result, q.dtype), cast(last, q.dtype if past is None else past.dtype)


def _packed(call: Call, index: int) -> Node:
    x = call.node(index)
    if x.ndim != 3:
        call.fail(f"input {index} has shape {x.shape}, not [batch, time, heads * width]")
    return x


def _by_time(call: Call, x: Node, inner: tuple[Dim, ...]) -> Node:
    """[time, batch, *inner] of [batch, time, all of inner]."""
    total: Dim = 1
    for one in inner:
        total = total * one
    if x.ndim != 3 or x.shape[2] != total:
        call.fail(f"an input of shape {x.shape}, whose last axis is to be {total}")
    split = reshape(computing(x), (*x.shape[:2], *inner))
    return permute(split, (1, 0, *range(2, 2 + len(inner))))
