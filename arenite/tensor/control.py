"""Control flow on tensors: cond, while_loop, fori_loop and scan, with JAX's meaning; and
`specialize`, by which a program computes its own structure.

Functions are called with tensors that stand for what they get; what they return says what is
computed, and none of it is computed yet. Values are tensors, or tuples, lists and dicts of them.
What a body uses from outside needs no mention. Nothing returns to Python between iterations. A body
is called once; once more where the state has Python numbers, whose dtype is found so.

With `grows`, sizes of the state may change from iteration to iteration (not its number of axes); a
body is called again for each axis that turns out to. Such sizes have no bound, so a program is cut
there into segments, each planned when it is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from numpy.typing import NDArray

from arenite.dtype import BOOL, INT64
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir import Expr, Node, full, make, parameter
from arenite.ir import size as size_node
from arenite.ir.compose.basic import cast, reshape
from arenite.ir.dim import Found
from arenite.ir.growing_loop import FOR_EVER, Body, Carried, growing
from arenite.ir.ops import unbounded
from arenite.ir.regions import rebuilt
from arenite.tensor.base import ORIGINS, described, node_of, operand_of
from arenite.tensor.carry import Carry, at, need_like, of_one_type
from arenite.tensor.creation import asarray, wrap
from arenite.tensor.elementwise import arithmetic
from arenite.tensor.promote import INTEGERS, mark_weak, weak_result
from arenite.tensor.signature import TensorSpec, static
from arenite.tensor.structure import Leaves, flatten, need_same, unflatten
from arenite.tensor.tracing import (
    choose_states,
    scope,
    side,
    tracing_body,
    values_now,
    without_states,
)

if TYPE_CHECKING:
    from arenite.tensor.state import State
    from arenite.tensor.tensor import Tensor


def cond(predicate: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
    """What `then` gives where the predicate holds, else what `otherwise` gives.

    Both are functions of the operands, or values; what they give has one structure, shapes and
    dtypes. Only what the predicate chooses is computed: an index out of range on the other side
    raises nothing.
    """
    condition = _truth(predicate, "the predicate of cond")
    before = values_now()
    with side(before) as states:
        structure, one = flatten(then(*operands) if callable(then) else then)
    with side(before) as other_states:
        given = otherwise(*operands) if callable(otherwise) else otherwise
        other_structure, other = flatten(given)
    need_same("what cond gives for false", other_structure, structure)
    chosen = []
    for (path, a), (_, b) in zip(one, other, strict=True):
        what = f"what cond gives for false{at(path)}"
        yes, no = of_one_type(what, a, b)
        need_like(what, no, yes)
        branch = weak_result(make("if", condition, yes, no), [operand_of(a), operand_of(b)])
        chosen.append(wrap(branch))
    choose_states(condition, states, other_states)
    return unflatten(structure, chosen)


@overload
def while_loop(
    condition: Callable[[Tensor], Any],
    body: Callable[[Tensor], Any],
    initial: Tensor,
    *,
    grows: bool = False,
) -> Tensor: ...


@overload
def while_loop(
    condition: Callable[[Any], Any],
    body: Callable[[Any], Any],
    initial: Any,
    *,
    grows: bool = False,
) -> Any: ...


def while_loop(
    condition: Callable[[Any], Any],
    body: Callable[[Any], Any],
    initial: Any,
    *,
    grows: bool = False,
) -> Any:
    """`state = body(state)` as long as `condition(state)` holds; the last state.

    A condition that never fails is a loop that never ends: Ctrl-C, or `cancel()` from another
    thread, ends the run.

        arenite.while_loop(lambda s: s < 100, lambda s: s * 2, 1)     # 128
    """

    def goes_on(state: Any) -> Node:
        return _truth(condition(state), "the condition of while_loop")

    def build(_: Node, carried: Sequence[Node]) -> Body:
        following = carry.following(body(carry.wrapped(carried)), carried)
        return Body(following, goes_on=goes_on(carry.wrapped(following)))

    carry = Carry("while_loop", initial, grows)
    carry.settle(body)
    trips = full((), FOR_EVER, INT64)
    return carry.wrapped(_looped(trips, carry.nodes, build, carry.before(goes_on))[0])


@overload
def fori_loop(
    lower: Any,
    upper: Any,
    body: Callable[[Tensor, Tensor], Any],
    initial: Tensor,
    /,
    *,
    grows: bool = False,
) -> Tensor: ...


@overload
def fori_loop(
    upper: Any, body: Callable[[Tensor, Tensor], Any], initial: Tensor, /, *, grows: bool = False
) -> Tensor: ...


@overload
def fori_loop(
    lower: Any,
    upper: Any,
    body: Callable[[Any, Any], Any],
    initial: Any,
    /,
    *,
    grows: bool = False,
) -> Any: ...


@overload
def fori_loop(
    upper: Any, body: Callable[[Any, Any], Any], initial: Any, /, *, grows: bool = False
) -> Any: ...


def fori_loop(*arguments: Any, grows: bool = False) -> Any:
    """`fori_loop(lower, upper, body, initial)`: `state = body(i, state)` for i from lower to
    upper - 1; the last state. Without `lower`, as `range` has it, from 0.

    Bounds are numbers, sizes (a Var, or an expression of Vars), or integer tensors without axes,
    whose value may be found while running. i counts as a Python int: beside a float32 it is one.

        arenite.fori_loop(1, 5, lambda i, s: s * i, 1)                # 24
    """
    lower, upper, body, initial = _bounds(arguments)

    def step(number: Node, state: Any) -> Any:
        i = number if lower is None else arithmetic("add", wrap(number), lower)
        return body(wrap(mark_weak(i)), state)

    def build(number: Node, carried: Sequence[Node]) -> Body:
        return Body(carry.following(step(number, carry.wrapped(carried)), carried))

    carry = Carry("fori_loop", initial, grows)
    carry.settle(lambda state: step(parameter((), INT64), state))
    trips = _trips(upper) if lower is None else _distance(lower, upper)
    return carry.wrapped(_looped(trips, carry.nodes, build)[0])


def _bounds(arguments: tuple[Any, ...]) -> tuple[Any, Any, Callable[[Any, Any], Any], Any]:
    """(lower or None, upper, body, initial)"""
    if len(arguments) == 3:
        arguments = (None, *arguments)
    if len(arguments) != 4 or not callable(arguments[2]):
        raise InvalidArgument(
            "fori_loop takes (lower, upper, body, initial), or (upper, body, initial); its body is "
            "a function of (i, state)"
        )
    lower, upper, body, initial = arguments
    return (None if type(lower) is int and lower == 0 else lower), upper, body, initial


def _distance(lower: Any, upper: Any) -> Node:
    """How often a loop from one bound to another runs."""
    if all(isinstance(bound, Expr) or type(bound) is int for bound in (lower, upper)):
        return _trips(upper - lower)
    return _trips(upper) - _trips(lower)


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

        arenite.scan(lambda s, x: (s + x, s), 0, xs)      # the sum, and the sums before each
    """
    carry = Carry("scan", initial, grows)
    structure, leaves = flatten(xs)
    arrays = [(path, node_of(leaf)) for path, leaf in leaves]
    trips = _length(arrays, length)
    shown: list[Any] = []

    def step(number: Node, state: Any) -> tuple[Any, Any]:
        rows = [wrap(make("gather", node, number, axis=0)) for _, node in arrays]
        returned = body(state, unflatten(structure, rows))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InvalidArgument(
                f"the body of scan returns (state, y), not {type(returned).__name__}; y may be None"
            )
        return returned

    def build(number: Node, carried: Sequence[Node]) -> Body:
        state, row = step(number, carry.wrapped(carried))
        out_structure, outs = flatten(row)
        shown[:] = [out_structure]
        rows = [node_of(leaf) for _, leaf in outs]
        return Body(carry.following(state, carried), rows)

    carry.settle(lambda state: step(parameter((), INT64), state)[0])
    last, rows = _looped(_trips(trips), carry.nodes, build)
    return carry.wrapped(last), unflatten(shown[0], [wrap(node) for node in rows])


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

    results = growing(trips, initial, build_with_states, condition=condition, origins=ORIGINS)
    n, end = len(initial), len(initial) + len(states)
    for state, node in zip(states, results[n:end], strict=True):
        assert outer is not None
        outer.current[state] = node
    return results[:n], results[end:]


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


