"""Control flow on tensors: cond, while_loop, fori_loop and scan, with JAX's meaning.

Functions are called once, with tensors that stand for what they get; what they return says what is
computed, and none of it is computed yet. Values are tensors, or tuples, lists and dicts of them.
What a body uses from outside needs no mention. Nothing returns to Python between iterations.

With `grows`, sizes of the state may change from iteration to iteration (not its number of axes); a
body is called again for each axis that turns out to. Such sizes have no bound, so a program is cut
there into segments, each planned when it is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from arenite.dtype import DType
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.compose.basic import cast, reshape
from arenite.ir.dim import Expr
from arenite.ir.growing import FOR_EVER, Body, Carried, growing
from arenite.ir.node import Node, typed
from arenite.ir.ops import full, make
from arenite.ir.ops import size as size_node
from arenite.ir.regions import rebuilt
from arenite.tensor.base import ORIGINS, Base, described, node_of, operand_of
from arenite.tensor.creation import wrap
from arenite.tensor.promote import BOOL, INT64, INTEGERS
from arenite.tensor.structure import Leaves, need_same, put_together, taken_apart
from arenite.tensor.tracing import choose_states, scope, side, tracing_body, values_now

if TYPE_CHECKING:
    from arenite.tensor.state import State


def cond(predicate: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
    """What `then` gives where the predicate holds, else what `otherwise` gives.

    Both are functions of the operands, or values; what they give has one structure, shapes and
    dtypes. Only what the predicate chooses is computed: an index out of range on the other side
    raises nothing.
    """
    condition = _truth(predicate, "the predicate of cond")
    before = values_now()
    with side(before) as states:
        structure, one = taken_apart(then(*operands) if callable(then) else then)
    with side(before) as other_states:
        given = otherwise(*operands) if callable(otherwise) else otherwise
        other_structure, other = taken_apart(given)
    need_same("what cond gives for false", other_structure, structure)
    chosen = []
    for (path, a), (_, b) in zip(one, other, strict=True):
        yes, no = _of_one_type(a, b)
        _need_like(f"what cond gives for false{_at(path)}", no, yes)
        chosen.append(wrap(make("if", condition, yes, no)))
    choose_states(condition, states, other_states)
    return put_together(structure, chosen)


def while_loop(
    condition: Callable[[Any], Any],
    body: Callable[[Any], Any],
    initial: Any,
    *,
    grows: bool = False,
) -> Any:
    """`state = body(state)` as long as `condition(state)` holds; the last state."""
    carry = _Carry("while_loop", initial, grows)
    first = _truth(condition(carry.wrapped(carry.nodes)), "the condition of while_loop")

    def build(_: Node, carried: Sequence[Node]) -> Body:
        following = carry.following(body(carry.wrapped(carried)), carried)
        goes_on = _truth(condition(carry.wrapped(following)), "the condition of while_loop")
        return Body(following, goes_on=goes_on)

    trips = full((), FOR_EVER, INT64)
    return carry.wrapped(_looped(trips, carry.nodes, build, first)[0])


def fori_loop(
    trips: Any, body: Callable[[Any, Any], Any], initial: Any, *, grows: bool = False
) -> Any:
    """`state = body(i, state)` for i from 0 to trips - 1; the last state.

    `trips` is a number, a size (a Var, or an expression of Vars), or an integer tensor without
    axes, whose value may be found while running.
    """
    carry = _Carry("fori_loop", initial, grows)

    def build(number: Node, carried: Sequence[Node]) -> Body:
        return Body(carry.following(body(wrap(number), carry.wrapped(carried)), carried))

    return carry.wrapped(_looped(_trips(trips), carry.nodes, build)[0])


def scan(
    body: Callable[[Any, Any], Any],
    initial: Any,
    xs: Any = None,
    length: Any = None,
    *,
    grows: bool = False,
) -> tuple[Any, Any]:
    """`state, y = body(state, x)` for each x along axis 0 of `xs`; (last state, all y stacked).

    `xs` is a structure of tensors with one size on axis 0, of which the body gets a row of each;
    without them `length` says how often, and x is None. Rows are read and written in place. A
    length that is a tensor is found while running, and there are as many rows.
    """
    carry = _Carry("scan", initial, grows)
    structure, leaves = taken_apart(xs)
    arrays = [(path, node_of(leaf)) for path, leaf in leaves]
    trips = _length(arrays, length)
    shown: list[Any] = []

    def build(number: Node, carried: Sequence[Node]) -> Body:
        rows = [wrap(make("gather", node, number, axis=0)) for _, node in arrays]
        returned = body(carry.wrapped(carried), put_together(structure, rows))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InvalidArgument(
                f"the body of scan returns (state, y), not {type(returned).__name__}; y may be None"
            )
        out_structure, outs = taken_apart(returned[1])
        shown[:] = [out_structure]
        made = [node_of(leaf) for _, leaf in outs]
        return Body(carry.following(returned[0], carried), made)

    last, rows = _looped(_trips(trips), carry.nodes, build)
    return carry.wrapped(last), put_together(shown[0], [wrap(node) for node in rows])


def _looped(
    trips: Node,
    initial: Sequence[Node],
    build: Callable[[Node, Sequence[Node]], Body],
    condition: Node | None = None,
) -> tuple[list[Node], list[Node]]:
    """(carried values after the last iteration, stacked rows); states that the body sets are
    carried along."""
    outer = scope()
    states: list[State] = []

    def build_with_states(number: Node, carried: Sequence[Node]) -> Body:
        with tracing_body() as inside:
            body = build(number, carried)
        if inside is None:
            return body
        beside = inside.carried()
        states[:] = beside
        return _with_states(body, list(beside.values()), inside.unchanged())

    made = growing(trips, initial, build_with_states, condition=condition, origins=ORIGINS)
    n, end = len(initial), len(initial) + len(states)
    for state, node in zip(states, made[n:end], strict=True):
        assert outer is not None
        outer.current[state] = node
    return made[:n], made[end:]


def _with_states(body: Body, beside: list[Carried], outside: dict[Node, Node]) -> Body:
    """A body that carries states, with what those that it only reads are outside."""
    ends = [] if body.goes_on is None else [body.goes_on]
    roots = [*body.following, *body.rows, *ends, *(one.following for one in beside)]
    new = rebuilt(roots, outside, ORIGINS)
    return Body(
        [new[node] for node in body.following],
        [new[node] for node in body.rows],
        None if body.goes_on is None else new[body.goes_on],
        [Carried(one.initial, one.parameter, new[one.following]) for one in beside],
    )


class _Carry:
    """The state of a loop: its structure, where it begins, and whether its sizes may change."""

    def __init__(self, what: str, initial: Any, grows: bool) -> None:
        self.what = what
        self.grows = grows
        self.structure, self.leaves = taken_apart(initial)
        self.nodes = [node_of(leaf) for _, leaf in self.leaves]

    def wrapped(self, nodes: Sequence[Node]) -> Any:
        return put_together(self.structure, [wrap(node) for node in nodes])

    def following(self, returned: Any, carried: Sequence[Node]) -> list[Node]:
        """What the body makes of the state, of the types it had."""
        structure, leaves = taken_apart(returned)
        need_same(f"the state that the body of {self.what} returns", structure, self.structure)
        made = []
        for (path, leaf), one in zip(leaves, carried, strict=True):
            node = _as_type(leaf, one.dtype, one)
            # Which sizes change, and that the number of axes does not, is looked at by `growing`.
            if not self.grows or node.dtype != one.dtype:
                what = f"the state{_at(path)} that the body of {self.what} returns"
                _need_like(what, node, one, "; with grows=True sizes may change")
            made.append(node)
        return made


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _need_like(what: str, node: Node, wanted: Node, hint: str = "") -> None:
    """The same shape and dtype, or an error that says which of them differs."""
    if node.dtype != wanted.dtype:
        raise TypeMismatch(
            f"{what} is {described(node)}, not {described(wanted)}: its dtype is {node.dtype}, "
            f"not {wanted.dtype}; cast it with astype"
        )
    if node.shape != wanted.shape:
        raise ShapeMismatch(
            f"{what} is {described(node)}, not {typed(wanted.shape, wanted.dtype)}: its shape is "
            f"{node.shape}, not {wanted.shape}{hint if node.ndim == wanted.ndim else ''}"
        )


def _as_type(leaf: Any, dtype: DType, like: Node) -> Node:
    """A node; a Python number has the type of what it stands for."""
    operand = operand_of(leaf)
    return operand if isinstance(operand, Node) else full(like.shape, operand, dtype)


def _of_one_type(a: Any, b: Any) -> tuple[Node, Node]:
    """Both as nodes; a number takes the type of the other."""
    if isinstance(a, Base) or not isinstance(b, Base):
        one = node_of(a)
        return one, _as_type(b, one.dtype, one)
    other = node_of(b)
    return _as_type(a, other.dtype, other), other


def _truth(value: Any, what: str) -> Node:
    """One bool; a number is true where it is not zero."""
    node = node_of(value)
    if node.shape != ():
        if any(size != 1 for size in node.shape):
            raise ShapeMismatch(f"{what} is one truth value, not {described(node)}")
        node = reshape(node, ())
    if node.dtype == BOOL:
        return node
    return make("ne", node, full((), 0, node.dtype))


def _trips(trips: Any) -> Node:
    if isinstance(trips, Expr) or (type(trips) is int):
        return size_node(trips, INT64)
    node = node_of(trips)
    if node.shape != () or node.dtype.kind not in INTEGERS:
        raise TypeMismatch(f"a trip count is one integer, not {described(node)}")
    if node.op == "constant":  # a number that NumPy gave
        return full((), int(node.attr("data").array), INT64)
    return cast(node, INT64)


def _length(arrays: Leaves, length: Any) -> Any:
    """How many rows all of them have."""
    if not arrays:
        if length is None:
            raise InvalidArgument("scan over nothing needs a length")
        return length
    for path, node in arrays:
        if not node.ndim:
            raise ShapeMismatch(f"xs{path} of scan has no axis to go along: {described(node)}")
    sizes = {path: node.shape[0] for path, node in arrays}
    first = next(iter(sizes.values())) if length is None else length
    for path, size in sizes.items():
        if size != first:
            raise ShapeMismatch(
                f"xs{path} of scan has {size} rows on axis 0, and {first} are to be gone through"
            )
    return first
