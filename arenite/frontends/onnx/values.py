"""Values of an ONNX model while it becomes a graph: tensors, sequences and optionals.

A tensor is a node, and what is known of it before a run: its numbers, where it follows from
constants of the file alone, or its elements as sizes, where it follows from shapes (`batch * 2`).
Structure (axes, shapes, k) is asked for as `known` or `sizes`; so arithmetic on shapes folds away.
Strings are numbers in the graph: places in a table of the model (`strings.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from arenite.dtype import INT64, Array, DType, Kind
from arenite.errors import AreniteError
from arenite.ir import Dim, Expr, Graph, Node, constant, evaluate, graph_input, make, size
from arenite.ir.compose.basic import reshape
from arenite.ir.element import held_dtype, numpy_dtype
from arenite.ir.size_substitution import substituted

#: Elements of what is computed while a model is read; more are left to the compiler.
MAX_FOLDED = 1 << 16
#: And of anything on the way to it.
MAX_BETWEEN = 1 << 20


class Value:
    """A tensor of a model."""

    __slots__ = ("_is_folded", "_known", "_node", "_sizes", "dtype", "is_constant", "is_string",
                 "shape")  # fmt: skip

    def __init__(
        self,
        shape: tuple[Dim, ...],
        dtype: DType,
        *,
        node: Node | None = None,
        known: Array | None = None,
        sizes: Array | None = None,
        is_constant: bool = False,
        is_string: bool = False,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.is_string = is_string
        #: Whether it follows from constants of the file alone.
        self.is_constant = is_constant or known is not None
        self._node = node
        self._known = known
        self._sizes = sizes
        self._is_folded = known is not None

    @staticmethod
    def of(node: Node, *, is_constant: bool = False, is_string: bool = False) -> Value:
        """A tensor that a run computes, or that a file holds."""
        return Value(
            node.shape, node.dtype, node=node, is_constant=is_constant, is_string=is_string
        )

    @staticmethod
    def of_known(array: Array, dtype: DType | None = None, *, is_string: bool = False) -> Value:
        """A tensor whose numbers are here."""
        array = np.asarray(array)
        dtype = held_dtype(array.dtype) if dtype is None else dtype
        return Value(array.shape, dtype, known=array, is_string=is_string)

    @staticmethod
    def of_sizes(sizes: Any, dtype: DType = INT64) -> Value:
        """A tensor of integers that are sizes: an array of objects, each a Dim."""
        given = np.asarray(sizes, object)
        if all(isinstance(one, int | np.integer) for one in given.reshape(-1)):
            return Value.of_known(given.astype(numpy_dtype(dtype)), dtype)
        return Value(given.shape, dtype, sizes=given)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def node(self) -> Node:
        """The tensor in the graph."""
        if self._node is None:
            if self._known is not None:
                self._node = constant(self._known, self.dtype)
            else:
                assert self._sizes is not None
                self._node = _node_of_sizes(self._sizes, self.dtype)
        return self._node

    @property
    def known(self) -> Array | None:
        """Its numbers, where they follow from constants and are not many; never to be written."""
        if self._known is None and self.is_constant and not self._is_folded:
            self._is_folded = True
            assert self._node is not None
            graph = Graph.of([self._node])
            if _count(self._node) <= MAX_FOLDED and all(
                _count(node) <= MAX_BETWEEN for node in graph.nodes
            ):
                [self._known] = evaluate(graph)
        return self._known

    @property
    def sizes(self) -> Array | None:
        """Its elements as sizes, where they are known when sizes are: an array of objects."""
        if self._sizes is None and self.dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            known = self.known
            if known is not None:
                self._sizes = known.astype(object)
        return self._sizes

    @property
    def is_symbolic(self) -> bool:
        """Whether it has sizes that are no numbers yet."""
        return self._known is None and self._sizes is not None

    def __repr__(self) -> str:
        kind = "string" if self.is_string else self.dtype.name
        return f"<Value {kind}{list(self.shape)}{' known' if self.is_constant else ''}>"


def _count(node: Node) -> int:
    """Elements of a node; of sizes that are no numbers, too many."""
    return prod(one if isinstance(one, int) else MAX_BETWEEN + 1 for one in node.shape)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A size over a power of two: an element of a tensor of floats that follows from shapes."""

    numerator: Dim
    denominator: int


