"""Convolution of 3x3 taps by Winograd's F(2x2, 3x3): four outputs of sixteen products, not 36.

    conv_winograd(x[N, H, W, C], panels[P, 4, 4, C, 16]; padding, channels)

    a patch d of 4x4 inputs, two further for each next tile of 2x2 outputs; weights g of 3x3
    y = AT (G g GT * BT d B) A        the product in the middle summed over the channels of x

Panels hold G g GT, sixteen output channels side by side, the last panel filled up with zeros. Sums
are those of the convolution but for rounding. What is not finite in a patch may reach all four
outputs of its tile, as NaN where the convolution has an infinity.
"""

from __future__ import annotations

import numpy as np

from arenite.backends.cpu.ops.channels_last import PANEL, runs_operand
from arenite.dtype import Array, DType, Kind
from arenite.errors import ShapeMismatch
from arenite.ir import Dim, Node, known_le
from arenite.ir.element import rounded
from arenite.ir.ops.access import Guard, Index, Reduction, Source, summed
from arenite.ir.ops.contraction import accumulated, product_dtype
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, is_dim_pairs

#: Outputs of a tile along a side, inputs of its patch, and products of a tile and channel.
TILE, PATCH = 2, 4
POINTS = PATCH * PATCH
TAPS = 3

#: What makes points of weights, points of a patch, and outputs of points, along one side.
WEIGHTS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
INPUTS = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
OUTPUTS = ((1, 1, 1, 0), (0, 1, -1, -1))


def _infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    x, panels = inputs
    channels: int = attrs["channels"]
    padding = attrs["padding"]
    shapes = f"conv_winograd: x of shape {x.shape}, panels of shape {panels.shape}"
    if x.ndim != 4 or len(padding) != 2:
        raise ShapeMismatch(f"{shapes}: x is [N, H, W, C]; padding is {padding}")
    wanted = (-(-channels // PANEL), PATCH, PATCH, x.shape[-1], PANEL)
    if channels < 1 or panels.shape != wanted:
        raise ShapeMismatch(f"{shapes}: {channels} channels need panels of shape {wanted}")
    dtype = product_dtype("conv_winograd", x, panels)
    if dtype.kind is not Kind.FLOAT:
        raise ShapeMismatch(f"{shapes}: sums of {dtype} would not be exact; use conv_last")
    sizes = []
    for size, (before, after) in zip(x.shape[1:-1], padding, strict=True):
        if not (known_le(0, before) and known_le(0, after)):
            raise ShapeMismatch(f"{shapes}: padding {padding} is not negative")
        if not known_le(TAPS, size + before + after):
            raise ShapeMismatch(f"{shapes}: {TAPS} taps do not fit {size + before + after}")
        sizes.append(size + before + after - (TAPS - 1))
    return (x.shape[0], *sizes, channels), dtype


def _reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    x, panels = (accumulated(array, dtype) for array in arrays)
    n, height, width, channels = shape
    weights = np.moveaxis(panels, 0, 3)  # [4, 4, C, P, 16]
    weights = weights.reshape(PATCH, PATCH, x.shape[-1], -1)[..., :channels]
    n_lines, n_pixels = -(-height // TILE), -(-width // TILE)
    more = (n_lines * TILE - height, n_pixels * TILE - width)
    sides = [
        (before, after + rest) for (before, after), rest in zip(attrs["padding"], more, strict=True)
    ]
    x = np.pad(x, ((0, 0), *sides, (0, 0)))
    made = np.zeros((n, n_lines, TILE, n_pixels, TILE, channels), x.dtype)
    inputs, outputs = np.array(INPUTS, x.dtype), np.array(OUTPUTS, x.dtype)
    for line in range(n_lines):
        for pixel in range(n_pixels):
            top, left = TILE * line, TILE * pixel
            patch = x[:, top : top + PATCH, left : left + PATCH]
            points = np.einsum("ui,vj,nijc->nuvc", inputs, inputs, patch)
            sums = np.einsum("nuvc,uvco->nuvo", points, weights)
            made[:, line, :, pixel] = np.einsum("yu,xv,nuvo->nyxo", outputs, outputs, sums)
    whole = made.reshape(n, n_lines * TILE, n_pixels * TILE, channels)
    return rounded(np.ascontiguousarray(whole[:, :height, :width]), dtype)


def _reduction(node: Node) -> Reduction:
    """Over (n, p, o, 4, c): its products; of its factors only some."""
    x, panels = node.inputs

    def factors(index: Index) -> tuple[Source, ...]:
        image, *places, out_channel, point, channel = index
        at: list[Dim] = []
        guards = []
        for size, place, pair in zip(x.shape[1:-1], places, node.attr("padding"), strict=True):
            position = place // TILE * TILE + point - pair[0]
            at.append(position)
            guards.append(Guard(position, size))
        panel = out_channel // PANEL
        lane = out_channel - panel * PANEL
        patch = Source(x, (image, *at, channel), tuple(guards))
        return patch, Source(panels, (panel, point, point, channel, lane))

    return summed(node, (PATCH, x.shape[-1]), factors)


define(
    "conv_winograd",
    "convolution",
    (2, 2),
    _infer,
    _reference,
    {"padding": is_dim_pairs, "channels": int},
    reduction=_reduction,
    operand=runs_operand,
    is_packed=True,
    backend="cpu",
)
