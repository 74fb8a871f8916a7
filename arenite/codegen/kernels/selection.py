"""Where the first few of a line in order stand: picked one after the other, without a sort.

Elements taken one after the other, the one with the greatest key first.

keys     unsigned integers of 32 bits; 0 for an element that is out or was taken
tops     the greatest key of each block of 64: what is greatest is found in them and in one block

scratch of a tile    |  keys: `size`  |  tops  |
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.sort import MAX_TILES, TILE_POINTS, sort_key
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import index_expr, loop
from arenite.dtype import UINT32
from arenite.ir.dim import Dim, bounds, ceildiv, maximum, product
from arenite.schedule.kernel import Kernel

#: Keys of a block.
BLOCK = 64
OUT = ir.Const(0, UINT32)
#: The number of an element, and of one that was picked.
K, AT = ir.Name("k"), ir.Name("at")

_NEVER = ir.index(2**62)
_BLOCK, _BEST, _NEXT = ir.Name("block"), ir.Name("best", UINT32), ir.Name("next", UINT32)
_KEYS, _TOPS, _KEY = ir.Name("keys"), ir.Name("tops"), ir.Name("key", UINT32)


@dataclass(frozen=True, slots=True)
class Picking:
    """Statements that pick among `size` elements, whose keys are in the scratch of that name."""

    size: Dim
    scratch: str

    @property
    def n_blocks(self) -> Dim:
        return ceildiv(self.size, BLOCK)

    @property
    def length(self) -> Dim:
        """Of the scratch of a tile."""
        return self.size + self.n_blocks

    def filled(self, key: ir.Expr) -> ir.Block:
        """All keys, each an expression of `K`, and the greatest of each block."""
        made = self._in_block(
            ir.Let("key", key),
            ir.Store(self.scratch, _KEYS + K, _KEY),
            ir.Accumulate("next", "max", _KEY),
        )
        top = ir.Store(self.scratch, _TOPS + _BLOCK, _NEXT)
        body = (*self._span(), ir.Accumulator("next", OUT), made, top)
        return (
            ir.Let("keys", ir.Name("tile") * index_expr(self.length)),
            ir.Let("tops", _KEYS + index_expr(self.size)),
            loop("block", self.n_blocks, *body, vector=False),
        )

    def picked(self, found: ir.Block, nothing: ir.Block) -> ir.Block:
        """`found`, where `AT` is the element that is out from here on, or `nothing` if none is left
        to be picked."""
        number = ir.Name("b")
        top = ir.Load(self.scratch, _TOPS + number, UINT32)
        key = ir.Load(self.scratch, _KEYS + K, UINT32)
        taken: ir.Block = (
            *self._span(),
            ir.Accumulator("top", OUT),
            ir.Accumulator("at", _NEVER),
            self._in_block(ir.AccumulateArg("top", "at", "argmax", key, K)),
            ir.Store(self.scratch, _KEYS + AT, OUT),
            ir.Accumulator("next", OUT),
            self._in_block(ir.Accumulate("next", "max", key)),
            ir.Store(self.scratch, _TOPS + _BLOCK, _NEXT),
        )
        return (
            ir.Accumulator("best", OUT),
            ir.Accumulator("block", _NEVER),
            loop("b", self.n_blocks, ir.AccumulateArg("best", "block", "argmax", top, number)),
            ir.If(ir.Binary("eq", _BEST, OUT), nothing, (*taken, *found)),
        )

    def _span(self) -> ir.Block:
        """Where a block begins and ends."""
        begin = _BLOCK * BLOCK
        end = ir.Binary("min", begin + BLOCK, index_expr(self.size))
        return ir.Let("begin", begin), ir.Let("end", end)

    def _in_block(self, *body: ir.Stmt) -> ir.For:
        return ir.For("k", ir.Name("begin"), ir.Name("end"), body, vector=True)


def build_select(kernel: Kernel) -> Built:
    draft, node = RowKernel(kernel), kernel.stages[0].node
    [x] = node.inputs
    lines, size, count = product(x.shape[:-1]), x.shape[-1], node.shape[-1]
    picking = Picking(size, "scratch0")
    at_least = max(1, TILE_POINTS // max(1, bounds(size)[1]))
    tile_lines = maximum(ceildiv(lines, MAX_TILES), at_least)
    scratch = Scratch(UINT32, ceildiv(lines, tile_lines) * picking.length)
    row = ir.Name("row")
    element = draft.load(x, row * index_expr(size) + K)
    # What comes last may have a key of 0, and no other one has 1.
    key = ir.Binary("max", sort_key(element, not node.attr("descending")), ir.Const(1, UINT32))
    store = ir.Store("out0", row * index_expr(count) + ir.Name("step"), AT)
    picked = loop("step", count, *picking.picked((store,), ()), vector=False)
    body = (*picking.filled(key), picked)
    return draft.in_tiles(lines, tile_lines, body, scratch=(scratch,))


BUILDERS = {"select": build_select}
