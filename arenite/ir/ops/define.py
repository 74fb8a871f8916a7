"""OpDef: what an op is. Each op is defined in one place and found by name in `OPS`.

    infer(inputs, attrs) -> (shape, dtype)                the type rule, with precise errors
    reference(arrays, attrs, shape, dtype) -> ndarray     the meaning, in NumPy; sizes are numbers

What the schedule asks of an op stands here too: its cost, how its elements are read, what it
reduces, and which of its operands must lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias

from arenite.dtype import INT32, INT64, Array, DType, Kind
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Expr
from arenite.ir.node import Node, Shape, intern, with_inputs

if TYPE_CHECKING:
    from arenite.ir.ops.access import Index, Reduction, Source

P = ParamSpec("P")
Attrs: TypeAlias = Mapping[str, Any]
Sizes: TypeAlias = tuple[int, ...]
Inferred: TypeAlias = tuple[Shape, DType]

#: Where values are: made by a kernel, there before a run (arguments and states, or constants), or
#: made up where they are needed, without memory.
Storage: TypeAlias = Literal["made", "given", "constant", "made up"]

INTEGER = (Kind.SIGNED, Kind.UNSIGNED)
FLOAT = (Kind.FLOAT,)
REAL = (*INTEGER, Kind.FLOAT)
NUMBER = (*REAL, Kind.COMPLEX)
ORDERED = (Kind.BOOL, *REAL)
BITS = (Kind.BOOL, *INTEGER)
ANY = (Kind.BOOL, *NUMBER)


@dataclass(frozen=True, slots=True)
class Check:
    """What an attribute must be, where no type says it."""

    wanted: str
    accepts: Callable[[Any], bool]


Checks: TypeAlias = Mapping[str, type | Check]


def accepts(check: type | Check, value: Any) -> bool:
    return type(value) is check if isinstance(check, type) else check.accepts(value)


def wanted(check: type | Check) -> str:
    return f"of type {check.__name__}" if isinstance(check, type) else check.wanted


def tuple_of(check: type | Check) -> Check:
    def are(value: Any) -> bool:
        return type(value) is tuple and all(accepts(check, item) for item in value)

    return Check(f"a tuple of what is {wanted(check)}", are)


def at_least(low: int) -> Check:
    return Check(f"a whole number from {low} on", lambda value: type(value) is int and value >= low)


def one_of(*choices: str) -> Check:
    return Check(f"one of {', '.join(choices)}", lambda value: value in choices)


is_number = Check("a number", lambda value: type(value) in (bool, int, float, complex))
is_dim = Check("a size", lambda value: type(value) is int or isinstance(value, Expr))
is_ints, is_dims = tuple_of(int), tuple_of(is_dim)
_is_pair = Check("two sizes", lambda value: is_dims.accepts(value) and len(value) == 2)
is_dim_pairs = tuple_of(_is_pair)


@dataclass(frozen=True, slots=True)
class OpDef:
    name: str
    family: str  # the file it is defined in: source, elementwise, movement, ...
    arity: tuple[int, int | None]  # fewest and most inputs
    infer: Callable[[tuple[Node, ...], Attrs], Inferred]
    reference: Callable[[list[Array], Attrs, Sizes, DType], Array]
    attrs: Checks = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of attributes left out
    _: KW_ONLY
    backend: str = ""  # whose kernels read its operands as they lie; "" for an op of all devices
    storage: Storage = "made"
    cost: int = 1  # of one element, beside an addition
    #: Where an element comes from; None: from the same index of every input, if it is elementwise.
    sources: Callable[[Node, Index], tuple[Source, ...]] | None = None
    reduction: Callable[[Node], Reduction] | None = None
    #: The space that a kernel of its own walks, and operations at each point: the shape and `cost`.
    work: Callable[[Node], tuple[Shape, int]] | None = None
    #: operand(node, value): why an input must lie in memory; None where it may be computed.
    operand: Callable[[Node, Node], str | None] | None = None
    #: beside(node, other): whether one kernel can reduce both, for what follows from both.
    beside: Callable[[Node, Node], bool] | None = None
    overwrites: bool = False  # its result is its first operand with some rows written anew
    computes: int | None = None  # the operand that its kernel computes, where that is computed
    is_construct: bool = False  # no kernel, but one or more schedules inside
    is_packed: bool = False  # its second operand is weights, laid out in memory for it
    multiplies_bytes: bool = False  # sums whole numbers; what follows is done in floats
    rereads: bool = False  # reads each element of its inputs many times
    reads_views: bool = False  # a kernel of its own that reads operands through views
    writes_views: bool = False  # and writes its result in any order of axes
    # Of views.
    is_free: bool = False  # costs nothing where it is read
    is_pieced: bool = False  # its elements come from several places, or from none
    keeps_order: bool = False  # its elements are in the order of those it is made of
    #: Its elements are elements of its inputs, or no numbers of their type at all.
    chooses: bool = False

    @property
    def is_contraction(self) -> bool:
        """Whether it sums products over a space that is no value's shape."""
        return self.reduction is not None and self.family != "reduction"


