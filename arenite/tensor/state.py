"""State: a value that lives from one call of a compiled function to the next.

    total = arenite.State((4,), "float32", name="total")

    def step(x):
        total.set(total.value + x)
        return total.value

The function is traced once; `value` is the tensor as it is at that point, `set` and `write` say
what it becomes. In a side of `cond` they count where the side is taken, in the body of a loop once
for each iteration. Each compiled function has bytes of its own for it, zero at first; all variants
of a function with static arguments have one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arenite.dtype import INT64
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, NotSupported, ShapeMismatch, TypeMismatch
from arenite.ir import Node, constant, make, typed
from arenite.ir.compose.basic import cast
from arenite.ir.ops.control import cut
from arenite.tensor.base import DTypeLike, axis_of, described, node_of, shape_of, widened_at
from arenite.tensor.creation import wrap
from arenite.tensor.promote import INTEGERS
from arenite.tensor.tensor import Tensor
from arenite.tensor.tracing import Scope, scope


class State:
    """A value that lives from call to call of a compiled function and is updated where it lies.
    `name` is unique in a function. Sizes are numbers: those it may have at the most."""

    def __init__(self, shape: Sequence[int], dtype: DTypeLike = "float32", *, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"the name of a state is text, not {name!r}")
        wanted = dtype_of(dtype)
        if not wanted.has_numpy or wanted.bits < 8:
            raise NotSupported(f"state {name!r}: {wanted} is not held in whole bytes; use int8")
        self.name = name
        self.node = make("state", name=name, shape=shape_of((tuple(shape),)), dtype=wanted)

    @property
    def value(self) -> Tensor:
        """The tensor as it is at this point of the function."""
        return wrap(_traced(self).value(self))

    def first(self, count: Any, axis: int = 0) -> Tensor:
        """The first rows of an axis, as many as an integer tensor says, or all there are."""
        node, number = _traced(self).value(self), self._number("the count", count)
        along = axis_of(axis, node.ndim)
        if along == 0:
            return wrap(cut(node, number))
        # The size is that of a cut of as many bytes, which nobody reads; were they all equal, they
        # would be made up in every run.
        some = constant(np.arange(self.node.attr("shape")[along]).astype(np.uint8))
        return wrap(make("front", node, cut(some, number), axis=along))

    def set(self, value: Any) -> None:
        """What it becomes, of its own shape and dtype; later reads in the function see it."""
        node = node_of(value)
        if node.dtype != self.node.dtype:
            raise TypeMismatch(
                f"{self} cannot become {described(node)}{widened_at(node)}: cast it to its dtype"
            )
        if node.shape != self.node.shape:
            raise ShapeMismatch(f"{self} cannot become {described(node)}: another shape")
        inside = _traced(self)
        inside.entry(self)
        inside.current[self] = node

    def write(self, rows: Any, at: Any, axis: int = 0) -> None:
        """Replace the rows of an axis from position `at` on, an integer tensor without axes; what
        would lie outside raises IndexOutOfRange when it runs. The rest is not touched."""
        old = _traced(self).value(self)
        along = axis_of(axis, old.ndim)
        start = self._number("the position", at)
        self.set(wrap(make("update_slice", old, node_of(rows), start, axis=along)))

    def _number(self, what: str, value: Any) -> Node:
        node = node_of(value)
        if node.dtype.kind not in INTEGERS or node.shape != ():
            raise InvalidArgument(
                f"{self}: {what} is an integer tensor without axes, not {described(node)}"
            )
        return cast(node, INT64)

    def __repr__(self) -> str:
        return f"state {self.name!r} ({typed(self.node.shape, self.node.dtype)})"


def _traced(state: State) -> Scope:
    """What is being traced."""
    tracer = scope()
    if tracer is None:
        raise InvalidArgument(
            f"{state} has a value only in a function that is being compiled, not in one that "
            "specialize or host_call is given; between calls it is "
            f"compiled.state[{state.name!r}]"
        )
    return tracer
