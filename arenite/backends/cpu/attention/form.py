"""What the forms of attention have in common: scratch, calls of register tiles, blocks of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from arenite.backends.cpu.attention.kernel import (
    Attention,
    Rooms,
    constant,
    key_range,
    least,
    load,
    most,
)
from arenite.backends.cpu.attention.tiles import Function
from arenite.backends.cpu.gemm.kernel import SCRATCH
from arenite.backends.cpu.gemm.rows import even_height
from arenite.codegen import loop_ir as ir

#: Where the scratch of a tile begins.
ROOM = ir.Name("room")
FIRST_KEY, N_BLOCK = ir.Name("first_key"), ir.Name("n_block")
K, ZERO = ir.Name("k"), ir.index(0)
_SEEN_FROM, SEEN = ir.Name("seen_from"), ir.Name("seen")
_KEY_BLOCK = ir.Name("key_block")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array."""

    array: str
    at: ir.Expr


@dataclass(frozen=True, slots=True)
class Either:
    """The first of two elements where a condition holds, else the second."""

    condition: ir.Expr
    first: Element
    second: Element


@dataclass(frozen=True, slots=True)
class Call(ir.Stmt):
    """Runs a register tile."""

    tile: Function
    places: tuple[Element | Either, ...]
    numbers: tuple[ir.Expr, ...]


class Form:
    """A way to compute a block of queries."""

    def __init__(self, spec: Attention, rooms: Rooms) -> None:
        self.spec = spec
        self.rooms = rooms
        self.wide = spec.wide

    def within(self, start: int, at: ir.Expr) -> ir.Expr:
        """A place in the scratch of the tile."""
        return ROOM + start + at

    def get(self, start: int, at: ir.Expr) -> ir.Expr:
        return ir.Load(SCRATCH, self.within(start, at), self.wide)

    def put(self, start: int, at: ir.Expr, value: ir.Expr) -> ir.Stmt:
        return ir.Store(SCRATCH, self.within(start, at), value)

    def fill(self, start: int, at: ir.Expr, count: ir.Expr, value: float) -> ir.Stmt:
        store = self.put(start, at + ir.Name("i"), constant(value, self.wide))
        return ir.For("i", ZERO, count, (store,), vector=True)

    def each_key_block(self, first: ir.Expr, last: ir.Expr, body: ir.Block) -> ir.Block:
        """The body for FIRST_KEY and N_BLOCK keys, of those that some of the queries sees.

        Blocks end at multiples of their length, and begin there or whole turns of sums later:
        in which block and which sum a key is does not depend on the queries.
        """
        spec, length = self.spec, self.spec.block_keys
        start, seen = key_range(spec)
        if spec.is_causal:
            seen = most(least(last + spec.offset, seen), 0)
        seen_from, first_key = start, start
        if spec.window:
            seen_from = most(first + spec.offset + (1 - spec.window), start)
            first_key = most(_SEEN_FROM // spec.weight_sums * spec.weight_sums, start)
        begin = _KEY_BLOCK * length
        blocks = ir.For(
            _KEY_BLOCK.name,
            _SEEN_FROM // length,
            (SEEN + (length - 1)) // length,
            (
                ir.Let(FIRST_KEY.name, most(begin, first_key)),
                ir.Let(N_BLOCK.name, least(begin + length, SEEN) - FIRST_KEY),
                *body,
            ),
        )
        return (
            ir.Let(_SEEN_FROM.name, seen_from),
            ir.Let(SEEN.name, seen),
            ir.If(ir.Binary("gt", SEEN, _SEEN_FROM), (blocks,)),
        )

    def is_first_block(self) -> ir.Expr:
        """Whether no keys were seen before those of the block."""
        return ir.Binary("eq", _KEY_BLOCK, _SEEN_FROM // self.spec.block_keys)

    def n_unseen(self) -> ir.Expr:
        """Keys at the front of the block that none of the queries sees and that are left out: less
        than a turn. Of keys in pages none are, so that some of them lie in one page; they add
        zeros."""
        leaves_out = self.spec.window and not self.spec.page
        return most(_SEEN_FROM - FIRST_KEY, 0) if leaves_out else ZERO

    def copied_scales(self) -> ir.Block:
        """Scales of the block side by side, as what is computed in."""
        spec = self.spec
        copies = []
        for number, scales in enumerate((spec.k_scale, spec.v_scale)):
            if scales is not None:
                value = load(scales, FIRST_KEY + K, ZERO, self.wide)
                store = self.put(self.rooms.scales, K + number * spec.block_keys, value)
                is_vector = not spec.page
                copies.append(ir.For(K.name, ZERO, N_BLOCK, (store,), vector=is_vector))
        return tuple(copies)

    def to_be_mixed(self, weight: ir.Expr) -> ir.Expr:
        """The weight of key K of the block, times the scale of its values if there is one."""
        if self.spec.v_scale is None:
            return weight
        scale = self.get(self.rooms.scales, K + self.spec.block_keys)
        return ir.Binary("mul", weight, scale)

    def known_counts(self) -> tuple[int, ...]:
        """The numbers of keys that blocks may have, where they are known."""
        n_keys = self.spec.n_keys
        if self.spec.is_causal or not isinstance(n_keys, ir.Const):
            return ()
        return tuple(cut_counts(int(n_keys.value), self.spec.block_keys))

    def in_heights(
        self,
        count: ir.Expr,
        known: tuple[int, ...],
        tallest: int,
        call: Callable[[int, ir.Expr], ir.Block],
    ) -> ir.Block:
        """Calls for all of `count` rows: as even as may be where few counts are known, else as tall
        as may be and then by halves."""
        if known:
            *others, last = (in_even_heights(one, tallest, call) for one in known)
            for one, calls in zip(known, others, strict=False):
                last = (ir.If(ir.Binary("eq", count, ir.index(one)), calls, last),)
            return last
        n_full, rest = ir.Name("n_full"), ir.Name("rest")
        parts: list[ir.Stmt] = [
            ir.Let(n_full.name, count // tallest),
            ir.For(K.name, ZERO, n_full, call(tallest, K * tallest)),
            ir.Let(rest.name, count - n_full * tallest),
        ]
        height = 1 << tallest.bit_length() - 1
        height //= 2 if height == tallest else 1
        while height:
            above = rest // (2 * height) * (2 * height)
            is_there = ir.Binary("ge", rest - above, ir.index(height))
            parts.append(ir.If(is_there, call(height, n_full * tallest + above)))
            height //= 2
        return tuple(parts)


def cut_counts(size: int, length: int) -> Iterator[int]:
    """What a size is cut into: full lengths, and a rest."""
    if size >= length:
        yield length
    if size % length:
        yield size % length


def in_even_heights(count: int, tallest: int, call: Callable[[int, ir.Expr], ir.Block]) -> ir.Block:
    """Calls for all of so many rows, as even as may be."""
    parts: list[ir.Stmt] = []
    at = 0
    while at < count:
        height = even_height(count - at, tallest)
        parts += call(height, ir.index(at))
        at += height
    return tuple(parts)


def known_stride(value: ir.Expr, nbytes: int) -> int | None:
    """In bytes, if it is a constant."""
    return int(value.value) * nbytes if isinstance(value, ir.Const) else None
