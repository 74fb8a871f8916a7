"""Channels last: convolutions are done where channels lie side by side.

    conv(x, w)    permute(a back end's own convolution of permute(x), w)

The permutes around it then move on, away from the inputs, through everything that does not mind the
order of axes, until two of them cancel: a graph of convolutions, norms, activations, sums and pools
keeps one at its entry and one at its exit. Results differ in the order in which products are
summed, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from arenite.ir import OPS, Node, full, make
from arenite.ir.compose.basic import reshape

Axes: TypeAlias = tuple[int, ...]

#: Elements of the last axis from which on work before a reshape fills vectors.
LEAST_LAST = 8


def channels_last(
    why_left: Callable[[Node], str | None], convolved: Callable[[Node, Node], Node]
) -> Callable[[Node], Node]:
    """The rewrite of one node. `why_left` says why a convolution keeps its channels second, or
    None; `convolved` makes its result [N, *P, O] of the node and of its x as [N, *S, C]."""

    def layout(node: Node) -> Node:
        """One step, or the node itself."""
        if node.op != "conv":
            return _moved(node)
        if why_left(node) is not None:
            return node
        x = node.inputs[0]
        first = (0, x.ndim - 1, *range(1, x.ndim - 1))
        return permuted(convolved(node, unpermuted(x, first)), first)

    return layout


def _moved(node: Node) -> Node:
    """A node with the permutes of its operands behind it."""
    if node.op == "permute":
        return _composed(node)
    if node.op == "reshape":
        return _reshaped(node)
    if OPS[node.op].family == "elementwise":
        return _before_views(node)
    if not _is_followed(node):
        return node
    moved = next((value for value in node.inputs if _comes_from_conv(value)), None)
    return node if moved is None else _moved_through(node, moved.attr("axes"))


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


def _is_followed(node: Node) -> bool:
    """Whether a permute can go through it."""
    families = ("elementwise", "reduction", "movement")
    # The first rows of one value, as many as another has, are the one movement of two.
    return (OPS[node.op].family in families and node.op != "front") or node.op == "gather"


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
        op = OPS[current.op]
        if not _is_followed(current):
            # Of a back end's own convolutions all have channels last.
            _born[current] = op.family == "convolution" and op.backend != ""
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
