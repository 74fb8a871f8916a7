"""Convolutions of 3x3 taps by constant weights are done by Winograd's method, where it is faster.

    conv_last(x, panels)    conv_winograd(x, points of panels)

It takes 16 products for 36, and weights 16/9 as large, which are transformed when a program is
loaded: in float64, so that each is rounded once. Sums differ in rounding: see docs/stability.md.
"""

from __future__ import annotations

import numpy as np

from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.ops.winograd import PATCH, POINTS, TAPS, TILE, WEIGHTS
from arenite.dtype import FLOAT32, FLOAT64
from arenite.ir import Node, bounds, constant, make
from arenite.passes.constants import is_known

#: How much faster it has to be, by a rough count of cycles.
LEAST_GAIN = 1.3
#: Cycles for a tile's transforms, for each channel in and out, beside 1 for a product of a vector
#: by all points; and for all weights that are read beside those of the convolution.
IN_CYCLES, OUT_CYCLES, WEIGHT_CYCLES = 7.0, 4.5, 1.0
#: Places along a side of an image whose size is open.
USUAL_PLACES = 28
#: Products of numbers in a vector.
LANES = 16


def winograd(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op != "conv_last" or not _fits(node) or gain(node) < LEAST_GAIN:
        return node
    x, panels = node.inputs
    channels, padding = node.attr("channels"), node.attr("padding")
    return make("conv_winograd", x, points_of(panels), channels=channels, padding=padding)


def _fits(node: Node) -> bool:
    x, panels = node.inputs
    return (
        x.ndim == 4
        and x.dtype == panels.dtype == node.dtype == FLOAT32
        and panels.shape[0] == 1
        and panels.shape[2:4] == (TAPS, TAPS)
        and node.attr("strides") == node.attr("dilations") == (1, 1)
        and isinstance(x.shape[-1], int)
        and is_known(panels)
        and not is_known(x)
    )


def gain(node: Node) -> float:
    """About how many times as long the convolution takes as Winograd's method; where sizes are
    open, for an image of a usual size."""
    _, *places, channels = node.shape
    depth, channels = (bounds(size)[1] for size in (node.inputs[0].shape[-1], channels))
    direct, n_tiles = 1.0, 1
    for size, pair in zip(places, node.attr("padding"), strict=True):
        place = size if isinstance(size, int) else USUAL_PLACES
        before, after = (bounds(side)[1] for side in pair)
        length = place + TAPS - 1 - before - after
        # Places at which a tap is on an element: from the one where it comes to the first.
        spans = [(before - tap, before - tap + length) for tap in range(TAPS)]
        direct *= sum(min(max(last, 0), place) - min(max(first, 0), place) for first, last in spans)
        n_tiles *= -(-place // TILE)
    products = depth * channels
    transforms = n_tiles * (IN_CYCLES * depth + OUT_CYCLES * channels)
    spent = products * (n_tiles * POINTS / LANES + WEIGHT_CYCLES) + transforms
    return direct * products / LANES / max(spent, 1.0)


def points_of(panels: Node) -> Node:
    """Panels [1, P, 3, 3, C, 16] as panels of points [P, 4, 4, C, 16]."""
    _, n_panels, _, _, depth, _ = panels.shape
    side = np.array(WEIGHTS)
    factors = constant(np.einsum("ui,vj->uvij", side, side)[None, ..., None, None])
    space = (n_panels, PATCH, PATCH, TAPS, TAPS, depth, PANEL)
    taps = make("reshape", panels, shape=(n_panels, 1, 1, TAPS, TAPS, depth, PANEL))
    wide = make("expand", make("cast", taps, dtype=FLOAT64), shape=space)
    product = make("mul", wide, make("expand", factors, shape=space))
    return make("cast", make("sum", product, axes=(3, 4)), dtype=panels.dtype)
