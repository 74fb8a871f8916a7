"""Channels last: convolutions are done where channels lie side by side, with packed weights.

    conv(x, w)    permute(conv_last(permute(x), panels of w))

The permutes around it then move on, away from the inputs, through everything that does not mind the
order of axes, until two of them cancel: a graph of convolutions, norms, activations, sums and pools
keeps one at its entry and one at its exit. Weights are packed by ordinary ops on them. Results
differ in the order in which products are summed, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.dtype import Kind
from arenite.ir.compose.basic import pad, reshape
from arenite.ir.dim import Dim, bounds, known_le
from arenite.ir.node import Node
from arenite.ir.ops.define import OPS, make
from arenite.ir.ops.sources import full

Axes = tuple[int, ...]

_CONVOLUTIONS = frozenset({"conv_last", "depthwise_last", "conv_bytes"})
#: Beside elementwise ops and reductions.
_FOLLOWED = frozenset({"pad", "slice", "expand", "concat", "window", "gather", "reshape"})
#: Elements of the last axis from which on work before a reshape fills vectors.
LEAST_LAST = 8
#: Behind these what was made with channels last is looked for.
_SEEN_THROUGH = _FOLLOWED | {"permute"}


def layout(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op == "conv":
        return node if why_left(node) is not None else _with_channels_last(node)
    if node.op == "permute":
        return _composed(node)
    if node.op == "reshape":
        return _reshaped(node)
    if OPS[node.op].family == "elementwise":
        return _before_views(node)
    if OPS[node.op].family != "reduction" and node.op not in _FOLLOWED:
        return node
    moved = next((value for value in node.inputs if _comes_from_conv(value)), None)
    return node if moved is None else _moved_through(node, moved.attr("axes"))


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


def _with_channels_last(node: Node) -> Node:
    x, w = node.inputs
    n_spatial = x.ndim - 2
    groups: int = node.attr("groups")
    first = (0, x.ndim - 1, *range(1, x.ndim - 1))
    taps = w.shape[2:]
    strides, dilations = node.attr("strides"), node.attr("dilations")
    x = unpermuted(x, first)
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
        return permuted(reshape(make("depthwise_last", x, w, **attrs), shape), first)
    made = make("conv_last", x, panels_of(w, groups), channels=w.shape[0], **attrs)
    return permuted(reshape(made, shape), first)


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


# Elementwise ops that move.


def _before_views(node: Node) -> Node:
    """The op before the views of what was made with channels last, and these behind it: permutes,
    and reshapes where other operands are the same for all places."""
    operands: tuple[Node, ...] = node.inputs
    views: list[Node] = []
    while True:
        step = _before_view(operands)
        if step is None:
            break
        view, operands = step
        views.append(view)
    if not views:
        return node
    made = make(node.op, *operands, **dict(node.attrs))
    for view in reversed(views):
        if view.op == "permute":
            made = permuted(made, view.attr("axes"))
        else:
            made = make("reshape", made, shape=view.shape)
    return made


def _before_view(operands: tuple[Node, ...]) -> tuple[Node, tuple[Node, ...]] | None:
    """A view among operands, and what gives the operands when it is done to each."""
    n_permuted = sum(map(_comes_from_conv, operands))
    for view in operands:
        if _comes_from_conv(view):
            axes: Axes = view.attr("axes")
            inner = tuple(unpermuted(value, axes) for value in operands)
            # Operands in different orders would hand a permute to each other for ever.
            if sum(map(_comes_from_conv, inner)) < n_permuted:
                return view, inner
    for view in operands:
        if view.op != "reshape" or not view.ndim or not _was_made_last(view.inputs[0]):
            continue
        reshaped = [_unreshaped(value, view) for value in operands]
        known = tuple(value for value in reshaped if value is not None)
        last = view.shape[-1]
        if len(known) == len(reshaped) and isinstance(last, int) and last >= LEAST_LAST:
            return view, known
    return None


def _unreshaped(node: Node, view: Node) -> Node | None:
    """A node that gives this one when reshaped as the view is; None where there is no simple one.

    The view keeps the last axis, or cuts it into several, and the node is the same along others.
    """
    [x] = view.inputs
    if node is view:
        return x
    if node.op == "full":
        return full(x.shape, node.attr("value"), node.dtype)
    while node.op == "expand":
        [node] = node.inputs
    ones, shape = (1,) * (x.ndim - 1), node.shape
    if view.shape[-1] == x.shape[-1]:
        if any(size != 1 for size in shape[:-1]):
            return None
        row = reshape(node, (*ones, shape[-1]))
    elif view.shape[: len(ones)] == x.shape[:-1]:
        if shape[: len(ones)] != ones:
            return None
        tail = view.shape[len(ones) :]
        row = reshape(make("expand", node, shape=(*ones, *tail)), (*ones, x.shape[-1]))
    else:
        return None
    return make("expand", row, shape=x.shape)


# Permutes that move.


def permuted(node: Node, axes: Axes) -> Node:
    """The node permuted; nothing where that changes nothing."""
    if axes == tuple(range(len(axes))):
        return node
    if node.op == "permute":
        inner = node.attr("axes")
        return permuted(node.inputs[0], tuple(inner[axis] for axis in axes))
    return make("permute", node, axes=axes)


def _composed(node: Node) -> Node:
    [x] = node.inputs
    return permuted(x, node.attr("axes")) if x.op == "permute" else node


def _inverse(axes: Axes) -> Axes:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _moves_nothing(node: Node, axes: Axes) -> bool:
    """Whether permuting a node moves axes of size 1 alone, so that it is a reshape."""
    return [a for a in axes if node.shape[a] != 1] == [
        a for a in range(node.ndim) if node.shape[a] != 1
    ]


def unpermuted(node: Node, axes: Axes) -> Node:
    """A node that gives this one when permuted by `axes`."""
    back = _inverse(axes)
    if node.op == "permute":
        return permuted(node, back)
    shape = tuple(node.shape[axis] for axis in back)
    if node.op == "full":
        return full(shape, node.attr("value"), node.dtype)
    spread = node
    while spread.op == "expand":
        spread = spread.inputs[0]
    if spread is not node:
        return make("expand", _turned(spread, back), shape=shape)
    return _turned(node, back)


def _turned(node: Node, back: Axes) -> Node:
    if _moves_nothing(node, back):
        shape = tuple(node.shape[axis] for axis in back)
        while node.op == "reshape":
            node = node.inputs[0]
        return reshape(node, shape)
    return permuted(node, back)


#: Whether channels were last where a node was made; a node never changes, nor does the answer.
_born: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def _comes_from_conv(node: Node) -> bool:
    """Whether a node is a permute of what was made with channels last."""
    return node.op == "permute" and _was_made_last(node.inputs[0])


def _was_made_last(node: Node) -> bool:
    """Whether a convolution made a node with channels last, or what it is made of."""
    pending = [node]
    while pending:
        current = pending[-1]
        if current in _born:
            pending.pop()
            continue
        family = OPS[current.op].family
        is_followed = family in ("elementwise", "reduction") or current.op in _SEEN_THROUGH
        if current.op in _CONVOLUTIONS or not is_followed:
            _born[current] = current.op in _CONVOLUTIONS
            continue
        # One input is enough, and the first to look at is the one nearest to being known.
        unknown = [value for value in current.inputs if value not in _born]
        if any(_born.get(value, False) for value in current.inputs):
            _born[current] = True
        elif unknown:
            pending.append(unknown[0])
        else:
            _born[current] = False
    return _born[node]


def _moved_through(node: Node, axes: Axes) -> Node:
    """The op on what was permuted by `axes`, and the permute behind it."""
    attrs: dict[str, Any] = dict(node.attrs)
    if node.op == "gather":
        x, indices = node.inputs
        if indices.ndim != 1 or not _comes_from_conv(x):
            return node
        made = make("gather", unpermuted(x, axes), indices, axis=axes[attrs["axis"]])
        return permuted(made, axes)
    inner = [unpermuted(value, axes) for value in node.inputs]
    if OPS[node.op].family == "reduction":
        reduced = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
        gone = tuple(sorted(axes[axis] for axis in reduced))
        attrs = {"axes": gone} if "axes" in attrs else {"axis": gone[0]}
        return permuted(make(node.op, *inner, **attrs), _without(axes, gone))
    if node.op == "window":
        attrs["axes"] = tuple(axes[axis] for axis in attrs["axes"])
        more = range(len(axes), node.ndim)
        return permuted(make("window", *inner, **attrs), (*axes, *more))
    if node.op == "concat":
        attrs["axis"] = axes[attrs["axis"]]
        return permuted(make("concat", *inner, **attrs), axes)
    for name in ("padding", "start", "stop", "step", "shape"):
        if name in attrs:
            attrs[name] = tuple(attrs[name][axis] for axis in _inverse(axes))
    return permuted(make(node.op, *inner, **attrs), axes)


def _without(axes: Axes, gone: Sequence[int]) -> Axes:
    """The order of the axes that are left when some are reduced."""
    kept = [axis for axis in axes if axis not in gone]
    rank = {axis: k for k, axis in enumerate(sorted(kept))}
    return tuple(rank[axis] for axis in kept)


def _reshaped(node: Node) -> Node:
    """A reshape that keeps images and channels, or moves nothing, is done with channels last."""
    [x] = node.inputs
    if not _comes_from_conv(x):
        return node
    axes: Axes = x.attr("axes")
    if _moves_nothing(x.inputs[0], axes):
        return make("reshape", x.inputs[0], shape=node.shape)
    is_first = axes == (0, x.ndim - 1, *range(1, x.ndim - 1))
    if not is_first or node.ndim < 3 or node.shape[:2] != x.shape[:2]:
        return node
    inner = make("reshape", x.inputs[0], shape=(node.shape[0], *node.shape[2:], node.shape[1]))
    return permuted(inner, (0, node.ndim - 1, *range(1, node.ndim - 1)))