def _node_of_sizes(sizes: Array, dtype: DType) -> Node:
    nodes = [reshape(_node_of_size(one, dtype), (1,)) for one in sizes.reshape(-1)]
    joined = nodes[0] if len(nodes) == 1 else make("concat", *nodes, axis=0)
    return reshape(joined, sizes.shape)


def _node_of_size(one: Any, dtype: DType) -> Node:
    if isinstance(one, Ratio):
        return size(one.numerator, dtype) * (1 / one.denominator)
    return size(_dim(one), dtype)


def _dim(one: Any) -> Dim:
    return one if isinstance(one, Expr) else int(one)


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence: its length is known while the model becomes a graph."""

    values: tuple[Any, ...]  # of Value
    dtype: DType | None = None  # of the elements, where it was said


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional: whether it holds something is known while the model becomes a graph."""

    value: Value | Items | None


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """One of two values that have no common type; a run knows which (`alternatives.py`)."""

    condition: Node
    then: AnyValue
    otherwise: AnyValue


@dataclass(frozen=True, slots=True, eq=False)
class Wrong:
    """What an operator that makes no sense gives, on a way that need not be taken."""

    error: AreniteError


@dataclass(frozen=True, slots=True)
class Shaped:
    """An output of a model whose number of axes a run finds."""

    elements: Value
    shape: Value


@dataclass(frozen=True, slots=True)
class Maps:
    """A sequence of maps from labels to numbers, one for each row of scores."""

    scores: Value
    labels: tuple[int | str, ...]


AnyValue: TypeAlias = Value | Items | Maybe | Either | Wrong | Shaped | Maps


def nodes_of(value: AnyValue) -> list[Node]:
    """The nodes of a value, in order."""
    return [one.node for one in leaves_of(value)]


def leaves_of(value: AnyValue) -> list[Value]:
    """The tensors of a value, in order."""
    if isinstance(value, Items):
        return [leaf for one in value.values for leaf in leaves_of(one)]
    if isinstance(value, Maybe):
        return [] if value.value is None else leaves_of(value.value)
    if isinstance(value, Either):
        return [*leaves_of(value.then), *leaves_of(value.otherwise)]
    if isinstance(value, Shaped):
        return [value.elements, value.shape]
    if isinstance(value, Maps):
        return [value.scores]
    return [value] if isinstance(value, Value) else []


def paths_of(name: str, value: AnyValue) -> list[str]:
    """Names of these tensors, in order, of a value that has one."""
    if isinstance(value, Items):
        return [path for k, one in enumerate(value.values) for path in paths_of(f"{name}.{k}", one)]
    if isinstance(value, Maybe):
        return [] if value.value is None else paths_of(name, value.value)
    return [name, f"{name}.shape"] if isinstance(value, Shaped) else [name]


def resized(value: AnyValue, sizes: Mapping[str, Dim], name: str) -> AnyValue:
    """A value of the same kind once sizes are others, by name: what a run computes is an input."""
    if isinstance(value, Items):
        items = (resized(one, sizes, f"{name} {k}") for k, one in enumerate(value.values))
        return Items(tuple(items), value.dtype)
    if isinstance(value, Maybe):
        return value if value.value is None else Maybe(resized(value.value, sizes, name))  # type: ignore[arg-type]
    if not isinstance(value, Value) or value.is_constant:
        return value
    if value.is_symbolic:
        assert value.sizes is not None
        found = value.sizes.copy()
        for place, one in np.ndenumerate(value.sizes):
            found[place] = _resized(one, sizes)
        return Value.of_sizes(found, value.dtype)
    shape = tuple(substituted(one, sizes) for one in value.shape)
    node = graph_input(name, 0, shape, value.dtype)
    return Value.of(node, is_string=value.is_string)


def _resized(one: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(one, Ratio):
        return Ratio(substituted(one.numerator, sizes), one.denominator)
    return substituted(one, sizes) if isinstance(one, Expr) else one
