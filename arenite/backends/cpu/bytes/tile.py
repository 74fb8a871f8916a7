"""A register tile of a product of bytes: words of four bytes of A times words of B, in int32 sums.

One step of K takes four bytes of a row of A, the same for all lanes, and a vector of B, whose lanes
hold four bytes of one column each. What a target has for that differs, what it gives does not: sums
are exact and wrap. Signed bytes of A become unsigned in a register, or unsigned ones signed where a
target wants these, by turning one bit of each: dot products leave room for that.

    dot products    one instruction for a word; where both sides must be signed, A is shifted by 128
                    and the shift taken back
    pairs           bytes widened to 16 bits, even and odd ones apart, two pairs added at a time;
                    never with instructions that saturate
    else            four multiplications of 32 bits

The register tiles of a product or a convolution of bytes, whose K loops walk words of four.

A product is a convolution of one tap whose pixels are rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.kernel import Ends
from arenite.backends.cpu.conv.tile import ConvTile, RowsStep, k_loops
from arenite.backends.cpu.gemm.prefetch import prefetch_epilogue
from arenite.backends.cpu.gemm.tile import KLoop, Step, Tile, moved, summed
from arenite.backends.cpu.lowering.vector import Builder, Vec, VType
from arenite.backends.cpu.ops.byte_products import TURN, WORD
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.dtype import INT8

#: What bytes widened to 16 bits take of the registers, beside their words.
_WIDENED_REGISTERS = 5

#: The highest bits of the bytes of a word.
_TURNS = int.from_bytes([TURN] * WORD, "little", signed=True)

_PAIR_SUMS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


@dataclass(frozen=True, slots=True)
class WordDot:
    """How words are multiplied: each side made ready once, then added to sums."""

    a: Callable[[Vec], Sequence[Vec]]
    b: Callable[[Vec], Sequence[Vec]]
    add: Callable[[Vec, Sequence[Vec], Sequence[Vec]], Vec]
    wants_signed: bool = False  # bytes of A, 128 less than the numbers that are multiplied


def word_dot(target: Target) -> WordDot:
    """The best a target has."""
    if target.is_x86:
        return _DOTS if target.has_vnni else _PAIRS
    return _SIGNED_DOTS if target.has_vnni else _SINGLE


def registers_taken(target: Target, is_signed: bool) -> int:
    """Vector registers that a step needs beside those of sums, columns and a number of A."""
    is_turned = is_signed != word_dot(target).wants_signed
    return (0 if target.has_vnni else _WIDENED_REGISTERS) + is_turned


class WordTile:
    """A tile at %a and %b: distances of its rows and columns, in bytes."""

    def __init__(
        self,
        b: Builder,
        tile: Tile,
        a_line: Vec | int,
        column_offset: Callable[[int], int],
        is_signed: bool,
    ) -> None:
        self.b, self.tile = b, tile
        self.rows = [a_line * row for row in range(tile.rows)]
        self.columns = [column_offset(column) for column in range(tile.columns)]
        self.types = [VType("i", 32, lanes) for lanes in tile.widths]
        self.dot = word_dot(b.target)
        turned = dict.fromkeys(self.types) if is_signed != self.dot.wants_signed else {}
        self.turns = {t: b.hidden(_TURNS, t) for t in turned}

    def step(
        self,
        a_at: str,
        b_at: str,
        sums: list[Vec],
        rows: Sequence[int] | None = None,
        nbytes: int = WORD,
    ) -> list[Vec]:
        """The sums after a word of K, for some rows or all; `nbytes` of A's word are there."""
        b, n_columns = self.b, self.tile.columns
        vectors = [
            self.dot.b(b.load(t, moved(b, b_at, offset), 4))
            for t, offset in zip(self.types, self.columns, strict=True)
        ]
        new_sums = list(sums)
        for row in range(self.tile.rows) if rows is None else rows:
            word = _word(b, moved(b, a_at, self.rows[row]), nbytes)
            spread = {t: self.dot.a(self._spread(word, t)) for t in dict.fromkeys(self.types)}
            for at, vector in enumerate(vectors, row * n_columns):
                new_sums[at] = self.dot.add(new_sums[at], spread[new_sums[at].type], vector)
        return new_sums

    def _spread(self, word: Vec, t: VType) -> Vec:
        """A word of A in all lanes, of bytes as they are wanted."""
        spread = self.b.broadcast(word, t.lanes)
        return spread ^ self.turns[t] if self.turns else spread

    def multiply(self, k_loops: Sequence[KLoop], rest: int, sums: list[Vec]) -> list[Vec]:
        """The sums over loops, and over `rest` bytes of A behind their words, added to others.

        Loops may be none; with a rest there is one at the most.
        """
        b, a_at, b_at = self.b, "%a", "%b"
        if k_loops:
            sums = summed(b, k_loops, a_at, b_at, sums, self.step)
        if rest:
            for loop in k_loops:
                a_at = moved(b, a_at, loop.count * loop.a_step)
                b_at = moved(b, b_at, loop.count * loop.b_step)
            sums = self.step(a_at, b_at, sums, nbytes=rest)
        return sums


