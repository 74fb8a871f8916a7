"""What builders of convolutions with channels last share: places, tiles, where the input lies.

The places of an output are images, lines and the pixels of a line; before lines there may be one
more axis, the deep one. A tile of a launch is one image (and one deep place), a block of lines, a
block of pixels and a chunk of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.cut import ConvCut
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE
from arenite.backends.cpu.conv.sides import ZERO, Side, sides_of
from arenite.backends.cpu.gemm.blocking import LATER_ROWS
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    BlockNumber,
    Product,
    in_blocks,
)
from arenite.backends.cpu.gemm.sum_epilogue import epilogue_of, sum_start
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.loops import Nest
from arenite.codegen.kernels.values import Scope, compute_dtype, index_expr
from arenite.dtype import DType
from arenite.ir.dim import Dim, LoopVar, Var, bounds, ceildiv, maximum, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import (
    Index,
    Source,
    coefficient,
    is_view,
    linear,
    reshaped_index,
    sources,
    space_vars,
)
from arenite.schedule.kernel import Kernel, outer_index

#: Pixels from which on an image is worth a line of its own.
FEW_PIXELS = 14
#: Images that a run is taken to have where that is known later, and each of them has few pixels.
FEW_IMAGES = 4
#: As many as there may be.
ANY = 2**40

_NO_LINES = Side(LoopVar("_one_line", 0, 0), 1, 1, 1, 1, 1, 0, 0)
GROUP = ir.Name("channel_group")


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Steps of an input, in elements: along deep sides and lines, pixels, channels."""

    array: str
    dtype: DType
    start: Dim  # of a copy: from tile to tile
    lines: tuple[Dim, ...]
    pixel: Dim
    channel: Dim
    is_whole: bool = True  # no element is made up by a view between


