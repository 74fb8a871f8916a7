"""A conv_last of the schedule becomes a ConvKernel.

The input is read in place where its lines need no zeros at their ends and tiles can walk it; else
each tile of the launch copies the lines it needs to scratch first, through whatever views there are
between. A convolution of one tap without stride is a product over all pixels as one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Builder
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.loops import Nest
from arenite.codegen.kernels.values import Scope, compute_dtype, index_expr
from arenite.codegen.micro.blocking import LATER_ROWS
from arenite.codegen.micro.build import SHORT_OPS
from arenite.codegen.micro.conv_copy import Copy, Room, room
from arenite.codegen.micro.conv_cut import ConvCut, ConvSizes, cut_conv
from arenite.codegen.micro.conv_kernel import FIRST_LINE, LAST_LINE, Conv, ConvKernel, Taps
from arenite.codegen.micro.conv_sides import ZERO, Side, sides_of
from arenite.codegen.micro.driver import _START
from arenite.codegen.micro.kernel import (
    BLOCK,
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SCRATCH,
    SUM,
    TILE,
    Operand,
    Product,
)
from arenite.codegen.target import Target
from arenite.dtype import DType, Kind
from arenite.ir.dim import Dim, Var, bounds, ceildiv, maximum, product
from arenite.ir.node import Node
from arenite.ir.ops.convolution import PANEL
from arenite.schedule.access import (
    Index,
    Source,
    coefficient,
    is_elementwise,
    is_view,
    linear,
    reshaped_index,
    sources,
    substitute,
)
from arenite.schedule.kernel import Kernel, Role, outer_index, space_vars
from arenite.schedule.roots import COSTS

#: Elements so far apart fall into one set of the cache, which holds a few more than this many.
SET_NBYTES = 4096
SET_ROWS = 6
#: As many as there may be.
_ANY = 2**40
#: Elements that are put between pixels then: a cache line.
_GAP = 16
#: Channels up to which an input that comes as planes is copied as planes.
PLANES = 8

_NO_LINES = Side(Var("_one_line", 0, 0), 1, 1, 1, 1, 1, 0, 0)
_GROUP = ir.Name("channel_group")


@dataclass(frozen=True, slots=True)
class Lies:
    """Steps of an input, in elements: along deep sides and lines, pixels, channels."""

    array: str
    dtype: DType
    start: Dim  # of a copy: from tile to tile
    lines: tuple[Dim, ...]
    pixel: Dim
    channel: Dim


def build_conv(kernel: Kernel, target: Target) -> Built | None:
    """The kernel as a ConvKernel, or None if it is not one that register tiles fit."""
    node = next(stage.node for stage in kernel.stages if stage.role is Role.REDUCE)
    if node.op != "conv_last" or not target.has_fma:
        return None
    if not all(isinstance(size, int) for size in node.inputs[1].shape):
        return None
    builder = _ConvBuilder(kernel, node)
    return builder.built(target) if builder.fits else None


class _ConvBuilder(Builder):
    def __init__(self, kernel: Kernel, node: Node) -> None:
        super().__init__(kernel)
        self.node = node
        self.x, self.panels = node.inputs
        self.sum_dtype = compute_dtype(node.dtype)
        self.groups, self.n_panels, *taps, self.depth, _ = (
            bounds(size)[1] for size in self.panels.shape
        )
        self.channels: int = node.attr("channels") // self.groups
        self.panel = PANEL * self.depth
        for count in taps:
            self.panel *= count
        self.variables = space_vars(kernel.space)
        self.column = self.variables[node.ndim - 1]
        self.images: list[tuple[Var, Dim]] = [(self.variables[0], node.shape[0])]
        sides = sides_of(node, self.variables[1 : node.ndim - 1], taps)
        self.fits = (
            self.depth > 0
            and self.panels in self.names
            and self.sum_dtype.kind is Kind.FLOAT
            and self.panels.dtype.kind is Kind.FLOAT
            and all(side.is_always_inside for side in sides[:-1])
        )
        self.joined: Var | None = None
        self._walk_by({})
        if all(side.is_plain for side in sides):
            sides = self._joined(sides)
        sides = [*[_NO_LINES] * (2 - len(sides)), *sides]
        *self.deep, self.block, self.line = sides

    # How places are counted, and where the input's elements lie.

    def _walk_by(self, replaced: dict[Var, Dim]) -> None:
        position: dict[Var, Dim] = {var: replaced.get(var, var) for var in self.variables}
        self.nest = Nest((), position, None, 1, 1)
        self.point = self.nest.map_index(self.variables)
        self.outer_point = self.nest.map_index(outer_index(self.kernel.axes, self.variables))

    def _joined(self, sides: list[Side]) -> list[Side]:
        """All pixels as one line: of all images if the input lies so, else of each."""
        shape, images = self.node.shape[:-1], self.images
        for first in (0, 1):
            total = product(shape[first:])
            pixel = Var("_pixel", 0, max(0, bounds(total)[1] - 1))
            apart = reshaped_index((pixel,), (total,), shape[first:])
            self._walk_by(dict(zip(self.variables[first : len(shape)], apart, strict=True)))
            self.joined, self.images = pixel, images if first else []
            found = self._in_memory(self._index([pixel], 0))
            if found is not None and coefficient(found[1], pixel) is not None:
                return [Side(pixel, total, total, 1, 1, 1, 0, 0)]
        self.joined, self.images = None, images
        self._walk_by({})
        return sides

    def _index(self, at: Sequence[Dim], channel: Dim) -> Index:
        """The index of an element of x, from its positions along the sides."""
        outer = self.variables[: self.x.ndim - 1]
        if self.joined is None:
            return (outer[0], *at[-(self.x.ndim - 2) :], channel)
        moved: dict[Var, Dim] = {self.joined: at[-1]}
        return (*(substitute(self.nest.position[var], moved) for var in outer), channel)

    def _in_memory(self, index: Index) -> tuple[Node, Dim] | None:
        """Where an element of x lies, if nothing but plain views is between."""
        source = Source(self.x, index)
        while source.node not in self.names:
            if not is_view(source.node) or source.guards:
                return None
            inner = sources(source.node, source.index)
            if len(inner) != 1:
                return None
            [source] = inner
        return None if source.guards else (source.node, linear(source.index, source.node.shape))

    def _lies(self) -> Lies | None:
        """How x lies in memory, if its elements are even steps apart."""
        at = [_far(f"_at{k}") for k in range(len(self.deep) + 2)]
        channel = _far("_channel")
        found = self._in_memory(self._index(at, _far(_GROUP.name) * self.depth + channel))
        if found is None:
            return None
        node, position = found
        steps = [coefficient(position, var) for var in (*at, channel)]
        known = tuple(step for step in steps if step is not None)
        if len(known) != len(steps):
            return None
        start = substitute(position, dict.fromkeys((*at, channel), 0))
        return Lies(self.names[node], node.dtype, start, known[:-2], known[-2], known[-1])

    # The kernel.

    def built(self, target: Target) -> Built:
        lies = self._lies()
        in_place = lies is not None and self._can_walk(lies)
        are_planes = (
            lies is not None and lies.channel != 1 and lies.pixel == 1 and self.depth <= PLANES
        )
        cut = cut_conv(self._sizes(lies if in_place else None), self.sum_dtype, target)
        n_tiles, place = self._place(cut)
        scratch: tuple[Scratch, ...] = ()
        if in_place:
            assert lies is not None
            walked = lies
        else:
            inside = self._room(cut, are_planes)
            copy = self._copy(lies, inside, are_planes)
            place = (*place, *copy.statements())
            walked = _copied(inside, self.sum_dtype, len(self.deep))
            scratch = (Scratch(self.sum_dtype, n_tiles * inside.tile),)
        on_line = self._on_line()
        loops = self._loops(walked, in_place)
        names = [*(side.var.name for side in (*self.deep, self.block)), *self._tap_counts()]
        made = Product(
            a=Operand(
                walked.array,
                walked.dtype,
                self._line_start(walked, in_place),
                index_expr(walked.pixel * (self.line.stride if in_place else self.line.place_step)),
                ir.index(1),
            ),
            b=Operand(self.names[self.panels], self.panels.dtype, ZERO, ZERO, ir.index(PANEL)),
            sum_dtype=self.sum_dtype,
            row=self.line.var.name,
            column=self.column.name,
            batch=(*(var.name for var, _ in self.images), *names),
            depth=loops[-1].count,
            n_columns=ir.index(self.channels),
            blocks=index_expr(n_tiles),
            blocks_a_tile=1,
            place=place,
            lanes=cut.lanes,
            columns=cut.columns,
            heights=cut.heights,
            copies_b=False,
            few_up_to=0,
            few_form="stream",
            few_columns=PANEL,
            few_heights=(),
            epilogue=self._epilogue(),
            is_short=self._epilogue_ops() <= SHORT_OPS,
        )
        conv = Conv(loops, self.panel, self._panels_at(), self.block.var.name, on_line)
        plain = self._kernel(n_tiles, self._meaning(cut)).loops
        arrays = plain.arrays
        if scratch:
            arrays += (ir.ArrayArg(SCRATCH, self.sum_dtype, "inout"),)
        kernel = ConvKernel(
            plain.name, arrays, plain.sizes, plain.tiles, plain.tile_var, plain.body, made, conv
        )
        return Built(kernel, n_tiles, scratch)

    def _can_walk(self, lies: Lies) -> bool:
        """Whether tiles can read x where it is."""
        return not self.line.is_padded and (lies.channel == 1 or self.depth == 1)

    def _most_pixels(self, lies: Lies) -> int:
        """Pixels that a tile can walk in place without their pushing each other out of a set."""
        step = lies.pixel * self.line.stride * lies.dtype.bits // 8
        if not isinstance(step, int):
            return SET_ROWS
        return SET_ROWS * (SET_NBYTES // gcd(step, SET_NBYTES))

    def _sizes(self, in_place: Lies | None) -> ConvSizes:
        pixels, size = (
            n if isinstance(n, int) else min(bounds(n)[1], LATER_ROWS)
            for n in (self.line.places, self.line.size)
        )
        n_deep = product([side.places for side in self.deep])
        of_line = self.depth * 4 * (pixels if self.line.taps == 1 else size)
        for side in self.deep:
            of_line *= side.taps
        return ConvSizes(
            product([size for _, size in self.images]) * n_deep,
            self.block.places,
            self.line.places,
            self.groups,
            self.channels,
            self.panel // PANEL,
            of_line * self.block.place_step,
            self.block.reach,
            in_place is None,
            _ANY if in_place is None else self._most_pixels(in_place),
        )

    def _place(self, cut: ConvCut) -> tuple[Dim, ir.Block]:
        """How many tiles there are, and a tile's number taken apart; channels vary fastest."""
        n_chunks = -(-self.channels // cut.block_channels)
        n_lines = ceildiv(self.block.places, cut.block_lines)
        n_rows = ceildiv(self.line.places, cut.block_pixels)
        rest: ir.Expr = BLOCK
        lets: list[ir.Stmt] = []

        def taken(size: Dim) -> ir.Expr:
            nonlocal rest
            if size == 1:
                return ZERO
            count = index_expr(maximum(size, 1))
            part, rest = rest % count, rest // count
            return part

        chunk, rows, lines = taken(n_chunks), taken(n_rows), taken(n_lines)
        lets.append(ir.Let(_GROUP.name, taken(self.groups)))
        outer = [*self.images, *((side.var, side.places) for side in self.deep)]
        lets += [ir.Let(var.name, taken(size)) for var, size in reversed(outer)]
        first = chunk * cut.block_channels
        last = ir.Binary("min", first + cut.block_channels, ir.index(self.channels))
        group_start = _GROUP * self.channels
        for start, stop, number, length, size in (
            (FIRST_LINE, LAST_LINE, lines, cut.block_lines, self.block.places),
            (FIRST_ROW, LAST_ROW, rows, cut.block_pixels, self.line.places),
        ):
            begin = number * index_expr(length)
            end = ir.Binary("min", begin + index_expr(length), index_expr(size))
            lets += [ir.Let(start.name, begin), ir.Let(stop.name, end)]
        lets += [
            ir.Let(FIRST_COLUMN.name, group_start + first),
            ir.Let(LAST_COLUMN.name, group_start + last),
        ]
        for k, side in enumerate(self.deep):
            lets += _tap_lets(f"deep{k}", side)
        n_tiles = product([size for _, size in outer]) * self.groups * n_lines * n_rows * n_chunks
        return n_tiles, tuple(lets)

    def _on_line(self) -> ir.Block:
        return tuple(_tap_lets("line", self.block))

    def _tap_counts(self) -> list[str]:
        sides = [*((f"deep{k}", side) for k, side in enumerate(self.deep)), ("line", self.block)]
        return [f"{name}_taps" for name, side in sides if side.is_padded]

    def _room(self, cut: ConvCut, are_planes: bool) -> Room:
        pixel = self.depth
        if pixel * self.line.place_step * self.sum_dtype.bits // 8 % (SET_NBYTES // 2) == 0:
            pixel += _GAP
        n_lines, n_pixels = self.block.copied(cut.block_lines), self.line.copied(cut.block_pixels)
        return room(self.deep, n_lines, n_pixels, self.depth, pixel, are_planes)

    def _copy(self, lies: Lies | None, inside: Room, are_planes: bool) -> Copy:
        group_start = _far(_GROUP.name) * self.depth

        def element(at: Sequence[Dim], channel: Dim) -> tuple[ir.Block, ir.Expr]:
            scope = Scope()
            index = self._index(at, group_start + channel)
            value = self.values.at(self.x, index, scope)
            return scope.block, value

        def run(at: Sequence[Dim], number: ir.Expr) -> ir.Expr:
            found = self._in_memory(self._index(at, group_start))
            assert found is not None
            node, position = found
            return ir.Load(self.names[node], index_expr(position) + number, node.dtype)

        is_flat = (
            lies is not None
            and lies.channel == 1
            and lies.pixel * self.line.step == self.depth == inside.pixel
        )
        is_transposed = lies is None or lies.channel != 1
        return Copy(
            self.deep,
            self.block,
            self.line,
            self.depth,
            inside,
            self.sum_dtype,
            are_planes,
            is_transposed,
            element,
            run if is_flat else None,
        )

    def _loops(self, walked: Lies, in_place: bool) -> tuple[Taps, ...]:
        """How K is walked: deep taps, taps of lines, taps of pixels and channels."""
        loops: list[Taps] = []
        below = self.panel
        named = [*(f"deep{k}" for k in range(len(self.deep))), "line"]
        for name, side, step in zip(named, [*self.deep, self.block], walked.lines, strict=True):
            below //= side.taps
            if side.taps > 1:
                count = ir.Name(f"{name}_taps") if side.is_padded else ir.index(side.taps)
                # A copy has one entry for each deep tap, and lines as they are.
                is_dilated = in_place or side is self.block
                far = step * (side.dilation if is_dilated else 1)
                loops.append(Taps(count, index_expr(far), below))
        pixel = walked.pixel * self.line.dilation
        if walked.channel == 1 and pixel == self.depth:
            return (*loops, Taps(ir.index(self.line.taps * self.depth), ir.index(1), PANEL))
        channels = Taps(ir.index(self.depth), index_expr(walked.channel), PANEL)
        if self.line.taps == 1:
            return (*loops, channels)
        pixels = Taps(ir.index(self.line.taps), index_expr(pixel), PANEL * self.depth)
        inner = (pixels, channels) if self.depth >= self.line.taps else (channels, pixels)
        return (*loops, *inner)

    def _line_start(self, walked: Lies, in_place: bool) -> ir.Expr:
        """The first element that the pixel 0 of a line reads, wherever the tile begins."""
        start = index_expr(walked.start) if in_place else TILE * index_expr(walked.start)
        named = [*(f"deep{k}" for k in range(len(self.deep))), "line"]
        for name, side, step in zip(named, [*self.deep, self.block], walked.lines, strict=True):
            place = ir.Name(side.var.name)
            first = ir.Name(f"{name}_first") if side.is_padded else ZERO
            if in_place:
                at = side.origin(place) + first * side.dilation
            elif side is self.block:
                at = (place - FIRST_LINE) * side.place_step + first * side.dilation
            else:
                at = first
            start = start + at * index_expr(step)
        if in_place:
            return start
        return start - FIRST_ROW * index_expr(walked.pixel * self.line.place_step)

    def _panels_at(self) -> ir.Expr:
        """Where the columns from _START on begin, at the first taps inside."""
        within = _START - _GROUP * self.channels
        at = _GROUP * (self.n_panels * self.panel) + within // PANEL * self.panel
        below = self.panel
        named = [*(f"deep{k}" for k in range(len(self.deep))), "line"]
        for name, side in zip(named, [*self.deep, self.block], strict=True):
            below //= side.taps
            if side.is_padded:
                at = at + ir.Name(f"{name}_first") * below
        return at

    def _meaning(self, cut: ConvCut) -> ir.Block:
        """What a tile computes, element by element."""
        scope, inner = Scope(), Scope()
        inner.outer = scope
        name = self._accumulate(self.node, scope, inner)
        body = inner.block
        for var, size in reversed([*zip(self.variables, self.kernel.space, strict=True)]):
            if var in self.variables[self.node.ndim :]:
                body = (ir.For(var.name, ZERO, index_expr(size), body),)
        scope.statements += body
        self._finish(self.node, name, scope)
        for stage in self.kernel.stages:
            if stage.role is Role.SCALAR:
                self._scalar(stage.node, scope)
        _, place = self._place(cut)
        columns = ir.For(self.column.name, FIRST_COLUMN, LAST_COLUMN, scope.block, vector=True)
        rows = ir.For(self.line.var.name, FIRST_ROW, LAST_ROW, (columns,))
        lines = ir.For(self.block.var.name, FIRST_LINE, LAST_LINE, (rows,))
        return (ir.Let(BLOCK.name, TILE), *place, lines)

    def _epilogue(self) -> ir.Block:
        """From the finished sum to what is stored."""
        scope = Scope()
        total: ir.Expr = ir.Name(SUM, self.sum_dtype)
        if self.node.dtype != self.sum_dtype:
            total = ir.Cast(total, self.node.dtype)
        self._name_scalar(self.node, total, scope)
        for stage in self.kernel.stages:
            if stage.role is Role.SCALAR:
                self._scalar(stage.node, scope)
        return scope.block

    def _epilogue_ops(self) -> int:
        return sum(COSTS.get(node.op, 1) for node in self._inlined() if is_elementwise(node))


def _far(name: str) -> Var:
    """A variable that may have any value."""
    return Var(name, 0, _ANY)


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


def _copied(inside: Room, dtype: DType, n_deep: int) -> Lies:
    lines = (*[inside.deep] * n_deep, inside.line)
    return Lies(SCRATCH, dtype, inside.tile, lines, inside.pixel, inside.channel)
