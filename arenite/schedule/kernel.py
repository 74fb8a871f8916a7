"""Kernel: one fused piece of work over an iteration space, and the Schedule that orders them.

A schedule is kernels, branches and loops; the sides of a branch and the body of a loop are
schedules of their own, whose inputs are parameters.

A kernel runs over a space, one axis a loop. Some of its axes are reduced: what lies inside them is
summed (or the like) for each point of the other, outer axes. Its stages are computed in order:

    reduce   a value for each outer point, over all points of the reduced axes
    scalar   a value for each outer point, from the reduced ones: epilogues, means, scales
    row      a value for each point of the whole space

    softmax over the last axis of x[rows, columns]: space (rows, columns), reduced axes (1,)
        reduce max(x)   row exp(x - max)   reduce sum(exp)   row exp / sum
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from arenite.dtype import FLOAT64
from arenite.ir.dim import Dim, Found, Var, product
from arenite.ir.node import Node, Origin, Shape
from arenite.ir.ops.access import Index
from arenite.ir.ops.control import LoopParts, is_always, trip_size
from arenite.ir.ops.define import OPS
from arenite.ir.ops.host import HostFunction


class Role(Enum):
    """What a node does in a kernel."""

    REDUCE = "reduce"
    SCALAR = "scalar"
    ROW = "row"


class Stage(NamedTuple):
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
    n_outer_ops: int = field(default=0, kw_only=True)  # and for each outer point, in epilogues
    map_cost: int = field(default=0, kw_only=True)  # of a point of a map, counted in additions
    border: str  # why it ends here and is not part of its consumer
    origins: tuple[Origin, ...] = ()
    number: int = 0  # its place among all kernels
    #: (output, input): each element of the input is read only where that of the output is made.
    in_place: tuple[tuple[Node, Node], ...] = ()
    #: (output, input): the output is the input with some of its bytes written anew.
    overwrites: tuple[tuple[Node, Node], ...] = ()
    #: (k, start, end): of the k-th of inputs and outputs it touches these bytes alone.
    parts: tuple[tuple[int, int, int], ...] = ()
    given_nbytes: int = 0  # of all inputs, constants and states of its program, at the most

    @property
    def outer_axes(self) -> tuple[int, ...]:
        """The axes of the loops around its reductions."""
        return tuple(k for k in range(len(self.space)) if k not in self.axes)

    @property
    def outer_shape(self) -> Shape:
        """Sizes of these axes."""
        return tuple(self.space[k] for k in self.outer_axes)

    @property
    def reads_nbytes(self) -> Dim:
        """Bytes of all values it reads, each once; not of those it only writes over."""
        old = {value for _, value in self.overwrites}
        return sum((value.nbytes for value in self.inputs if value not in old), start=0)

    @property
    def writes_nbytes(self) -> Dim:
        """Bytes that one launch writes."""
        new = {value for value, _ in self.overwrites}
        written = [value.inputs[1] if value in new else value for value in self.outputs]
        return sum((value.nbytes for value in written), start=0)

    @property
    def arithmetic(self) -> dict[str, Dim]:
        """Its operations by what they are done in: of narrow numbers a core does more a second."""
        is_wide = any(stage.node.dtype == FLOAT64 for stage in self.stages)
        floats = "float64" if is_wide else "float32"
        inner = product(self.space) * self.n_ops
        outer = product(self.outer_shape) * self.n_outer_ops
        if any(OPS[stage.node.op].multiplies_bytes for stage in self.stages):
            return {"int8": inner, floats: outer}
        return {floats: inner + outer}

    @property
    def operations(self) -> Dim:
        """Operations of one launch."""
        return sum(self.arithmetic.values(), start=0)

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{size}~" if k in self.axes else str(size) for k, size in enumerate(self.space)
        )
        return f"<Kernel {self.name} over [{sizes}]: {len(self.stages)} stages>"


@dataclass(frozen=True, slots=True)
class Branch:
    """One of two schedules, whose inputs stand for `captures`. `outputs` are the nodes around it
    that stand for results of either, by number."""

    condition: Node
    captures: tuple[Node, ...]
    then: Schedule
    otherwise: Schedule
    outputs: tuple[tuple[int, Node], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The values it reads."""
        return (self.condition, *self.captures)

    def lines(self) -> list[str]:
        """Its printed form."""
        sides = [("if", self.then), ("else", self.otherwise)]
        return [line for word, side in sides for line in (word, *_indented(side.lines()))]


