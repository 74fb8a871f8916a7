"""A register tile of a product: rows of A times vector columns of B, summed over nested K loops.

                 column 0   column 1
               ┌──────────┬──────────┐     one step of K loads every column of B once, and one
        row 0  │ sum      │ sum      │     number of A a row, which feeds that row's sums
        row 1  │ sum      │ sum      │
               └──────────┴──────────┘

Sums are phis from the first step to the last, or of a block of them (`partial_sums`). All addresses
are offsets in bytes from one pointer into A and one into B, so that a matmul and a convolution
differ in their offsets and K loops alone. The loops run at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from arenite.backends.cpu.lowering.access import load_contiguous
from arenite.backends.cpu.lowering.arithmetic import cast
from arenite.backends.cpu.lowering.convert import from_memory, memory_type, register_type
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, BasicBlock, Builder, Vec
from arenite.backends.cpu.target import Target
from arenite.dtype import DType


@dataclass(frozen=True, slots=True)
class Tile:
    """Numbers of rows and of vector columns, and the lanes of a column, or of the last of them."""

    rows: int
    columns: int
    lanes: int
    last_lanes: int = 0  # as many as the others

    @property
    def widths(self) -> list[int]:
        """The lanes of each column."""
        return [*[self.lanes] * (self.columns - 1), self.last_lanes or self.lanes]


@dataclass(frozen=True, slots=True)
class Dot:
    """What A and B hold in memory, and what is summed in."""

    a: DType
    b: DType
    sum: DType


@dataclass(frozen=True, slots=True)
class KLoop:
    """A loop over part of K: how often it runs, and how far A and B move, in bytes."""

    count: Vec
    a_step: Vec | int
    b_step: Vec | int


def lanes_of(target: Target, dtype: DType) -> int:
    """Sums in one register."""
    return target.vector_bits // dtype.bits


def most_rows(target: Target, columns: int) -> int:
    """Rows of a tile whose sums, columns of B and number of A fit the registers."""
    return (target.n_vector_registers - 1 - columns) // columns


def most_columns(target: Target, rows: int) -> int:
    """Columns of a tile of so many rows that fits the registers."""
    return (target.n_vector_registers - 1) // (rows + 1)


def multiply(
    b: Builder,
    tile: Tile,
    dot: Dot,
    a_line: Vec | int,
    column_offset: Callable[[int], int],
    k_loops: Sequence[KLoop],
    column_masks: Sequence[Vec | None] = (),
    *,
    a_pointer: str = "%a",
    b_pointer: str = "%b",
    beside: Callable[[str], None] | None = None,
    inside: Inside | None = None,
    start: list[Vec] | None = None,
    summing: Summing | None = None,
) -> list[Vec]:
    """The sums, row by row, from zeros or others on; emitted behind the builder's current
    block.

    Rows of A are `a_line` bytes apart. Of a column with a mask only the lanes that hold are read;
    without masks all are. `beside` emits what else a step does,
    from where it is in A; `inside` is as in `summed`, which `summing` stands in for.
    """
    step = tile_step(b, tile, dot, a_line, column_offset, column_masks, beside)
    if start is None:
        start = [b.constant(0, register_type(dot.sum, lanes)) for lanes in tile.widths] * tile.rows
    return (summing or summed)(b, k_loops, a_pointer, b_pointer, start, step, inside)


#: From addresses in A and B and the sums before it, the sums after one step of K.
Step: TypeAlias = Callable[[str, str, list[Vec]], list[Vec]]
#: From an address in A, another where the same numbers are.
Inside: TypeAlias = Callable[[str], str]
#: What `summed` is.
Summing: TypeAlias = Callable[
    [Builder, Sequence[KLoop], str, str, list[Vec], Step, Inside | None], list[Vec]
]


def tile_step(
    b: Builder,
    tile: Tile,
    dot: Dot,
    a_line: Vec | int,
    column_offset: Callable[[int], int],
    column_masks: Sequence[Vec | None] = (),
    beside: Callable[[str], None] | None = None,
) -> Step:
    """What `multiply` does in a step of K."""
    rows = [a_line * row for row in range(tile.rows)]
    masks = column_masks or [None] * tile.columns
    columns = [column_offset(column) for column in range(tile.columns)]
    widths = tile.widths

    def step(a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
        if beside is not None:
            beside(a_at)
        vectors = [
            load_wide(b, moved(b, b_at, offset), dot.b, dot.sum, lanes, mask)
            for offset, lanes, mask in zip(columns, widths, masks, strict=True)
        ]
        new_sums = []
        for row, offset in enumerate(rows):
            number = load_wide(b, moved(b, a_at, offset), dot.a, dot.sum, 1, None)
            spread = {lanes: b.broadcast(number, lanes) for lanes in dict.fromkeys(widths)}
            for column, vector in enumerate(vectors):
                total = sums[row * tile.columns + column]
                new_sums.append(fma(spread[vector.type.lanes], vector, total))
        return new_sums

    return step


def summed(
    b: Builder,
    k_loops: Sequence[KLoop],
    a_pointer: str,
    b_pointer: str,
    start: list[Vec],
    step: Step,
    inside: Inside | None = None,
) -> list[Vec]:
    """The sums when all loops have run, the outermost first; the innermost runs `step`.

    Within the outermost loop A is where `inside` says.
    """

    def nest(depth: int, a_at: str, b_at: str, sums: list[Vec]) -> list[Vec]:
        if depth == len(k_loops):
            return step(a_at, b_at, sums)
        if depth == 1 and inside is not None:
            a_at = inside(a_at)
        inner = partial(nest, depth + 1)
        return _loop(b, k_loops[depth], a_at, b_at, sums, inner)

    return nest(0, a_pointer, b_pointer, start)


def moved(b: Builder, pointer: str, nbytes: Vec | int) -> str:
    """The address so many bytes further."""
    if isinstance(nbytes, int):
        return b.offset(pointer, nbytes)
    return b.emit_pointer(f"getelementptr i8, ptr {pointer}, i64 {nbytes.text}")


def prefetch(b: Builder, pointer: str, is_near: bool = False, is_written: bool = False) -> None:
    """Have a line brought into the second cache, or the first; it need not be there to be read."""
    b.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    kind = f"i32 {int(is_written)}, i32 {3 if is_near else 2}, i32 1"
    b.emit_void(f"call void @llvm.prefetch.p0(ptr {pointer}, {kind})")


def load_wide(
    b: Builder, pointer: str, dtype: DType, wide: DType, lanes: int, mask: Vec | None
) -> Vec:
    """Elements from an address on, as what is summed in; 0 where the mask does not hold."""
    raw = load_contiguous(b, pointer, memory_type(dtype, lanes), mask)
    return cast(from_memory(raw, dtype), dtype, wide)


def _loop(
    b: Builder,
    loop: KLoop,
    a_start: str,
    b_start: str,
    start: list[Vec],
    body: Step,
) -> list[Vec]:
    """Runs `body` as often as the loop says, at least once; the sums after it."""
    front, head = b.block, b.new_block("k")
    front.end = f"br label %{head.name}"
    b.block = head
    left = Vec(b, b.new_name(), I64)
    a_at, b_at = b.new_name(), b.new_name()
    sums = [Vec(b, b.new_name(), value.type) for value in start]
    new_sums = body(a_at, b_at, sums)
    a_next, b_next = moved(b, a_at, loop.a_step), moved(b, b_at, loop.b_step)
    after = left - 1
    again = after.ne(0)
    latch, done = b.block, b.new_block("summed")
    latch.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, left.text, [(loop.count, front), (after, latch)])
    for name, first, second in ((a_at, a_start, a_next), (b_at, b_start, b_next)):
        pointer_phi(head, name, (first, front), (second, latch))
    for phi, first_sum, last_sum in zip(sums, start, new_sums, strict=True):
        b.set_phi(head, phi.text, [(first_sum, front), (last_sum, latch)])
    b.block = done
    return new_sums


def pointer_phi(block: BasicBlock, name: str, *sources: tuple[str, BasicBlock]) -> None:
    pairs = ", ".join(f"[ {value}, %{source.name} ]" for value, source in sources)
    block.phis.append(f"{name} = phi ptr {pairs}")