def _word(b: Builder, pointer: str, nbytes: int) -> Vec:
    """The first bytes of a word, the others zero; nothing behind them is read."""
    t = VType("i", 32, 1)
    if nbytes == WORD:
        return b.emit(f"load i32, ptr {pointer}, align 1", t)
    word = b.constant(0, t)
    for k in range(nbytes):
        byte = b.emit(f"load i8, ptr {b.offset(pointer, k)}, align 1", VType("i", 8, 1))
        word = word | (byte.convert("zext", t) << 8 * k)
    return word


def _as_bytes(x: Vec) -> Vec:
    return x.convert("bitcast", VType("i", 8, x.type.lanes * WORD))


def _own_bytes(x: Vec) -> Sequence[Vec]:
    return (_as_bytes(x),)


def _as_halves(x: Vec) -> Vec:
    return x.convert("bitcast", VType("i", 16, x.type.lanes * 2))


# Unsigned by signed, in one instruction.


def _add_dots(total: Vec, a: Sequence[Vec], b: Sequence[Vec]) -> Vec:
    name = f"llvm.x86.avx512.vpdpbusd.{total.type.lanes * 32}"
    return total.builder.call(name, total.type, total, *a, *b)


_DOTS = WordDot(_own_bytes, _own_bytes, _add_dots)


# Signed by signed, in one instruction: a * b = (a - 128) * b - (-128) * b.


def _signed_dot(total: Vec, a: Vec, b: Vec) -> Vec:
    name = f"llvm.aarch64.neon.sdot.{total.type.mangled}.{a.type.mangled}"
    return total.builder.call(name, total.type, total, a, b)


def _with_shift(x: Vec) -> Sequence[Vec]:
    own, nothing = _as_bytes(x), x.builder.constant(0, x.type)
    return own, _signed_dot(nothing, x.builder.constant(-TURN, own.type), own)


def _add_signed_dots(total: Vec, a: Sequence[Vec], b: Sequence[Vec]) -> Vec:
    words, shift = b
    return _signed_dot(total, a[0], words) - shift


_SIGNED_DOTS = WordDot(_own_bytes, _with_shift, _add_signed_dots, wants_signed=True)


# Pairs of 16 bits.


def _widened_a(x: Vec) -> Sequence[Vec]:
    halves = _as_halves(x)
    return halves & 255, halves.shr(8, signed=False)


def _widened_b(x: Vec) -> Sequence[Vec]:
    halves = _as_halves(x)
    return (halves << 8).shr(8, signed=True), halves.shr(8, signed=True)


def _add_pairs(total: Vec, a: Sequence[Vec], b: Sequence[Vec]) -> Vec:
    name = f"llvm.x86.{_PAIR_SUMS[total.type.lanes]}"
    for one, other in zip(a, b, strict=True):
        total = total + total.builder.call(name, total.type, one, other)
    return total


_PAIRS = WordDot(_widened_a, _widened_b, _add_pairs)


def as_pair(x: Vec) -> Vec:
    """An integer of 32 bits that 16 hold, as these and 0."""
    return x & 0xFFFF


def add_pair(a: Vec, b: Vec, total: Vec) -> Vec:
    """a * b + total, where 16 bits hold a and b, and b is a pair; on x86."""
    name = f"llvm.x86.{_PAIR_SUMS[total.type.lanes]}"
    return total + total.builder.call(name, total.type, _as_halves(a), _as_halves(b))


# One byte at a time.


def _single_a(x: Vec) -> Sequence[Vec]:
    return [x.shr(8 * k, signed=False) & 255 for k in range(WORD)]


def _single_b(x: Vec) -> Sequence[Vec]:
    return [(x << 24 - 8 * k).shr(24, signed=True) for k in range(WORD)]


def _add_single(total: Vec, a: Sequence[Vec], b: Sequence[Vec]) -> Vec:
    for one, other in zip(a, b, strict=True):
        total = total + one * other
    return total


_SINGLE = WordDot(_single_a, _single_b, _add_single)


class BytesTile(ConvTile):
    """A register tile of bytes."""

    def tile(self, rows: int, columns: int, is_masked: bool) -> None:
        loops = [] if self.product.depth == ir.index(0) else k_loops(self.function, self.conv.loops)
        prefetch_epilogue(self.function, rows, columns, self._depth())
        words = self._word_tile(self._shape(rows, columns, is_masked))
        sums = words.multiply(loops, self.conv.bytes_left or 0, self._start(words.tile, is_masked))
        self.epilogue.finish(sums, self._masks(words.tile, is_masked))

    def _step(self, shape: Tile) -> Step:
        return self._word_tile(shape).step

    def _rows_step(self, shape: Tile) -> RowsStep:
        return self._word_tile(shape).step

    def _tap_loops(self, ends: Ends, count: int) -> list[tuple[int, int, int]]:
        word = (WORD, PANEL * WORD)
        if ends.tap == ends.depth:
            return [(count * ends.depth // WORD, *word)]
        return [(count, ends.tap, PANEL * ends.depth), (ends.depth // WORD, *word)]

    def _word_tile(self, shape: Tile) -> WordTile:
        line = self.function.nbytes(self.product.a.line, self.product.a)
        is_signed = self.product.a.dtype == INT8
        return WordTile(self.builder, shape, line, self._column_offset, is_signed)

    def _column_offset(self, column: int) -> int:
        panel, lane = divmod(column * self.product.lanes, PANEL)
        return panel * self.conv.panel + lane * WORD