class ConvLoops(KernelBuilder):
    """The loops of a kernel whose reduction is a convolution with channels last."""

    def __init__(
        self,
        kernel: Kernel,
        node: Node,
        taps: Sequence[int],
        groups: int,
        channels: int,
        depth: int,
    ) -> None:
        super().__init__(kernel)
        self.node, self.x, self.w = node, *node.inputs
        self.groups, self.channels, self.depth = groups, channels, depth  # channels of a group
        self.sum_dtype = compute_dtype(node.dtype)
        self.variables = space_vars(kernel.space)
        self.column = self.variables[node.ndim - 1]
        self.images: list[tuple[Var, Dim]] = [(self.variables[0], node.shape[0])]
        sides = sides_of(node, self.variables[1 : node.ndim - 1], taps)
        self.joined: Var | None = None
        self.later_pixels = LATER_ROWS  # what a line is taken to have where that is known later
        self._walk_by({})
        if all(side.is_plain for side in sides):
            sides = self._joined(sides)
        sides = [*[_NO_LINES] * (2 - len(sides)), *sides]
        *self.deep, self.block, self.line = sides

    def epilogue(self) -> ir.Block:
        return epilogue_of(self, self.node, self.sum_dtype)

    def sum_start(self) -> tuple[ir.Expr | None, ir.Block]:
        """What sums begin with, if not with zero, and the epilogue without it."""
        known = frozenset({self.column.name, *self.batch} - {self.line.var.name})
        return sum_start(self.epilogue(), known)

    @property
    def clipped(self) -> list[tuple[str, Side]]:
        """The sides of which taps may lie outside, with their names: all but the line's."""
        return [*((f"deep{k}", side) for k, side in enumerate(self.deep)), ("line", self.block)]

    @property
    def n_images(self) -> Dim:
        """How often there are lines: images, and places along the deep sides."""
        return product([*(size for _, size in self.images), *(side.places for side in self.deep)])

    @property
    def batch(self) -> tuple[str, ...]:
        """What a function must be told beside pixel and channel."""
        taps = [f"{name}_taps" for name, side in self.clipped if side.is_padded]
        places = [side.var.name for _, side in self.clipped]
        return (*(var.name for var, _ in self.images), *places, *taps)

    def _walk_by(self, replaced: dict[Var, Dim]) -> None:
        position: dict[Var, Dim] = {var: replaced.get(var, var) for var in self.variables}
        self.nest = Nest((), position, None, 1, 1)
        self.point = self.nest.map_index(self.variables)
        self.outer_point = self.nest.map_index(outer_index(self.kernel.axes, self.variables))

    def _joined(self, sides: list[Side]) -> list[Side]:
        """All pixels as one line: of all images if the input lies so, else of each.

        Where images are counted later, a line of each has heights that are known now.
        """
        shape, images = self.node.shape[:-1], self.images
        own = product(shape[1:])
        is_known = isinstance(own, int) and own >= FEW_PIXELS and not isinstance(shape[0], int)
        for first in (1, 0) if is_known else (0, 1):
            total = product(shape[first:])
            pixel = LoopVar("_pixel", 0, max(0, bounds(total)[1] - 1))
            apart = reshaped_index((pixel,), (total,), shape[first:])
            self._walk_by(dict(zip(self.variables[first : len(shape)], apart, strict=True)))
            self.joined, self.images = pixel, images if first else []
            found = self.in_memory(self.index([pixel], 0))
            if found is not None and coefficient(found[1], pixel) is not None:
                if sides and isinstance(own, int) and not isinstance(total, int):
                    self.later_pixels = FEW_IMAGES * own
                return [Side(pixel, total, total, 1, 1, 1, 0, 0)]
        self.joined, self.images = None, images
        self._walk_by({})
        return sides

    def index(self, at: Sequence[Dim], channel: Dim) -> Index:
        """The index of an element of x, from its positions along the sides."""
        outer = self.variables[: self.x.ndim - 1]
        if self.joined is None:
            return (outer[0], *at[-(self.x.ndim - 2) :], channel)
        moved: dict[Var, Dim] = {self.joined: at[-1]}
        return (*(substitute(self.nest.position[var], moved) for var in outer), channel)

    def in_memory(self, index: Index) -> tuple[Node, Dim, bool] | None:
        """Where an element of x lies, seen through views; whether it is always there."""
        source, is_whole = Source(self.x, index), True
        while source.node not in self.names:
            inner = sources(source.node, source.index) if is_view(source.node) else ()
            if len(inner) != 1:
                return None
            [source] = inner
            is_whole &= not source.guards
        return source.node, linear(source.index, source.node.shape), is_whole

    def layout(self) -> InputLayout | None:
        """How x lies in memory, if its elements are even steps apart."""
        at = [any_var(f"_at{k}") for k in range(len(self.deep) + 2)]
        channel = any_var("_channel")
        found = self.in_memory(self.index(at, any_var(GROUP.name) * self.depth + channel))
        if found is None:
            return None
        node, position, is_whole = found
        steps = [coefficient(position, var) for var in (*at, channel)]
        known = tuple(step for step in steps if step is not None)
        if len(known) != len(steps):
            return None
        start = substitute(position, dict.fromkeys((*at, channel), 0))
        return InputLayout(
            self.names[node], node.dtype, start, known[:-2], known[-2], known[-1], is_whole
        )

    def place(self, cut: ConvCut) -> tuple[Dim, ir.Block]:
        """How many blocks there are, and a block's number taken apart; channels vary fastest."""
        n_chunks = -(-self.channels // cut.block_channels)
        n_lines = ceildiv(self.block.places, cut.block_lines)
        n_rows = ceildiv(self.line.places, maximum(cut.block_pixels, 1))
        number, lets = BlockNumber(), list[ir.Stmt]()
        chunk, rows, lines = map(number.digit, (n_chunks, n_rows, n_lines))
        lets.append(ir.Let(GROUP.name, number.digit(self.groups)))
        outer = [*self.images, *((side.var, side.places) for side in self.deep)]
        lets += [ir.Let(var.name, number.digit(size)) for var, size in reversed(outer)]
        first = chunk * cut.block_channels
        last = ir.Binary("min", first + cut.block_channels, ir.index(self.channels))
        group_start = GROUP * self.channels
        for start, stop, at, length, size in (
            (FIRST_LINE, LAST_LINE, lines, cut.block_lines, self.block.places),
            (FIRST_ROW, LAST_ROW, rows, cut.block_pixels, self.line.places),
        ):
            begin = at * index_expr(length)
            end = ir.Binary("min", begin + index_expr(length), index_expr(size))
            lets += [ir.Let(start.name, begin), ir.Let(stop.name, end)]
        lets += [
            ir.Let(FIRST_COLUMN.name, group_start + first),
            ir.Let(LAST_COLUMN.name, group_start + last),
        ]
        for name, side in self.clipped[:-1]:
            lets += _tap_lets(name, side)
        n_blocks = product([size for _, size in outer]) * self.groups * n_lines * n_rows * n_chunks
        return n_blocks, tuple(lets)

    def on_line(self) -> ir.Block:
        return tuple(_tap_lets("line", self.block))

    def line_start(self, layout: InputLayout) -> ir.Expr:
        """The first element that pixel 0 of a line reads where it lies."""
        start = index_expr(layout.start)
        for (name, side), step in zip(self.clipped, layout.lines, strict=True):
            first = ir.Name(f"{name}_first") if side.is_padded else ZERO
            at = side.origin(ir.Name(side.var.name)) + first * side.dilation
            start = start + at * index_expr(step)
        return start

    def meaning(self, made: Product) -> ir.Block:
        """What a tile computes, element by element."""
        scope, inner = Scope(), Scope()
        inner.outer = scope
        name = self.accumulate(self.node, scope, inner)
        body = inner.block
        for var, size in reversed([*zip(self.variables, self.kernel.space, strict=True)]):
            if var in self.variables[self.node.ndim :]:
                body = (ir.For(var.name, ZERO, index_expr(size), body),)
        scope.statements += body
        self.finish(self.node, name, scope)
        self.scalars(scope)
        columns = ir.For(self.column.name, FIRST_COLUMN, LAST_COLUMN, scope.block, vector=True)
        rows = ir.For(self.line.var.name, FIRST_ROW, LAST_ROW, (columns,))
        lines = ir.For(self.block.var.name, FIRST_LINE, LAST_LINE, (rows,))
        return in_blocks(made, (lines,))


def any_var(name: str) -> Var:
    """A variable that may have any value."""
    return LoopVar(name, 0, ANY)


def _tap_lets(name: str, side: Side) -> list[ir.Stmt]:
    """The first tap inside, and how many are."""
    if not side.is_padded:
        return []
    place = ir.Name(side.var.name)
    first = ir.Name(f"{name}_first")
    return [
        ir.Let(first.name, side.first_tap(place)),
        ir.Let(f"{name}_taps", side.last_tap(place) - first),
    ]
