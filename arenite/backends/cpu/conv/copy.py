"""The copy of input lines that a tile of a convolution begins with, and how it lies in scratch.

    [deep tap][line][pixel][channel]     channels side by side; pixels one cache line further apart
                                         where tiles would walk one set of the cache
    [deep tap][line][channel][pixel]     planes: few channels that come as planes stay so

Lines have zeros at their ends where the convolution is padded. Lines above and below the image are
left out: no tap looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE
from arenite.backends.cpu.conv.sides import ZERO, Side
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, SCRATCH, TILE
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import DType
from arenite.ir.dim import Dim, LoopVar, Var, product

#: Variables of the copy: how many of each there are does not matter to index arithmetic.
_MANY = 2**40

#: From positions along the sides, and a channel, the statements that name an element and its name.
Element = Callable[[Sequence[Dim], Dim], tuple[ir.Block, ir.Expr]]


@dataclass(frozen=True, slots=True)
class Room:
    """Distances in scratch, in elements."""

    tile: Dim
    deep: Dim
    line: Dim
    pixel: Dim
    channel: Dim


def room(
    deep: Sequence[Side],
    n_lines: Dim,
    n_pixels: Dim,
    depth: int,
    pixel: int,
    are_planes: bool,
) -> Room:
    """Room for so many lines and pixels; `pixel` is the distance between them."""
    line = n_pixels * (depth if are_planes else pixel)
    whole = n_lines * line
    n_deep = product([side.taps for side in deep])
    if are_planes:
        return Room(n_deep * whole, whole, line, 1, n_pixels)
    return Room(n_deep * whole, whole, line, pixel, 1)


@dataclass(frozen=True, slots=True)
class Copy:
    """What is copied: `element` gives x, `run` a flat run of it where that is how x lies."""

    deep: Sequence[Side]
    block: Side
    line: Side
    depth: int
    room: Room
    dtype: DType
    are_planes: bool
    is_transposed: bool
    element: Element
    run: Callable[[Sequence[Dim], ir.Expr], ir.Expr] | None

    def statements(self) -> ir.Block:
        """For every deep tap inside, every line of the block inside."""
        block = self.block
        n_lines = (LAST_LINE - FIRST_LINE - 1) * block.place_step + (block.reach + 1)
        row = ir.Name("copied_line")
        inner = self._line(row)
        first = block.first_copied(FIRST_LINE)
        last = block.last_copied(FIRST_LINE, n_lines)
        made: ir.Block = (ir.For(row.name, first, last, inner),)
        for k, side in enumerate(self.deep):
            tap, place = ir.Name(f"deep_tap{k}"), ir.Name(side.var.name)
            made = (ir.For(tap.name, side.first_tap(place), side.last_tap(place), made),)
        return made

    def _start(self, row: ir.Expr) -> ir.Expr:
        start = TILE * index_expr(self.room.tile) + row * index_expr(self.room.line)
        for k, _ in enumerate(self.deep):
            start = start + ir.Name(f"deep_tap{k}") * index_expr(self.room.deep)
        return start

    def _positions(self, row: ir.Name, pixel: ir.Name) -> list[Dim]:
        """Positions along the sides of an element of the copy."""
        deep = [
            side.position(side.var) + _var(f"deep_tap{k}") * side.dilation
            for k, side in enumerate(self.deep)
        ]
        return [
            *deep,
            self.block.position(_var(FIRST_LINE.name)) + _var(row.name) * self.block.step,
            self.line.position(_var(FIRST_ROW.name)) + _var(pixel.name) * self.line.step,
        ]

    def _line(self, row: ir.Name) -> ir.Block:
        """Zeros, elements, zeros."""
        line, room = self.line, self.room
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
        if self.are_planes:
            channel = ir.Name("copied_channel")
            plane = start + channel * index_expr(room.channel)
            parts = [
                *([self._zeros(plane, ZERO, first)] if line.before != 0 else []),
                self._pixels(row, plane, first, last, channel),
                *([self._zeros(plane, last, end)] if line.after != 0 else []),
            ]
            return (*lets, ir.For(channel.name, ZERO, ir.index(self.depth), tuple(parts)))
        pixel = index_expr(room.pixel)
        return (
            *lets,
            *([self._zeros(start, ZERO, first * pixel)] if line.before != 0 else []),
            self._elements(row, start, first, last),
            *([self._zeros(start, last * pixel, end * pixel)] if line.after != 0 else []),
        )

    def _zeros(self, start: ir.Expr, first: ir.Expr, last: ir.Expr) -> ir.Stmt:
        at = ir.Name("zero_at")
        store = ir.Store(SCRATCH, start + at, ir.Const(0.0, self.dtype))
        return ir.For(at.name, first, last, (store,), vector=True)

    def _pixels(
        self, row: ir.Name, plane: ir.Expr, first: ir.Expr, last: ir.Expr, channel: ir.Name
    ) -> ir.Stmt:
        """One channel's pixels of a line."""
        pixel = ir.Name("copied_pixel")
        named, value = self.element(self._positions(row, pixel), _var(channel.name))
        body = (*named, ir.Store(SCRATCH, plane + pixel, self._wide(value)))
        return ir.For(pixel.name, first, last, body, vector=True)

    def _elements(self, row: ir.Name, start: ir.Expr, first: ir.Name, last: ir.Name) -> ir.Stmt:
        """All channels of the pixels of a line."""
        pixel, channel = ir.Name("copied_pixel"), ir.Name("copied_channel")
        if self.run is not None:
            at = ir.Name("copied_at")
            value = self.run(self._positions(row, first), at)
            place = start + first * self.depth + at
            body: ir.Block = (ir.Store(SCRATCH, place, self._wide(value)),)
            return ir.For(at.name, ZERO, (last - first) * self.depth, body, vector=True)
        named, value = self.element(self._positions(row, pixel), _var(channel.name))
        place = start + pixel * index_expr(self.room.pixel) + channel
        body = (*named, ir.Store(SCRATCH, place, self._wide(value)))
        inner = ir.For(channel.name, ZERO, ir.index(self.depth), body, vector=True)
        return ir.For(pixel.name, first, last, (inner,), vector=self.is_transposed)

    def _wide(self, value: ir.Expr) -> ir.Expr:
        return value if value.dtype == self.dtype else ir.Cast(value, self.dtype)


def _var(name: str) -> Var:
    return LoopVar(name, 0, _MANY)
