"""Structure that is computed within a program: axes, permutations, shapes, modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from arenite.errors import InvalidArgument
from arenite.ir.dim import Found
from arenite.ir.node import Node
from arenite.ir.ops import unbounded
from arenite.tensor.base import node_of
from arenite.tensor.creation import asarray, wrap
from arenite.tensor.specs import TensorSpec, static
from arenite.tensor.structure import flatten, need_same, unflatten
from arenite.tensor.tracing import without_states


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
