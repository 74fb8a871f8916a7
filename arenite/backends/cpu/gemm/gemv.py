"""Gemv: functions for blocks of one row or a few, as row dots and as streams, each with the
epilogue behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from arenite.backends.cpu.gemm import row_dots
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import Product
from arenite.backends.cpu.gemm.partial_sums import block_length, blocks_of
from arenite.backends.cpu.gemm.stream import Stretch, is_far, rows_at_once
from arenite.backends.cpu.gemm.tile import Dot, Tile, load_wide, moved
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import Level
from arenite.backends.cpu.lowering.vector import I64, Vec
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir

LINE_NBYTES = 64
PAGE_NBYTES = 4096
APART_NBYTES = 2816
#: How far ahead a stream that a cache holds is asked for.
NEAR_NBYTES = 768
#: How far ahead narrow rows are asked for that the last cache may have; from memory they come
#: faster unasked.
STAYING_NBYTES = 32 << 10
#: Elements of a row of A that is copied to lie on a cache line.
LONGEST_COPY = 8192
_COPY = "%copied_row"


@dataclass(frozen=True, slots=True)
class _Part:
    """A vector at one end of a stretch: its sums, B's first row, and the lanes that are there."""

    sums: Sequence[str]
    first: str
    at: Vec
    is_there: Vec
    mask: Vec


