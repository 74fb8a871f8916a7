"""Node: one operation of the dataflow, immutable and interned.

In: the name of an op, input nodes, attributes. Out: the one node that stands for them: two nodes
with the same op, inputs and attributes are the same object, so `is` compares whole graphs. Shape
and dtype follow from these three (a source has them as attributes).

Where a node came from is kept beside the graph, in `Origins`, so that equal nodes merge and every
origin survives. Nothing here follows inputs recursively: graphs are deeper than Python's stack.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from typing import Any, NoReturn, TypeAlias, cast

from arenite import locks
from arenite.dtype import DType
from arenite.errors import InvalidArgument
from arenite.ir.dim import Dim, ceildiv, product
from arenite.records import NamedTuple

Shape: TypeAlias = tuple[Dim, ...]
Number: TypeAlias = bool | int | float | complex
AttrItems: TypeAlias = tuple[tuple[str, Hashable], ...]


def _operator(op: str) -> Callable[[Node, Node | Number], Node]:
    def method(self: Node, other: Node | Number) -> Node:
        from arenite.ir.compose.basic import binary

        return binary(op, self, other)

    return method


def _reflected(op: str) -> Callable[[Node, Number], Node]:
    def method(self: Node, other: Number) -> Node:
        from arenite.ir.compose.basic import binary

        return binary(op, other, self)

    return method


class Node:
    """Made by `arenite.ir.make`. Equality and hash are identity.

    Python's operators make nodes, but for `==` and `!=`: operands broadcast, and numbers take the
    dtype of the other operand.
    """

    __slots__ = ("__weakref__", "attr_keys", "attrs", "dtype", "inputs", "op", "shape")

    op: str
    inputs: tuple[Node, ...]
    attrs: AttrItems  # sorted by name
    attr_keys: AttrItems  # the same, as what tells them apart
    shape: Shape
    dtype: DType

    def __init__(self) -> None:
        raise InvalidArgument("nodes are made by arenite.ir.make, which finds equal ones")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Node is immutable; {name!r} cannot be set")

    def attr(self, name: str) -> Any:
        """The attribute of that name; InvalidArgument where there is none."""
        for key, value in self.attrs:
            if key == name:
                return value
        known = ", ".join(key for key, _ in self.attrs) or "none"
        raise InvalidArgument(f"{self.op} has no attribute {name!r}; it has: {known}")

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes of the value, row-major and packed."""
        return nbytes_of(self.shape, self.dtype)

    @property
    def type_text(self) -> str:
        """`float32[batch, 64]`"""
        return typed(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"<Node {self.op} {self.type_text}>"

    __array_ufunc__ = None  # numbers of NumPy leave operators to the node
    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __floordiv__, __mod__ = _operator("floordiv"), _operator("mod")
    __lt__, __le__ = _operator("lt"), _operator("le")
    __gt__, __ge__ = _operator("gt"), _operator("ge")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shift_left"), _operator("shift_right")

    def __neg__(self) -> Node:
        from arenite.ir.ops import make

        return make("neg", self)

    def __abs__(self) -> Node:
        from arenite.ir.ops import make

        return make("abs", self)

    def __invert__(self) -> Node:
        from arenite.ir.ops import make

        return make("not", self)


_set_op = Node.__dict__["op"].__set__
_set_inputs = Node.__dict__["inputs"].__set__
_set_attrs = Node.__dict__["attrs"].__set__
_set_attr_keys = Node.__dict__["attr_keys"].__set__
_set_shape = Node.__dict__["shape"].__set__
_set_dtype = Node.__dict__["dtype"].__set__

# Keys hold the ids of inputs, not the inputs: a node keeps its inputs alive, so an id stands for
# one node as long as the entry exists, and a dying node's key frees nothing, which would recurse.
_interned: weakref.WeakValueDictionary[Hashable, Node] = weakref.WeakValueDictionary()
_intern_lock = locks.reentrant()


def intern(
    op: str,
    inputs: tuple[Node, ...],
    attrs: AttrItems,
    infer: Callable[[], tuple[Shape, DType]],
) -> Node:
    """The node for (op, inputs, attrs); `infer` gives shape and dtype where it is new."""
    attr_keys = tuple([(name, attr_key(value)) for name, value in attrs])
    key = (op, attr_keys, *map(id, inputs))
    found = _interned.get(key)
    return found if found is not None else _new(key, op, inputs, attrs, attr_keys, *infer())


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node for the same op on other inputs, where that is of the same type."""
    key = (node.op, node.attr_keys, *map(id, inputs))
    found = _interned.get(key)
    if found is not None:
        return found
    return _new(key, node.op, inputs, node.attrs, node.attr_keys, node.shape, node.dtype)


def _new(
    key: Hashable,
    op: str,
    inputs: tuple[Node, ...],
    attrs: AttrItems,
    attr_keys: AttrItems,
    shape: Shape,
    dtype: DType,
) -> Node:
    node = Node.__new__(Node)
    _set_op(node, op)
    _set_inputs(node, inputs)
    _set_attrs(node, attrs)
    _set_attr_keys(node, attr_keys)
    _set_shape(node, shape)
    _set_dtype(node, dtype)
    with _intern_lock:
        return _interned.setdefault(key, node)


def is_interned(node: Node) -> bool:
    """Whether `node` is the one object for its op, inputs and attributes."""
    attr_keys = tuple([(name, attr_key(value)) for name, value in node.attrs])
    return _interned.get((node.op, attr_keys, *map(id, node.inputs))) is node


def attr_key(value: Hashable) -> Hashable:
    """What tells attributes apart: Python holds 1, 1.0 and True equal, 0.0 and -0.0 too."""
    kind = type(value)
    if kind is int or kind is str:
        return value
    if kind is tuple:
        return tuple([attr_key(item) for item in cast("tuple[Hashable, ...]", value)])
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, complex):
        return "complex", value.real.hex(), value.imag.hex()
    if isinstance(value, bool):
        return "bool", value
    return value


def nbytes_of(shape: Iterable[Dim], dtype: DType) -> Dim:
    """Bytes a tensor takes, as a size."""
    return ceildiv(product(shape) * dtype.bits, 8 * dtype.block_length)


def typed(shape: Iterable[Dim], dtype: DType) -> str:
    """`float32[batch, 64]`"""
    return f"{dtype}[{', '.join(map(str, shape))}]"


class Origin(NamedTuple):
    """Where a node comes from: a line of a source file, or a named node of a model file."""

    file: str
    line: int = 0  # 0: the file has no lines
    name: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} {self.name}".rstrip()


#: Origins that are noted of one node: of what thousands of nodes became, not all are told.
MAX_ORIGINS = 256


class Origins:
    """Origins by node, each once, in the order they came. Does not keep nodes alive."""

    __slots__ = ("_by_node",)

    def __init__(self, origins: Mapping[Node, Iterable[Origin]] | None = None) -> None:
        self._by_node: MutableMapping[Node, tuple[Origin, ...]]
        self._by_node = weakref.WeakKeyDictionary()
        for node, known in (origins or {}).items():
            self.add(node, *known)

    def of(self, node: Node) -> tuple[Origin, ...]:
        """Where a node came from, as far as it is known."""
        return self._by_node.get(node, ())

    def add(self, node: Node, *origins: Origin) -> None:
        """Note where a node came from."""
        known = self._by_node.get(node, ())
        if known != origins and len(known) < MAX_ORIGINS:
            new = tuple(dict.fromkeys(origin for origin in origins if origin not in known))
            if new:
                self._by_node[node] = known + new

    def put(self, node: Node, *origins: Origin) -> None:
        """These, and no others."""
        self._by_node[node] = tuple(dict.fromkeys(origins))

    def subset(self, nodes: Iterable[Node]) -> Origins:
        """A copy with what is known of `nodes`, for the graph they are in: it keeps them alive."""
        known_of = self._by_node.get
        copy = Origins()
        copy._by_node = {node: known for node in nodes if (known := known_of(node))}
        return copy

    def __len__(self) -> int:
        return len(self._by_node)
