"""Products by weights as they are in a file: block by block, and of matrices that data chooses.

    matmul_blocks(x[..., M, K], w[N, K])               x quantised in runs of 32, as `ir.ops.blocks`
    matmul_experts(x, w[E, N, K], chosen[M, R])        says, where weights are blocks

A tile makes some columns of all rows. Where weights are blocks it quantises a row of x first, into
scratch of its own, then takes its columns one by one:

    scratch of a tile   | K numbers, int8 |   | a scale for each run of 32, float32 |
"""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import BlockReader
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.special import _OUT_OF_RANGE, Draft, _within
from arenite.codegen.kernels.values import index_expr, read_dtype
from arenite.dtype import BY_NAME, float32, uint8
from arenite.ir.dim import Dim, bounds, ceildiv, product, variables
from arenite.ir.node import Node
from arenite.ir.ops.blocks import LEAST_NORMAL

INT8 = BY_NAME["int8"]
#: Elements of x with one scale.
RUN = 32
#: Tiles at the most, since each has scratch of its own, and columns of one at the least.
MAX_TILES = 16
TILE_COLUMNS = 32

_ROW, _COLUMN, _AT = ir.Name("row"), ir.Name("column"), ir.Name("at")
_NUMBERS, _SCALES = "scratch0", "scratch1"


def matmul_blocks(draft: Draft) -> Built:
    return _Product(draft).build()


def matmul_experts(draft: Draft) -> Built:
    return _Product(draft).build()


class _Product:
    """Rows of x by columns, which are rows of the weights; `chosen` names the matrix of a row."""

    def __init__(self, draft: Draft) -> None:
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
            ir.Accumulator("sum", ir.Const(0.0, float32)),
            *dot,
            ir.Store("out0", _ROW * self.columns + _COLUMN, ir.Name("sum", float32)),
        )
        body: ir.Block = (
            *self._matrix(),
            *(self._quantised() if is_block else ()),
            ir.For("column", first, last, column),
        )
        scratch: tuple[Scratch, ...] = ()
        if is_block:
            numbers, scales = (self.n_tiles * n for n in (self.depth, self.depth // RUN))
            scratch = (Scratch(INT8, numbers), Scratch(float32, scales))
        arrays = [
            ir.ArrayArg(name, uint8 if value.dtype.is_block else read_dtype(value.dtype), "in")
            for value, name in self.draft.names.items()
        ]
        arrays.append(ir.ArrayArg("out0", float32, "out"))
        arrays += [ir.ArrayArg(f"scratch{k}", s.dtype, "inout") for k, s in enumerate(scratch)]
        shapes = [self.node.shape, *(value.shape for value in self.draft.kernel.inputs)]
        sizes = {var.symbol for shape in shapes for dim in shape for var in variables(dim)}
        loops = ir.LoopKernel(
            self.draft.kernel.name,
            tuple(arrays),
            tuple(sorted(sizes)),
            index_expr(self.n_tiles),
            "tile",
            (ir.For("row", ir.index(0), index_expr(self.rows), body),),
        )
        return Built(loops, self.n_tiles, scratch)

    def _matrix(self) -> ir.Block:
        """The number of the row's matrix, as `at`."""
        if self.chosen is None:
            return ()
        index, inside = ir.Name("index"), ir.Name("inside", ir.BOOL)
        return (
            ir.Let("index", self.draft.load(self.chosen, _ROW)),
            ir.Let("inside", _within(index, self.w.shape[0])),
            ir.Require(inside, _OUT_OF_RANGE),
            ir.Let("at", ir.Select(inside, index, ir.index(0))),
        )

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
        run, lane = ir.Name("run"), ir.Name("lane")
        place = run * RUN + lane
        value = self.draft.load(self.x, self._source_row * self.depth + place)
        most, scale, inverse = (ir.Name(n, float32) for n in ("most", "scale", "inverse"))
        zero, one = ir.Const(0.0, float32), ir.Const(1.0, float32)
        spread = ir.Binary("div", most, ir.Const(127.0, float32))
        is_small = ir.Binary("lt", ir.Name("spread", float32), ir.Const(LEAST_NORMAL, float32))
        whole = ir.Name("whole", float32)
        number = ir.Select(ir.Unary("isnan", whole), zero, whole)
        body: ir.Block = (
            ir.Accumulator("most", zero),
            ir.For(
                "lane",
                ir.index(0),
                ir.index(RUN),
                (ir.Accumulate("most", "max", ir.Unary("abs", value)),),
                vector=True,
            ),
            ir.Let("spread", spread),
            ir.Let("scale", ir.Select(is_small, zero, ir.Name("spread", float32))),
            ir.Let(
                "inverse",
                ir.Select(ir.Binary("eq", scale, zero), zero, ir.Binary("div", one, scale)),
            ),
            ir.Store(_SCALES, ir.Name("tile") * (self.depth // RUN) + run, scale),
            ir.For(
                "lane",
                ir.index(0),
                ir.index(RUN),
                (
                    ir.Let("whole", ir.Unary("round", ir.Binary("mul", value, inverse))),
                    ir.Store(_NUMBERS, self._number_at(place), ir.Cast(number, INT8)),
                ),
                vector=True,
            ),
        )
        return (ir.For("run", ir.index(0), ir.index(self.depth // RUN), body),)

    def _number_at(self, place: ir.Expr) -> ir.Expr:
        return ir.Name("tile") * self.depth + place

    def _block_dot(self) -> ir.Block:
        """The numbers of a row by the blocks of a column, the scales of both behind the sums."""
        dtype = self.w.dtype
        block, lane = ir.Name("block"), ir.Name("lane")
        row_nbytes = dtype.nbytes((self.depth,))
        at = self._weight_row * row_nbytes + block * dtype.block_nbytes
        reader = BlockReader(dtype, self.draft.names[self.w], at)
        body: list[ir.Stmt] = []
        for k, (first, count) in enumerate(reader.runs()):
            place = block * dtype.block_length + first
            number = ir.Load(_NUMBERS, self._number_at(place + lane), INT8)
            term = ir.Binary("mul", ir.Cast(number, float32), reader.element(first, lane, count))
            scale_at = ir.Name("tile") * (self.depth // RUN) + place // RUN
            part = f"part{k}"
            body += [
                ir.Accumulator(part, ir.Const(0.0, float32)),
                ir.For(
                    "lane",
                    ir.index(0),
                    ir.index(count),
                    (ir.Accumulate(part, "add", term),),
                    vector=True,
                ),
                ir.Accumulate(
                    "sum",
                    "add",
                    ir.Binary("mul", ir.Name(part, float32), ir.Load(_SCALES, scale_at, float32)),
                ),
            ]
        n_blocks = self.depth // dtype.block_length
        return (ir.For("block", ir.index(0), ir.index(n_blocks), tuple(body)),)

    def _plain_dot(self) -> ir.Block:
        k = ir.Name("k")
        x = self.draft.load(self.x, self._source_row * self.depth + k)
        w: ir.Expr = self.draft.load(self.w, self._weight_row * self.depth + k)
        w = w if w.dtype == float32 else ir.Cast(w, float32)
        term = ir.Binary("mul", x, w)
        body = (ir.Accumulate("sum", "add", term),)
        return (ir.For("k", ir.index(0), ir.index(self.depth), body, vector=True),)
