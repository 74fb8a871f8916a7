"""What a loop carries: its structure, where it begins, and the types it keeps.

A Python number in it is weak, as everywhere: it takes the dtype of what the body makes of it. To
find that, the body is traced once more, before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arenite.dtype import INT64, DType
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir import Expr, Node, full, parameter, typed
from arenite.ir import size as size_node
from arenite.ir.compose.basic import broadcast_to, cast
from arenite.ir.regions import rebuilt
from arenite.tensor.base import described, node_of, operand_of, widened_at
from arenite.tensor.creation import wrap
from arenite.tensor.promote import (
    cast_all,
    common_dtype,
    is_weak,
    mark_weak,
    number_like,
    with_number,
)
from arenite.tensor.structure import flatten, need_same, unflatten
from arenite.tensor.tracing import replace_values, tracing_body


class Carry:
    """The state of a loop; `grows` says that its sizes may change."""

    def __init__(self, what: str, initial: Any, grows: bool) -> None:
        self.what = what
        self.grows = grows
        self.structure, leaves = flatten(initial)
        self.nodes = [node_of(leaf) for _, leaf in leaves]
        operands = [operand_of(leaf) for _, leaf in leaves]
        # A bool has one dtype only.
        self._weak = {
            k: operand
            for k, operand in enumerate(operands)
            if is_weak(operand) and not isinstance(operand, bool)
        }

    def settle(self, body: Callable[[Any], Any]) -> None:
        """Find the dtypes that Python numbers get: `body` is what follows on a state."""
        is_settled = not self._weak
        while not is_settled:
            with tracing_body():
                given = [parameter(node.shape, node.dtype) for node in self.nodes]
                structure, leaves = flatten(body(self.wrapped(given)))
            if structure != self.structure:
                return  # which is said when it is built
            is_settled = True
            for k in list(self._weak):
                is_settled &= self._settle_one(k, leaves[k][1])

    def _settle_one(self, k: int, returned: Any) -> bool:
        """Whether a number keeps the dtype it has, given what the body makes of it."""
        number, operand, known = self._weak[k], operand_of(returned), self.nodes[k].dtype
        if is_weak(operand):
            following = _node_of_weak(operand, known).dtype
        else:
            assert isinstance(operand, Node)
            following = operand.dtype
            del self._weak[k]
        kind = 1 if isinstance(number, Expr) else number_like(number)
        if following == known or with_number(following, kind) != following:
            return True  # or is refused, when it is built
        [begins] = cast_all([number], following)
        self.nodes[k] = begins if isinstance(begins, Node) else full((), begins, following)
        return False

    def wrapped(self, nodes: Sequence[Node]) -> Any:
        """The structure, of parameters or of results; what began as a number counts as one."""
        for k in self._weak:
            if nodes[k].op not in ("constant", "full", "size"):  # which others have too
                mark_weak(nodes[k])
        return unflatten(self.structure, [wrap(node) for node in nodes])

    def before(self, function: Callable[[Any], Node]) -> Node:
        """What a function gives for the state that the loop begins with."""
        if not self._weak:
            return function(self.wrapped(self.nodes))
        given = [*self.nodes]
        for k in self._weak:
            given[k] = parameter(self.nodes[k].shape, self.nodes[k].dtype)
        mapping = {given[k]: self.nodes[k] for k in self._weak}
        results = function(self.wrapped(given))
        replace_values(mapping)
        return rebuilt([results], mapping)[results]

    def following(self, returned: Any, carried: Sequence[Node]) -> list[Node]:
        """What the body makes of the state, of the types it had."""
        structure, leaves = flatten(returned)
        need_same(f"the state that the body of {self.what} returns", structure, self.structure)
        nodes = []
        for (path, leaf), one in zip(leaves, carried, strict=True):
            what = f"the state{at(path)} that the body of {self.what} returns"
            node = as_type(what, leaf, one)
            # Which sizes change, and that the number of axes does not, is looked at by `growing`.
            if not self.grows or node.dtype != one.dtype:
                need_like(what, node, one, "; with grows=True sizes may change")
            nodes.append(node)
        return nodes


def at(path: str) -> str:
    return f" at {path}" if path else ""


def need_like(what: str, node: Node, wanted: Node, hint: str = "") -> None:
    """The same shape and dtype, or an error that says which of them differs."""
    if node.dtype != wanted.dtype:
        raise TypeMismatch(
            f"{what} is {described(node)}, not {described(wanted)}: its dtype is {node.dtype}, "
            f"not {wanted.dtype}{widened_at(node)}; cast it with astype"
        )
    if node.shape != wanted.shape:
        raise ShapeMismatch(
            f"{what} is {described(node)}, not {typed(wanted.shape, wanted.dtype)}: its shape is "
            f"{node.shape}, not {wanted.shape}{hint if node.ndim == wanted.ndim else ''}"
        )


def as_type(what: str, leaf: Any, like: Node) -> Node:
    """A node; a number has the type of what it stands for, which must be able to hold it."""
    operand = operand_of(leaf)
    if not is_weak(operand):
        assert isinstance(operand, Node)
        return operand
    number = 1 if isinstance(operand, Expr) else number_like(operand)
    if with_number(like.dtype, number) != like.dtype:
        shown = described(operand) if isinstance(operand, Node) else f"{operand!r}"
        raise TypeMismatch(
            f"{what} is {shown}, not {described(like)}, which cannot hold it; cast one with astype"
        )
    [held] = cast_all([operand], like.dtype)
    if isinstance(held, Node):
        return held if isinstance(operand, Node) else broadcast_to(held, like.shape)
    return full(like.shape, held, like.dtype)


def of_one_type(what: str, a: Any, b: Any) -> tuple[Node, Node]:
    """Both as nodes; a number takes the type of the other."""
    one, other = operand_of(a), operand_of(b)
    if is_weak(one) and is_weak(other):
        nodes = [node_of(a), node_of(b)]
        dtype = common_dtype([*nodes])
        return cast(nodes[0], dtype), cast(nodes[1], dtype)
    if is_weak(one):
        node = node_of(b)
        return as_type(what.replace("false", "true"), a, node), node
    node = node_of(a)
    return node, as_type(what, b, node)


def _node_of_weak(operand: Any, known: DType) -> Node:
    """What a weak operand is beside a weak value of a dtype."""
    if isinstance(operand, Expr):
        operand = size_node(operand, INT64)
    number = number_like(operand)
    return full((), 0, with_number(known, number))
