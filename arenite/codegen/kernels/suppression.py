"""Non-maximum suppression, a class of an image at a time: boxes are taken best first.

What is kept lies side by side, so that a box is compared with many of them at once:

    scratch of a tile    |  what picks the best  |    |  low, low, high, high, area: `count` each  |
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.selection import AT, OUT, K, Picking
from arenite.codegen.kernels.sort import MAX_TILES, sort_key
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import index_expr, loop
from arenite.dtype import FLOAT32, UINT32
from arenite.ir.dim import ceildiv, maximum
from arenite.schedule.kernel import Kernel

_ZERO = ir.Const(0.0, FLOAT32)
_J, _N_KEPT, _HIT = ir.Name("j"), ir.Name("n_kept"), ir.Name("hit", ir.BOOL)


def build_suppress(kernel: Kernel) -> Built:
    return _Suppress(kernel).build()


class _Suppress:
    def __init__(self, kernel: Kernel) -> None:
        self.draft = RowKernel(kernel)
        self.node = kernel.stages[0].node
        self.corners, self.scores, self.is_open, self.overlap = self.node.inputs
        self.images, self.classes, self.count = self.node.shape
        self.size = self.scores.shape[2]
        self.picking = Picking(self.size, "scratch0")

    def build(self) -> Built:
        rows = self.images * self.classes
        tile_rows = maximum(ceildiv(rows, MAX_TILES), 1)
        tiles = ceildiv(rows, tile_rows)
        scratch = (
            Scratch(UINT32, tiles * self.picking.length),
            Scratch(FLOAT32, tiles * 5 * self.count),
        )
        row = ir.Name("row")
        none = ir.Store("out0", row * index_expr(self.count) + _J, ir.index(-1))
        is_room = (index_expr(self.count) > _N_KEPT) & ir.Name("is_left", ir.BOOL)
        nothing = ir.Accumulate("is_left", "set", ir.Const(False, ir.BOOL))
        step = ir.If(is_room, self.picking.picked(self._compared(), (nothing,)))
        body: ir.Block = (
            ir.Let("first", row * index_expr(self.size)),
            ir.Let("image", row // index_expr(self.classes) * index_expr(4 * self.size)),
            ir.Let("boxes", ir.Name("tile") * index_expr(5 * self.count)),
            ir.Let("limit", self.draft.load(self.overlap, ir.index(0))),
            *self.picking.filled(self._key()),
            ir.Accumulator("n_kept", ir.index(0)),
            ir.Accumulator("is_left", ir.Const(True, ir.BOOL)),
            loop("step", self.size, step, vector=False),
            ir.For("j", _N_KEPT, index_expr(self.count), (none,), vector=True),
        )
        return self.draft.in_tiles(rows, tile_rows, body, scratch=scratch)

    def _key(self) -> ir.Expr:
        """Of a score; not even that of -inf is 0."""
        score = self.draft.load(self.scores, ir.Name("first") + K)
        number = ir.Select(ir.Unary("isnan", score), ir.Const(-float("inf"), FLOAT32), score)
        is_open = self.draft.load(self.is_open, ir.Name("first") + K)
        return ir.Select(is_open, sort_key(number, descending=False), OUT)

    def _compared(self) -> ir.Block:
        """The box is kept unless one that is kept overlaps it."""
        own = [ir.Name(f"own{k}", FLOAT32) for k in range(5)]
        size, count = index_expr(self.size), index_expr(self.count)
        corners = [
            self.draft.load(self.corners, ir.Name("image") + size * k + AT) for k in range(4)
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
                    ir.Store("out0", at, AT),
                    ir.Accumulate("n_kept", "set", _N_KEPT + 1),
                ),
            ),
        )


BUILDERS = {"suppress": build_suppress}
