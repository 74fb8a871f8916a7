"""Roots: which nodes are written to memory, and the reason for each.

Every other node is *inlined*: computed anew wherever an element of it is needed. That costs nothing
for a view and little for cheap arithmetic, and saves the memory it would pass through.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import NamedTuple

from arenite.ir.dim import Dim, known_le, product
from arenite.ir.graph import Graph
from arenite.ir.node import Node, nbytes_of
from arenite.ir.ops.access import (
    divisors,
    is_affine,
    is_elementwise,
    is_view,
    reshaped_index,
    space_vars,
)
from arenite.ir.ops.define import OPS
from arenite.passes.constants import is_known

#: Operations in one kernel at the most, so that no file drives the size of generated code.
MAX_OPS = 96
#: Pieces that one element is chosen from, in all views it is seen through: each is looked at for
#: every element, so that writing the element once is cheaper from some number on.
MAX_PIECES = 8
#: Views one through another: an index is mapped through all of them for each user.
MAX_VIEWS = 64
#: Operations in the parts of a concat that is written, each of which has a loop of its own.
MAX_PART_OPS = 4 * MAX_OPS
#: Bytes of what follows from constants, at the most, to be put together once and not in each run.
MAX_KNOWN_NBYTES = 1 << 16
#: A value used more than once is computed anew where that takes no more than this.
CHEAP_OPS = 4


def is_copy(node: Node) -> bool:
    """Whether a node does nothing but write what it reads once more."""
    return node.op == "reshape" and node.shape == node.inputs[0].shape


def is_in_memory(node: Node) -> bool:
    """Whether a node exists before anything runs: an argument, a constant, an array."""
    return OPS[node.op].storage in ("given", "constant")


def is_made_up(node: Node) -> bool:
    """Whether a node takes no memory: it is made up where it is needed."""
    return OPS[node.op].storage == "made up"


def computed_by(node: Node, written: Container[Node]) -> Node:
    """What a kernel for the node computes: itself, or what it permutes, if that is not written and
    can be made in this order."""
    if node.op == "permute" and OPS[node.inputs[0].op].writes_views:
        return node if node.inputs[0] in written else node.inputs[0]
    return node


def _turned(graph: Graph, users: Mapping[Node, tuple[Node, ...]]) -> dict[Node, Node]:
    """Attentions and the like that only one permute reads, with rows as they are: what it makes is
    written."""
    found = {}
    results = set(graph.results)
    for node in graph.nodes:
        if OPS[node.op].writes_views and len(users[node]) == 1 and node not in results:
            [user] = users[node]
            if user.op == "permute" and user.attr("axes")[-1] == user.ndim - 1:
                found[node] = user
    return found


def choose_roots(graph: Graph, needed: Collection[Node] = ()) -> dict[Node, str]:
    """The nodes that are written to memory, `needed` among them, and why, in topological order."""
    users = graph.users()
    outputs = {*graph.outputs, *needed}
    becoming = {value for _, value in graph.updates}
    roots: dict[Node, str] = {}
    inlined: dict[Node, _Inlined] = {}
    turned = _turned(graph, users)
    for node in graph.nodes:
        if is_in_memory(node) or node in turned:
            inlined[node] = _Inlined(node)
            continue
        made = _Inlined.of(node, [inlined[value] for value in node.inputs])
        reason = _needed_in_memory(node, users[node], outputs)
        if node in becoming and not is_copy(node):
            reason = "what a state becomes"
        if node.op == "permute" and node.inputs[0] in turned:
            reason = f"{node.inputs[0].op} writes its results in this order"
        kept = node
        if reason is None:
            reason = _too_many_pieces(made) or _known_before(node, made, users[node])
        if reason is None:
            reason = _too_dear(node, made, users[node])
            # A view costs nothing: what it shows is what is worth keeping.
            kept = node if is_made_up(made.behind) else made.behind
        if reason is not None:
            if node.op == "concat" and kept is node and made.ops > MAX_PART_OPS:
                _write_dearest(node, inlined, roots)
            roots.setdefault(kept, reason)
            made = made.seen_from(made if kept is node else inlined[kept], kept, node)
            inlined[kept] = _Inlined(kept)
        inlined[node] = made
        is_turned = node.op == "reshape" and not inlined[node.inputs[0]].is_flat
        # The loops of what is written may be cut where it is divided; pieces have loops of their
        # own where they are written.
        is_cut = node in roots and is_turned and not inlined[node.inputs[0]].is_pieced
        if is_turned and not _stays_affine(node, is_cut=is_cut):
            source = node.inputs[0]
            if source not in roots:
                roots[source] = "its reshape is not affine, so it is read from memory in order"
                inlined[node] = _Inlined(source)
    # A reshape may have made an earlier node a root.
    return {node: roots[node] for node in graph.nodes if node in roots}


class _Inlined(NamedTuple):
    """What it takes to compute one element of a node anew."""

    behind: Node  # whose elements a chain of views shows, or a view that has several sources
    ops: int = 0
    pieces: int = 0  # that an element is chosen from
    views: int = 0  # the longest way through views
    is_flat: bool = True  # whether its elements are in the order of those it is made of
    is_pieced: bool = False  # whether it is a view with elements from several places, or from none

    @staticmethod
    def of(node: Node, parts: Sequence[_Inlined]) -> _Inlined:
        """Of a node that is made of these; what two of them share is computed for each."""
        shown = is_view(node)
        op = OPS[node.op]
        joins = op.is_pieced
        is_one = shown and len(node.inputs) == 1 and not is_in_memory(node.inputs[0])
        ops = 0 if shown or is_made_up(node) else op.cost
        pieces = len(parts) if joins else 0
        views = 0
        is_flat = is_elementwise(node) or op.keeps_order
        for part in parts:
            ops += part.ops
            pieces += part.pieces
            views = max(views, part.views)
            is_flat = is_flat and part.is_flat
        return _Inlined(
            parts[0].behind if is_one else node,
            ops,
            pieces,
            views + shown,
            is_flat,
            joins or (shown and parts[0].is_pieced),
        )

    def seen_from(self, below: _Inlined, kept: Node, node: Node) -> _Inlined:
        """Once `kept`, which took what `below` says, is written, and `node` is it or a view of
        it."""
        return self._replace(
            behind=kept,
            ops=0,
            pieces=self.pieces - below.pieces,
            views=self.views - below.views,
            is_flat=self.is_flat or kept is node,
        )


def _too_many_pieces(made: _Inlined) -> str | None:
    """Why looking for each element in all places where it may be would be a waste."""
    if made.pieces > MAX_PIECES:
        return f"each element would be chosen from {made.pieces} pieces wherever it is read"
    return f"more than {MAX_VIEWS} views of views" if made.views > MAX_VIEWS else None


def _known_before(node: Node, made: _Inlined, users: tuple[Node, ...]) -> str | None:
    """Why choosing between pieces in each run would be a waste."""
    is_read = any(user.op == "expand" or not is_known(user) for user in users)
    is_last = made.pieces > 0 and is_read and is_known(node)
    if is_last and known_le(nbytes_of(node.shape, node.dtype), MAX_KNOWN_NBYTES):
        return "it follows from constants, whose pieces are put together once"
    return None


def _write_dearest(node: Node, inlined: dict[Node, _Inlined], roots: dict[Node, str]) -> None:
    """Have parts of a concat written before it, the dearest first, until its kernel is small."""
    parts = sorted(dict.fromkeys(node.inputs), key=lambda part: -inlined[part].ops)
    ops = sum(inlined[part].ops for part in parts)
    for part in parts:
        if ops <= MAX_PART_OPS:
            break
        ops -= inlined[part].ops
        kept = part if is_made_up(inlined[part].behind) else inlined[part].behind
        roots.setdefault(kept, f"more than {MAX_PART_OPS} operations in the parts of one concat")
        inlined[part] = inlined[part].seen_from(inlined[kept], kept, part)
        inlined[kept] = _Inlined(kept) if kept is not part else inlined[part]


def _needed_in_memory(node: Node, users: tuple[Node, ...], outputs: set[Node]) -> str | None:
    """Why the node itself must be written, whatever it costs."""
    if is_copy(node):
        return "a copy: what it reads is a value of its own, handed on as another"
    if node in outputs:
        return "an output of the graph"
    if OPS[node.op].reduction is not None:
        return "a reduction is complete only when all of its elements are in"
    if not is_elementwise(node) and not is_view(node) and not is_made_up(node):
        return f"{node.op} is a kernel of its own"
    reasons = (_operand(user, node) for user in users)
    return next((reason for reason in reasons if reason is not None), None)


def _operand(user: Node, node: Node) -> str | None:
    """Why a user reads a node from memory."""
    op = OPS[user.op]
    if op.operand is not None:
        return op.operand(user, node)
    is_computed = is_elementwise(user) or is_view(user) or op.reduction is not None
    return None if is_computed else f"{user.op} reads it from memory"


def _too_dear(node: Node, made: _Inlined, users: tuple[Node, ...]) -> str | None:
    """Why computing the node anew wherever it is needed would be a waste."""
    ops = made.ops
    if ops > MAX_OPS:
        return f"more than {MAX_OPS} operations in one kernel"
    if len(users) > 1 and ops > CHEAP_OPS and not _is_dealt_out(node, users):
        return f"used {len(users)} times and not cheap to compute anew"
    if node.op == "cast" and node.dtype.bits <= 8 < node.inputs[0].dtype.bits and ops > CHEAP_OPS:
        return "fewer bytes than anything it is made of, and not cheap to compute anew"
    for user in users:
        if user.op == "expand" and ops > CHEAP_OPS:
            return "spread over more elements than it has, and not cheap to compute anew"
        if user.op == node.op == "concat":
            return "a concat of it would choose between its parts for every element"
        op = OPS[user.op]
        if (op.rereads or op.is_contraction) and ops > 0:
            return f"each element is read many times by {user.op}"
        if op.is_contraction and made.is_pieced:
            return f"{user.op} would choose between pieces for every product"
    return None


def _is_dealt_out(node: Node, users: tuple[Node, ...]) -> bool:
    """Whether users only show parts that together have no more elements than the node: computing
    each part where it is needed then computes nothing twice."""
    if any(user.op != "slice" for user in users):
        return False
    shown: Dim = sum((product(user.shape) for user in users), start=0)
    return known_le(shown, product(node.shape))


def _stays_affine(node: Node, *, is_cut: bool) -> bool:
    """Whether a reshape maps indices without dividing them, or where its axes may be cut, only by
    the length of the parts that one would be cut into."""
    variables = space_vars(node.shape)
    inner = reshaped_index(variables, node.shape, node.inputs[0].shape)
    if not is_cut:
        return all(is_affine(position, variables) for position in inner)
    for var in variables:
        found = [divisors(position, var) for position in inner]
        lengths = {length for one in found if one is not None for length in one}
        if None in found or len(lengths) > 1:
            return False
    return True
