"""The copy of input lines that a tile of a convolution begins with, and how it lies in scratch.

    [deep tap][line][pixel][channel]     channels side by side; pixels one cache line further apart
                                         where tiles would walk one set of the cache
    [deep tap][line][channel][pixel]     planes: few channels that come as planes stay so

Lines have zeros, or what else lies around the image, at their ends where the convolution is
padded. Lines above and below the image are left out, unless the copy is open: no tap looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.base import GROUP, ConvLoops, any_var
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE
from arenite.backends.cpu.conv.sides import ZERO, Side
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, SCRATCH, TILE
from arenite.backends.cpu.ops.byte_products import WORD
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import Scope, index_expr
from arenite.dtype import DType
from arenite.ir.dim import Dim


@dataclass(frozen=True, slots=True)
class Room:
    """Distances in scratch, in elements."""

    tile: Dim
    deep: Dim
    line: Dim
    pixel: Dim
    channel: Dim


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied of the input: of its last side and all channels of a group, along these sides.

    `fill` is what lies around the image. Where the copy is open, lines outside are part of it.
    """

    conv: ConvLoops
    deep: Sequence[Side]
    block: Side
    room: Room
    dtype: DType
    are_planes: bool
    is_transposed: bool
    is_flat: bool  # a line lies in the input as it does in scratch
    fill: int = 0
    is_open: bool = False

    def statements(self) -> ir.Block:
        """For every deep tap, every line of the block; only those inside if it is not open."""
        block, row = self.block, ir.Name("copied_line")
        n_lines = (LAST_LINE - FIRST_LINE - 1) * block.place_step + (block.reach + 1)
        made = self._line(row)
        first, last = block.first_copied(FIRST_LINE), block.last_copied(FIRST_LINE, n_lines)
        taps = [(ir.Name(f"deep_tap{k}"), side) for k, side in enumerate(self.deep)]
        if self.is_open:
            first, last = ZERO, n_lines
            places = [(block, block.origin(FIRST_LINE) + row * block.step)]
            places += [
                (side, side.origin(ir.Name(side.var.name)) + tap * side.dilation)
                for tap, side in taps
            ]
            for side, at in places:
                inside = (at >= 0) & (at < index_expr(side.size))
                made = (ir.If(inside, made, self._outside(row)),)
        made = (ir.For(row.name, first, last, made),)
        for tap, side in taps:
            place = ir.Name(side.var.name)
            first, last = side.first_tap(place), side.last_tap(place)
            if self.is_open:
                first, last = ZERO, ir.index(side.taps)
            made = (ir.For(tap.name, first, last, made),)
        return made

    def _element(self, at: Sequence[Dim], channel: Dim) -> tuple[ir.Block, ir.Expr]:
        """What names an element of x, by positions along the sides and a channel; its name."""
        conv, scope = self.conv, Scope()
        index = conv.index(at, any_var(GROUP.name) * conv.depth + channel)
        value = conv.values.at(conv.x, index, scope)
        return scope.block, value if value.dtype == self.dtype else ir.Cast(value, self.dtype)

    def _run(self, at: Sequence[Dim], number: ir.Expr) -> ir.Expr:
        """An element of a line of x, counted from the position on."""
        conv = self.conv
        found = conv.in_memory(conv.index(at, any_var(GROUP.name) * conv.depth))
        assert found is not None
        node, position, _ = found
        value = ir.Load(conv.names[node], index_expr(position) + number, node.dtype)
        return value if value.dtype == self.dtype else ir.Cast(value, self.dtype)

    def _start(self, row: ir.Expr) -> ir.Expr:
        start = TILE * index_expr(self.room.tile) + row * index_expr(self.room.line)
        for k, _ in enumerate(self.deep):
            start = start + ir.Name(f"deep_tap{k}") * index_expr(self.room.deep)
        return start

    def _positions(self, row: ir.Name, pixel: ir.Name) -> list[Dim]:
        """Positions along the sides of an element of the copy."""
        line = self.conv.line
        deep = [
            side.position(side.var) + any_var(f"deep_tap{k}") * side.dilation
            for k, side in enumerate(self.deep)
        ]
        return [
            *deep,
            self.block.position(any_var(FIRST_LINE.name)) + any_var(row.name) * self.block.step,
            line.position(any_var(FIRST_ROW.name)) + any_var(pixel.name) * line.step,
        ]

    def _line(self, row: ir.Name) -> ir.Block:
        """Fill, elements, fill."""
        line, room = self.conv.line, self.room
        start = ir.Name("line_start")
        count = (LAST_ROW - FIRST_ROW - 1) * line.place_step + (line.reach + 1)
        first, last, end = ir.Name("first_inside"), ir.Name("last_inside"), ir.Name("line_end")
        bound = ir.Binary("min", line.first_copied(FIRST_ROW), end)
        inside = ir.Binary("max", line.last_copied(FIRST_ROW, end), first)
        lets = (
            ir.Let(start.name, self._start(row)),
            ir.Let(end.name, count),
            ir.Let(first.name, bound if line.before != 0 else ZERO),
            ir.Let(last.name, inside if line.after != 0 else end),
        )

        def between(at: ir.Expr, pixel: ir.Expr, elements: ir.Stmt) -> ir.Block:
            before = [self._filled(at, ZERO, first * pixel)] if line.before != 0 else []
            after = [self._filled(at, last * pixel, end * pixel)] if line.after != 0 else []
            return (*before, elements, *after)

        if self.are_planes:
            channel = ir.Name("copied_channel")
            plane = start + channel * index_expr(room.channel)
            parts = between(plane, ir.index(1), self._pixels(row, plane, first, last, channel))
            return (*lets, ir.For(channel.name, ZERO, ir.index(self.conv.depth), parts))
        elements = self._elements(row, start, first, last)
        return (*lets, *between(start, index_expr(room.pixel), elements))

    def _outside(self, row: ir.Name) -> ir.Block:
        """A line that is all fill."""
        line, start = self.conv.line, ir.Name("line_start")
        count = (LAST_ROW - FIRST_ROW - 1) * line.place_step + (line.reach + 1)
        filled = self._filled(start, ZERO, count * index_expr(self.room.pixel))
        return (ir.Let(start.name, self._start(row)), filled)

    def _filled(self, start: ir.Expr, first: ir.Expr, last: ir.Expr) -> ir.Stmt:
        at, fill = ir.Name("filled_at"), self.fill if self.dtype.bits == 8 else float(self.fill)
        store = ir.Store(SCRATCH, start + at, ir.Const(fill, self.dtype))
        return ir.For(at.name, first, last, (store,), vector=True)

    def _pixels(
        self, row: ir.Name, plane: ir.Expr, first: ir.Expr, last: ir.Expr, channel: ir.Name
    ) -> ir.Stmt:
        """One channel's pixels of a line."""
        pixel = ir.Name("copied_pixel")
        named, value = self._element(self._positions(row, pixel), any_var(channel.name))
        body = (*named, ir.Store(SCRATCH, plane + pixel, value))
        return ir.For(pixel.name, first, last, body, vector=True)

    def _elements(self, row: ir.Name, start: ir.Expr, first: ir.Name, last: ir.Name) -> ir.Stmt:
        """All channels of the pixels of a line; bytes of less than a word one by one, which takes
        less than part of a vector."""
        pixel, channel, depth = ir.Name("copied_pixel"), ir.Name("copied_channel"), self.conv.depth
        if self.is_flat:
            at = ir.Name("copied_at")
            value = self._run(self._positions(row, first), at)
            body: ir.Block = (ir.Store(SCRATCH, start + first * depth + at, value),)
            return ir.For(at.name, ZERO, (last - first) * depth, body, vector=True)
        positions, place = self._positions(row, pixel), start + pixel * index_expr(self.room.pixel)
        if self.dtype.bits == 8 and depth < WORD:
            stores: list[ir.Stmt] = []
            for k in range(depth):
                named, value = self._element(positions, k)
                stores += [*named, ir.Store(SCRATCH, place + k, value)]
            return ir.For(pixel.name, first, last, tuple(stores))
        named, value = self._element(positions, any_var(channel.name))
        body = (*named, ir.Store(SCRATCH, place + channel, value))
        inner = ir.For(channel.name, ZERO, ir.index(depth), body, vector=True)
        return ir.For(pixel.name, first, last, (inner,), vector=self.is_transposed)
