"""Drafts: kernels in the making, and what two of them become when they are joined.

A producer and its consumer are one kernel where the consumer reads a value at the very point of
the space at which it is made: on the same space, or, at the points where a reduction is complete,
as its epilogue. An epilogue of one product may read another, if both can be made side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from arenite.dtype import Kind
from arenite.ir.dim import bounds, product, substitute
from arenite.ir.node import Node, Shape
from arenite.ir.ops.access import Index, space_vars
from arenite.ir.ops.define import OPS
from arenite.schedule.kernel import Role, Stage, outer_index
from arenite.schedule.roots import MAX_OPS, MAX_PIECES

#: Rows too few to be shared out, and points of a space from which on that matters.
FEW_ROWS = 8
MUCH_WORK = 1 << 18

#: What a kernel reads: the indices at which it does, in variables of its space; None for an op
#: that reads as it likes.
Reads: TypeAlias = dict[Node, set[Index] | None]


@dataclass(eq=False, slots=True)
class Draft:
    """A kernel in the making."""

    space: Shape
    axes: tuple[int, ...]
    stages: list[Stage]
    n_ops: int
    reads: Reads
    n_outer_ops: int = 0
    n_pieces: int = 0  # that elements are chosen from
    joined_into: Draft | None = None

    def final(self) -> Draft:
        """What it was joined into in the end."""
        draft = self
        while draft.joined_into is not None:
            draft = draft.joined_into
        if draft is not self:
            self.joined_into = draft  # the next one who asks has a shorter way
        return draft

    @property
    def all_ops(self) -> int:
        return self.n_ops + self.n_outer_ops

    @property
    def is_map(self) -> bool:
        return all(stage.role is Role.ROW for stage in self.stages) and not self.axes

    @property
    def is_opaque(self) -> bool:
        return self.is_construct or None in self.reads.values()

    @property
    def is_construct(self) -> bool:
        return OPS[self.stages[0].node.op].is_construct

    @property
    def joins_parts(self) -> bool:
        """Whether it writes complex numbers, whose parts only maps put together."""
        return any(stage.node.dtype.kind is Kind.COMPLEX for stage in self.stages)

    @property
    def is_contraction(self) -> bool:
        return any(OPS[stage.node.op].is_contraction for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Fit:
    """What a producer and its consumer become when they are joined."""

    space: Shape
    axes: tuple[int, ...]
    stages: list[Stage]
    consumer_reads: Reads
    is_epilogue: bool = False  # the consumer's work is done once for each outer point


def fit_of(producer: Draft, consumer: Draft) -> Fit | None:
    """The two as one kernel, or None where a value is needed elsewhere than where it is made."""
    if producer.is_opaque or consumer.is_opaque or producer.all_ops + consumer.all_ops > MAX_OPS:
        return None
    if producer.n_pieces + consumer.n_pieces > MAX_PIECES:
        return None
    if (producer.axes or consumer.axes) and (producer.joins_parts or consumer.joins_parts):
        return None
    made = {stage.node: stage.role for stage in producer.stages}
    wanted = {node: at for node, at in consumer.reads.items() if node in made}
    if consumer.space == producer.space and not consumer.is_contraction:
        if producer.is_contraction:
            return None
        axes = producer.axes or consumer.axes
        if (producer.axes or axes) != axes or (not consumer.is_map and consumer.axes != axes):
            return None
        if consumer.is_map and axes and _is_lopsided(producer):
            return None
        variables = space_vars(producer.space)
        outer = outer_index(axes, variables)
        places = {Role.ROW: {variables}, Role.REDUCE: {outer}, Role.SCALAR: {outer}}
        if any(indices != places[made[node]] for node, indices in wanted.items()):
            return None
        return Fit(producer.space, axes, producer.stages + consumer.stages, consumer.reads)
    if _are_beside(producer, consumer):
        outer = outer_index(producer.axes, space_vars(producer.space))
        if any(indices != {outer} for indices in wanted.values()):
            return None
        return Fit(producer.space, producer.axes, producer.stages + consumer.stages, consumer.reads)
    outer_axes = [k for k in range(len(producer.space)) if k not in producer.axes]
    outer_shape = tuple(producer.space[k] for k in outer_axes)
    if producer.axes and consumer.is_map and consumer.space == outer_shape:
        # An epilogue: at the points where the reduction is complete.
        variables = space_vars(outer_shape)
        if any(indices != {variables} for indices in wanted.values()):
            return None
        if any(made[node] is Role.ROW for node in wanted):
            return None
        outer = outer_index(producer.axes, space_vars(producer.space))
        inner = dict(zip(variables, outer, strict=True))
        reads: Reads = {
            node: {tuple(substitute(dim, inner) for dim in at) for at in indices or ()}
            for node, indices in consumer.reads.items()
        }
        scalars = [Stage(stage.node, Role.SCALAR) for stage in consumer.stages]
        return Fit(producer.space, producer.axes, producer.stages + scalars, reads, True)
    return None


def _are_beside(producer: Draft, consumer: Draft) -> bool:
    """Whether the producer is one reduction that can be made beside the one that the consumer
    begins with."""
    if (producer.space, producer.axes) != (consumer.space, consumer.axes):
        return False
    [first, *others], mine = consumer.stages, producer.stages[0].node
    beside = OPS[mine.op].beside
    is_alone = len(producer.stages) == 1 and all(one.role is Role.SCALAR for one in others)
    return is_alone and beside is not None and beside(mine, first.node)


def _is_lopsided(draft: Draft) -> bool:
    """Whether few rows share much work: what is a map after it is better off by itself."""
    low, high = bounds(product([size for k, size in enumerate(draft.space) if k not in draft.axes]))
    # Where sizes are open there may be few rows, or much work, but not both at once.
    inner = bounds(product([draft.space[k] for k in draft.axes]))[1]
    return low < FEW_ROWS and inner * min(high, FEW_ROWS) >= MUCH_WORK


def in_place_of(draft: Draft, stored: list[Node]) -> tuple[tuple[Node, Node], ...]:
    """Which outputs may take the bytes of which inputs: those of a map, or made of finished sums,
    that read each element where they are written and nowhere else."""
    roles = {stage.role for stage in draft.stages}
    if draft.is_map:
        here: set[Index] = {space_vars(draft.space)}
    elif OPS[draft.stages[0].node.op].is_packed and roles == {Role.REDUCE, Role.SCALAR}:
        here = {outer_index(draft.axes, space_vars(draft.space))}
    else:
        return ()
    return tuple(
        (output, read)
        for output in stored
        for read, indices in draft.reads.items()
        if indices == here
        and read.shape == output.shape
        and read.dtype.bits == output.dtype.bits
        and OPS[read.op].storage != "constant"
        and read.op != "input"
    )
