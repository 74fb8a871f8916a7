"""What every part of Tensor stands on: a node, its type, and where the user asked for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import INT64, DType, Kind
from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch
from arenite.ir.compose.basic import Operand
from arenite.ir.dim import Dim, Expr, product
from arenite.ir.element import held_dtype, in_native_order
from arenite.ir.graph import topological
from arenite.ir.node import Node, Origin, Origins, typed
from arenite.ir.ops import buffer, constant
from arenite.ir.ops import size as size_node

DTypeLike: TypeAlias = DType | str | np.dtype[Any] | type
Axis: TypeAlias = int | Sequence[int] | None
#: What an operation takes: nodes, and numbers and sizes whose dtype follows from these.
WeakOperand: TypeAlias = Operand | Expr

# Arrays up to this size become constants, known by content; larger ones are never hashed.
CONSTANT_ELEMENTS = 64
LINE_NBYTES = 64

#: Where each node was asked for. Nodes come and go; this does not keep them.
ORIGINS = Origins()

#: While a function is traced: hears of arrays of the user's, and of the nodes they become.
ARRAY_NAMES: ContextVar[Callable[[object, Node], None] | None]
ARRAY_NAMES = ContextVar("ARRAY_NAMES", default=None)

_PACKAGE = str(Path(__file__).parent.parent)


class Base:
    """A lazy array: a node, and the methods the parts of Tensor share."""

    __slots__ = ("__weakref__", "_node")

    _node: Node

    # NumPy hands its operators over instead of taking the tensor apart.
    __array_priority__ = 1000

    def _new(self, node: Node) -> Self:
        record_origin(node)
        tensor = type(self).__new__(type(self))
        tensor._node = node
        return tensor

    @property
    def node(self) -> Node:
        """What the tensor stands for in the IR."""
        return self._node

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Sizes of the axes, each a number or an expression of Vars."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._node.shape)

    @property
    def size(self) -> Dim:
        """How many elements there are."""
        return product(self._node.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes of all elements."""
        return self._node.nbytes

    @property
    def name(self) -> str | None:
        """What it is called in plans, profiles and pictures; see `named`."""
        names = (origin.name for origin in ORIGINS.of(self._node) if origin.name)
        return next(names, None)

    def named(self, name: str) -> Self:
        """The tensor, called so in plans, profiles and pictures from now on.

        w = arenite.from_numpy(weights).named("embed.weight")
        """
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise InvalidArgument(f"the name of a tensor is printable text, not {name!r}")
        caller = _caller()
        file, line = ("", 0) if caller is None else (caller.file, caller.line)
        others = [origin for origin in ORIGINS.of(self._node) if not origin.name]
        ORIGINS.put(self._node, Origin(file, line, name), *others)
        return self


def record_origin(node: Node) -> None:
    """Note the user's line for a node and for what was just made beneath it."""
    origin = _caller()
    if origin is None:
        return
    ORIGINS.add(node, origin)
    pending = list(node.inputs)
    while pending:
        below = pending.pop()
        if not ORIGINS.of(below):
            ORIGINS.add(below, origin)
            pending += below.inputs


def _caller() -> Origin | None:
    """The line of the user's that is being run."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return _origin(frame.f_code.co_filename, frame.f_lineno)


@cache
def _origin(file: str, line: int) -> Origin:
    return Origin(file, line)


def array_of(value: object) -> NDArray[Any]:
    """A NumPy array of anything NumPy takes."""
    array = np.asarray(value)
    if array.dtype.kind in "OUSMm":
        raise InvalidArgument(f"{type(value).__name__} holds {array.dtype}, which is no number")
    return in_native_order(array)


def node_of_array(array: NDArray[Any], *, share: bool = False) -> Node:
    """A source for an array: small ones by content, others by reference to a copy, or to the
    array itself with `share`."""
    held_dtype(array.dtype)  # which refuses what has no counterpart here
    given = array
    if array.size <= CONSTANT_ELEMENTS:
        node = constant(array)
    else:
        if not (share and array.flags.c_contiguous):
            array = _on_a_line(array)
            array.flags.writeable = False
        node = buffer(array)
    hear = ARRAY_NAMES.get()
    if hear is not None:
        hear(given, node)
    return node


def _on_a_line(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins on a cache line, so that vectors read from it lie across no two."""
    raw = np.empty(array.nbytes + LINE_NBYTES, np.uint8)
    start = -raw.ctypes.data % LINE_NBYTES
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def operand_of(value: object) -> WeakOperand:
    """A node; or a Python number or a size, which take their dtype from the others."""
    if isinstance(value, Base):
        return value._node
    if isinstance(value, bool | int | float | complex | Expr) and not isinstance(value, np.generic):
        return value
    if isinstance(value, Node):
        raise InvalidArgument(f"{value!r} is a node; it becomes a tensor with Tensor.of_node")
    return node_of_array(array_of(value))


def node_of(value: object) -> Node:
    """A node of anything; Python numbers have NumPy's default dtypes, sizes are int64."""
    operand = operand_of(value)
    if isinstance(operand, Expr):
        return size_node(operand, INT64)
    return operand if isinstance(operand, Node) else node_of_array(array_of(operand))


def axis_of(axis: int, ndim: int, what: str = "axis") -> int:
    """0-based; counted from the end where negative."""
    try:
        number = axis.__index__()
    except AttributeError:
        raise InvalidArgument(f"{what} is a number, not {axis!r}") from None
    if not -ndim <= number < ndim:
        raise ShapeMismatch(f"{what} {axis} is out of bounds for {ndim} dimensions")
    return number % ndim


def axes_of(axis: Axis, ndim: int) -> list[int]:
    """All axes for None; each named once."""
    if axis is None:
        return list(range(ndim))
    given = axis if isinstance(axis, Sequence) else [axis]
    axes = [axis_of(one, ndim) for one in given]
    if len(set(axes)) != len(axes):
        raise ShapeMismatch(f"axis {axis} names an axis twice")
    return axes


def shape_of(given: tuple[Any, ...]) -> tuple[Dim, ...]:
    """A shape from f(2, 3) or f((2, 3))."""
    sizes = given[0] if len(given) == 1 and isinstance(given[0], Sequence) else given
    return tuple(size if isinstance(size, Expr) else _number(size, given) for size in sizes)


def _number(size: Any, given: object) -> int:
    try:
        return int(size.__index__())
    except AttributeError:
        raise InvalidArgument(f"sizes are whole numbers or Vars: {given!r}") from None


def need_cpu(device: str | None) -> None:
    """Tensors are in host memory; a program is compiled for another device."""
    if device not in (None, "cpu"):
        raise NotSupported(
            f"tensors are on 'cpu', not on {device!r}; compile a function for another device with "
            "arenite.compile(..., device=...)"
        )


def described(node: Node) -> str:
    """The type of a node, as messages have it."""
    return typed(node.shape, node.dtype)


def widened_at(node: Node) -> str:
    """Of a float64: where a narrower float met a float64 on the way, for a message."""
    if node.dtype.name != "float64":
        return ""
    for one in topological([node]):
        if one.op == "cast" and one.dtype == node.dtype and one.inputs[0].dtype.kind is Kind.FLOAT:
            narrow = one.inputs[0].dtype
            place = next((f" at {origin}" for origin in ORIGINS.of(one)), "")
            return f" ({narrow} meets float64{place}; NumPy makes arrays of float64)"
    return ""
