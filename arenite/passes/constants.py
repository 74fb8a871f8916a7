"""What follows from constants alone, and is computed when a program is loaded."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from arenite.ir import OPS, Node

#: Families of ops that make constants of constants.
PURE = frozenset({"elementwise", "movement", "reduction", "indexing"})

#: Whether nodes follow from constants alone; a node never changes, nor does the answer.
_known: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def is_constant(node: Node) -> bool:
    """Whether a node is a constant, or one number everywhere."""
    return OPS[node.op].storage == "constant" or node.op == "full"


def is_known(node: Node) -> bool:
    """Whether a node follows from constants alone."""
    pending = [node]
    while pending:
        current = pending[-1]
        if current in _known:
            pending.pop()
            continue
        if is_constant(current):
            _known[current] = True
            continue
        is_pure = bool(current.inputs) and OPS[current.op].family in PURE
        unknown = [value for value in current.inputs if value not in _known]
        if is_pure and all(_known.get(value, True) for value in current.inputs) and unknown:
            pending.append(unknown[0])
        else:
            _known[current] = is_pure and all(_known.get(value, True) for value in current.inputs)
    return _known[node]
