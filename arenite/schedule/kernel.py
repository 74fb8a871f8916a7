"""Kernel: one fused piece of work over an iteration space, and the Schedule that orders them.

A kernel runs over a space, one axis a loop. Some of its axes are reduced: what lies inside them is
summed (or the like) for each point of the other, outer axes. Its stages are computed in order:

    reduce   a value for each outer point, over all points of the reduced axes
    scalar   a value for each outer point, from the reduced ones: epilogues, means, scales
    row      a value for each point of the whole space

    softmax over the last axis of x[rows, columns]: space (rows, columns), reduced axes (1,)
        reduce max(x)   row exp(x - max)   reduce sum(exp)   row exp / sum
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from arenite.ir.dim import Dim, Var, bounds, product
from arenite.ir.node import Node, Origin, Shape
from arenite.schedule.access import Index


class Role(Enum):
    REDUCE = "reduce"
    SCALAR = "scalar"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Stage:
    node: Node
    role: Role


@dataclass(frozen=True, slots=True)
class Kernel:
    """`inputs` are values in memory that it reads, `outputs` those it writes."""

    name: str
    space: Shape
    axes: tuple[int, ...]  # those of the space that are reduced
    stages: tuple[Stage, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    n_ops: int  # arithmetic operations for each point of the space
    border: str  # why it ends here and is not part of its consumer
    origins: tuple[Origin, ...] = ()
    #: (output, input): each element of the input is read only where that of the output is made.
    in_place: tuple[tuple[Node, Node], ...] = ()

    @property
    def outer_axes(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.space)) if k not in self.axes)

    @property
    def outer_shape(self) -> Shape:
        return tuple(self.space[k] for k in self.outer_axes)

    @property
    def reads_nbytes(self) -> Dim:
        """Bytes of all values it reads, each once."""
        return sum((value.nbytes for value in self.inputs), start=0)

    @property
    def writes_nbytes(self) -> Dim:
        return sum((value.nbytes for value in self.outputs), start=0)

    @property
    def operations(self) -> Dim:
        return product(self.space) * self.n_ops

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{size}~" if k in self.axes else str(size) for k, size in enumerate(self.space)
        )
        return f"<Kernel {self.name} over [{sizes}]: {len(self.stages)} stages>"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Kernels in an order in which every value is written before it is read."""

    kernels: tuple[Kernel, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def __str__(self) -> str:
        lines = []
        for k, kernel in enumerate(self.kernels):
            lines.append(
                f"{k:4}  {kernel.name:<28} reads {kernel.reads_nbytes}, writes "
                f"{kernel.writes_nbytes} bytes, {kernel.operations} operations"
            )
            lines.append(f"      ends here: {kernel.border}")
        return "\n".join(lines)


def space_vars(space: Shape) -> tuple[Var, ...]:
    """The loop variables of a space: equal for equal spaces, so that indices can be compared."""
    return tuple(Var(f"_s{k}", 0, max(0, bounds(size)[1] - 1)) for k, size in enumerate(space))


def outer_index(kernel_axes: tuple[int, ...], variables: tuple[Var, ...]) -> Index:
    """The index of a reduced value: the variables that are not reduced."""
    return tuple(var for k, var in enumerate(variables) if k not in kernel_axes)
