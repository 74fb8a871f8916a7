"""Decode: few queries, as rows one by one, of heads that share keys; vectors lie along the width
and along the keys.

    for block of keys
        for some keys, unit
            scores[row][key]       row dots of queries and keys
        for unit, row
            mask; new maxima; weights and their sums
        for some keys, unit
            sums[row][e]           += weights times values, read in order
        for unit, row
            results                = results * factor + sums
    divide the results by the sums of weights

Nothing is turned round and keys and values are read once, as they lie; bytes at their own width,
for the scores and the weights take their scales. They come from memory, which is fast where it is
read in order: rows of units often lie side by side, so all units that there are go along together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from arenite.backends.cpu.attention.form import (
    FIRST_KEY,
    N_BLOCK,
    SEEN,
    ZERO,
    Call,
    Either,
    Element,
    Form,
    K,
    in_even_heights,
    known_stride,
)
from arenite.backends.cpu.attention.kernel import (
    FIRST_UNIT,
    HEAD,
    LAST_UNIT,
    LOG2_E,
    N_ROWS,
    QUERY,
    UNIT,
    Attention,
    constant,
    least,
    load,
    masked,
    most,
    stored_behind,
)
from arenite.backends.cpu.attention.row_tiles import (
    DotTile,
    JoinTile,
    RowTile,
    TouchTile,
    WeighTile,
)
from arenite.backends.cpu.gemm.kernel import SCRATCH
from arenite.backends.cpu.passes.attention import SOME_KEYS
from arenite.codegen import loop_ir as ir

_ROW = ir.Name("row")
#: How much further than the room of the first unit that of a unit begins.
_ROOM = ir.Name("unit_room")
#: The first of some keys, in its block.
_AT = ir.Name("at")

#: How many keys later those are that are asked for: beside few units there is less to do meanwhile.
_AHEAD = ir.Name("ahead")
AHEAD_OF_ONE, AHEAD_OF_FEW, AHEAD = 4 * SOME_KEYS, 3 * SOME_KEYS, 2 * SOME_KEYS
FEW_UNITS = 3
#: In the block, the first of them, and of those that are asked for again.
_LATER = (_AT + _AHEAD, _AT + _AHEAD - SOME_KEYS)


class Decode(Form):
    def __init__(self, spec: Attention) -> None:
        super().__init__(spec, spec.decode_rooms)

    def block(self) -> ir.Block:
        n_units = LAST_UNIT - FIRST_UNIT
        ahead = ir.Select(n_units <= FEW_UNITS, ir.index(AHEAD_OF_FEW), ir.index(AHEAD))
        return (
            ir.Let(_AHEAD.name, ir.Select(n_units <= 1, ir.index(AHEAD_OF_ONE), ahead)),
            self._each_unit((self._each_row(self._start()),)),
            *self.each_key_block(ZERO, self.spec.n_queries, self._key_block()),
            self._each_unit((self._each_row(self._finish()),)),
        )

    def _each_unit(self, body: ir.Block) -> ir.Stmt:
        """The body for the units that are taken together, each with a room."""
        names = (
            ir.Let("group", self.spec.decode_group),
            ir.Let(_ROOM.name, (UNIT - FIRST_UNIT) * self.rooms.length),
        )
        return ir.For(UNIT.name, FIRST_UNIT, LAST_UNIT, (*names, *body))

    def _each_row(self, body: ir.Block) -> ir.Stmt:
        fold = self.spec.fold
        names = (ir.Let(QUERY.name, _ROW // fold), ir.Let(HEAD.name, UNIT * fold + _ROW % fold))
        return ir.For(_ROW.name, ZERO, N_ROWS, (*names, *body))

    def _start(self) -> ir.Block:
        spec, rooms, wide = self.spec, self.rooms, self.wide
        d = ir.Name("d")
        scaled = ir.Binary(
            "mul",
            load(spec.q, QUERY, d, wide),
            constant(spec.scale * LOG2_E, wide),
        )
        store = self.put(rooms.queries, _ROOM + _ROW * spec.depth + d, scaled)
        return (
            ir.For(d.name, ZERO, ir.index(spec.depth), (store,), vector=True),
            self.fill(
                rooms.results, _ROOM + _ROW * spec.decode_width, ir.index(spec.decode_width), 0.0
            ),
            self.put(rooms.highest, _ROOM + _ROW, constant(float("-inf"), wide)),
            self.put(rooms.total, _ROOM + _ROW, constant(0.0, wide)),
        )

    def _finish(self) -> ir.Block:
        spec, rooms, wide = self.spec, self.rooms, self.wide
        e, total, one = ir.Name("e"), ir.Name("all", wide), constant(1.0, wide)
        divisor = ir.Select(ir.Binary("eq", total, constant(0.0, wide)), one, total)
        result = self.get(rooms.results, _ROOM + _ROW * spec.decode_width + e)
        if spec.chunk:
            kept = ir.Store(spec.out.array, spec.out.at(QUERY, e), result)
            highest, whole = (self.get(at, _ROOM + _ROW) for at in (rooms.highest, rooms.total))
            return (
                ir.For(e.name, ZERO, ir.index(spec.width), (kept,), vector=True),
                *stored_behind(spec, QUERY, highest, whole),
            )
        value: ir.Expr = ir.Binary("mul", result, ir.Name("inverse", wide))
        if spec.out.dtype != wide:
            value = ir.Cast(value, spec.out.dtype)
        store = ir.Store(spec.out.array, spec.out.at(QUERY, e), value)
        return (
            ir.Let("all", self.get(rooms.total, _ROOM + _ROW)),
            ir.Let("inverse", ir.Binary("div", one, divisor)),
            ir.For(e.name, ZERO, ir.index(spec.width), (store,), vector=True),
        )

    def _key_block(self) -> ir.Block:
        weigh = (
            *self.copied_scales(),
            self._each_row((*self._mask(), self._cleared())),
            *self._in_rows(self._weigh),
        )
        return (
            ir.If(self.is_first_block(), (self._touch(),)),
            self._some_keys(ZERO, self._in_rows(self._scores)),
            self._each_unit(weigh),
            self._some_keys(self.n_unseen(), self._in_rows(self._mix)),
            self._each_unit((self._each_row(self._join()),)),
        )

    def _touch(self) -> ir.Stmt:
        """Reads the keys that nobody asked for before."""
        k = self.spec.k
        size = k.dtype.bits // 8
        tile = TouchTile(self.spec.depth * size, known_stride(k.line, size))
        places = (Element(k.array, k.at(FIRST_KEY, ZERO)),)
        count = least(N_BLOCK, _AHEAD)
        if self.spec.page:
            count = least(count, self.spec.page)
        return self._each_unit((Call(tile, places, (count, k.line * size)),))

    def _some_keys(self, first: ir.Expr, body: ir.Block) -> ir.Stmt:
        """The body for some keys of the block at a time, and with them each unit."""
        turn = ir.Name("some")
        n_turns = (N_BLOCK - first + (SOME_KEYS - 1)) // SOME_KEYS
        at = ir.Let(_AT.name, first + turn * SOME_KEYS)
        return ir.For(turn.name, ZERO, n_turns, (at, self._each_unit(body)))

    def _in_rows(self, call: Callable[[int, ir.Expr], ir.Block]) -> ir.Block:
        """Calls for all rows; where queries are counted later, for those of one after the other."""
        spec = self.spec
        if isinstance(spec.n_queries, ir.Const):
            count = int(spec.n_queries.value) * spec.fold
            return in_even_heights(count, spec.decode_tallest, call)
        if spec.fold == 1:
            return self.in_heights(N_ROWS, (), spec.decode_tallest, call)

        def moved(rows: int, row: ir.Expr) -> ir.Block:
            return call(rows, QUERY * spec.fold + row)

        calls = in_even_heights(spec.fold, spec.decode_tallest, moved)
        return (ir.For(QUERY.name, ZERO, spec.n_queries, calls),)

    def _scores(self, rows: int, row: ir.Expr) -> ir.Block:
        spec, k = self.spec, self.spec.k
        size = k.dtype.bits // 8
        line = known_stride(k.line, size)
        tile = DotTile(
            rows,
            spec.strands,
            self.wide,
            k.dtype,
            spec.depth,
            line,
            spec.block_keys,
            _is_first(row),
        )
        places = (
            Element(SCRATCH, self.within(self.rooms.queries, _ROOM + row * spec.depth)),
            Element(k.array, k.at(FIRST_KEY + _AT, ZERO)),
            Element(SCRATCH, self.within(self.rooms.scores, _ROOM + row * spec.block_keys + _AT)),
        )
        return (Call(tile, (*places, *self._later_keys()), (N_BLOCK - _AT, k.line * size)),)

    def _later_keys(self) -> Iterator[Either]:
        """Where rows are that are read later: keys of the block, and behind them its values."""
        k, v = self.spec.k, self.spec.v
        for later in _LATER:
            value = FIRST_KEY + self.n_unseen() + (later - N_BLOCK)
            yield Either(
                ir.Binary("lt", later, N_BLOCK),
                Element(k.array, k.at(self._in_text(FIRST_KEY + later), ZERO)),
                Element(v.array, v.at(self._in_text(value), ZERO)),
            )

    def _in_text(self, key: ir.Expr) -> ir.Expr:
        """A key that is asked for; in pages one that there is."""
        return most(least(key, SEEN - 1), 0) if self.spec.page else key

    def _mix(self, rows: int, row: ir.Expr) -> ir.Block:
        spec, v = self.spec, self.spec.v
        size = v.dtype.bits // 8
        columns = spec.decode_width // spec.lanes
        weight = row * spec.block_keys + _AT
        calls: list[ir.Stmt] = []
        for first in range(0, columns, spec.decode_columns):
            at = first * spec.lanes
            tile = RowTile(
                rows,
                min(spec.decode_columns, columns - first),
                spec.lanes,
                self.wide,
                v.dtype,
                spec.width - at,
                known_stride(v.line, size),
                spec.block_keys,
                spec.decode_width,
                _is_first(row) and not first,
            )
            total = row * spec.decode_width + at
            places = (
                Element(SCRATCH, self.within(self.rooms.scores, _ROOM + weight)),
                Element(v.array, v.at(FIRST_KEY + _AT, ir.index(at))),
                Element(SCRATCH, self.within(self.rooms.sums, _ROOM + total)),
            )
            numbers = (least(N_BLOCK - _AT, SOME_KEYS), v.line * size)
            calls.append(Call(tile, (*places, *self._later_values()), numbers))
        return tuple(calls)

    def _later_values(self) -> Iterator[Either]:
        """Where rows are that are read later: values of the block, and behind them the keys of the
        next, if there is one."""
        k, v = self.spec.k, self.spec.v
        has_next = ir.Binary("lt", FIRST_KEY + N_BLOCK, SEEN)
        for later in _LATER:
            next_key = FIRST_KEY + ir.Select(has_next, later, ZERO)
            yield Either(
                ir.Binary("lt", later, N_BLOCK),
                Element(v.array, v.at(self._in_text(FIRST_KEY + later), ZERO)),
                Element(k.array, k.at(self._in_text(next_key), ZERO)),
            )

    def _cleared(self) -> ir.Stmt:
        """Sums of a row, at the start of a block of keys."""
        width = self.spec.decode_width
        return self.fill(self.rooms.sums, _ROOM + _ROW * width, ir.index(width), 0.0)

    def _join(self) -> ir.Block:
        spec, rooms = self.spec, self.rooms
        tile = JoinTile(spec.decode_width // spec.lanes, spec.lanes, self.wide)
        starts = (rooms.results, rooms.sums)
        places = (
            *(Element(SCRATCH, self.within(at, _ROOM + _ROW * spec.decode_width)) for at in starts),
            Element(SCRATCH, self.within(rooms.factor, _ROOM + _ROW)),
        )
        return (Call(tile, places, ()),)

    def _mask(self) -> ir.Block:
        spec, rooms, wide = self.spec, self.rooms, self.wide
        at = _ROOM + _ROW * spec.block_keys + K
        score = self.get(rooms.scores, at)
        steps: list[ir.Stmt] = []
        if spec.mask is not None or spec.k_scale is not None:
            if spec.k_scale is not None:
                score = ir.Binary("mul", score, self.get(rooms.scales, K))
            value = masked(spec, score, QUERY, FIRST_KEY + K)
            store = self.put(rooms.scores, at, value)
            steps.append(ir.For(K.name, ZERO, N_BLOCK, (store,), vector=True))
        hide = self.put(rooms.scores, at, constant(float("-inf"), wide))
        seen: ir.Expr = N_BLOCK
        end = QUERY + spec.offset + 1 - FIRST_KEY
        if spec.is_causal:
            seen = most(least(end, N_BLOCK), 0)
        steps.append(ir.For(K.name, seen, self._in_turns(), (hide,), vector=True))
        if spec.window:
            near = least(end - spec.window, N_BLOCK)
            steps.append(ir.For(K.name, ZERO, near, (hide,), vector=True))
        return tuple(steps)

    def _in_turns(self) -> ir.Expr:
        """Keys of the block, and some that nobody sees, as many for each sum of weights."""
        n_sums = self.spec.weight_sums
        return (N_BLOCK + (n_sums - 1)) // n_sums * n_sums

    def _weigh(self, rows: int, row: ir.Expr) -> ir.Block:
        spec, rooms = self.spec, self.rooms
        tile = WeighTile(rows, spec.lanes, self.wide, spec.block_keys, spec.v_scale is not None)
        starts = (rooms.highest, rooms.total, rooms.factor)
        places = (
            Element(SCRATCH, self.within(rooms.scores, _ROOM + row * spec.block_keys)),
            *(Element(SCRATCH, self.within(start, _ROOM + row)) for start in starts),
            Element(SCRATCH, self.within(rooms.scales, ir.index(spec.block_keys))),
        )
        return (Call(tile, places, (self._in_turns() // spec.weight_sums,)),)


def _is_first(row: ir.Expr) -> bool:
    """Whether these may be the first rows of a unit, which ask for all of them."""
    return not isinstance(row, ir.Const) or row == ZERO
