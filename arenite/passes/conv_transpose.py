"""Transposed convolutions with a stride: one plain convolution that makes all phases at once.

    every output place p gets the taps k = p (mod stride), so there are `stride` kinds of places,
    each a convolution of the input with every stride-th tap; the kinds are channels of one
    convolution, dealt out to their places afterwards

            x: a b c        taps 0 1 2 3, stride 2      places 0 2 4 6: taps 0, 2
                                                        places 1 3 5 7: taps 1, 3

No zero is multiplied but where the stride does not divide the kernel.
"""

from __future__ import annotations

from math import prod

from arenite.dtype import Kind
from arenite.ir import Dim, Node, bounds, make, maximum
from arenite.ir.compose.basic import pad, slice_all


def transposed(node: Node) -> Node:
    """A conv_transpose with a stride and without dilation as a conv; all else as it is."""
    if node.op != "conv_transpose" or node.dtype.kind is not Kind.FLOAT:
        return node
    x, w = node.inputs
    strides: tuple[int, ...] = node.attr("strides")
    padding: tuple[tuple[Dim, Dim], ...] = node.attr("padding")
    if all(s == 1 for s in strides) or any(d != 1 for d in node.attr("dilations")):
        return node
    if not all(isinstance(n, int) for n in (*w.shape, *(side for p in padding for side in p))):
        return node
    n_spatial, groups = len(strides), node.attr("groups")
    taps = [-(-bounds(k)[1] // s) for k, s in zip(w.shape[2:], strides, strict=True)]
    conv = make(
        "conv",
        x,
        _phases(w, groups, strides, taps),
        strides=(1,) * n_spatial,
        padding=tuple((tap - 1, tap - 1) for tap in taps),
        dilations=(1,) * n_spatial,
        groups=groups,
    )
    # [n, *places, group, *phases, channel] to [n, place, phase, ..., group, channel]
    y = make("permute", conv, axes=(0, *range(2, conv.ndim), 1))
    places = y.shape[1:-1]
    y = make("reshape", y, shape=(x.shape[0], *places, groups, *strides, w.shape[1]))
    pairs = [axis for k in range(n_spatial) for axis in (1 + k, 2 + n_spatial + k)]
    y = make("permute", y, axes=(0, *pairs, 1 + n_spatial, y.ndim - 1))
    sizes = tuple(place * s for place, s in zip(places, strides, strict=True))
    y = make("reshape", y, shape=(x.shape[0], *sizes, groups * w.shape[1]))
    y = _cropped(y, node.shape[2:], [pair[0] for pair in padding])
    return make("permute", y, axes=(0, y.ndim - 1, *range(1, y.ndim - 1)))


def _phases(w: Node, groups: int, strides: tuple[int, ...], taps: list[int]) -> Node:
    """[C, O/g, *K] as [g * phases * O/g, C/g, *taps], the taps of every phase backwards."""
    per_group, out = w.shape[0] // groups, w.shape[1]
    more = [
        (0, tap * s - bounds(k)[1]) for tap, s, k in zip(taps, strides, w.shape[2:], strict=True)
    ]
    w = pad(w, ((0, 0), (0, 0), *more))
    split = [number for pair in zip(taps, strides, strict=True) for number in pair]
    w = make("reshape", w, shape=(groups, per_group, out, *split))
    n = len(taps)
    taps_at, phases_at = [3 + 2 * k for k in range(n)], [4 + 2 * k for k in range(n)]
    w = make("permute", w, axes=(0, *phases_at, 2, 1, *taps_at))
    kept = w.ndim - n
    if any(tap != 1 for tap in taps):
        starts = (*[0] * kept, *(tap - 1 for tap in taps))
        w = slice_all(w, starts, (*w.shape[:kept], *[-1] * n), (*[1] * kept, *[-1] * n))
    return make("reshape", w, shape=(groups * prod(strides) * out, per_group, *taps))


def _cropped(y: Node, sizes: tuple[Dim, ...], first: list[Dim]) -> Node:
    """Places from `first` on, as many as `sizes` say; beyond the last there is nothing but 0."""
    short = [
        maximum(start + size - have, 0)
        for start, size, have in zip(first, sizes, y.shape[1:-1], strict=True)
    ]
    y = pad(y, ((0, 0), *((0, number) for number in short), (0, 0)))
    ends = (start + size for start, size in zip(first, sizes, strict=True))
    return slice_all(y, (0, *first, 0), (y.shape[0], *ends, y.shape[-1]), (1,) * y.ndim)
