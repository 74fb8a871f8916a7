"""Non-maximum suppression, a class of an image at a time: boxes are taken best first.

keys     of the scores, unsigned integers in their order; 0 for a box that is out or was taken
tops     the greatest key of each block of 64: what is best is found in them and in one block
boxes    that are kept, side by side: a box is compared with many of them at once

scratch of a tile    |  keys: N  |  tops  |        |  low, low, high, high, area: `count` each  |
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.sort import MAX_TILES, sort_key
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import FLOAT32, UINT32, index_expr, loop
from arenite.ir.dim import ceildiv, maximum
from arenite.schedule.kernel import Kernel

#: Keys of a block.
BLOCK = 64
_NEVER = ir.index(2**62)
_OUT = ir.Const(0, UINT32)
_ZERO = ir.Const(0.0, FLOAT32)
_BEST, _TOP, _NEXT = (ir.Name(name, UINT32) for name in ("best", "top", "next"))
_BLOCK, _AT, _N_KEPT = ir.Name("block"), ir.Name("at"), ir.Name("n_kept")
_K, _J, _HIT = ir.Name("k"), ir.Name("j"), ir.Name("hit", ir.BOOL)


def build_suppress(kernel: Kernel) -> Built:
    return _Suppress(kernel).build()


class _Suppress:
    def __init__(self, kernel: Kernel) -> None:
        self.draft = RowKernel(kernel)
        self.node = kernel.stages[0].node
        self.corners, self.scores, self.is_open, self.overlap = self.node.inputs
        self.images, self.classes, self.count = self.node.shape
        self.size = self.scores.shape[2]
        self.n_blocks = ceildiv(self.size, BLOCK)

    def build(self) -> Built:
        rows = self.images * self.classes
        tile_rows = maximum(ceildiv(rows, MAX_TILES), 1)
        tiles = ceildiv(rows, tile_rows)
        scratch = (
            Scratch(UINT32, tiles * (self.size + self.n_blocks)),
            Scratch(FLOAT32, tiles * 5 * self.count),
        )
        row, tile = ir.Name("row"), ir.Name("tile")
        none = ir.Store("out0", row * index_expr(self.count) + _J, ir.index(-1))
        body: ir.Block = (
            ir.Let("first", row * index_expr(self.size)),
            ir.Let("image", row // index_expr(self.classes) * index_expr(4 * self.size)),
            ir.Let("keys", tile * index_expr(self.size + self.n_blocks)),
            ir.Let("tops", ir.Name("keys") + index_expr(self.size)),
            ir.Let("boxes", tile * index_expr(5 * self.count)),
            ir.Let("limit", self.draft.load(self.overlap, ir.index(0))),
            self._keys(),
            ir.Accumulator("n_kept", ir.index(0)),
            ir.Accumulator("is_left", ir.Const(True, ir.BOOL)),
            loop("step", self.size, self._step(), vector=False),
            ir.For("j", _N_KEPT, index_expr(self.count), (none,), vector=True),
        )
        return self.draft.in_tiles(rows, tile_rows, body, scratch=scratch)

    def _key(self, k: ir.Expr) -> ir.Load:
        return ir.Load("scratch0", ir.Name("keys") + k, UINT32)

    def _span(self) -> ir.Block:
        """Where a block begins and ends."""
        begin = _BLOCK * BLOCK
        end = ir.Binary("min", begin + BLOCK, index_expr(self.size))
        return ir.Let("begin", begin), ir.Let("end", end)

    def _in_block(self, *body: ir.Stmt) -> ir.For:
        return ir.For("k", ir.Name("begin"), ir.Name("end"), body, vector=True)

    def _keys(self) -> ir.Stmt:
        """All keys, and the greatest of each block."""
        score = self.draft.load(self.scores, ir.Name("first") + _K)
        number = ir.Select(ir.Unary("isnan", score), ir.Const(-float("inf"), FLOAT32), score)
        is_open = self.draft.load(self.is_open, ir.Name("first") + _K)
        key = ir.Name("key", UINT32)
        made = self._in_block(
            ir.Let("key", ir.Select(is_open, sort_key(number, descending=False), _OUT)),
            ir.Store("scratch0", ir.Name("keys") + _K, key),
            ir.Accumulate("next", "max", key),
        )
        kept = ir.Store("scratch0", ir.Name("tops") + _BLOCK, _NEXT)
        body = (*self._span(), ir.Accumulator("next", _OUT), made, kept)
        return loop("block", self.n_blocks, *body, vector=False)

    def _step(self) -> ir.Stmt:
        """The best box that is left, if there is one and room for it."""
        b = ir.Name("b")
        top = ir.Load("scratch0", ir.Name("tops") + b, UINT32)
        looked: ir.Block = (
            ir.Accumulator("best", _OUT),
            ir.Accumulator("block", _NEVER),
            loop("b", self.n_blocks, ir.AccumulateArg("best", "block", "argmax", top, b)),
            ir.If(
                ir.Binary("eq", _BEST, _OUT),
                (ir.Accumulate("is_left", "set", ir.Const(False, ir.BOOL)),),
                (*self._taken(), *self._compared()),
            ),
        )
        is_room = (index_expr(self.count) > _N_KEPT) & ir.Name("is_left", ir.BOOL)
        return ir.If(is_room, looked)

    def _taken(self) -> ir.Block:
        """The best box of the block, which is out from here on."""
        return (
            *self._span(),
            ir.Accumulator("top", _OUT),
            ir.Accumulator("at", _NEVER),
            self._in_block(ir.AccumulateArg("top", "at", "argmax", self._key(_K), _K)),
            ir.Store("scratch0", ir.Name("keys") + _AT, _OUT),
            ir.Accumulator("next", _OUT),
            self._in_block(ir.Accumulate("next", "max", self._key(_K))),
            ir.Store("scratch0", ir.Name("tops") + _BLOCK, _NEXT),
        )

    def _compared(self) -> ir.Block:
        """The box is kept unless one that is kept overlaps it."""
        own = [ir.Name(f"own{k}", FLOAT32) for k in range(5)]
        size, count = index_expr(self.size), index_expr(self.count)
        corners = [
            self.draft.load(self.corners, ir.Name("image") + size * k + _AT) for k in range(4)
        ]
        lets = [ir.Let(f"own{k}", corner) for k, corner in enumerate(corners)]
        lets.append(ir.Let("own4", (own[2] - own[0]) * (own[3] - own[1])))

        def place(k: int, j: ir.Expr) -> ir.Expr:
            return ir.Name("boxes") + count * k + j

        other = [ir.Load("scratch1", place(k, _J), FLOAT32) for k in range(5)]
        spans = []
        for side in range(2):
            stop = ir.Binary("min", own[2 + side], other[2 + side])
            start = ir.Binary("max", own[side], other[side])
            spans.append(ir.Binary("max", stop - start, _ZERO))
        inner, union = ir.Name("inner", FLOAT32), ir.Name("union", FLOAT32)
        is_real, share = ir.Name("is_real", ir.BOOL), ir.Name("share", FLOAT32)

        def positive(x: ir.Expr) -> ir.Expr:
            return ir.Binary("gt", x, _ZERO)

        near: ir.Block = (
            ir.Let("inner", spans[0] * spans[1]),
            ir.Let("union", own[4] + other[4] - inner),
            ir.Let("is_real", positive(own[4]) & positive(other[4]) & positive(union)),
            ir.Let("share", inner / ir.Select(is_real, union, ir.Const(1.0, FLOAT32))),
            ir.Accumulate("hit", "or", is_real & ir.Binary("gt", share, ir.Name("limit", FLOAT32))),
        )
        kept = [ir.Store("scratch1", place(k, _N_KEPT), own[k]) for k in range(5)]
        at = ir.Name("row") * count + _N_KEPT
        return (
            *lets,
            ir.Accumulator("hit", ir.Const(False, ir.BOOL)),
            ir.For("j", ir.index(0), _N_KEPT, near, vector=True),
            ir.If(
                ir.Unary("not", _HIT),
                (
                    *kept,
                    ir.Store("out0", at, _AT),
                    ir.Accumulate("n_kept", "set", _N_KEPT + 1),
                ),
            ),
        )


BUILDERS = {"suppress": build_suppress}