@dataclass(frozen=True, slots=True)
class Loop:
    """A schedule that runs again and again. `outputs` are the nodes around it, by index."""

    parts: LoopParts
    body: Schedule  # its outputs: the condition, the following values, the rows that are used
    rows: tuple[int, ...]  # which of the rows these are
    windows: tuple[tuple[Node, Node], ...]  # (parameter, captured): one row of it each iteration
    zeros: tuple[Kernel, ...]  # fill the rows first, where a condition may leave some out
    outputs: tuple[tuple[int, Node], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it reads from memory."""
        return self.parts.read

    @property
    def overwritten(self) -> tuple[Node, ...]:
        """The initial values that the body writes rows of, and leaves the rest."""
        kernels = (step for step in self.body.steps if isinstance(step, Kernel))
        old = {value for kernel in kernels for _, value in kernel.overwrites}
        pairs = zip(self.parts.initial, self.parts.carried, strict=True)
        return tuple(initial for initial, one in pairs if one in old)

    @property
    def has_condition(self) -> bool:
        """Whether it ends by a condition too, not by a count alone."""
        return not (is_always(self.parts.condition) and is_always(self.parts.goes_on))

    def lines(self) -> list[str]:
        """Its printed form."""
        size = trip_size(self.parts.trips)
        head = "loop" if size is None else f"loop {size} times"
        filled = [line for kernel in self.zeros for line in _kernel_lines(kernel)]
        return [*filled, head, *_indented(self.body.lines())]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a size is found: `output` is the first rows of `source`, as many as `count` says."""

    source: Node
    count: Node
    output: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The values it reads."""
        return (self.source, self.count)

    @property
    def size(self) -> Found:
        """The size that it finds."""
        size: Found = self.output.attr("size")
        return size

    def lines(self) -> list[str]:
        """Its printed form."""
        return [f"{self.size} is found: rows of a value of {self.source.shape[0]}"]


@dataclass(frozen=True, slots=True)
class HostCall:
    """A function of the host: native code returns before it and goes on behind it."""

    inputs: tuple[Node, ...]
    output: Node

    @property
    def function(self) -> HostFunction:
        """What the host calls."""
        function: HostFunction = self.output.attr("function")
        return function

    def lines(self) -> list[str]:
        """Its printed form."""
        return [f"host  {self.function.name}: a segment ends"]


Step: TypeAlias = Kernel | Branch | Loop | Cut | HostCall


@dataclass(frozen=True, slots=True)
class Schedule:
    """Kernels, branches and loops in an order in which every value is written before it is read.

    `updates` are (state, value): the value is written to the bytes of the state, after everybody
    who reads what was there before.
    """

    steps: tuple[Step, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    states: tuple[Node, ...] = ()
    updates: tuple[tuple[Node, Node], ...] = ()

    @property
    def results(self) -> tuple[Node, ...]:
        """What is made for others: outputs, and what states become."""
        return (*self.outputs, *(value for _, value in self.updates))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of them, those in branches and bodies too, in the order they stand in."""
        found: list[Kernel] = []
        pending: list[Step] = [*reversed(self.steps)]
        while pending:
            step = pending.pop()
            if isinstance(step, Kernel):
                found.append(step)
            elif isinstance(step, Branch):
                pending += reversed((*step.then.steps, *step.otherwise.steps))
            elif isinstance(step, Loop):
                pending += reversed((*step.zeros, *step.body.steps))
        return tuple(found)

    def lines(self) -> list[str]:
        """Its printed form."""
        return [
            line
            for step in self.steps
            for line in (_kernel_lines(step) if isinstance(step, Kernel) else step.lines())
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _kernel_lines(kernel: Kernel) -> list[str]:
    return [
        f"{kernel.number:4}  {kernel.name:<28} reads {kernel.reads_nbytes}, writes "
        f"{kernel.writes_nbytes} bytes, {kernel.operations} operations",
        f"      ends here: {kernel.border}",
    ]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def outer_index(kernel_axes: tuple[int, ...], variables: tuple[Var, ...]) -> Index:
    """The index of a reduced value: the variables that are not reduced."""
    return tuple(var for k, var in enumerate(variables) if k not in kernel_axes)
