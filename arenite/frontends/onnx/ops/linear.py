"""Products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

from arenite.dtype import FLOAT64, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.structure import same_sized
from arenite.ir import Node, make
from arenite.ir.compose import linear
from arenite.ir.compose.basic import broadcast_to, cast, computing
from arenite.ir.compose.elimination import determinant


@operator("MatMul")
def matmul(call: Call) -> Result:
    a, b = call.node(0), call.node(1)
    if a.ndim and b.ndim:
        a, b = same_sized(call, a, -1, b, -min(2, b.ndim))
    return linear.matmul(a, b)


@operator("Gemm")
def gemm(call: Call) -> Result:
    a, b, c = call.node(0), call.node(1), call.optional(2)
    if a.ndim != 2 or b.ndim != 2:
        call.fail(f"Gemm multiplies matrices, not shapes {a.shape} and {b.shape}")
    turns_a, turns_b = bool(call.attr("transA", 0)), bool(call.attr("transB", 0))
    a, b = same_sized(call, a, 0 if turns_a else 1, b, 1 if turns_b else 0)
    product = make("matmul", a, b, transpose_a=turns_a, transpose_b=turns_b)
    wide = _scaled(computing(product), call.attr("alpha", 1.0))
    if c is not None:
        added = _scaled(cast(c, wide.dtype), call.attr("beta", 1.0))
        wide = wide + broadcast_to(added, wide.shape)
    return cast(wide, product.dtype)


def _scaled(x: Node, factor: float) -> Node:
    """Integers times a number that is none are computed in float64."""
    if factor == 1:
        return x
    if x.dtype.kind is Kind.FLOAT:
        return x * factor
    if factor == int(factor):
        return x * int(factor)
    return cast(cast(x, FLOAT64) * factor, x.dtype)


@operator("Einsum")
def einsum(call: Call) -> Result:
    equation, nodes = call.need_attr("equation"), call.nodes
    seen: dict[str, tuple[int, int]] = {}
    for k, term in enumerate(equation.partition("->")[0].replace(" ", "").split(",")[: len(nodes)]):
        for axis, label in enumerate(term if len(term) == nodes[k].ndim else ""):
            first, at = seen.setdefault(label, (k, axis))
            if first != k and 1 not in (nodes[first].shape[at], nodes[k].shape[axis]):
                nodes[first], nodes[k] = same_sized(call, nodes[first], at, nodes[k], axis)
    return linear.einsum(equation, *nodes)


@operator("Det")
def det(call: Call) -> Result:
    x = square_matrices(call)
    return cast(determinant(computing(x)), x.dtype)


def square_matrices(call: Call) -> Node:
    """The first input, whose last two axes are as long as each other."""
    x = call.node(0)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        call.fail(f"it takes square matrices, not {x.type_text}")
    return x
