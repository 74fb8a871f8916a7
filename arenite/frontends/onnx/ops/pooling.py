"""Pools: MaxPool, AveragePool, LpPool, global ones, MaxUnpool."""

from __future__ import annotations

from arenite.dtype import INT64, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.convolution import Windows, auto_pad, pads_of, per_axis, windows_of
from arenite.frontends.onnx.registry import Result, operator
from arenite.ir import Dim, Node, full, make, product
from arenite.ir.compose import neural
from arenite.ir.compose.basic import along, binary, cast, computing, iota, pad, reshape, size_like
from arenite.ir.compose.reductions import mean, reduce
from arenite.ir.ops.reductions import least


def _windows(call: Call, x: Node) -> Windows:
    """Windows of a pool; `ceil_mode` pads them further."""
    windows = windows_of(call, x, call.need_attr("kernel_shape"))
    if not call.attr("ceil_mode", 0) or auto_pad(call).startswith("SAME"):
        return windows
    padding = tuple(
        neural.ceil_padding(size, kernel, stride, pair, dilation)
        for size, kernel, stride, pair, dilation in zip(
            x.shape[2:],
            call.need_attr("kernel_shape"),
            windows.strides,
            windows.padding,
            windows.dilations,
            strict=True,
        )
    )
    return Windows(windows.kernel, windows.strides, windows.dilations, padding)


def _sizes(call: Call) -> list[int]:
    sizes: list[int] = call.need_attr("kernel_shape")
    return sizes


@operator("MaxPool")
def max_pool(call: Call) -> Result:
    x = call.node(0)
    windows = _windows(call, x)
    made = neural.max_pool(x, _sizes(call), windows.strides, windows.padding, windows.dilations)
    return (made, _indices(call, x, windows)) if call.wants(1) else made


def _indices(call: Call, x: Node, windows: Windows) -> Node:
    """Where the largest elements stand, in x without its padding."""
    sizes = _sizes(call)
    n = len(sizes)
    view = neural.windows(
        x, sizes, windows.strides, windows.padding, windows.dilations, least(x.dtype)
    )
    counts = view.shape[: 2 + n]
    at = make("argmax", reshape(view, (*counts, product(sizes))), axis=2 + n)
    places = []
    for k in reversed(range(n)):
        at, tap = at // sizes[k], at % sizes[k]
        first = iota(counts[2 + k]) * windows.strides[k]
        first = first - size_like(windows.padding[k][0], first)
        place = tap * windows.dilations[k] + along(first, 2 + k, 2 + n)
        # Where all elements are the least there is, one of the padding may have been found.
        last = size_like(x.shape[2 + k] - 1, place)
        places.append(binary("minimum", binary("maximum", place, 0), last))
    places.reverse()
    spatial = x.shape[2:]
    axes = list(range(n)) if call.attr("storage_order", 0) == 0 else list(reversed(range(n)))
    index: Node | None = None
    for k in axes:
        if index is not None:
            index = index * size_like(spatial[k], index)
        index = places[k] if index is None else index + places[k]
    assert index is not None
    plane = product(spatial)
    for axis, stride in ((0, x.shape[1] * plane), (1, plane)):
        start = iota(x.shape[axis])
        index = index + along(start * size_like(stride, start), axis, 2 + n)
    return index


@operator("AveragePool")
def average_pool(call: Call) -> Result:
    x = call.node(0)
    windows = _windows(call, x)
    counted: tuple[tuple[Dim, Dim], ...] = ((0, 0),) * (x.ndim - 2)
    if call.attr("count_include_pad", 0):
        counted = windows_of(call, x, _sizes(call)).padding
    return neural.avg_pool(
        x, _sizes(call), windows.strides, windows.padding, windows.dilations, counted
    )


@operator("LpPool")
def lp_pool(call: Call) -> Result:
    x, p = call.node(0), _p(call)
    windows = _windows(call, x)
    raised = _power(abs(computing(x)), p)
    view = neural.windows(
        raised, _sizes(call), windows.strides, windows.padding, windows.dilations, 0.0
    )
    return cast(_root(reduce("sum", view, range(x.ndim, view.ndim)), p), x.dtype)


def _p(call: Call) -> int:
    p: int = call.attr("p", 2)
    if p < 1:
        call.fail(f"p is {p}, and a norm's is at least 1")
    return p


def _power(x: Node, p: float) -> Node:
    if p == 1:
        return x
    return x * x if p == 2 else binary("pow", x, float(p))


def _root(x: Node, p: float) -> Node:
    if p == 1:
        return x
    return make("sqrt", x) if p == 2 else binary("pow", x, 1 / p)


def _spatial(x: Node) -> range:
    return range(2, x.ndim)


@operator("GlobalMaxPool")
def global_max_pool(call: Call) -> Result:
    x = call.node(0)
    return reduce("max", x, _spatial(x), keep=True)


@operator("GlobalAveragePool")
def global_average_pool(call: Call) -> Result:
    x = call.node(0)
    return mean(x, _spatial(x), keep=True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call) -> Result:
    x, p = call.node(0), _p(call)
    raised = _power(abs(computing(x)), p)
    return cast(_root(reduce("sum", raised, _spatial(x), keep=True), p), x.dtype)


@operator("MaxUnpool")
def max_unpool(call: Call) -> Result:
    x, indices = call.node(0), call.node(1)
    n = x.ndim - 2
    kernel, strides, pads = _sizes(call), per_axis(call, "strides", n, 1), pads_of(call, n)
    if len(kernel) != n or indices.shape != x.shape:
        call.fail(f"a kernel of {kernel} and indices {indices.shape} for shape {x.shape}")
    inner = [
        (size - 1) * stride - before - after + k
        for size, stride, (before, after), k in zip(x.shape[2:], strides, pads, kernel, strict=True)
    ]
    shape = (*x.shape[:2], *inner)
    count = product(x.shape)
    room = full((product(shape),), 0.0 if x.dtype.kind is Kind.FLOAT else 0, x.dtype)
    flat = make(
        "scatter_elements",
        room,
        reshape(cast(indices, INT64), (count,)),
        reshape(x, (count,)),
        axis=0,
        reduction="none",
    )
    made = reshape(flat, shape)
    if not call.has(2):
        return made
    wanted = call.sizes(2)
    if len(wanted) != x.ndim:
        call.fail(f"output_shape {wanted} for an input with {x.ndim} axes")
    return pad(made, [(0, new - old) for new, old in zip(wanted, shape, strict=True)])
