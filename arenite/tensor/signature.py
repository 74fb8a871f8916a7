"""The arguments of a function to compile: their names, and what each is made of.

In: a function and specs. Out: a Signature, which gives the function tensors to trace with, and
takes the arguments of a call apart into values that are structure and arrays. What an argument is a
spec says: a tensor of a type, or a value that is structure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenite.dtype import DType
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument
from arenite.ir import Dim, graph_input, typed
from arenite.ir.node import Node
from arenite.tensor.base import DTypeLike, array_of, shape_of
from arenite.tensor.structure import LEAF, Whole, flatten, is_record, leaves_like, named, unflatten
from arenite.tensor.tensor import Tensor

#: Elements of a static argument; more than axes and shapes ever have are data.
MAX_STATIC_ELEMENTS = 1024
MAX_STATIC_DEPTH = 8


@dataclass(frozen=True, slots=True)
class TensorSpec(Whole):
    """The type of an argument, with sizes that may be variables."""

    shape: tuple[Dim, ...]
    dtype: DType

    def argument(self, name: str, index: int) -> Tensor:
        """The tensor that stands for the argument while a function is traced."""
        return Tensor.of_node(graph_input(name, index, self.shape, self.dtype))

    def __str__(self) -> str:
        return typed(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class Static(Whole):
    """The kind of an argument that decides structure; `arenite.static` is the one there is."""

    def value(self, given: Any, name: str, depth: int = 0) -> Any:
        """What the function gets: numbers, bools, strings and None as they are, lists and arrays
        as tuples of them."""
        if isinstance(given, np.generic | np.ndarray | Tensor):
            _check_count(np.size(given), name)
            given = np.asarray(given).tolist()
        if given is None or isinstance(given, bool | int | float | str):
            return given
        if isinstance(given, tuple | list) and depth < MAX_STATIC_DEPTH:
            _check_count(len(given), name)
            return tuple(self.value(one, name, depth + 1) for one in given)
        raise InvalidArgument(
            f"argument {name!r} is static: a number, a bool, a string, None, or a tuple or an "
            f"array of these, not {type(given).__name__}"
        )

    def __repr__(self) -> str:
        return "static"


static = Static()


def spec(shape: Sequence[Dim], dtype: DTypeLike = "float32") -> TensorSpec:
    """The type of an argument: `spec((Var("batch", 1, 64), 784), "float32")`."""
    if not isinstance(shape, Sequence):
        raise InvalidArgument(f"a shape is a sequence of sizes, not {shape!r}")
    sizes = shape_of((tuple(shape),))
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise InvalidArgument(f"sizes are not negative: {sizes}")
    return TensorSpec(sizes, dtype_of(dtype))


def _check_count(count: int, name: str) -> None:
    if count > MAX_STATIC_ELEMENTS:
        raise InvalidArgument(
            f"argument {name!r} is static and has {count} elements; at most "
            f"{MAX_STATIC_ELEMENTS} can be structure: give it a spec, so that it is data"
        )


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: a tensor, a static value, or a structure of them."""

    name: str
    structure: Any
    leaves: tuple[tuple[str, TensorSpec | Static], ...]  # by name


@dataclass(frozen=True, slots=True)
class Signature:
    """All arguments, in order."""

    arguments: tuple[Argument, ...]

    @staticmethod
    def of(function: Callable[..., Any], specs: Sequence[Any]) -> Signature:
        names = _argument_names(function, specs)
        return Signature(tuple(map(_argument, names, specs)))

    @property
    def is_static(self) -> bool:
        """Whether a value in it is structure."""
        return any(isinstance(kind, Static) for one in self.arguments for _, kind in one.leaves)

    @property
    def is_flat(self) -> bool:
        """Whether each argument is one tensor."""
        return all(one.structure is LEAF for one in self.arguments) and not self.is_static

    def traced(self, values: Sequence[Any]) -> tuple[list[Node], list[Any]]:
        """The inputs of a graph, and what the function is called with; `values` are those of static
        arguments."""
        left = iter(values)
        inputs: list[Node] = []
        given: list[Any] = []
        for one in self.arguments:
            leaves: list[Any] = []
            for name, kind in one.leaves:
                if isinstance(kind, Static):
                    leaves.append(next(left))
                    continue
                tensor = kind.argument(name, len(inputs))
                inputs.append(tensor.node)
                leaves.append(tensor)
            given.append(unflatten(one.structure, leaves))
        return inputs, given

    def sorted_out(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Values of static arguments, and arrays."""
        if len(arguments) != len(self.arguments):
            names = ", ".join(one.name for one in self.arguments)
            raise InvalidArgument(
                f"{len(self.arguments)} arguments are needed ({names}), not {len(arguments)}"
            )
        values, arrays = [], []
        for given, one in zip(arguments, self.arguments, strict=True):
            leaves = leaves_like(f"argument {one.name!r}", given, one.structure)
            for leaf, (name, kind) in zip(leaves, one.leaves, strict=True):
                if isinstance(kind, Static):
                    values.append(kind.value(leaf, name))
                else:
                    arrays.append(leaf.numpy() if isinstance(leaf, Tensor) else leaf)
        return values, arrays


def _argument(name: str, given: Any) -> Argument:
    structure, leaves = (LEAF, [("", given)]) if _is_array(given) else flatten(given)
    kinds = tuple((named(name, path), _kind(leaf, named(name, path))) for path, leaf in leaves)
    return Argument(name, structure, kinds)


def _is_array(given: Any) -> bool:
    """Whether lists and tuples are what NumPy makes one array of: numbers, and nothing else."""
    if not isinstance(given, list | tuple) or is_record(given):
        return not isinstance(given, dict) and given is not None and not is_record(given)
    return all(
        isinstance(one, bool | int | float | complex | np.generic)
        or (isinstance(one, list | tuple) and _is_array(one))
        for one in given
    )


def _kind(given: Any, name: str) -> TensorSpec | Static:
    if isinstance(given, TensorSpec | Static):
        return given
    if isinstance(given, Tensor):
        return TensorSpec(given.shape, given.dtype)
    try:
        array = array_of(given)
        return spec(array.shape, array.dtype)
    except ValueError:
        raise InvalidArgument(
            f"{type(given).__name__} is no type for argument {name!r}; give an array, a tensor, "
            "arenite.spec(shape, dtype), arenite.static, or a structure of these"
        ) from None


def _argument_names(function: Callable[..., Any], specs: Sequence[Any]) -> list[str]:
    if not callable(function):
        raise InvalidArgument(f"{type(function).__name__} is no function to compile")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [f"x{k}" for k in range(len(specs))]
    try:
        signature.bind(*specs)
    except TypeError as error:
        raise InvalidArgument(
            f"{len(specs)} specs do not fit a function of {signature}: {error}"
        ) from None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in signature.parameters.values() if one.kind in plain]
    return [*names[: len(specs)], *(f"x{k}" for k in range(len(names), len(specs)))]
