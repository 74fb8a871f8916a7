"""The register tile of a product, where both factors are read as they lie or B in panels.

A narrow A is widened once for all columns of a tile: a chunk of K at a time, on the stack.

    for chunk of K:   rows x chunk of A -> float32, one row behind the other
                      for k in chunk: a step of the tile, on what was widened

Widening a number where it is multiplied takes as long as multiplying it with two vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.tile import Dot, KLoop, Tile, load_wide, moved, multiply, summed
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir

#: Lengths of a chunk, of which one must divide K; a tile's rows of it stay in the first cache.
CHUNKS = (256, 192, 128, 96, 64, 48, 32)
#: Numbers widened at a time: conversions of short vectors take less than half the time.
LANES = 8


def chunk_of(dot: Dot, depth: int | None) -> int | None:
    """The length of chunks; None where A is not narrow, or K not known to be made of them."""
    if dot.a == dot.sum or depth is None:
        return None
    return next((chunk for chunk in CHUNKS if depth % chunk == 0), None)


@dataclass(frozen=True, slots=True)
class Widened:
    """So many rows of A, `a_line` bytes apart, that go to `place`, which has room for a chunk."""

    builder: Builder
    narrow: Dot
    a_line: Vec | int
    place: str
    rows: int
    depth: int
    chunk: int

    @property
    def dot(self) -> Dot:
        return Dot(self.narrow.sum, self.narrow.b, self.narrow.sum)

    @property
    def line(self) -> int:
        """Bytes from row to row of what is widened."""
        return self.chunk * self.narrow.sum.bits // 8

    def loops(self, b_step: Vec | int) -> list[KLoop]:
        """Over chunks, and over K in a chunk."""
        counts = [self.builder.constant(n, I64) for n in (self.depth // self.chunk, self.chunk)]
        return [
            KLoop(counts[0], self.chunk * self.narrow.a.bits // 8, b_step * self.chunk),
            KLoop(counts[1], self.narrow.sum.bits // 8, b_step),
        ]

    def inside(self, a_at: str) -> str:
        """Widens a chunk; where it is then."""
        b, dot, size = self.builder, self.narrow, self.narrow.sum.bits // 8

        def step(narrow_at: str, wide_at: str, _: list[Vec]) -> list[Vec]:
            for row in range(self.rows):
                narrow = moved(b, narrow_at, self.a_line * row)
                value = load_wide(b, narrow, dot.a, dot.sum, LANES, None)
                where = b.offset(wide_at, row * self.line)
                b.store(value, where, LANES * size)
            return []

        turns = b.constant(self.chunk // LANES, I64)
        loop = KLoop(turns, LANES * dot.a.bits // 8, LANES * size)
        summed(b, [loop], a_at, self.place, [], step)
        return self.place


def product_tile(function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
    """A tile; of its columns only the first `rest` are there if it is masked."""
    product, lanes, dot = function.product, function.product.lanes, function.dot
    masks = function.masks(columns, is_masked)
    line = function.nbytes(product.a.line, product.a)
    b_size = product.b.dtype.bits // 8
    if product.copies_b:
        b_step: Vec | int = product.width * product.sum_dtype.bits // 8
        b_size = product.sum_dtype.bits // 8
        dot = Dot(dot.a, dot.sum, dot.sum)
    else:
        b_step = function.nbytes(product.b.step, product.b)
    loops = [KLoop(function.depth, function.nbytes(product.a.step, product.a), b_step)]
    inside = None
    depth = int(product.depth.value) if isinstance(product.depth, ir.Const) else None
    counts = [depth]
    chunk = chunk_of(dot, depth) if product.a.step == ir.index(1) else None
    if depth is not None and chunk is not None:
        place = function.stack(rows * chunk, "%wide")
        wide = Widened(function.builder, dot, line, place, rows, depth, chunk)
        loops, inside, dot, line = wide.loops(b_step), wide.inside, wide.dot, wide.line
        counts = [depth // chunk, chunk]
    tile = Tile(rows, columns, lanes)
    sums = multiply(
        function.builder,
        tile,
        dot,
        line,
        lambda column: column * lanes * b_size,
        loops,
        () if product.copies_b else masks,
        inside=inside,
        summing=function.in_blocks(tile, counts),
    )
    Epilogue(function).finish(sums, masks)
