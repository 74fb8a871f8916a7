"""The function a launch calls: blocks, groups of columns, copies of B, rows cut into tiles.

    for block in tile                      for group of columns in block
        few rows:   a gemv                     copy the group of B side by side, where that pays
        else:       groups of columns          for rows: a register tile

Loops and copies are loop IR; what lies between them calls the functions of `functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.gemm.functions import TileFunction, function_text
from arenite.backends.cpu.gemm.gemv import Gemv, page_columns
from arenite.backends.cpu.gemm.kernel import (
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    SCRATCH,
    TILE,
    Joined,
    K,
    MicroKernel,
    Operand,
    in_blocks,
)
from arenite.backends.cpu.gemm.product_tile import product_tile
from arenite.backends.cpu.gemm.rows import LIMIT, last_heights, next_heights
from arenite.backends.cpu.gemm.tile import moved
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.codegen import loop_ir as ir

_BEGIN, _END = ir.Name("_tile_begin"), ir.Name("_tile_end")
GROUP, GROUP_START, GROUP_REST = ir.Name("_group"), ir.Name("_group_start"), ir.Name("_group_rest")


@dataclass(frozen=True, slots=True)
class Emit(ir.Stmt):
    """Calls back while the statements around it are emitted."""

    emit: Callable[[], None]


class Driver:
    """Writes the function of a micro-kernel; `texts` are the functions it calls."""

    #: Parameters that tiles have beside those that all have.
    more_parameters = ""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        self.builder = builder
        self.lowering = Lowering(builder, kernel, _emit)
        self.kernel = kernel
        self.product = kernel.product
        self.texts: dict[str, str] = {}

    def run(self) -> None:
        b, product = self.builder, self.product
        rows = LAST_ROW - FIRST_ROW
        panels, gemv = self.panels(), self._gemv()
        if not product.heights:
            body = gemv
        elif not product.gemv_heights:
            body = panels
        else:
            body = (ir.If(rows <= product.gemv_up_to, gemv, panels),)
        if product.joined is not None:
            self._joined(product.joined, body)
        else:
            self.each_tile(in_blocks(product, body))
        b.block.end = "ret void"

    def each_tile(self, body: ir.Block) -> None:
        """The body for the tiles of the launch."""
        begin, end = (Vec(self.builder, name, I64) for name in ("%tile_begin", "%tile_end"))
        self.lowering.serial_loop(self.kernel.tile_var, begin, end, body, 1)

    def number(self, expr: ir.Expr) -> Vec:
        """The value of an expression that is the same in all lanes."""
        return self.lowering.value(expr, SCALAR)

    def _joined(self, joined: Joined, body: ir.Block) -> None:
        """The body once, for the rows or the columns of all tiles."""
        for name, text in ((_BEGIN, "%tile_begin"), (_END, "%tile_end")):
            self.lowering.bind(name.name, Vec(self.builder, text, I64))
        ends = {
            joined.first: _BEGIN * joined.length,
            joined.last: ir.Binary("min", _END * joined.length, joined.size),
        }
        others = [
            let for let in self.product.place if not (isinstance(let, ir.Let) and let.name in ends)
        ]
        own = [ir.Let(name, value) for name, value in ends.items()]
        self.lowering.block((*own, *others, *body))

    def groups(
        self,
        width: int,
        body: ir.Block,
        first: ir.Expr = FIRST_COLUMN,
        last: ir.Expr = LAST_COLUMN,
    ) -> ir.Block:
        """The body for each group of so many columns, by default of the block."""
        n_groups = (last - first + (width - 1)) // width
        start = first + GROUP * width
        place = (ir.Let(GROUP_START.name, start), ir.Let(GROUP_REST.name, last - GROUP_START))
        return (ir.For(GROUP.name, ir.index(0), n_groups, (*place, *body)),)

    def panels(self) -> ir.Block:
        product = self.product
        groups = self.panel_group(product.columns, product.heights)
        if product.copied_groups == 1:
            return self.groups(product.width, groups)
        wide = product.copied_groups * product.width
        n_stripes = (LAST_COLUMN - FIRST_COLUMN + (wide - 1)) // wide
        first, last = ir.Name("_stripe_start"), ir.Name("_stripe_end")
        start = FIRST_COLUMN + ir.Name("_stripe") * wide
        body: ir.Block = (
            ir.Let(first.name, start),
            ir.Let(last.name, ir.Binary("min", first + wide, LAST_COLUMN)),
            self._copy_stripe(first, last),
            *self.groups(product.width, groups, first, last),
        )
        return (ir.For("_stripe", ir.index(0), n_stripes, body),)

    def panel_group(self, columns: int, heights: Sequence[int]) -> ir.Block:
        """What is done for one group of columns, which may be the last and not full."""
        product, lanes = self.product, self.product.lanes
        width = columns * lanes
        full = self.panel(ir.index(width), columns, heights, is_masked=False)
        if not isinstance(product.n_columns, ir.Const):
            part = self.panel(GROUP_REST, columns, heights, is_masked=True)
            return (ir.If(_is_full(width), full, part),)
        rest = int(product.n_columns.value) % width
        if rest == 0:
            return full
        n_vectors = -(-rest // lanes)
        lower = last_heights(heights, int(product.n_columns.value) // width)
        part = self.panel(ir.index(rest), n_vectors, lower, is_masked=rest % lanes != 0)
        if product.n_columns.value < width:
            return part
        return (ir.If(_is_full(width), full, part),)

    def panel(
        self, count: ir.Expr, columns: int, heights: Sequence[int], is_masked: bool
    ) -> ir.Block:
        """One group of `count` columns: its copy, and its tiles."""
        product = self.product
        if not product.copies_b or product.copied_groups > 1:
            return (Emit(lambda: self.tiles(columns, heights, is_masked)),)
        return (self._copy(count), Emit(lambda: self.tiles(columns, heights, is_masked)))

    def _copy(self, count: ir.Expr) -> ir.Stmt:
        """The columns of a group into scratch, those of one k side by side."""

        def emit() -> None:
            product, lanes = self.product, self.product.lanes
            column, part = ir.Name("_copied"), ir.Name("_part")
            if product.b.step != ir.index(1):
                store = self._stored(GROUP_START, column)
                inner = ir.For(column.name, ir.index(0), count, (store,), vector=True)
                self.lowering.block((ir.For(K.name, ir.index(0), product.depth, (inner,)),))
                return
            # A vector's columns at a time: as many rows of memory as can be read side by side.
            is_whole = isinstance(count, ir.Const) and count.value % lanes == 0
            left = (
                ir.index(lanes)
                if is_whole
                else ir.Binary("min", count - part * lanes, ir.index(lanes))
            )
            store = self._stored(GROUP_START, part * lanes + column)
            inner = ir.For(column.name, ir.index(0), left, (store,), vector=True)
            outer = ir.For(K.name, ir.index(0), product.depth, (inner,), vector=True)
            n_parts = (count + (lanes - 1)) // lanes
            self.lowering.block((ir.For(part.name, ir.index(0), n_parts, (outer,)),))

        return Emit(emit)

    def _copy_stripe(self, first: ir.Expr, last: ir.Expr) -> ir.Stmt:
        """Groups of columns into scratch, each a panel of its own; B is read row by row."""

        def emit() -> None:
            product, column = self.product, ir.Name("_copied")
            width, n_groups = product.width, product.copied_groups
            start = first + GROUP * width
            store = self._stored(start, column)

            def rows(groups: ir.Expr, count: ir.Expr, unroll: int) -> ir.Block:
                inner = ir.For(column.name, ir.index(0), count, (store,), vector=True)
                group = ir.For(GROUP.name, ir.index(0), groups, (inner,), unroll=unroll)
                return (ir.For(K.name, ir.index(0), product.depth, (group,)),)

            whole = rows(ir.index(n_groups), ir.index(width), n_groups)
            left = ir.Binary("min", last - start, ir.index(width))
            part = rows((last - first + (width - 1)) // width, left, 1)
            is_whole = ir.Binary("eq", last - first, ir.index(n_groups * width))
            self.lowering.block((ir.If(is_whole, whole, part),))

        return Emit(emit)

    def _stored(self, first: ir.Expr, column: ir.Expr) -> ir.Store:
        """One element of B, of a column after the first of a group, to its place in scratch."""
        product = self.product
        value: ir.Expr = ir.Load(product.b.array, product.b.at(first + column, K), product.b.dtype)
        if value.dtype != product.sum_dtype:
            value = ir.Cast(value, product.sum_dtype)
        return ir.Store(SCRATCH, self.panel_start() + K * product.width + column, value)

    def _gemv(self) -> ir.Block:
        product = self.product
        if product.gemv_form == "tiles":
            columns = product.gemv_columns // product.lanes
            groups = self.panel_group(columns, product.gemv_heights)
            return self.groups(product.gemv_columns, groups)
        columns = page_columns(product, self.builder.target)
        if columns:
            return self._pages(columns)
        return self.groups(product.gemv_columns, (Emit(self._gemv_rows),))

    def _pages(self, width: int) -> ir.Block:
        """Columns in groups that begin and end with pages of B, but for the first and the last: the
        hardware looks ahead within a page only. What is short is done with the group beside it."""
        b, product, short = self.builder, self.product, width // 4
        before, end = ir.Name("_columns_before"), ir.Name("_group_end")

        def emit() -> None:
            size = product.b.dtype.bits // 8
            first = self.address(product.b, self.number(FIRST_COLUMN))
            nbytes = b.emit(f"ptrtoint ptr {first} to i64", I64) & (width * size - 1)
            columns = nbytes.shr(size.bit_length() - 1, signed=False)
            least = columns.gt(width - short).select(columns - width, columns)
            self.lowering.bind(before.name, least)

        start = FIRST_COLUMN - before
        n_groups = (LAST_COLUMN - start + (width - 1 - short)) // width
        n_groups = ir.Binary("max", n_groups, ir.index(1))
        is_first = ir.Binary("eq", GROUP, ir.index(0))
        is_last = ir.Binary("eq", GROUP + 1, n_groups)
        body = (
            ir.Let(GROUP_START.name, ir.Select(is_first, FIRST_COLUMN, start + GROUP * width)),
            ir.Let(end.name, ir.Select(is_last, LAST_COLUMN, start + (GROUP + 1) * width)),
            ir.Let(GROUP_REST.name, end - GROUP_START),
            Emit(self._gemv_rows),
        )
        return (Emit(emit), ir.For(GROUP.name, ir.index(0), n_groups, body))

    def _gemv_rows(self) -> None:
        b, product = self.builder, self.product
        most = b.constant(product.gemv_columns, I64)
        count = b.intrinsic("smin", self.number(GROUP_REST), most)
        columns = self.address(product.b, self.number(GROUP_START))

        def build(rows: int) -> str:
            if product.gemv_form == "dots":
                return self.function(f"dots{rows}", lambda f: Gemv(f).row_dots(rows))
            return self.function(f"stream{rows}", lambda f: Gemv(f).stream(rows))

        self.rows(product.gemv_heights, build, columns, count)

    def tiles(self, columns: int, heights: Sequence[int], is_masked: bool) -> None:
        b, product = self.builder, self.product
        if product.copies_b:
            size = product.sum_dtype.bits // 8
            start = self.number(self.panel_start()) * size
            columns_at = moved(b, self.lowering.pointers[SCRATCH], start)
        else:
            columns_at = self.address(product.b, self.number(GROUP_START))

        def build(rows: int) -> str:
            return self.tile_function(rows, columns, is_masked)

        self.rows(heights, build, columns_at, self.number(GROUP_REST))

    def tile_function(self, rows: int, columns: int, is_masked: bool) -> str:
        """The name of the function of a tile."""
        suffix = f"tile{rows}x{columns}{'m' if is_masked else ''}"
        return self.function(suffix, lambda f: self.tile(f, rows, columns, is_masked))

    def tile(self, function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
        """Fills the function of a tile."""
        product_tile(function, rows, columns, is_masked)

    def panel_start(self) -> ir.Expr:
        """Where the panel of a group begins in scratch."""
        product = self.product
        panel = product.depth * product.width
        start = TILE * (panel * product.copied_groups)
        return start if product.copied_groups == 1 else start + GROUP * panel

    def address(self, operand: Operand, line: Vec) -> str:
        b, size = self.builder, operand.dtype.bits // 8
        start = self.number(operand.base) + line * self.number(operand.line)
        return moved(b, self.lowering.pointers[operand.array], start * size)

    def rows(
        self,
        heights: Sequence[int],
        build: Callable[[int], str],
        columns_at: str,
        rest: Vec,
        first: Vec | None = None,
    ) -> None:
        """Calls for all rows of the block, from its first or a later one to its last, each as high
        as it fits."""
        b, product = self.builder, self.product
        first = first or self.number(FIRST_ROW)
        last = self.number(LAST_ROW)
        depth, column = self.number(product.depth), self.number(GROUP_START)
        batch = [self.number(ir.Name(name)) for name in product.batch]
        base = self.row_zero()
        line = self.number(product.a.line) * (product.a.dtype.bits // 8)

        def call(rows: int, row: Vec) -> None:
            a_at = moved(b, base, row * line)
            numbers = (depth, row, column, rest, *batch)
            self.call(build(rows), a_at, columns_at, numbers, self.more_arguments(rows, row))

        front, head, after = b.block, b.new_block("rows"), b.new_block("rows_done")
        front.end = f"br label %{head.name}"
        b.block = head
        row = Vec(b, b.new_name(), I64)
        height = self._height(last - row, heights)
        done = row + height
        again = done.lt(last)
        latch = b.new_block("rows_next")
        if len(heights) == 1:
            call(heights[0], row)
            b.block.end = f"br label %{latch.name}"
        else:
            cases = [b.new_block("height") for _ in heights]
            targets = " ".join(
                f"i64 {h}, label %{case.name}" for h, case in zip(heights, cases, strict=True)
            )
            head.end = f"switch i64 {height.text}, label %{cases[-1].name} [ {targets} ]"
            for rows, case in zip(heights, cases, strict=True):
                b.block = case
                call(rows, row)
                case.end = f"br label %{latch.name}"
        latch.end = f"br i1 {again.text}, label %{head.name}, label %{after.name}"
        b.set_phi(head, row.text, [(first, front), (done, latch)])
        b.block = after

    def row_zero(self) -> str:
        """Where row 0 of A begins."""
        return self.address(self.product.a, self.builder.constant(0, I64))

    def more_arguments(self, rows: int, row: Vec) -> str:
        """What a tile of so many rows is given beside what all are, as text."""
        return ""

    def _height(self, left: Vec, heights: Sequence[int]) -> Vec:
        """How high the next tile is with so many rows left."""
        b = self.builder
        if len(heights) == 1:
            return b.constant(heights[0], I64)
        table = next_heights(heights)
        name = f"heights_{'_'.join(map(str, heights))}"
        values = ", ".join(f"i8 {height}" for height in table)
        b.globals[name] = f"@{name} = internal constant [{len(table)} x i8] [{values}], align 64"
        at = b.intrinsic("smin", left, b.constant(LIMIT, I64))
        where = b.emit_pointer(f"getelementptr i8, ptr @{name}, i64 {at.text}")
        byte = VType("i", 8, 1)
        return b.emit(f"load i8, ptr {where}, align 1", byte).convert("zext", I64)

    def call(self, name: str, a_at: str, b_at: str, numbers: Sequence[Vec], more: str = "") -> None:
        """Calls a function: depth, row, column, rest and batch are its numbers."""
        given = ", ".join(f"i64 {x.text}" for x in numbers)
        places = f"ptr %window, ptr {a_at}, ptr {b_at}"
        self.builder.emit_void(f"call fastcc void @{name}({places}, {given}{more})")

    def function(self, suffix: str, fill: Callable[[TileFunction], None]) -> str:
        """The name of a function, which is built when it is first asked for."""
        name = f"{self.kernel.name}.{suffix}"
        if name not in self.texts:
            builder = Builder(self.builder.target)
            fill(TileFunction(builder, self.kernel))
            self.texts[name] = function_text(builder, self.kernel, name, self.more_parameters)
            self.builder.declarations |= builder.declarations
            self.builder.globals |= builder.globals
        return name


def _emit(stmt: ir.Stmt) -> None:
    assert isinstance(stmt, Emit)
    stmt.emit()


def _is_full(width: int) -> ir.Expr:
    """Whether a group has all of its columns."""
    return ir.Binary("ge", GROUP_REST, ir.index(width))