def any_size() -> Found:
    """A size without a bound, for what `specialize` gives."""
    return unbounded.any_size()


def specialize(function: Callable[..., Any], result: Any, values: Any, *operands: Any) -> Any:
    """What `function(*values, *operands)` gives, traced and compiled for each set of values.

    `values` is a tensor, or a tuple of tensors, that a program computes and that decide structure:
    the function gets numbers, and tuples of numbers. `result` says what it gives:
    `arenite.spec(shape, dtype)`, where sizes may be `arenite.any_size()`, or a structure of such.
    Native code returns before it; each set of values is compiled when it comes first, and the 16
    used last are kept. What the function gives must depend on its arguments alone; it has no
    states.
    """
    structure, leaves = flatten(result)
    for path, leaf in leaves:
        if not isinstance(leaf, TensorSpec):
            raise InvalidArgument(
                f"what specialize gives is said with arenite.spec; result{path} is "
                f"{type(leaf).__name__}"
            )
    given = values if isinstance(values, tuple) else (values,)
    if not given:
        raise InvalidArgument("specialize needs a value; without one, call the function")

    def trace(arrays: Sequence[NDArray[Any]], nodes: Sequence[Node]) -> Sequence[Node]:
        known = [static.value(array, f"value {k}") for k, array in enumerate(arrays)]
        with without_states():
            returned, made = flatten(function(*known, *map(wrap, nodes)))
        need_same("what the function of specialize gives", returned, structure)
        return [node_of(leaf) for _, leaf in made]

    name = getattr(function, "__qualname__", type(function).__name__)
    made = unbounded.specialize(
        unbounded.Specialization(trace, name),
        [node_of(asarray(one)) for one in given],
        [node_of(asarray(one)) for one in operands],
        [(leaf.shape, leaf.dtype) for _, leaf in leaves],
    )
    return unflatten(structure, [wrap(node) for node in made])
