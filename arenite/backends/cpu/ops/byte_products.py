"""Products of bytes with packed weights, as dot-product instructions read them: exact in int32.

    matmul_bytes(a [..., M, K], panels int8[P, ceil(K/4), 16, 4]; columns)
    conv_bytes(x [N, *S, C], panels int8[groups, P, *K, ceil(C/groups/4), 16, 4];
        strides, padding, dilations, channels, pad_value)

Bytes are multiplied as unsigned numbers; those of a signed a or x are turned into such, which adds
128 to what they stand for.

A panel holds 16 columns (output channels) side by side, and of each of them four numbers that
follow each other along K (input channels) as one word. What fills up the last word of K is zero,
and so are the columns that fill up the last panel. Outside of the image every number is
`pad_value`. Sums wrap, as int32 does.
"""

from __future__ import annotations

import numpy as np

from arenite.backends.cpu.ops.channels_last import PANEL, packed_operand
from arenite.backends.cpu.ops.panels import product_shape
from arenite.dtype import INT8, INT32, UINT8, Array, DType
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir import OPS, Node, full, make
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.contraction import LAST_ATTRS, image_source, last_reference, last_sizes
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, need_dtype

#: Bytes of K in one word of a panel.
WORD = 4

#: What turning the highest bit of a byte adds to what it stands for.
TURN = 128


def turned(bits: Node) -> Node:
    """Unsigned bytes with the highest bit turned."""
    return make("xor", bits, full(bits.shape, TURN, UINT8))


def unsigned(a: Node) -> Node:
    """The bytes of a first operand as they are multiplied."""
    return a if a.dtype == UINT8 else turned(make("bitcast", a, dtype=UINT8))


def _need_bytes(op: str, a: Node, panels: Node) -> None:
    if a.dtype not in (UINT8, INT8):
        found = a.type_text
        raise TypeMismatch(f"{op}: the first operand must be bytes, not {found}")
    need_dtype(op, "panels", panels, INT8)


def _infer_matmul(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    a, panels = inputs
    _need_bytes("matmul_bytes", a, panels)
    return product_shape("matmul_bytes", a, panels, attrs["columns"], WORD), INT32


def _matmul_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    a, panels = arrays
    # [p, k, column, byte] to [k, byte, p, column]
    w = panels.transpose(1, 3, 0, 2)
    w = w.reshape(w.shape[0] * WORD, -1)[: a.shape[-1], : attrs["columns"]]
    return np.asarray(np.matmul(_unsigned(a).astype(np.int32), w.astype(np.int32)))


def _unsigned(a: Array) -> Array:
    """The numbers that are multiplied."""
    return a.view(np.uint8) ^ np.uint8(TURN) if a.dtype == np.int8 else a


def _operand(node: Node, value: Node) -> str | None:
    """Both are read from memory, in runs of bytes."""
    reason = packed_operand(node, value)
    if reason is None and value.op != "reshape" and OPS[value.op].storage != "made up":
        return f"{node.op} reads runs of bytes from memory"
    return reason


def _matmul_reduction(node: Node) -> Reduction:
    a, panels = node.inputs
    numbers = unsigned(a)
    lanes, word = panels.shape[-2:]

    def factors(index: Index) -> tuple[Source, ...]:
        *rows, column, k = index
        panel, at = column // lanes, k // word
        lane = (column - panel * lanes, k - at * word)
        return Source(numbers, (*rows, k)), Source(panels, (panel, at, *lane))

    return summed(node, a.shape[-1:], factors)


define(
    "matmul_bytes",
    "contraction",
    (2, 2),
    _infer_matmul,
    _matmul_reference,
    {"columns": int},
    reduction=_matmul_reduction,
    operand=_operand,
    is_packed=True,
    multiplies_bytes=True,
    backend="cpu",
)


def _infer_conv(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, panels = inputs
    _need_bytes("conv_bytes", x, panels)
    channels: int = attrs["channels"]
    if not 0 <= attrs["pad_value"] <= 255:
        raise InvalidArgument(f"conv_bytes: pad_value {attrs['pad_value']} is not in 0..255")
    shapes = f"conv_bytes: x of shape {x.shape}, panels of shape {panels.shape}"
    if not 3 <= x.ndim <= 5 or panels.ndim != x.ndim + 3:
        raise ShapeMismatch(
            f"{shapes}: x is [N, *S, C] with one to three spatial axes, panels are "
            "[groups, P, *K, C/groups/4, 16, 4]"
        )
    groups, n_panels, *kernel, words, lanes, word = panels.shape
    total = x.shape[-1]
    fits = (
        isinstance(total, int)
        and isinstance(groups, int)
        and groups > 0
        and total > 0
        and total % groups == 0
        and (words, lanes, word) == (-(-total // groups // WORD), PANEL, WORD)
        and channels > 0
        and channels % groups == 0
        and n_panels == -(-channels // groups // PANEL)
    )
    if not fits:
        raise ShapeMismatch(
            f"{shapes}: {channels} channels of {groups} groups need panels of {PANEL} columns of "
            f"{WORD} bytes, the last ones padded, for {total} channels in"
        )
    sizes = last_sizes("conv_bytes", x, kernel, attrs)
    return (x.shape[0], *sizes, channels), INT32


def _conv_bytes_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, panels = _unsigned(arrays[0]), arrays[1]
    groups, channels = panels.shape[0], attrs["channels"]
    # [g, p, *k, c, lane, byte] to [g, p, lane, c, byte, *k], without what fills up
    w = np.moveaxis(panels, (-2, -3, -1), (2, 3, 4))
    w = w.reshape(groups, w.shape[1] * PANEL, -1, *w.shape[5:])
    w = w[:, : channels // groups, : x.shape[-1] // groups]
    w = w.reshape(channels, *w.shape[2:])
    x = np.pad(x, ((0, 0), *attrs["padding"], (0, 0)), constant_values=attrs["pad_value"])
    inside = {**attrs, "padding": ((0, 0),) * (x.ndim - 2)}
    return last_reference(x, w, groups, inside, shape, dtype)


def _conv_reduction(node: Node) -> Reduction:
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
        image = image_source(node, index[: n_spatial + 1], taps, group * depth + channel)
        image = Source(numbers, image.index, image.guards)
        return _filled(node, image), Source(panels, (group, panel, *taps, at, *lane))

    return summed(node, (*panels.shape[2:-3], depth), factors)


def _filled(node: Node, image: Source) -> Source:
    """The same element with `pad_value` where there is none."""
    if not image.guards or node.attr("pad_value") == 0:
        return image
    sides = node.attr("padding")
    padding = ((0, 0), *sides, (0, 0))
    padded = make("pad", image.node, padding=padding, value=node.attr("pad_value"))
    moved = [at + before for at, (before, _) in zip(image.index[1:-1], sides, strict=True)]
    return Source(padded, (image.index[0], *moved, image.index[-1]))


define(
    "conv_bytes",
    "convolution",
    (2, 2),
    _infer_conv,
    _conv_bytes_reference,
    {**LAST_ATTRS, "channels": int, "pad_value": int},
    reduction=_conv_reduction,
    operand=_operand,
    is_packed=True,
    multiplies_bytes=True,
    backend="cpu",
)
