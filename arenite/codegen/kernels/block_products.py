"""Products by weights as they are in a file: block by block, and of matrices that data chooses.

    matmul_blocks(x[..., M, K], w[N, K])               x quantised in runs of 32, as `ir.ops.blocks`
    matmul_experts(x, w[E, N, K], chosen[M, R])        says, where weights are blocks

A tile makes some columns of all rows. Where weights are blocks it quantises a row of x first, into
scratch of its own, then takes its columns one by one:

    scratch of a tile   | K numbers, int8 |   | a scale for each run of 32, FLOAT32 |
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import BlockReader
from arenite.codegen.kernels.blocks import taken_index
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.special import RowKernel
from arenite.codegen.kernels.values import cast, index_expr, loop
from arenite.dtype import FLOAT32, INT8, INT32, DType
from arenite.ir import Dim, Node, bounds, ceildiv, product
from arenite.ir.ops.blocks import LEAST_NORMAL
from arenite.schedule.kernel import Kernel

#: Elements of x with one scale.
RUN = 32
#: Tiles at the most, since each has scratch of its own, and columns of one at the least.
MAX_TILES = 16
TILE_COLUMNS = 32

_ROW, _COLUMN, _AT, _LANE = (ir.Name(name) for name in ("row", "column", "at", "lane"))
_NUMBERS, _SCALES = "scratch0", "scratch1"


def build_block_product(kernel: Kernel) -> Built:
    return _Product(RowKernel(kernel)).build()


class _Product:
    """Rows of x by columns, which are rows of the weights; `chosen` names the matrix of a row."""

    def __init__(self, draft: RowKernel) -> None:
        self.draft, self.node = draft, draft.node
        self.x, self.w = self.node.inputs[:2]
        self.chosen: Node | None = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        self.columns, self.depth = (bounds(size)[1] for size in self.w.shape[-2:])
        self.rows: Dim = product(self.node.shape[:-1])
        self.tile_columns = max(TILE_COLUMNS, -(-self.columns // MAX_TILES))
        self.n_tiles = ceildiv(self.columns, self.tile_columns)

    def build(self) -> Built:
        first = ir.Name("tile") * self.tile_columns
        last = ir.Binary("min", first + self.tile_columns, ir.index(self.columns))
        is_block = self.w.dtype.is_block
        dot = self._block_dot() if is_block else self._plain_dot()
        column: ir.Block = (
            ir.Accumulator("sum", ir.Const(0.0, FLOAT32)),
            *dot,
            ir.Store("out0", _ROW * self.columns + _COLUMN, ir.Name("sum", FLOAT32)),
        )
        body: ir.Block = (
            *self._matrix(),
            *(self._quantised() if is_block else ()),
            ir.For("column", first, last, column),
        )
        scratch: tuple[Scratch, ...] = ()
        if is_block:
            numbers, scales = (self.n_tiles * n for n in (self.depth, self.depth // RUN))
            scratch = (Scratch(INT8, numbers), Scratch(FLOAT32, scales))
        block = (loop("row", self.rows, *body, vector=False),)
        return self.draft.built(self.n_tiles, block, scratch=scratch)

    def _matrix(self) -> ir.Block:
        """The number of the row's matrix, as `at`."""
        if self.chosen is None:
            return ()
        return taken_index(self.draft.load(self.chosen, _ROW), self.w.shape[0])

    @property
    def _source_row(self) -> ir.Expr:
        """The row of x that a row of the result is made of."""
        if self.chosen is None or self.x.ndim == 3:
            return _ROW
        return _ROW // index_expr(self.chosen.shape[1])

    @property
    def _weight_row(self) -> ir.Expr:
        return _COLUMN if self.chosen is None else _AT * self.columns + _COLUMN

    def _quantised(self) -> ir.Block:
        """A row of x as numbers and scales, in the tile's scratch."""
        run = ir.Name("run")
        place = run * RUN + _LANE
        value = self.draft.load(self.x, self._source_row * self.depth + place)
        most, spread, scale, inverse, whole = (
            ir.Name(n, FLOAT32) for n in ("most", "spread", "scale", "inverse", "whole")
        )
        zero = ir.Const(0.0, FLOAT32)
        is_zero = ir.Binary("eq", scale, zero)
        number = ir.Select(ir.Unary("isnan", whole), zero, whole)
        body: ir.Block = (
            ir.Accumulator("most", zero),
            loop(_LANE.name, RUN, ir.Accumulate("most", "max", ir.Unary("abs", value))),
            ir.Let("spread", most / 127.0),
            ir.Let("scale", ir.Select(spread < LEAST_NORMAL, zero, spread)),
            ir.Let("inverse", ir.Select(is_zero, zero, 1.0 / scale)),
            ir.Store(_SCALES, ir.Name("tile") * (self.depth // RUN) + run, scale),
            loop(
                _LANE.name,
                RUN,
                ir.Let("whole", ir.Unary("round", value * inverse)),
                ir.Store(_NUMBERS, self._number_at(place), ir.Cast(number, INT8)),
            ),
        )
        return (loop("run", self.depth // RUN, *body, vector=False),)

    def _number_at(self, place: ir.Expr) -> ir.Expr:
        return ir.Name("tile") * self.depth + place

    def _block_dot(self) -> ir.Block:
        """The numbers of a row by the blocks of a column, run by run."""
        dtype = self.w.dtype
        block = ir.Name("block")
        at = self._weight_row * dtype.nbytes((self.depth,)) + block * dtype.block_nbytes
        reader = BlockReader(dtype, self.draft.names[self.w], at)
        body: list[ir.Stmt] = []
        for k, (first, count) in enumerate(reader.runs()):
            place = block * dtype.block_length + first
            scale_at = ir.Name("tile") * (self.depth // RUN) + place // RUN
            given = ir.Name(f"given{k}", FLOAT32)
            body.append(ir.Let(given.name, ir.Load(_SCALES, scale_at, FLOAT32)))
            is_whole = not reader.block.number.table
            run = self._whole_run if is_whole else self._float_run
            body += run(reader, str(k), first, count, place, given)
        return (loop("block", self.depth // dtype.block_length, *body, vector=False),)

    def _number(self, place: ir.Expr, dtype: DType) -> ir.Expr:
        """Element `lane` behind a place of the quantised row."""
        return ir.Cast(ir.Load(_NUMBERS, self._number_at(place + _LANE), INT8), dtype)

    def _whole_run(
        self, reader: BlockReader, k: str, first: int, count: int, place: ir.Expr, given: ir.Expr
    ) -> ir.Block:
        """Whole numbers are summed as such; scales are for the sums."""
        whole, total = ir.Name(f"whole{k}", INT32), ir.Name(f"total{k}", INT32)
        bias = reader.block.number.bias
        x, w = self._number(place, INT32), reader.number(first, _LANE, count)
        w = w - bias if bias else w
        scale, *least = (reader._scale(one, first) for one in reader.block.scales)
        sums: list[ir.Stmt] = [ir.Accumulate(whole.name, "add", x * w)]
        made: list[ir.Stmt] = [ir.Accumulator(whole.name, ir.Const(0, INT32))]
        if least:
            made.append(ir.Accumulator(total.name, ir.Const(0, INT32)))
            sums.append(ir.Accumulate(total.name, "add", x))
        made.append(loop(_LANE.name, count, *sums))
        for held, factor in zip((whole, total), (scale, *least), strict=False):
            scaled = ir.Cast(held, FLOAT32) * (factor * given)
            made.append(ir.Accumulate("sum", "add", scaled))
        return tuple(made)

    def _float_run(
        self, reader: BlockReader, k: str, first: int, count: int, place: ir.Expr, given: ir.Expr
    ) -> ir.Block:
        part = ir.Name(f"part{k}", FLOAT32)
        x, w = self._number(place, FLOAT32), reader.element(first, _LANE, count)
        return (
            ir.Accumulator(part.name, ir.Const(0.0, FLOAT32)),
            loop(_LANE.name, count, ir.Accumulate(part.name, "add", x * w)),
            ir.Accumulate("sum", "add", part * given),
        )

    def _plain_dot(self) -> ir.Block:
        k = ir.Name("k")
        x = self.draft.load(self.x, self._source_row * self.depth + k)
        w = cast(self.draft.load(self.w, self._weight_row * self.depth + k), FLOAT32)
        return (loop("k", self.depth, ir.Accumulate("sum", "add", x * w)),)


BUILDERS = {"matmul_blocks": build_block_product, "matmul_experts": build_block_product}
