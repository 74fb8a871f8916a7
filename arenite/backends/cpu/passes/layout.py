"""Convolutions with channels last, and weights packed as a kernel walks them.

    conv(x[N, C, *S], w)    conv_last(x[N, *S, C], panels of w), or depthwise_last

Weights are packed by ordinary ops on them; where permutes go is `passes/channels_last.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.dtype import Kind
from arenite.ir import Dim, Node, bounds, known_le, make
from arenite.ir.compose.basic import pad, reshape
from arenite.passes.channels_last import channels_last, permuted


def why_left(node: Node) -> str | None:
    """Why a convolution keeps its channels second; None where it does not."""
    x, w = node.inputs
    if node.dtype.kind is not Kind.FLOAT or x.dtype.kind is not Kind.FLOAT:
        return f"{x.dtype} has no micro-kernel"
    if not all(isinstance(size, int) for size in w.shape):
        return f"weights of shape {w.shape} cannot be packed: their sizes are not fixed"
    if not isinstance(x.shape[1], int):
        return f"x of shape {x.shape} has channels whose number is not fixed"
    if 0 in w.shape:
        return f"weights of shape {w.shape} hold nothing"
    return None


def _convolved(node: Node, x: Node) -> Node:
    w = node.inputs[1]
    n_spatial = x.ndim - 2
    groups: int = node.attr("groups")
    taps = w.shape[2:]
    strides, dilations = node.attr("strides"), node.attr("dilations")
    padding: list[tuple[Dim, Dim]] = list(node.attr("padding"))
    outside: list[tuple[Dim, Dim]] = [(0, 0)] * n_spatial
    for axis in range(n_spatial - 1):
        if not _is_always_inside(x.shape[1 + axis], taps[axis], dilations[axis], padding[axis]):
            outside[axis], padding[axis] = padding[axis], (0, 0)
    x = pad(x, ((0, 0), *outside, (0, 0)))
    kept = _kept_axes(x.shape[1:-1], taps, padding)
    if len(kept) < n_spatial:
        x = reshape(x, (x.shape[0], *(x.shape[1 + axis] for axis in kept), x.shape[-1]))
        w = reshape(w, (*w.shape[:2], *(taps[axis] for axis in kept)))
        taps = w.shape[2:]
    attrs = {
        "strides": tuple(strides[axis] for axis in kept),
        "dilations": tuple(dilations[axis] for axis in kept),
        "padding": tuple(padding[axis] for axis in kept),
    }
    shape = (node.shape[0], *node.shape[2:], node.shape[1])
    if groups == w.shape[0] and w.shape[1] == 1 and groups > 1:
        w = make("reshape", w, shape=(groups, *taps))
        w = permuted(w, (*range(1, 1 + len(kept)), 0))
        return reshape(make("depthwise_last", x, w, **attrs), shape)
    made = make("conv_last", x, panels_of(w, groups), channels=w.shape[0], **attrs)
    return reshape(made, shape)


def _kept_axes(sizes: Sequence[Dim], taps: Sequence[Dim], padding: Sequence[object]) -> list[int]:
    """The spatial axes that a convolution walks: those of one place and one tap it does not."""
    axes = range(len(sizes))
    return [a for a in axes if (sizes[a], taps[a], padding[a]) != (1, 1, (0, 0))] or [0]


def panels_of(w: Node, groups: int) -> Node:
    """Weights [O, C/groups, *K] as panels [groups, P, *K, C/groups, 16]."""
    channels, depth, *taps = (bounds(size)[1] for size in w.shape)
    own = channels // groups
    n_panels = -(-own // PANEL)
    w = make("reshape", w, shape=(groups, own, depth, *taps))
    w = pad(w, ((0, 0), (0, n_panels * PANEL - own), *[(0, 0)] * (w.ndim - 2)))
    w = make("reshape", w, shape=(groups, n_panels, PANEL, depth, *taps))
    return permuted(w, (0, 1, *range(4, w.ndim), 3, 2))


def _is_always_inside(size: Dim, taps: Dim, dilation: int, pair: tuple[Dim, Dim]) -> bool:
    """Whether every place sees some element of the image."""
    reach = dilation * (taps - 1)
    return pair == (0, 0) or (
        all(known_le(side, reach) for side in pair) and known_le(dilation, size)
    )


layout = channels_last(why_left, _convolved)
