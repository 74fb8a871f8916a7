"""Transposed convolutions with a stride: plain convolutions that make all phases at once.

    every output place p gets the taps k = p (mod stride), so there are `stride` kinds of places,
    each a convolution of the input with every stride-th tap; the kinds are channels of one
    convolution, dealt out to their places afterwards

            x: a b c        taps 0 1 2 3, stride 2      places 0 2 4 6: taps 0, 2
                                                        places 1 3 5 7: taps 1, 3

Where the stride does not divide the kernel, the first phases have a tap more than the others, and
a convolution of their own: a tap of zero in its place would make NaN of infinities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import gcd, prod

from arenite.dtype import Kind
from arenite.ir import Dim, Node, bounds, full, make, maximum
from arenite.ir.compose.basic import concat, pad, slice_all, slice_axis


@dataclass(frozen=True, slots=True)
class _Phases:
    """Phases of an axis side by side that have as many taps each."""

    first: int
    count: int
    taps: int


def transposed(node: Node) -> Node:
    """A conv_transpose with a stride and without dilation as convs; all else as it is."""
    if node.op != "conv_transpose" or node.dtype.kind is not Kind.FLOAT:
        return node
    x, w = node.inputs
    strides: tuple[int, ...] = node.attr("strides")
    padding: tuple[tuple[Dim, Dim], ...] = node.attr("padding")
    if all(s == 1 for s in strides) or any(d != 1 for d in node.attr("dilations")):
        return node
    if not all(isinstance(n, int) for n in (*w.shape, *(side for p in padding for side in p))):
        return node
    y = _all_phases(x, w, strides, node.attr("groups"))
    # [n, place, part, phase, ..., group, channel] to [n, place, ..., channel]
    places = y.shape[1:-2:3]
    sizes = tuple(place * s for place, s in zip(places, strides, strict=True))
    y = make("reshape", y, shape=(x.shape[0], *sizes, node.shape[1]))
    y = _cropped(y, node.shape[2:], [pair[0] for pair in padding])
    return make("permute", y, axes=(0, y.ndim - 1, *range(1, y.ndim - 1)))


def _all_phases(x: Node, w: Node, strides: tuple[int, ...], groups: int) -> Node:
    """[n, place, part, phase, ..., group, channel] of an input and weights."""
    most = [-(-bounds(k)[1] // s) for k, s in zip(w.shape[2:], strides, strict=True)]
    # [group, channel of x, channel, tap, phase, ...]; what is behind the last tap is not looked at.
    more = [
        (0, tap * s - bounds(k)[1]) for tap, s, k in zip(most, strides, w.shape[2:], strict=True)
    ]
    split = [number for pair in zip(most, strides, strict=True) for number in pair]
    shape = (groups, w.shape[0] // groups, w.shape[1], *split)
    taps = make("reshape", pad(w, ((0, 0), (0, 0), *more)), shape=shape)
    kinds = [_kinds(bounds(k)[1], s) for k, s in zip(w.shape[2:], strides, strict=True)]
    convs = {some: _convolved(x, taps, some, most) for some in product(*kinds)}
    # In parts of as many phases each, which one concat puts side by side.
    counts = [gcd(*(one.count for one in some)) for some in kinds]
    parts = [
        [(one, at) for one in some for at in range(0, one.count, count)]
        for some, count in zip(kinds, counts, strict=True)
    ]
    every = [
        _part(convs[tuple(one for one, _ in some)], [at for _, at in some], counts)
        for some in product(*parts)
    ]
    n, places = len(strides), every[0].shape[1 : 1 + len(strides)]
    y = concat(every, 1 + n)
    shape = (x.shape[0], *places, *map(len, parts), groups, *counts, w.shape[1])
    y = make("reshape", y, shape=shape)
    dealt_out = [axis for k in range(n) for axis in (1 + k, 1 + n + k, 2 + 2 * n + k)]
    return make("permute", y, axes=(0, *dealt_out, 1 + 2 * n, y.ndim - 1))


def _part(conv: Node, first: Sequence[int], counts: Sequence[int]) -> Node:
    """[n, *places, 1, group, *phases, channel] of so many phases of a convolution, from `first`."""
    n = len(counts)
    for k, (at, count) in enumerate(zip(first, counts, strict=True)):
        conv = slice_axis(conv, 2 + n + k, at, at + count)
    return make("reshape", conv, shape=(*conv.shape[: 1 + n], 1, *conv.shape[1 + n :]))


def _kinds(n_taps: int, stride: int) -> list[_Phases]:
    """The phases of an axis, by how many taps they have."""
    counts = [len(range(phase, n_taps, stride)) for phase in range(stride)]
    kinds: list[_Phases] = []
    for taps, same in groupby(counts):
        kinds.append(_Phases(sum(one.count for one in kinds), len(list(same)), taps))
    return kinds


def _convolved(x: Node, taps: Node, phases: Sequence[_Phases], most: Sequence[int]) -> Node:
    """[n, *places, group, *phases, channel] of some phases."""
    groups, _, out = taps.shape[:3]
    n = len(phases)
    counts = tuple(one.count for one in phases)
    if any(one.taps == 0 for one in phases):  # nothing is added to these
        places = (x.shape[2 + k] + most[k] - 1 for k in range(n))
        return full((x.shape[0], *places, groups, *counts, out), 0.0, x.dtype)
    conv = make(
        "conv",
        x,
        _weights(taps, phases),
        strides=(1,) * n,
        padding=tuple((one.taps - 1, tap - 1) for one, tap in zip(phases, most, strict=True)),
        dilations=(1,) * n,
        groups=groups,
    )
    y = make("permute", conv, axes=(0, *range(2, conv.ndim), 1))
    return make("reshape", y, shape=(*y.shape[:-1], groups, *counts, out))


def _weights(taps: Node, phases: Sequence[_Phases]) -> Node:
    """[group * phases * channel, channel of x, *taps] of some phases, their taps backwards."""
    groups, per_group, out = taps.shape[:3]
    n = len(phases)
    ends = [end for one in phases for end in (one.taps, one.first + one.count)]
    starts = [start for one in phases for start in (0, one.first)]
    w = slice_all(taps, (0, 0, 0, *starts), (*taps.shape[:3], *ends), (1,) * taps.ndim)
    taps_at, phases_at = [3 + 2 * k for k in range(n)], [4 + 2 * k for k in range(n)]
    w = make("permute", w, axes=(0, *phases_at, 2, 1, *taps_at))
    kept, numbers = w.ndim - n, w.shape[w.ndim - n :]
    if any(number != 1 for number in numbers):
        starts = [*[0] * kept, *(bounds(number)[1] - 1 for number in numbers)]
        w = slice_all(w, starts, (*w.shape[:kept], *[-1] * n), (*[1] * kept, *[-1] * n))
    n_phases = prod(one.count for one in phases)
    return make("reshape", w, shape=(groups * n_phases * out, per_group, *numbers))


def _cropped(y: Node, sizes: tuple[Dim, ...], first: list[Dim]) -> Node:
    """Places from `first` on, as many as `sizes` say; beyond the last there is nothing but 0."""
    short = [
        maximum(start + size - have, 0)
        for start, size, have in zip(first, sizes, y.shape[1:-1], strict=True)
    ]
    y = pad(y, ((0, 0), *((0, number) for number in short), (0, 0)))
    ends = (start + size for start, size in zip(first, sizes, strict=True))
    return slice_all(y, (0, *first, 0), (y.shape[0], *ends, y.shape[-1]), (1,) * y.ndim)
