"""A product in slices of K, whose columns of B are copied while others are multiplied.

    sums = 0
    for slice of K:   for stripe of columns:   for group of the stripe:   for rows:
        a register tile over the slice; every few steps of K it also copies a row of the next
        stripe of B, which lies in the next slice after the last stripe

    panels of this stripe ──> tiles         panels of the next stripe <── rows of B
                     they change places when a stripe is done

Rows of B are as many as the slice is deep, and the tiles of a stripe share them evenly. Only the
first stripe is copied beforehand. Between slices the sums lie in scratch, and are added up in the
order and in the blocks of K that they have in one go. All stripes are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.gemm.blocking import Slices
from arenite.backends.cpu.gemm.driver import GROUP, GROUP_START, Driver, Emit
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SCRATCH,
    TILE,
    Details,
    MicroKernel,
    Product,
)
from arenite.backends.cpu.gemm.partial_sums import block_length, blocks_of
from arenite.backends.cpu.gemm.prefetch import LINE_NBYTES
from arenite.backends.cpu.gemm.tile import (
    Dot,
    KLoop,
    Tile,
    load_wide,
    moved,
    multiply,
    prefetch,
    summed,
)
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir

_SLICE, _FIRST_K = ir.Name("_slice"), ir.Name("_first_k")
_STRIPE, _STRIPE_START, _STRIPE_END = map(ir.Name, ("_stripe", "_stripe_start", "_stripe_end"))
#: Which panels a stripe has, 0 or 1; where the next one is; how many rows of it there are.
_SIDE, _NEXT_COLUMN, _NEXT_K, _NEXT_ROWS = map(
    ir.Name, ("_side", "_next_column", "_next_k", "_next_rows")
)
#: Rows that a row of B is asked for ahead of its copy, and those of the first stripe.
AHEAD = 4
FIRST_AHEAD = 16


@dataclass(frozen=True, slots=True)
class Sliced(Details):
    """Blocks of at most so many rows and columns, tiles of `width`, stripes of `groups` tiles. The
    scratch of a tile holds the panels of two stripes, and the sums."""

    slices: Slices
    block_rows: int
    block_columns: int
    width: int
    groups: int

    @property
    def panel(self) -> int:
        """Elements in the panel of a group."""
        return self.slices.depth * self.width

    @property
    def stripe(self) -> int:
        """Columns of a stripe."""
        return self.groups * self.width

    @property
    def side(self) -> int:
        """Elements in the panels of a stripe."""
        return self.groups * self.panel

    @property
    def scratch_count(self) -> int:
        """Elements in the scratch of a tile."""
        return 2 * self.side + self.block_rows * self.block_columns

    def text(self, kernel: MicroKernel) -> str:
        return f"// {self.slices}\n{Details.text(self, kernel)}"


class SlicedTile:
    """A register tile over one slice."""

    def __init__(self, function: TileFunction, sliced: Sliced) -> None:
        self.function = function
        self.builder = function.builder
        self.product = function.product
        self.sliced = sliced
        self.size = self.product.sum_dtype.bits // 8

    def tile(self, rows: int, columns: int) -> None:
        b, product, sliced, size = self.builder, self.product, self.sliced, self.size
        lanes, total, chunk = product.lanes, product.sum_dtype, sliced.slices.chunk
        places = [
            b.offset("%sums", (row * sliced.block_columns + column * lanes) * size)
            for row in range(rows)
            for column in range(columns)
        ]
        t = register_type(total, lanes)
        line, a_step = (self.function.nbytes(x, product.a) for x in (product.a.line, ir.index(1)))
        b_step = product.width * size
        depth = int(product.depth.value) if isinstance(product.depth, ir.Const) else None
        is_one = blocks_of(total, [depth]) is None
        length = sliced.slices.depth if is_one else block_length(depth)
        turns, n_chunks, n_steps = (
            b.constant(n, I64) for n in (sliced.slices.depth // length, length // chunk, chunk)
        )
        loops = [KLoop(n_chunks, a_step * chunk, b_step * chunk), KLoop(n_steps, a_step, b_step)]

        def before() -> list[Vec]:
            return [b.load(t, place, size) for place in places]

        def keep(sums: Sequence[Vec]) -> None:
            for value, place in zip(sums, places, strict=True):
                b.store(value, place, size)

        def block(a_at: str, b_at: str, start: list[Vec] | None) -> list[Vec]:
            return multiply(
                b,
                Tile(rows, columns, lanes),
                Dot(product.a.dtype, total, total),
                line,
                lambda column: column * lanes * size,
                loops,
                a_pointer=a_at,
                b_pointer=b_at,
                inside=self._copy_beside,
                start=start,
            )

        def added(a_at: str, b_at: str, _: list[Vec]) -> list[Vec]:
            sums = block(a_at, b_at, None)
            keep([old + new for old, new in zip(before(), sums, strict=True)])
            return []

        if is_one:
            sums = block("%a", "%b", before())
        else:
            summed(b, [KLoop(turns, a_step * length, b_step * length)], "%a", "%b", [], added)
            sums = before()
        last, kept = b.new_block("last"), b.new_block("kept")
        is_last = Vec(b, "%is_last", I64).ne(0)
        b.block.end = f"br i1 {is_last.text}, label %{last.name}, label %{kept.name}"
        b.block = kept
        if is_one:
            keep(sums)
        kept.end = "ret void"
        b.block = last
        Epilogue(self.function).finish(sums, [None] * columns)

    def _copy_beside(self, a_at: str) -> str:
        """A row of the next stripe to its panels, if the tile has one left to copy."""
        b, product, sliced, size = self.builder, self.product, self.sliced, self.size
        gone = b.emit(f"ptrtoint ptr {a_at} to i64", I64) - b.emit("ptrtoint ptr %a to i64", I64)
        chunk_nbytes = sliced.slices.chunk * product.a.dtype.bits // 8
        number = gone.divide(b.constant(chunk_nbytes, I64), signed=False)
        copying, after = b.new_block("copying"), b.new_block("copied")
        is_left = number.lt(Vec(b, "%n_copied", I64))
        b.block.end = f"br i1 {is_left.text}, label %{copying.name}, label %{after.name}"
        b.block = copying
        step = self.function.nbytes(product.b.step, product.b)
        place = moved(b, "%copy", number * (product.width * size))
        _copy_row(b, product, sliced, moved(b, "%next", number * step), place, step * AHEAD)
        copying.end = f"br label %{after.name}"
        b.block = after
        return a_at


def _copy_row(
    b: Builder, product: Product, sliced: Sliced, row: str, place: str, ahead: Vec | int
) -> None:
    """A row of a stripe to its place in the first panel and those behind it; one that lies so many
    bytes ahead is asked for."""
    size, b_size = product.sum_dtype.bits // 8, product.b.dtype.bits // 8
    for column in range(0, sliced.stripe, product.lanes):
        group, within = divmod(column, product.width)
        found = b.offset(row, column * b_size)
        vector = load_wide(b, found, product.b.dtype, product.sum_dtype, product.lanes, None)
        where = b.offset(place, (group * sliced.panel + within) * size)
        b.store(vector, where, size)
    # Up to its last byte: a row need not begin with a line of the cache.
    nbytes, next_row = sliced.stripe * b_size, moved(b, row, ahead)
    for at in (*range(0, nbytes, LINE_NBYTES), nbytes - 1):
        prefetch(b, b.offset(next_row, at), is_near=True)


class SlicedDriver(Driver):
    """Slices, stripes, and what each tile copies."""

    more_parameters = ", ptr %sums, i64 %is_last, ptr %next, ptr %copy, i64 %n_copied"

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        assert isinstance(kernel.details, Sliced)
        self.sliced = kernel.details

    def panels(self) -> ir.Block:
        sliced, product, depth = self.sliced, self.product, self.sliced.slices.depth
        assert isinstance(product.depth, ir.Const)
        n_slices = int(product.depth.value) // depth
        n_stripes = (LAST_COLUMN - FIRST_COLUMN) // sliced.stripe
        is_final = ir.Binary("eq", _STRIPE + 1, n_stripes)
        is_end = ir.Binary("and", is_final, ir.Binary("eq", _SLICE, ir.index(n_slices - 1)))
        tiles = Emit(lambda: self.tiles(product.columns, product.heights, is_masked=False))
        stripe: ir.Block = (
            ir.Let(_SIDE.name, (_SLICE * n_stripes + _STRIPE) % 2),
            ir.Let(_STRIPE_START.name, FIRST_COLUMN + _STRIPE * sliced.stripe),
            ir.Let(_STRIPE_END.name, _STRIPE_START + sliced.stripe),
            ir.Let(_NEXT_COLUMN.name, ir.Select(is_final, FIRST_COLUMN, _STRIPE_END)),
            ir.Let(_NEXT_K.name, ir.Select(is_final, _FIRST_K + depth, _FIRST_K)),
            ir.Let(_NEXT_ROWS.name, ir.Select(is_end, ir.index(0), ir.index(depth))),
            *self.groups(product.width, (tiles,), _STRIPE_START, _STRIPE_END),
        )
        a_slice: ir.Block = (
            ir.Let(_FIRST_K.name, _SLICE * depth),
            ir.For(_STRIPE.name, ir.index(0), n_stripes, stripe),
        )
        return (
            Emit(lambda: self.lowering.block((self._zeros(),))),
            Emit(self._copy_first),
            ir.For(_SLICE.name, ir.index(0), ir.index(n_slices), a_slice),
        )

    def _copy_first(self) -> None:
        """The first stripe, before there are tiles."""
        b, sliced, product = self.builder, self.sliced, self.product
        size, b_size = product.sum_dtype.bits // 8, product.b.dtype.bits // 8
        found = self.address(product.b, self.number(FIRST_COLUMN))
        start = self.number(self._side_start(ir.index(0))) * size
        step = self.number(product.b.step) * b_size

        def copied(row: str, place: str, _: list[Vec]) -> list[Vec]:
            _copy_row(b, product, sliced, row, place, step * FIRST_AHEAD)
            return []

        loop = KLoop(b.constant(sliced.slices.depth, I64), step, product.width * size)
        summed(b, [loop], found, moved(b, self.lowering.pointers[SCRATCH], start), [], copied)

    def _zeros(self) -> ir.Stmt:
        """The sums before the first slice."""
        at = ir.Name("_sum_at")
        zero = ir.Const(0.0, self.product.sum_dtype)
        store = ir.Store(SCRATCH, self._sums_start() + at, zero)
        count = (LAST_ROW - FIRST_ROW) * self.sliced.block_columns
        return ir.For(at.name, ir.index(0), count, (store,), vector=True)

    def _side_start(self, side: ir.Expr) -> ir.Expr:
        return TILE * self.sliced.scratch_count + side * self.sliced.side

    def _sums_start(self) -> ir.Expr:
        return self._side_start(ir.index(2))

    def panel_start(self) -> ir.Expr:
        return self._side_start(_SIDE) + GROUP * self.sliced.panel

    def row_zero(self) -> str:
        size = self.product.a.dtype.bits // 8
        return moved(self.builder, super().row_zero(), self.number(_FIRST_K) * size)

    def more_arguments(self, rows: int, row: Vec) -> str:
        b, sliced, product = self.builder, self.sliced, self.product
        size, scratch = product.sum_dtype.bits // 8, self.lowering.pointers[SCRATCH]
        first = self.number(FIRST_ROW)
        n_rows, above = self.number(LAST_ROW) - first, row - first
        before = self.number(self._sums_start() + (GROUP_START - FIRST_COLUMN))
        sums = moved(b, scratch, (before + above * sliced.block_columns) * size)
        is_last = ir.Binary("eq", _FIRST_K + sliced.slices.depth, product.depth)
        last = self.number(is_last).convert("zext", I64)
        # Rows of the stripe that tiles before this one, and this one, have copied.
        done = self.number(GROUP) * n_rows + above
        all_rows = n_rows * product.copied_groups
        copied, after = (
            (x * self.number(_NEXT_ROWS)).divide(all_rows, signed=False)
            for x in (done, done + rows)
        )
        panels = self.number(self._side_start(ir.index(1) - _SIDE))
        copy = moved(b, scratch, (panels + copied * product.width) * size)
        k = self.number(_NEXT_K) + copied
        k_nbytes = k * self.number(product.b.step) * (product.b.dtype.bits // 8)
        found = moved(b, self.address(product.b, self.number(_NEXT_COLUMN)), k_nbytes)
        return (
            f", ptr {sums}, i64 {last.text}, ptr {found}, ptr {copy}, i64 {(after - copied).text}"
        )

    def tile(self, function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
        SlicedTile(function, self.sliced).tile(rows, columns)
