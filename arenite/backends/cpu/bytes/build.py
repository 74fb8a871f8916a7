"""A matmul_bytes or conv_bytes of the schedule becomes a micro-kernel.

Bytes are read in place where a row's words hold nothing but its own bytes, or where there is one
tap, whose last bytes are then read one by one. Else each tile of the launch copies the lines it
needs: the last word of a pixel may have bytes of the next one, whose weights are zero. Zeros around
an image are left out, as in all convolutions; other bytes around it are part of the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arenite.backends.cpu.bytes.tile import registers_taken
from arenite.backends.cpu.conv.base import InputLayout
from arenite.backends.cpu.conv.build import ConvBuilder, Panels
from arenite.backends.cpu.conv.copy import Copy, Room
from arenite.backends.cpu.conv.cut import ConvCut, ConvSizes
from arenite.backends.cpu.conv.kernel import Late, Taps
from arenite.backends.cpu.conv.sides import Side
from arenite.backends.cpu.ops.byte_products import TURN, WORD
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.dtype import INT8
from arenite.ir import Dim, Node, bounds
from arenite.schedule.kernel import Kernel

#: Operations up to which an epilogue is done on the sums in registers, where a sum has so few
#: products that this matters: bias, scale and rounding are emitted for every sum of a tile then.
SHORT_OPS = 30
SHORT_DEPTH = 512
#: Rows of a tile from which on it pays to read and write them once: there is less of bytes to read.
ONCE_ROWS = 3


def build_bytes(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel as a micro-kernel, or None if it is not one that register tiles fit."""
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
        self.copied_dtype = self.conv.x.dtype
        self.is_signed = self.conv.x.dtype == INT8
        if self.panel <= PANEL * SHORT_DEPTH:
            self.short_ops = SHORT_OPS
        self.fill = 0 if node.op == "matmul_bytes" else node.attr("pad_value")
        self.around = [*self.conv.deep, self.conv.block]
        self.is_open = any(side.is_padded for side in self.around) and (
            self.fill != 0 or not all(side.is_always_inside for side in self.around)
        )
        if self.is_open:
            *self.conv.deep, self.conv.block = map(_with_border, self.around)
        layout = self.conv.layout()
        self.fits = self.conv.w in self.conv.names and layout is not None and layout.channel == 1
        in_place = layout is not None and self._can_walk(layout)
        self.bytes_left = self.conv.depth % WORD if in_place else 0

    def _can_walk(self, layout: InputLayout) -> bool:
        is_even = self.conv.depth % WORD == 0 or self.panel == PANEL * self.filled
        return is_even and not self.is_open and super()._can_walk(layout)

    def _can_leave_out(self, layout: InputLayout) -> bool:
        has_words = self.conv.depth % WORD == 0 and self.fill == 0 and not self.is_open
        return has_words and super()._can_leave_out(layout)

    def _late(self, cut: ConvCut, loops: Sequence[Taps], target: Target) -> Late | None:
        return None if self.bytes_left else super()._late(cut, loops, target)

    def _sizes(self, in_place: InputLayout | None, target: Target) -> ConvSizes:
        sizes = super()._sizes(in_place, target)
        # In words: what takes as long, and as much room, as one float.
        return replace(
            sizes,
            depth=sizes.depth // WORD,
            line_nbytes=-(-sizes.line_nbytes // WORD),
            once_rows=ONCE_ROWS,
        )

    def _room(self, cut: ConvCut, are_planes: bool) -> Room:
        """With a word behind the last pixel, where that has bytes of a next one."""
        if self.conv.depth % WORD == 0:
            return super()._room(cut, are_planes)
        made = self._room_of(self.conv.depth, cut, are_planes)
        return replace(made, tile=made.tile + WORD)

    def _copy(self, layout: InputLayout | None, inside: Room, are_planes: bool) -> Copy:
        *deep, block = self.around
        fill = self.fill - TURN if self.is_signed else self.fill
        made = super()._copy(layout, inside, are_planes)
        return replace(made, deep=deep, block=block, fill=fill, is_open=self.is_open)

    def _run(self, count: int, step: Dim) -> Taps:
        words = (self.conv.depth if self.bytes_left else count) // WORD
        return Taps(ir.index(words), ir.index(WORD), PANEL * WORD)


def _with_border(side: Side) -> Side:
    """The axis of an image that has what lies around it as its own."""
    return replace(side, size=side.size + side.before + side.after, before=0, after=0)


BUILDERS = {"matmul_bytes": build_bytes, "conv_bytes": build_bytes}
