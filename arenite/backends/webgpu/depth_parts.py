"""Products whose results are few rectangles: the depth in parts, each of which groups of their own
sum, and a dispatch behind them that adds these up.

    part p of a result    sum over its stretch of the depth, in memory of the launch
    the result            parts added in their order, then what follows the product

A device that runs a hundred groups at once is idle otherwise: 128 rows by 768 columns are 24
rectangles of 64 x 64. How many parts there are follows from the most rows there may be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arenite.backends.webgpu.products import SUMS, ProductBuilder
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import FLOAT32, index_expr, loop

#: Parts at the most and at least, and steps of the depth that one has. With fewer a dispatch more,
#: and none that launches beside it could share, costs what is gained.
MOST_PARTS, FEWEST_PARTS, FEWEST_STEPS = 8, 3, 16
#: Threads of a group that adds up parts.
THREADS = 128

#: Names of where a part of the depth begins and ends.
STRETCH = ir.Name("deep_begin"), ir.Name("deep_end")

_PARTS = "scratch0"


@dataclass(frozen=True, slots=True)
class DepthParts:
    """So many parts, each of so many elements of the depth; the last may have fewer."""

    count: int
    length: int

    @classmethod
    def of(cls, n_groups: int, many_groups: int, depth: int, step: int) -> DepthParts:
        """For so many rectangles, which are to be about as many groups as are many; one part where
        that is not worth it. Parts are of whole steps."""
        n_steps = -(-depth // step)
        wanted = min(MOST_PARTS, many_groups // max(n_groups, 1), n_steps // FEWEST_STEPS)
        length = -(-n_steps // wanted) if wanted >= FEWEST_PARTS else n_steps
        return cls(-(-n_steps // length), length * step)

    def places(self, tile: ir.Expr, depth: int) -> ir.Block:
        """The rectangle of a tile, its part of the depth, and where that begins and ends."""
        begin, end = STRETCH
        return (
            ir.Let("rectangle", tile // self.count),
            ir.Let("depth_part", tile % self.count),
            ir.Let(begin.name, ir.Name("depth_part") * self.length),
            ir.Let(end.name, ir.Binary("min", begin + self.length, ir.index(depth))),
        )

    def scratch(self, builder: ProductBuilder) -> Scratch:
        return Scratch(FLOAT32, builder.n_rows * (builder.n_columns * self.count))

    def stored(self, builder: ProductBuilder, count: int, row: ir.Expr, column: ir.Expr) -> ir.For:
        """What one group has in shared memory of results at these rows and columns, into memory."""
        n_rows, n_columns = index_expr(builder.n_rows), builder.n_columns
        first = ir.Name("depth_part") * n_rows
        at_row, at_column = ir.Name("at_row"), ir.Name("at_column")
        inside = (at_row < n_rows) & (at_column < n_columns)
        place = (first + at_row) * n_columns + at_column
        value = ir.Load(SUMS, ir.Name("result"), FLOAT32)
        return loop(
            "result",
            count,
            ir.Let("at_row", row),
            ir.Let("at_column", column),
            ir.If(inside, (ir.Store(_PARTS, place, value),)),
        )

    def with_sums(self, builder: ProductBuilder, built: Built, n_results: int) -> Built:
        """The kernel that makes parts, of rectangles of so many results, and behind it the one that
        adds them up, over the same tiles."""
        assert isinstance(built.loops, ir.GroupKernel)
        count = -(-n_results // self.count)
        total = index_expr(builder.n_rows) * builder.n_columns
        result, at = ir.Name("result"), ir.Name("at")
        inside = ir.Name("inside", ir.BOOL)
        value: ir.Expr = ir.Load(_PARTS, at, FLOAT32, inside)
        for part in range(1, self.count):
            value = ir.Binary("add", value, ir.Load(_PARTS, at + total * part, FLOAT32, inside))
        first = ir.Name("tile") * count
        added = loop(
            "result",
            count,
            ir.Let("at", first + result),
            ir.Let("inside", at < total),
            ir.Store(SUMS, result, value),
        )
        place = first + result
        results = builder.results(count, place // builder.n_columns, place % builder.n_columns)
        following = replace(
            built.loops,
            body=(added, ir.Barrier(), results),
            threads=THREADS,
            shared=(ir.SharedArray(SUMS, FLOAT32, count),),
        )
        return replace(built, loops=replace(built.loops, following=following))