OPS: dict[str, OpDef] = {}


def _defining(make_op: Callable[P, OpDef]) -> Callable[P, None]:
    def define(*args: P.args, **kwargs: P.kwargs) -> None:
        """Add an op, given as an OpDef is."""
        op = make_op(*args, **kwargs)
        assert op.name not in OPS, f"{op.name} is defined twice"
        OPS[op.name] = op

    return define


define = _defining(OpDef)


def make(op: str, *inputs: Node, **attrs: Any) -> Node:
    """The node for an op on inputs: checked, typed and interned."""
    definition = OPS.get(op)
    if definition is None:
        raise InvalidArgument(f"no op is called {op!r}; known: {', '.join(sorted(OPS))}")
    if definition.defaults:
        attrs = {**definition.defaults, **attrs}
    check_call(definition, inputs, attrs)
    items = tuple(sorted(attrs.items())) if len(attrs) > 1 else tuple(attrs.items())
    return intern(op, inputs, items, lambda: definition.infer(inputs, attrs))


def on_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node on other inputs that have the types of its own: neither checked nor typed again.

    What control flow makes may follow from more than types: a loop has rows for a known count."""
    if OPS[node.op].family == "control":
        return make(node.op, *inputs, **dict(node.attrs))
    return with_inputs(node, inputs)


def check_call(definition: OpDef, inputs: Sequence[Node], attrs: Attrs) -> None:
    """Number of inputs, names and types of attributes."""
    fewest, most = definition.arity
    if len(inputs) < fewest or (most is not None and len(inputs) > most):
        takes = str(fewest) if most == fewest else f"{fewest} to {most or 'any number of'}"
        raise InvalidArgument(f"{definition.name} takes {takes} inputs, not {len(inputs)}")
    if attrs.keys() != definition.attrs.keys():
        raise InvalidArgument(
            f"{definition.name} has attributes {sorted(definition.attrs)}, not {sorted(attrs)}"
        )
    for name, check in definition.attrs.items():
        if not accepts(check, attrs[name]):
            raise InvalidArgument(
                f"{definition.name}: attribute {name} = {attrs[name]!r} is not {wanted(check)}"
            )


def need_kind(op: str, node: Node, kinds: tuple[Kind, ...]) -> None:
    if node.dtype.kind not in kinds:
        takes = ", ".join(kind.value for kind in kinds)
        raise TypeMismatch(f"{op} takes {takes}, not {node.type_text}")


def need_dtype(op: str, what: str, node: Node, dtype: DType) -> None:
    if node.dtype != dtype:
        raise TypeMismatch(f"{op}: {what} must be {dtype}, not {node.type_text}")


def need_index_dtype(op: str, what: str, node: Node) -> None:
    if node.dtype not in (INT32, INT64):
        raise TypeMismatch(f"{op}: {what} must be int64 or int32, not {node.type_text}")


def need_axis(op: str, axis: int, node: Node) -> None:
    if not 0 <= axis < node.ndim:
        raise ShapeMismatch(
            f"{op}: axis {axis} is not within 0..{node.ndim - 1} of {node.type_text}"
        )


def need_axes(op: str, axes: Sequence[int], node: Node) -> None:
    for axis in axes:
        need_axis(op, axis, node)
    if len(set(axes)) != len(axes):
        raise ShapeMismatch(f"{op}: axes {tuple(axes)} name an axis twice")


def differ_elsewhere(a: Node, b: Node, axis: int) -> bool:
    """Whether two shapes differ on another axis than one, or in their number."""
    rest_a, rest_b = ((*x.shape[:axis], *x.shape[axis + 1 :]) for x in (a, b))
    return a.ndim != b.ndim or rest_a != rest_b


def broadcast(op: str, *shapes: Shape) -> Shape:
    """NumPy's rule: aligned at the end, a size of 1 stretches."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    ndim = max(map(len, shapes), default=0)
    result: list[Dim] = []
    for sizes in zip(*[(1,) * (ndim - len(s)) + s for s in shapes], strict=True):
        others = dict.fromkeys(size for size in sizes if size != 1)
        if len(others) > 1:
            written = " and ".join(str(shape) for shape in shapes)
            raise ShapeMismatch(f"{op}: shapes {written} do not broadcast together")
        result.append(next(iter(others), 1))
    return tuple(result)
