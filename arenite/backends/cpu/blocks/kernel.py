"""Quantised runs times panels of block-quantised weights: register tiles and driver.

A tile is some rows by some vectors of columns. For each block of 32, whole numbers are summed in
int32, then scaled and added to sums in FLOAT32:

    sum += float(whole numbers) * (scale of the weights * scale of the run)
    sum += least of the weights * (scale of the run * sum of the run)          where there is one

Weights stay packed in memory. Bits become bytes once for all rows of a tile; they are never
negative, and what the zero takes off is where the sum of whole numbers begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.bytes.tile import word_dot
from arenite.backends.cpu.gemm.driver import Driver
from arenite.backends.cpu.gemm.epilogue import Epilogue
from arenite.backends.cpu.gemm.functions import TileFunction
from arenite.backends.cpu.gemm.kernel import Details, MicroKernel, Operand
from arenite.backends.cpu.gemm.tile import KLoop, load_wide, moved, prefetch, summed
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.ops.block_forms import (
    BLOCK,
    LANES,
    LINE_NBYTES,
    PANEL,
    STEP,
    Form,
    form_of,
)
from arenite.backends.cpu.ops.blocks import (
    HALF_SUM_WORD,
    RUN_WORDS,
    SCALE_WORD,
    SCALED_SUM_WORD,
    SUM_WORD,
)
from arenite.backends.cpu.target import Target
from arenite.dtype import FLOAT32, DType

WORD_NBYTES = 4
#: Rows of a tile from which on there is time to bring the next panel to the second cache.
PREFETCH_ROWS = 4


@dataclass(frozen=True, slots=True)
class Blocks(Details):
    """Weights of a block type, in panels."""

    weights: DType
    depth: int

    @property
    def form(self) -> Form:
        return form_of(self.weights)

    @property
    def panel_nbytes(self) -> int:
        return self.form.panel_nbytes(self.depth)

    def text(self, kernel: MicroKernel) -> str:
        head = f"// panels of {self.weights}, {self.depth} deep: {self.form}"
        return f"{head}\n{Details.text(self, kernel)}"


class BlocksTile:
    """A register tile of blocks."""

    def __init__(self, function: TileFunction, blocks: Blocks) -> None:
        self.function = function
        self.builder = function.builder
        self.product = function.product
        self.epilogue = Epilogue(function)
        self.blocks = blocks
        self.form = blocks.form
        self.word_dot = word_dot(self.builder.target)
        self.pairs_together = pairs_together(self.builder.target, blocks.form)
        self.ints = VType("i", 32, self.product.lanes)

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        b, lanes, form = self.builder, self.product.lanes, self.form
        offsets = self._row_offsets(rows)
        first = self._first_place()
        places = [_Place.of(self.blocks, column * lanes) for column in range(columns)]

        def step(a_at: str, b_at: str, state: list[Vec]) -> list[Vec]:
            *sums, number = state
            if rows >= PREFETCH_ROWS:
                self._prefetch(b_at)
            own_rows = [moved(b, a_at, offset) for offset in offsets]
            shared_at = b_at
            if form.blocks > 1:
                # As many blocks back as there are before this one.
                shared_at = moved(b, b_at, (number & (form.blocks - 1)) * -form.block_nbytes)
            places_at = [
                moved(b, at, offset)
                for at, offset in zip((shared_at, b_at, b_at), first, strict=True)
            ]
            parts = self._parts_in_order if rows < PREFETCH_ROWS else self._parts
            for part, (wholes, scales) in enumerate(parts(own_rows, places_at, places)):
                sums = self._scaled(own_rows, wholes, scales, part, sums)
            return [*sums, number + 1]

        run_nbytes = RUN_WORDS * WORD_NBYTES
        n_shared = self.blocks.depth // (BLOCK * form.blocks)
        loops = [
            KLoop(b.constant(n_shared, I64), run_nbytes * form.blocks, form.shared_nbytes),
            KLoop(b.constant(form.blocks, I64), run_nbytes, form.block_nbytes),
        ]
        zero = b.constant(0, VType("f", 32, lanes))
        start = [*[zero] * (rows * columns), b.constant(0, I64)]
        *sums, _ = summed(b, loops[: 1 + (form.blocks > 1)], "%a", "%b", start, step)
        self.epilogue.finish(sums, self.function.masks(columns, is_masked))

    def _row_offsets(self, rows: int) -> list[Vec | int]:
        """Where rows of the tile begin, in bytes from the first."""
        line = self.function.nbytes(self.product.a.line, self.product.a)
        return [line * row for row in range(rows)]

    def _prefetch(self, at: str) -> None:
        """Have the same block of the next panel brought near while this one is multiplied."""
        b, form = self.builder, self.form
        for line in range(0, form.shared_nbytes // form.blocks, LINE_NBYTES):
            prefetch(b, b.offset(at, self.blocks.panel_nbytes + line))

    def _first_place(self) -> tuple[Vec | int, Vec | int, Vec | int]:
        """Bytes before the scales, codes and numbers of the tile's first column."""
        form = self.form
        codes = form.floats_nbytes
        numbers = codes + form.codes_nbytes
        if self.product.width >= PANEL:
            return 0, codes, numbers
        lane = self.function.column & (PANEL - 1)
        half = lane.shr(LANES.bit_length() - 1, signed=False)
        within = (lane & (LANES - 1)) * STEP
        return (
            lane * (form.scale.bits // 8),
            lane + codes,
            half * form.numbers_nbytes + within + numbers,
        )

    def _parts(
        self, rows: Sequence[str], places_at: Sequence[str], places: Sequence[_Place]
    ) -> Iterator[tuple[list[list[Vec]], list[list[Vec]]]]:
        """Of each part of a block the sums of whole numbers, by row and column, and the scales."""
        shared_at, codes_at, numbers_at = places_at
        for part in range(self.form.parts):
            wholes = self._wholes(rows, numbers_at, places, part)
            yield wholes, [self._scales(shared_at, codes_at, place, part) for place in places]

    def _parts_in_order(
        self, rows: Sequence[str], places_at: Sequence[str], places: Sequence[_Place]
    ) -> Iterator[tuple[list[list[Vec]], list[list[Vec]]]]:
        """The same for few rows, which wait for memory: a block is read from its first byte to its
        last, which hardware foresees; jumping between columns took half as long again."""
        shared_at, codes_at, numbers_at = places_at
        parts = range(self.form.parts)
        scales = [
            [self._scales(shared_at, codes_at, place, part) for place in places] for part in parts
        ]
        columns = [
            [self._wholes(rows, numbers_at, [place], part) for part in parts] for place in places
        ]
        for part in parts:
            wholes = [[column[part][row][0] for column in columns] for row in range(len(rows))]
            yield wholes, scales[part]

    def _wholes(
        self, rows: Sequence[str], numbers_at: str, places: Sequence[_Place], part: int
    ) -> list[list[Vec]]:
        """The sums of whole numbers of one part, by row and column."""
        b, lanes, dot = self.builder, self.product.lanes, self.word_dot
        columns = [_Planes(self, numbers_at, place) for place in places]
        n_groups = self.form.part // STEP
        groups = range(part * n_groups, (part + 1) * n_groups)
        if self.pairs_together:
            return self._wholes_of_pairs(rows, columns, groups, part)
        sums = [[self._taken_off(row, part)] * len(places) for row in rows]
        for group in groups:
            vectors = [dot.a(column.group(group)) for column in columns]
            for row, own in zip(rows, sums, strict=True):
                word = self._word(row, group)
                spread = dot.b(b.broadcast(word, lanes))
                for k, vector in enumerate(vectors):
                    own[k] = dot.add(own[k], vector, spread)
        return sums

    def _wholes_of_pairs(
        self, rows: Sequence[str], columns: Sequence[_Planes], groups: range, part: int
    ) -> list[list[Vec]]:
        """The same, with sums in 16 bits as long as they fit."""
        b, lanes = self.builder, self.product.lanes
        ones = b.constant(1, VType("i", 16, 2 * lanes))
        sums = [[self._taken_off(row, part)] * len(columns) for row in rows]
        for first in range(groups.start, groups.stop, self.pairs_together):
            together = range(first, min(first + self.pairs_together, groups.stop))
            pairs: list[list[Vec | None]] = [[None] * len(columns) for _ in rows]
            for group in together:
                vectors = [_as_bytes(column.group(group)) for column in columns]
                for row, own in zip(rows, pairs, strict=True):
                    spread = _as_bytes(b.broadcast(self._word(row, group), lanes))
                    for k, vector in enumerate(vectors):
                        found = b.call(f"llvm.x86.{_BYTE_PAIRS[lanes]}", ones.type, vector, spread)
                        before = own[k]
                        own[k] = found if before is None else before + found
            for own_sums, own in zip(sums, pairs, strict=True):
                for k, pair in enumerate(own):
                    assert pair is not None
                    wide = b.call(f"llvm.x86.{_PAIRS[lanes]}", self.ints, pair, ones)
                    own_sums[k] = own_sums[k] + wide
        return sums

    def _word(self, row: str, number: int) -> Vec:
        where = self.builder.offset(row, number * WORD_NBYTES)
        return self.builder.emit(f"load i32, ptr {where}, align 4", VType("i", 32, 1))

    def _float_word(self, row: str, number: int) -> Vec:
        where = self.builder.offset(row, number * WORD_NBYTES)
        value = self.builder.emit(f"load float, ptr {where}, align 4", VType("f", 32, 1))
        return self.builder.broadcast(value, self.product.lanes)

    def _minus_sum(self, row: str, part: int) -> Vec:
        """Minus the sum of the numbers of a part of a run, in all lanes."""
        b, lanes = self.builder, self.product.lanes
        if self.form.parts == 1:
            return b.broadcast(self._word(row, SUM_WORD), lanes)
        first = b.broadcast(self._word(row, HALF_SUM_WORD), lanes)
        return first if part == 0 else b.broadcast(self._word(row, SUM_WORD), lanes) - first

    def _taken_off(self, row: str, part: int) -> Vec:
        """What the zero makes of a part of a run: where its sum begins."""
        if self.form.zero == 0:
            return self.builder.constant(0, self.ints)
        return self._minus_sum(row, part) << self.form.zero.bit_length() - 1

    def _scales(self, shared_at: str, codes_at: str, place: _Place, part: int) -> list[Vec]:
        """What a part of the weights is multiplied with, then what is added, for each column."""
        b, form, lanes = self.builder, self.form, self.product.lanes
        own = part % form.floats
        floats = [
            b.offset(shared_at, place.floats + form.float_nbytes * (k * form.floats + own))
            for k in range(1 + form.has_least)
        ]
        scales = [load_wide(b, at, form.scale, FLOAT32, lanes, None) for at in floats]
        if form.codes != "none":
            codes = self._codes(b.offset(codes_at, place.codes), part)
            scales = [scale * code for scale, code in zip(scales, codes, strict=True)]
        if form.is_least_negative:
            scales[1] = -scales[1]
        return scales

    def _codes(self, at: str, part: int) -> list[Vec]:
        """The codes of a part as floats."""
        b, form, lanes = self.builder, self.form, self.product.lanes
        t = VType("i", 8, lanes)
        first = b.offset(at, part * form.code_nbytes)
        loads = [b.load(t, b.offset(first, k * PANEL), 1) for k in range(form.code_nbytes // PANEL)]
        wide = "sext" if form.codes == "signed" else "zext"
        whole = [load.convert(wide, self.ints) for load in loads]
        if form.codes == "nibbles":
            whole = [whole[0] & 15, whole[0].shr(4, signed=False)]
        return [code.convert("sitofp", self.ints.as_float) for code in whole]

    def _scaled(
        self,
        rows: Sequence[str],
        wholes: Sequence[Sequence[Vec]],
        scales: Sequence[Sequence[Vec]],
        part: int,
        sums: Sequence[Vec],
    ) -> list[Vec]:
        """The sums after one part."""
        made: list[Vec] = []
        for number, (row, own) in enumerate(zip(rows, wholes, strict=True)):
            run = self._float_word(row, SCALE_WORD)
            for column, (whole, scale) in enumerate(zip(own, scales, strict=True)):
                total = sums[number * len(scales) + column]
                value = whole.convert("sitofp", self.ints.as_float)
                total = fma(value, scale[0] * run, total)
                if self.form.has_least:
                    total = fma(scale[1], self._scaled_sum(row, run, part), total)
                made.append(total)
        return made

    def _scaled_sum(self, row: str, run: Vec, part: int) -> Vec:
        if self.form.parts == 1:
            return self._float_word(row, SCALED_SUM_WORD)
        total = self.builder.constant(0, self.ints) - self._minus_sum(row, part)
        return run * total.convert("sitofp", self.ints.as_float)


#: Sums of two products of bytes, as many as a vector of sums has lanes; then of two of those.
_BYTE_PAIRS = {8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
_PAIRS = {8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def pairs_together(target: Target, form: Form) -> int:
    """How many sums of two products of bytes are added in 16 bits: 0 where words are better."""
    if not target.is_x86 or target.has_vnni or target.vector_bits < 256:
        return 0
    return (2**15 - 1) // (2 * 127 * form.largest)


def _as_bytes(x: Vec) -> Vec:
    return x.convert("bitcast", VType("i", 8, x.type.lanes * STEP))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a vector of columns has its scales, codes and numbers, in bytes from the first's."""

    floats: int
    codes: int
    numbers: int

    @classmethod
    def of(cls, blocks: Blocks, column: int) -> _Place:
        panel, lane = divmod(column, PANEL)
        before = panel * blocks.panel_nbytes
        half, within = divmod(lane, LANES)
        numbers = before + half * blocks.form.numbers_nbytes + within * STEP
        return cls(before + blocks.form.scale.bits // 8 * lane, before + lane, numbers)


class _Planes:
    """The numbers of a block for one vector of columns; what is loaded is loaded once."""

    def __init__(self, tile: BlocksTile, at: str, place: _Place) -> None:
        self.tile = tile
        self.at = tile.builder.offset(at, place.numbers)
        self.loaded: dict[int, Vec] = {}

    def group(self, group: int) -> Vec:
        """Four neighbours in K of every column, a byte each."""
        form = self.tile.form
        value: Vec | None = None
        first, below = 0, 0
        for bits in form.planes:
            vector, piece = divmod(group, 8 // bits)
            found = self._piece(first + vector, piece * bits, bits, below)
            value = found if value is None else value | found
            first, below = first + bits, below + bits
        assert value is not None
        return _looked_up(value, form.table) if form.table else value

    def _piece(self, vector: int, shift: int, bits: int, below: int) -> Vec:
        """Bits of every byte of a vector, moved to where they are in a number."""
        own = self._load(vector)
        if bits == 8:
            return own
        move = shift - below
        moved_bits = own.shr(move, signed=False) if move > 0 else own << -move if move else own
        mask: int = (2**bits - 1 << below) * 0x01010101
        return moved_bits & mask

    def _load(self, vector: int) -> Vec:
        if vector not in self.loaded:
            b, t = self.tile.builder, self.tile.ints
            where = b.offset(self.at, vector * LINE_NBYTES)
            self.loaded[vector] = b.load(t, where, 4)
        return self.loaded[vector]


_SHUFFLES = {
    16: "llvm.aarch64.neon.tbl1.v16i8",
    32: "llvm.x86.avx2.pshuf.b",
    64: "llvm.x86.avx512.pshuf.b.512",
}


def _looked_up(value: Vec, table: tuple[int, ...]) -> Vec:
    """What indices of the table stand for."""
    b = value.builder
    indices = _as_bytes(value)
    t = indices.type
    values = b.table([*table] * (t.lanes // len(table)), t)
    found = b.call(_SHUFFLES[t.lanes], t, values, indices)
    return found.convert("bitcast", value.type)


class BlocksDriver(Driver):
    """The function of a product with packed weights."""

    def __init__(self, builder: Builder, kernel: MicroKernel) -> None:
        super().__init__(builder, kernel)
        assert isinstance(kernel.details, Blocks)
        self.blocks = kernel.details

    def tile(self, function: TileFunction, rows: int, columns: int, is_masked: bool) -> None:
        BlocksTile(function, self.blocks).tile(rows, columns, is_masked)

    def address(self, operand: Operand, line: Vec) -> str:
        """Groups of columns begin with a panel, rows where they lie."""
        if operand is not self.product.b:
            return super().address(operand, line)
        return panel_address(self, self.blocks, line)


def panel_address(driver: Driver, blocks: Blocks, column: Vec) -> str:
    """Where the panel of a column begins."""
    panel = column.shr(PANEL.bit_length() - 1, signed=False) * blocks.panel_nbytes
    operand = driver.product.b
    start = driver.number(operand.base) + panel
    return moved(driver.builder, driver.lowering.pointers[operand.array], start)
