"""A matmul_bytes or conv_bytes of the schedule becomes a BytesKernel.

Bytes are read in place where a row's words hold nothing but its own bytes, or where there is one
tap, whose last bytes are then read one by one. Else each tile of the launch copies the lines it
needs: the last word of a pixel may have bytes of the next one, whose weights are zero. Zeros around
an image are left out, as in all convolutions; other bytes around it are part of the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arenite.backends.cpu.bytes.kernel import BytesKernel
from arenite.backends.cpu.bytes.tile import registers_taken
from arenite.backends.cpu.conv.base import Lies
from arenite.backends.cpu.conv.build import ConvBuilder, Panels
from arenite.backends.cpu.conv.copy import Copy, Room, room
from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes
from arenite.backends.cpu.conv.kernel import FIRST_LINE, LAST_LINE, Conv, Taps
from arenite.backends.cpu.conv.late_epilogue import Late
from arenite.backends.cpu.conv.sides import ZERO, Side, plain_sides
from arenite.backends.cpu.gemm.kernel import FIRST_ROW, LAST_ROW, SCRATCH, Product
from arenite.backends.cpu.ops.byte_products import INT8, TURN, WORD
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import index_expr
from arenite.ir.dim import Dim, Var, bounds
from arenite.ir.node import Node
from arenite.schedule.kernel import Kernel

#: Operations up to which an epilogue is done on the sums in registers, where a sum has so few
#: products that this matters: bias, scale and rounding are emitted for every sum of a tile then.
SHORT_OPS = 30
SHORT_DEPTH = 512
#: Rows of a tile from which on it pays to read and write them once: there is less of bytes to read.
ONCE_ROWS = 3


def build_bytes(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a BytesKernel, or None if it is not one that register tiles fit."""
    node = kernel.stages[0].node
    builder = _BytesBuilder(kernel, node, _panels(node))
    taken = registers_taken(target, builder.is_signed)
    left = replace(target, n_vector_registers=target.n_vector_registers - taken)
    return builder.built(left, choice) if builder.fits else None