class Gemv:
    """A function for few rows, which all go through B together."""

    def __init__(self, function: TileFunction) -> None:
        self.function = function
        self.epilogue = Epilogue(function)
        self.builder = function.builder
        self.product = function.product
        self.lowering = function.lowering
        self.dot = function.dot
        self.depth, self.column, self.rest = function.depth, function.column, function.rest

    @property
    def _is_far(self) -> bool:
        return _is_far(self.product, self.builder.target)

    def row_dots(self, rows: int) -> None:
        """`rest` columns of row dots: at most `gemv_columns`, more than a vector has lanes where
        there is one row."""
        b, product, width = self.builder, self.product, self.product.gemv_columns
        depth, dot = _known(product.depth), self.dot
        if depth is not None and row_dots.is_kept(b.target, rows, depth, product.lanes):
            self._kept_dots(depth)
            return
        a_line, b_line = (self.function.nbytes(x.line, x) for x in (product.a, product.b))
        a_rows = [moved(b, "%a", a_line * row) for row in range(rows)]
        if rows == 1 and dot.a != dot.sum and depth is not None and depth <= LONGEST_COPY:
            a_rows, dot = [self._copied("%a")], Dot(dot.sum, dot.b, dot.sum)
        lanes = product.lanes
        together, unroll = row_dots.shape_of(b.target, rows, dot, lanes, depth, self._is_far)
        ahead: Vec | int | None = None
        if rows == 1 and self._is_far and row_dots.is_plain(dot):
            ahead = b_line * together
        elif rows == together == 1 and product.stays:
            ahead = STAYING_NBYTES
        in_lines = rows == together == 1 and row_dots.has_lines(b.target, dot)
        if in_lines and dot is self.dot:
            a_rows = [self._aligned("%a")]
        size = product.sum_dtype.bits // 8
        part = register_type(product.sum_dtype, row_dots.FOLDED)
        slot = self.function.stack(rows * width)
        parts = self.function.stack(rows * width * row_dots.FOLDED, "%parts")
        last = self.rest - 1

        def turn(in_lines: bool, at: Vec) -> None:
            # Past the last column the last one is taken again; what it gives is not stored.
            columns = [b.intrinsic("smin", at + k, last) for k in range(together)]
            b_rows = [moved(b, "%b", column * b_line) for column in columns]
            sums = row_dots.row_dots(
                b, lanes, dot, a_rows, b_rows, self.depth, unroll, ahead, depth, in_lines
            )
            for k, total in enumerate(sums):
                row, column = divmod(k, together)
                first = b.offset(parts, (row * width + column) * row_dots.FOLDED * size)
                where = moved(b, first, at * (row_dots.FOLDED * size))
                b.store(total, where, size)

        def all_columns(in_lines: bool) -> None:
            self.lowering.steps(0, self.rest, together, partial(turn, in_lines))

        if in_lines:
            # Lines hold whole numbers, but a file may have them anywhere.
            between = b.emit("ptrtoint ptr %b to i64", I64) & (size - 1)
            b.when(between.eq(0), partial(all_columns, True))
            b.when(between.ne(0), partial(all_columns, False))
        else:
            all_columns(False)

        def fold(at: Vec) -> None:
            first = moved(b, parts, at * (row_dots.FOLDED * size))
            loads = [b.offset(first, k * row_dots.FOLDED * size) for k in range(row_dots.FOLDED)]
            mine = [b.load(part, where, size) for where in loads]
            total = row_dots.fold(mine)
            b.store(total, moved(b, slot, at * size), size)

        self.lowering.steps(0, self.rest if rows == 1 else rows * width, row_dots.FOLDED, fold)
        if rows == 1:
            self._finish_row(slot)
        else:
            tile = Tile(rows, 1, lanes)
            self.epilogue.finish_rows(slot, tile, [self.function.mask(0)])

    def _kept_dots(self, depth: int) -> None:
        """`rest` columns with one short row of A, which stays in registers."""
        b, product = self.builder, self.product
        size = product.sum_dtype.bits // 8
        b_line = self.function.nbytes(product.b.line, product.b)
        kept = row_dots.KeptRow(b, product.lanes, self.dot, "%a", depth)
        slot = self.function.stack(product.gemv_columns)
        last = self.rest - 1

        def turn(at: Vec) -> None:
            columns = [b.intrinsic("smin", at + k, last) for k in range(row_dots.FOLDED)]
            parts = [kept.dot_with(moved(b, "%b", column * b_line)) for column in columns]
            total, where = row_dots.fold(parts), moved(b, slot, at * size)
            b.store(total, where, size)

        self.lowering.steps(0, self.rest, row_dots.FOLDED, turn)
        self._finish_row(slot)

    def _finish_row(self, slot: str) -> None:
        """The epilogue on `rest` sums of one row."""
        product = self.product

        def finish(at: Vec) -> None:
            self._finish_sums([slot], at, self.column + at, self.function.mask_of(self.rest - at))

        self.lowering.steps(0, self.rest, product.lanes, finish, product.epilogue)
        self.builder.block.end = "ret void"

    def _aligned(self, row: str) -> str:
        """A row of A, or a copy of it where that is not too long and lies better."""
        b, half = self.builder, self.product.lanes * self.product.sum_dtype.bits // 16
        address = b.emit(f"ptrtoint ptr {row} to i64", I64)
        is_worth = (address & (half - 1)).ne(0) & self.depth.le(LONGEST_COPY)
        b.when(is_worth, lambda: self._copy(row))
        return b.emit_pointer(f"select i1 {is_worth.text}, ptr {_COPY}, ptr {row}")

    def _copied(self, row: str) -> str:
        """A row of A, at most LONGEST_COPY long, as what is summed in."""
        self._copy(row)
        return _COPY

    def _copy(self, row: str) -> None:
        b, dot, lanes = self.builder, self.dot, self.product.lanes
        place = self.function.stack(LONGEST_COPY, _COPY)
        a_size, size = dot.a.bits // 8, dot.sum.bits // 8
        whole = self.depth & -lanes

        def copied(at: Vec, mask: Vec | None) -> None:
            value = load_wide(b, moved(b, row, at * a_size), dot.a, dot.sum, lanes, mask)
            where = moved(b, place, at * size)
            b.store(value, where, size)

        self.lowering.steps(0, whole, lanes, lambda at: copied(at, None))
        rest = self.depth - whole
        b.when(rest.ne(0), lambda: copied(whole, self.function.mask_of(rest)))

    def stream(self, rows: int) -> None:
        """`rest` columns, at most as many as a stretch has, from rows of B read in order.

        Vectors begin where B lies on a cache line; what is before them is the head, what is left
        behind them the tail, both in part.
        """
        b, product, lanes = self.builder, self.product, self.product.lanes
        size, b_size = product.sum_dtype.bits // 8, product.b.dtype.bits // 8
        # A line more than the columns take: rows a power of two apart would share cache sets.
        row_length = product.gemv_columns + 3 * lanes
        slot = self.function.stack(rows * row_length + PAGE_NBYTES // size)
        a_line, a_step = (
            self.function.nbytes(x, product.a) for x in (product.a.line, product.a.step)
        )
        b_step = self.function.nbytes(product.b.step, product.b)
        a_rows = [moved(b, "%a", a_line * row) for row in range(rows)]
        zero = b.constant(0, I64)
        head = self._columns_before_line(b_step)
        main_at = moved(b, "%b", head * (product.b.dtype.bits // 8))
        slot = self._at_other_page_offset(slot, main_at)
        heads = [b.offset(slot, row * row_length * size) for row in range(rows)]
        mains = [b.offset(place, lanes * size) for place in heads]
        left = self.rest - head
        whole = left & -lanes
        parts = (
            _Part(heads, "%b", zero, head.ne(0), self.function.mask_of(head)),
            _Part(mains, main_at, whole, left.ne(whole), self.function.mask_of(left - whole)),
        )
        self._clear(heads, left + lanes)
        depth = _known(product.depth)
        totals: list[str] | None = None
        if blocks_of(product.sum_dtype, [depth]) is not None:
            room = self.function.stack(rows * row_length, "%totals")
            totals = [b.offset(room, row * row_length * size) for row in range(rows)]
            self._clear(totals, left + lanes)

        def turn(phase: Phase, k: Vec) -> None:
            steps = [k + u for u in range(phase.parts)]
            numbers = [[moved(b, row, at * a_step) for at in steps] for row in a_rows]
            further = b_step * phase.parts
            near = whole - NEAR_NBYTES // b_size
            back = further - near * b_size

            def ahead(column: Vec) -> Vec | int:
                # What is read next: of these rows, and at their ends of those behind them.
                if self._is_far:
                    return further
                return column.lt(near).select(b.constant(NEAR_NBYTES, I64), back)

            stretch = Stretch(b, lanes, self.dot, numbers, ahead, self._is_far)
            rows_at = [moved(b, main_at, at * b_step) for at in steps]
            self.lowering.steps(
                0, whole, lanes, lambda column: stretch.step(mains, rows_at, column, None)
            )
            for part in parts:
                own = [moved(b, part.first, at * b_step) for at in steps]
                b.when(part.is_there, partial(stretch.step, part.sums, own, part.at, part.mask))

        side_by_side = rows_at_once(b.target, rows, self._is_far, _is_alike(product))
        phases = [Phase(1, side_by_side)]
        length = block_length(depth)
        if depth is None or depth % side_by_side or (totals and length % side_by_side):
            phases.append(Phase(1, 1))
        if totals is None:
            self.lowering.counted_loop(zero, self.depth, phases, (), turn)
        else:
            self._in_k_blocks(length, phases, turn, heads, totals, left + lanes)
        self.lowering.steps(
            0,
            whole,
            lanes,
            lambda at: self._finish_sums(mains, at, self.column + head + at, None),
            product.epilogue,
        )
        for part, first in zip(parts, (self.column, self.column + head + whole), strict=True):
            finish = partial(self._finish_sums, part.sums, part.at, first, part.mask)
            b.when(part.is_there, finish)
        b.block.end = "ret void"

    def _in_k_blocks(
        self,
        length: int,
        phases: Sequence[Phase],
        turn: Callable[[Phase, Vec], None],
        sums_at: Sequence[str],
        totals_at: Sequence[str],
        count: Vec,
    ) -> None:
        """All of K; after each `length` of it the sums, so many of each row, are added to totals,
        which in the end are where the sums were."""
        b, size, lanes = self.builder, self.product.sum_dtype.bits // 8, self.product.lanes
        t = register_type(self.product.sum_dtype, lanes)
        nothing = b.constant(0, t)

        def added(end: Vec, column: Vec) -> None:
            is_last = end.ge(self.depth)
            for sums, totals in zip(sums_at, totals_at, strict=True):
                here, there = (moved(b, place, column * size) for place in (sums, totals))
                own, before = (b.load(t, place, size) for place in (here, there))
                total = before + own
                left = b.emit(f"select i1 {is_last.text}, {t} {total.text}, {t} {nothing.text}", t)
                for value, place in ((total, there), (left, here)):
                    b.store(value, place, size)

        def block(first: Vec) -> None:
            end = b.intrinsic("smin", first + length, self.depth)
            self.lowering.counted_loop(first, end, phases, (), turn)
            self.lowering.steps(0, count, lanes, partial(added, end))

        self.lowering.steps(0, self.depth, length, block)

    def _at_other_page_offset(self, slot: str, other: str) -> str:
        """A line behind `slot` that does not lie in its page where `other` does in its own.

        What is read where something was just written in another page has to wait for that.
        """
        b = self.builder
        own, theirs = (b.emit(f"ptrtoint ptr {at} to i64", I64) for at in (slot, other))
        return moved(b, slot, (theirs - own + APART_NBYTES) & (PAGE_NBYTES - LINE_NBYTES))

    def _columns_before_line(self, b_step: Vec | int) -> Vec:
        """Columns of B before the first that begins a cache line, if all rows lie alike."""
        b, product = self.builder, self.product
        if not isinstance(b_step, int) or b_step % LINE_NBYTES:
            return b.constant(0, I64)
        address = b.emit("ptrtoint ptr %b to i64", I64)
        before = (b.constant(0, I64) - address) & (LINE_NBYTES - 1)
        shift = (product.b.dtype.bits // 8).bit_length() - 1
        columns = b.intrinsic("umin", before.shr(shift, signed=False), self.rest)
        most = b.constant(product.lanes - 1, I64)
        return b.intrinsic("umin", columns, most)

    def _clear(self, rows_at: Sequence[str], count: Vec) -> None:
        """Zeros from the beginning of each row on, at least so many."""
        b, size = self.builder, self.product.sum_dtype.bits // 8
        nothing = b.constant(0, register_type(self.product.sum_dtype, self.product.lanes))

        def clear(column: Vec) -> None:
            for place in rows_at:
                where = moved(b, place, column * size)
                b.store(nothing, where, size)

        self.lowering.steps(0, count, self.product.lanes, clear)

    def _finish_sums(self, sums_at: Sequence[str], at: Vec, first: Vec, mask: Vec | None) -> None:
        """The epilogue on a vector of sums of every row, which begin at column `first`."""
        b, product, scope = self.builder, self.product, self.lowering.scope
        size = product.sum_dtype.bits // 8
        t = register_type(product.sum_dtype, product.lanes)

        def all_rows() -> None:
            for row, place in enumerate(sums_at):
                total = b.load(t, moved(b, place, at * size), size)
                scope.push(Level("loop"))
                self.epilogue.finish_sum(self.function.row + row, total)
                scope.pop()

        self.epilogue.in_column(first, mask, all_rows)


def page_columns(product: Product, target: Target) -> int:
    """Columns in a page of B, or in a part of it, if B is streamed from a cache for one row, and
    its rows lie alike in their pages; else 0. Sums have room for half as many columns again."""
    is_streamed = product.gemv_form == "stream" and product.gemv_heights == (1,)
    if not is_streamed or not _is_alike(product) or _is_far(product, target):
        return 0
    columns = PAGE_NBYTES * 8 // product.b.dtype.bits
    while columns * 3 // 2 > product.gemv_columns:
        columns //= 2
    n_columns = _known(product.n_columns)
    return columns if n_columns is None or n_columns > columns * 3 // 2 else 0


def _is_alike(product: Product) -> bool:
    """Whether rows of B are whole pages apart."""
    step = _known(product.b.step)
    return step is not None and step * product.b.dtype.bits // 8 % PAGE_NBYTES == 0


def _is_far(product: Product, target: Target) -> bool:
    """Whether B is known to be more than a cache would keep."""
    sizes = [_known(x) for x in (product.depth, product.n_columns)]
    return is_far(target, sizes, product.b.dtype)


def _known(size: ir.Expr) -> int | None:
    return int(size.value) if isinstance(size, ir.Const) else None
