"""What a reducing op reduces: its space, which axes go, and the elements that are combined.

sum over axis 1 of x[2, 3]      space (2, 3), axis 1 goes;       x[i, j]
matmul a[b, m, k], b[b, k, n]   space (b, m, n, k), k goes;      a[b, m, k] * b[b, k, n]
matmul_panels                   as matmul; columns lie in panels
conv x[n, c, h], w[o, c, r]     space (n, o, p, c, r), c, r go;  x[n, c, p + r] * w[o, c, r]
conv_last x[n, h, c]            space (n, p, o, r, c), r, c go;  taps before channels
depthwise_last x[n, h, c]       space (n, p, c, r), r goes;      x[n, p + r, c] * w[r, c]
conv_winograd                   space (n, p, o, 4, c): its products; of its factors only some
matmul_bytes, conv_bytes        as matmul and conv_last, with panels of words of four bytes
matmul_packed                   as matmul; of its factors only the run and the panel are known
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.ir.dim import Dim
from arenite.ir.node import Node, Shape
from arenite.ir.ops.block_forms import BLOCK, PANEL
from arenite.ir.ops.blocks import RUN_WORDS, depth_of
from arenite.ir.ops.byte_products import unsigned
from arenite.ir.ops.convolution import PANEL as CHANNELS
from arenite.ir.ops.define import make
from arenite.ir.ops.winograd import PATCH, TILE
from arenite.schedule.access import Guard, Index, Source


@dataclass(frozen=True, slots=True)
class Reduction:
    """`op` combines the products of `factors` over all points of the reduced axes."""

    op: str  # add, mul, max, min, and, or, argmax, argmin
    space: Shape
    axes: tuple[int, ...]
    factors: Callable[[Index], tuple[Source, ...]]


_OPS = {
    "sum": "add",
    "prod": "mul",
    "max": "max",
    "min": "min",
    "any": "or",
    "all": "and",
    "argmax": "argmax",
    "argmin": "argmin",
}


def is_reduction(node: Node) -> bool:
    """Whether a node is complete only when many elements are combined."""
    return node.op in _OPS or node.op in _PRODUCTS


def reduction_of(node: Node) -> Reduction | None:
    """The reduction a node is, or None for every other op."""
    if node.op in _OPS:
        [x] = node.inputs
        axes = (node.attr("axis"),) if node.op in ("argmax", "argmin") else node.attr("axes")
        return Reduction(
            _OPS[node.op], x.shape, tuple(sorted(axes)), lambda index: (Source(x, index),)
        )
    of_product = _PRODUCTS.get(node.op)
    return None if of_product is None else of_product(node)


def _matmul(node: Node) -> Reduction:
    a, b = node.inputs
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")
    depth = a.shape[-2] if transpose_a else a.shape[-1]

    def factors(index: Index) -> tuple[Source, ...]:
        *batch, row, column, k = index
        left = (k, row) if transpose_a else (row, k)
        right = (column, k) if transpose_b else (k, column)
        return (
            Source(a, (*_batch(batch, a.shape[:-2]), *left)),
            Source(b, (*_batch(batch, b.shape[:-2]), *right)),
        )

    space = (*node.shape, depth)
    return Reduction("add", space, (len(space) - 1,), factors)


def _batch(index: Sequence[Dim], shape: Shape) -> Index:
    """Batch axes of an operand: aligned at the end, sizes of 1 stretch."""
    aligned = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else at for at, size in zip(aligned, shape, strict=True))


def _conv(node: Node) -> Reduction:
    x, w = node.inputs[:2]
    n_spatial = x.ndim - 2
    strides, dilations = node.attr("strides"), node.attr("dilations")
    padding, groups = node.attr("padding"), node.attr("groups")
    per_group_in = w.shape[1]
    per_group_out = w.shape[0] // groups

    def factors(index: Index) -> tuple[Source, ...]:
        image, out_channel = index[0], index[1]
        places = index[2 : 2 + n_spatial]
        channel, *taps = index[2 + n_spatial :]
        inner: list[Dim] = [image, (out_channel // per_group_out) * per_group_in + channel]
        guards = []
        for axis, (place, tap) in enumerate(zip(places, taps, strict=True)):
            position = place * strides[axis] + tap * dilations[axis] - padding[axis][0]
            inner.append(position)
            if padding[axis] != (0, 0):
                guards.append(Guard(position, x.shape[2 + axis]))
        return (
            Source(x, tuple(inner), tuple(guards)),
            Source(w, (out_channel, channel, *taps)),
        )

    space = (*node.shape, *w.shape[1:])
    return Reduction("add", space, tuple(range(node.ndim, len(space))), factors)


def _conv_last(node: Node) -> Reduction:
    x, panels = node.inputs
    n_spatial = x.ndim - 2
    depth, lanes = panels.shape[-2:]
    per_group_out = node.attr("channels") // panels.shape[0]

    def factors(index: Index) -> tuple[Source, ...]:
        out_channel = index[n_spatial + 1]
        *taps, channel = index[n_spatial + 2 :]
        group = out_channel // per_group_out
        within = out_channel - group * per_group_out
        panel = within // lanes
        image = _taken(node, index[: n_spatial + 1], taps, group * depth + channel)
        return image, Source(panels, (group, panel, *taps, channel, within - panel * lanes))

    space = (*node.shape, *panels.shape[2:-1])
    return Reduction("add", space, tuple(range(node.ndim, len(space))), factors)


def _depthwise_last(node: Node) -> Reduction:
    w = node.inputs[1]

    def factors(index: Index) -> tuple[Source, ...]:
        *places, channel = index[: node.ndim]
        taps = index[node.ndim :]
        return _taken(node, places, taps, channel), Source(w, (*taps, channel))

    space = (*node.shape, *w.shape[:-1])
    return Reduction("add", space, tuple(range(node.ndim, len(space))), factors)


def _conv_winograd(node: Node) -> Reduction:
    x, panels = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        image, *places, out_channel, point, channel = index
        at: list[Dim] = []
        guards = []
        for size, place, pair in zip(x.shape[1:-1], places, node.attr("padding"), strict=True):
            position = place // TILE * TILE + point - pair[0]
            at.append(position)
            guards.append(Guard(position, size))
        panel = out_channel // CHANNELS
        lane = out_channel - panel * CHANNELS
        patch = Source(x, (image, *at, channel), tuple(guards))
        return patch, Source(panels, (panel, point, point, channel, lane))

    space = (*node.shape, PATCH, x.shape[-1])
    return Reduction("add", space, (node.ndim, node.ndim + 1), factors)


def _matmul_panels(node: Node) -> Reduction:
    a, panels = node.inputs
    lanes = panels.shape[-1]

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        panel = column // lanes
        return Source(a, (*rows, k)), Source(panels, (panel, k, column - panel * lanes))

    space = (*node.shape, a.shape[-1])
    return Reduction("add", space, (len(space) - 1,), factors)


def _matmul_bytes(node: Node) -> Reduction:
    a, panels = node.inputs
    numbers = unsigned(a)
    lanes, word = panels.shape[-2:]

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        panel, at = column // lanes, k // word
        lane = (column - panel * lanes, k - at * word)
        return Source(numbers, (*rows, k)), Source(panels, (panel, at, *lane))

    space = (*node.shape, a.shape[-1])
    return Reduction("add", space, (len(space) - 1,), factors)


def _matmul_packed(node: Node) -> Reduction:
    runs, panels = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        return Source(runs, (*rows, k // BLOCK * RUN_WORDS)), Source(panels, (column // PANEL, 0))

    space = (*node.shape, depth_of(runs))
    return Reduction("add", space, (len(space) - 1,), factors)


def _conv_bytes(node: Node) -> Reduction:
    x, panels = node.inputs
    numbers = unsigned(x)
    n_spatial = x.ndim - 2
    lanes, word = panels.shape[-2:]
    groups = panels.shape[0]
    depth = x.shape[-1] // groups
    per_group_out = node.attr("channels") // groups

    def factors(index: Index) -> tuple[Source, ...]:
        out_channel = index[n_spatial + 1]
        *taps, channel = index[n_spatial + 2 :]
        group = out_channel // per_group_out
        within = out_channel - group * per_group_out
        panel, at = within // lanes, channel // word
        lane = (within - panel * lanes, channel - at * word)
        image = _taken(node, index[: n_spatial + 1], taps, group * depth + channel)
        image = Source(numbers, image.index, image.guards)
        return _filled(node, image), Source(panels, (group, panel, *taps, at, *lane))

    space = (*node.shape, *panels.shape[2:-3], depth)
    return Reduction("add", space, tuple(range(node.ndim, len(space))), factors)


def _filled(node: Node, image: Source) -> Source:
    """The same element with `pad_value` where there is none."""
    if not image.guards or node.attr("pad_value") == 0:
        return image
    sides = node.attr("padding")
    padding = ((0, 0), *sides, (0, 0))
    padded = make("pad", image.node, padding=padding, value=node.attr("pad_value"))
    moved = [at + before for at, (before, _) in zip(image.index[1:-1], sides, strict=True)]
    return Source(padded, (image.index[0], *moved, image.index[-1]))


def _taken(node: Node, places: Sequence[Dim], taps: Sequence[Dim], channel: Dim) -> Source:
    """What a tap of a convolution with channels last reads for a place (image first)."""
    x = node.inputs[0]
    index: list[Dim] = [places[0]]
    guards = []
    for size, place, tap, stride, dilation, pair in zip(
        x.shape[1:-1],
        places[1:],
        taps,
        node.attr("strides"),
        node.attr("dilations"),
        node.attr("padding"),
        strict=True,
    ):
        position = place * stride + tap * dilation - pair[0]
        index.append(position)
        if pair != (0, 0):
            guards.append(Guard(position, size))
    return Source(x, (*index, channel), tuple(guards))


_PRODUCTS: dict[str, Callable[[Node], Reduction]] = {
    "matmul": _matmul,
    "matmul_panels": _matmul_panels,
    "conv": _conv,
    "conv_last": _conv_last,
    "depthwise_last": _depthwise_last,
    "conv_winograd": _conv_winograd,
    "matmul_bytes": _matmul_bytes,
    "conv_bytes": _conv_bytes,
    "matmul_packed": _matmul_packed,
}