def _panels(node: Node) -> Panels:
    a, panels = node.inputs
    depth = bounds(a.shape[-1])[1]
    sizes = [bounds(size)[1] for size in panels.shape]
    if node.op == "matmul_bytes":
        n_panels, words, *_ = sizes
        return Panels(1, n_panels, (), depth, words * WORD, node.attr("columns"))
    groups, n_panels, *taps, words, _, _ = sizes
    channels = node.attr("channels")
    return Panels(groups, n_panels, tuple(taps), depth // groups, words * WORD, channels)


class _BytesBuilder(ConvBuilder):
    def __init__(self, kernel: Kernel, node: Node, weights: Panels) -> None:
        super().__init__(kernel, node, weights)
        self.copied_dtype = self.x.dtype
        self.is_signed = self.x.dtype == INT8
        if self.panel <= PANEL * SHORT_DEPTH:
            self.short_ops = SHORT_OPS
        self.fill = 0 if node.op == "matmul_bytes" else node.attr("pad_value")
        self.around = [*self.deep, self.block]
        self.is_open = any(side.is_padded for side in self.around) and (
            self.fill != 0 or not all(side.is_always_inside for side in self.around)
        )
        if self.is_open:
            *self.deep, self.block = map(_opened, self.around)
        lies = self._lies()
        self.fits = self.w in self.names and lies is not None and lies.channel == 1
        in_place = lies is not None and self._can_walk(lies)
        self.rest = self.depth % WORD if in_place else 0

    def _sides(self, variables: Sequence[Var], taps: Sequence[int]) -> list[Side]:
        if self.node.op == "conv_bytes":
            return super()._sides(variables, taps)
        return plain_sides(self.node, variables)

    def _can_walk(self, lies: Lies) -> bool:
        is_even = self.depth % WORD == 0 or self.panel == PANEL * self.filled
        return is_even and not self.is_open and super()._can_walk(lies)

    def _can_leave_out(self, lies: Lies) -> bool:
        has_words = self.depth % WORD == 0 and self.fill == 0 and not self.is_open
        return has_words and super()._can_leave_out(lies)

    def _late(self, cut: ConvCut, loops: Sequence[Taps], target: Target) -> Late | None:
        return None if self.rest else super()._late(cut, loops, target)

    def _sizes(self, in_place: Lies | None) -> ConvSizes:
        sizes = super()._sizes(in_place)
        # In words: what takes as long, and as much room, as one float.
        return replace(
            sizes,
            depth=sizes.depth // WORD,
            line_nbytes=-(-sizes.line_nbytes // WORD),
            once_rows=ONCE_ROWS,
        )

    def _room(self, cut: ConvCut, are_planes: bool) -> Room:
        """With a word behind the last pixel, where that has bytes of a next one."""
        if self.depth % WORD == 0:
            return super()._room(cut, are_planes)
        n_lines, n_pixels = self.block.copied(cut.block_lines), self.line.copied(cut.block_pixels)
        made = room(self.deep, n_lines, n_pixels, self.depth, self.depth, are_planes)
        return replace(made, tile=made.tile + WORD)

    def _copy(self, lies: Lies | None, inside: Room, are_planes: bool) -> Copy:
        made = super()._copy(lies, inside, are_planes)
        return _Copy(
            self.around[:-1],
            self.around[-1],
            made.line,
            made.depth,
            made.room,
            made.dtype,
            made.are_planes,
            made.is_transposed,
            made.element,
            made.run,
            self.fill - TURN if self.is_signed else self.fill,
            self.is_open,
        )

    def _run(self, count: int, step: Dim) -> Taps:
        words = (self.depth if self.rest else count) // WORD
        return Taps(ir.index(words), ir.index(WORD), PANEL * WORD)

    def _finished(self, plain: ir.LoopKernel, made: Product, conv: Conv) -> BytesKernel:
        return BytesKernel(*plain.parts, made, conv, self.rest)


def _opened(side: Side) -> Side:
    """The axis of an image that has what lies around it as its own."""
    return replace(side, size=side.size + side.before + side.after, before=0, after=0)


@dataclass(frozen=True, slots=True)
class _Copy(Copy):
    """A copy with the byte `fill` around the image; if it is open, lines outside are there."""

    fill: int
    is_open: bool

    def statements(self) -> ir.Block:
        if not self.is_open:
            return Copy.statements(self)
        block, row = self.block, ir.Name("copied_line")
        n_lines = (LAST_LINE - FIRST_LINE - 1) * block.place_step + (block.reach + 1)
        inside = _is_inside(block, block.origin(FIRST_LINE) + row * block.step)
        made: ir.Block = (ir.If(inside, self._line(row), self._outside(row)),)
        for k, side in enumerate(self.deep):
            place, tap = ir.Name(side.var.name), ir.Name(f"deep_tap{k}")
            inside = _is_inside(side, side.origin(place) + tap * side.dilation)
            made = (ir.If(inside, made, self._outside(row)),)
        made = (ir.For(row.name, ZERO, n_lines, made),)
        for k, side in enumerate(self.deep):
            made = (ir.For(f"deep_tap{k}", ZERO, ir.index(side.taps), made),)
        return made

    def _elements(self, row: ir.Name, start: ir.Expr, first: ir.Name, last: ir.Name) -> ir.Stmt:
        """All channels of the pixels of a line; bytes of less than a word one by one, which takes
        less than part of a vector."""
        if self.run is not None or self.depth >= WORD:
            return Copy._elements(self, row, start, first, last)
        pixel, body = ir.Name("copied_pixel"), list[ir.Stmt]()
        place = start + pixel * index_expr(self.room.pixel)
        for channel in range(self.depth):
            named, value = self.element(self._positions(row, pixel), channel)
            body += [*named, ir.Store(SCRATCH, place + channel, self._wide(value))]
        return ir.For(pixel.name, first, last, tuple(body))

    def _outside(self, row: ir.Name) -> ir.Block:
        """A line that is all fill."""
        line, start = self.line, ir.Name("line_start")
        count = (LAST_ROW - FIRST_ROW - 1) * line.place_step + (line.reach + 1)
        filled = self._zeros(start, ZERO, count * index_expr(self.room.pixel))
        return (ir.Let(start.name, self._start(row)), filled)

    def _zeros(self, start: ir.Expr, first: ir.Expr, last: ir.Expr) -> ir.Stmt:
        at = ir.Name("filled_at")
        store = ir.Store(SCRATCH, start + at, ir.Const(self.fill, self.dtype))
        return ir.For(at.name, first, last, (store,), vector=True)


def _is_inside(side: Side, position: ir.Expr) -> ir.Expr:
    """Whether a position along a side is one of the image."""
    return (position >= 0) & (position < index_expr(side.size))


BUILDERS = {"matmul_bytes": build_bytes, "conv_bytes": build_bytes}
