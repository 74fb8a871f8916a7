"""Few: rows one by one, which are queries of heads that share keys, with vectors along the width
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
    Form,
    K,
    Place,
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
    SOME_KEYS,
    DotTile,
    JoinTile,
    RowTile,
    TouchTile,
    WeighTile,
)
from arenite.backends.cpu.gemm.kernel import SCRATCH
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


class Few(Form):
    def __init__(self, made: Attention) -> None:
        super().__init__(made, made.few_rooms)

    def block(self) -> ir.Block:
        n_units = LAST_UNIT - FIRST_UNIT
        ahead = ir.Select(n_units <= FEW_UNITS, ir.index(AHEAD_OF_FEW), ir.index(AHEAD))
        return (
            ir.Let(_AHEAD.name, ir.Select(n_units <= 1, ir.index(AHEAD_OF_ONE), ahead)),
            self._each_unit((self._each_row(self._start()),)),
            *self.each_key_block(ZERO, self.made.n_queries, self._key_block()),
            self._each_unit((self._each_row(self._finish()),)),
        )

    def _each_unit(self, body: ir.Block) -> ir.Stmt:
        """The body for the units that are taken together, each with a room."""
        names = (
            ir.Let("group", self.made.few_group),
            ir.Let(_ROOM.name, (UNIT - FIRST_UNIT) * self.rooms.length),
        )
        return ir.For(UNIT.name, FIRST_UNIT, LAST_UNIT, (*names, *body))

    def _each_row(self, body: ir.Block) -> ir.Stmt:
        fold = self.made.fold
        names = (ir.Let(QUERY.name, _ROW // fold), ir.Let(HEAD.name, UNIT * fold + _ROW % fold))
        return ir.For(_ROW.name, ZERO, N_ROWS, (*names, *body))

    def _start(self) -> ir.Block:
        made, rooms, wide = self.made, self.rooms, self.wide
        d = ir.Name("d")
        scaled = ir.Binary(
            "mul",
            load(made.q, QUERY, d, wide),
            constant(made.scale * LOG2_E, wide),
        )
        store = self.put(rooms.queries, _ROOM + _ROW * made.depth + d, scaled)
        return (
            ir.For(d.name, ZERO, ir.index(made.depth), (store,), vector=True),
            self.fill(rooms.results, _ROOM + _ROW * made.few_width, ir.index(made.few_width), 0.0),
            self.put(rooms.highest, _ROOM + _ROW, constant(float("-inf"), wide)),
            self.put(rooms.total, _ROOM + _ROW, constant(0.0, wide)),
        )

    def _finish(self) -> ir.Block:
        made, rooms, wide = self.made, self.rooms, self.wide
        e, total, one = ir.Name("e"), ir.Name("all", wide), constant(1.0, wide)
        divisor = ir.Select(ir.Binary("eq", total, constant(0.0, wide)), one, total)
        result = self.get(rooms.results, _ROOM + _ROW * made.few_width + e)
        if made.chunk:
            kept = ir.Store(made.out.array, made.out.at(QUERY, e), result)
            highest, whole = (self.get(at, _ROOM + _ROW) for at in (rooms.highest, rooms.total))
            return (
                ir.For(e.name, ZERO, ir.index(made.width), (kept,), vector=True),
                *stored_behind(made, QUERY, highest, whole),
            )
        value: ir.Expr = ir.Binary("mul", result, ir.Name("inverse", wide))
        if made.out.dtype != wide:
            value = ir.Cast(value, made.out.dtype)
        store = ir.Store(made.out.array, made.out.at(QUERY, e), value)
        return (
            ir.Let("all", self.get(rooms.total, _ROOM + _ROW)),
            ir.Let("inverse", ir.Binary("div", one, divisor)),
            ir.For(e.name, ZERO, ir.index(made.width), (store,), vector=True),
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
        k = self.made.k
        size = k.dtype.bits // 8
        tile = TouchTile(self.made.depth * size, known_stride(k.line, size))
        places = (Place(k.array, k.at(FIRST_KEY, ZERO)),)
        count = least(N_BLOCK, _AHEAD)
        return self._each_unit((Call(tile, places, (count, k.line * size)),))

    def _some_keys(self, first: ir.Expr, body: ir.Block) -> ir.Stmt:
        """The body for some keys of the block at a time, and with them each unit."""
        turn = ir.Name("some")
        n_turns = (N_BLOCK - first + (SOME_KEYS - 1)) // SOME_KEYS
        at = ir.Let(_AT.name, first + turn * SOME_KEYS)
        return ir.For(turn.name, ZERO, n_turns, (at, self._each_unit(body)))

    def _in_rows(self, call: Callable[[int, ir.Expr], ir.Block]) -> ir.Block:
        """Calls for all rows; where queries are counted later, for those of one after the other."""
        made = self.made
        if isinstance(made.n_queries, ir.Const):
            count = int(made.n_queries.value) * made.fold
            return in_even_heights(count, made.few_tallest, call)
        if made.fold == 1:
            return self.in_heights(N_ROWS, (), made.few_tallest, call)

        def moved(rows: int, row: ir.Expr) -> ir.Block:
            return call(rows, QUERY * made.fold + row)

        calls = in_even_heights(made.fold, made.few_tallest, moved)
        return (ir.For(QUERY.name, ZERO, made.n_queries, calls),)

    def _scores(self, rows: int, row: ir.Expr) -> ir.Block:
        made, k = self.made, self.made.k
        size = k.dtype.bits // 8
        line = known_stride(k.line, size)
        tile = DotTile(
            rows,
            made.strands,
            self.wide,
            k.dtype,
            made.depth,
            line,
            made.block_keys,
            _is_first(row),
        )
        places = (
            Place(SCRATCH, self.within(self.rooms.queries, _ROOM + row * made.depth)),
            Place(k.array, k.at(FIRST_KEY + _AT, ZERO)),
            Place(SCRATCH, self.within(self.rooms.scores, _ROOM + row * made.block_keys + _AT)),
        )
        return (Call(tile, (*places, *self._later_keys()), (N_BLOCK - _AT, k.line * size)),)

    def _later_keys(self) -> Iterator[Either]:
        """Where rows are that are read later: keys of the block, and behind them its values."""
        k, v = self.made.k, self.made.v
        for later in _LATER:
            value = FIRST_KEY + self.n_unseen() + (later - N_BLOCK)
            yield Either(
                ir.Binary("lt", later, N_BLOCK),
                Place(k.array, k.at(FIRST_KEY + later, ZERO)),
                Place(v.array, v.at(value, ZERO)),
            )

    def _mix(self, rows: int, row: ir.Expr) -> ir.Block:
        made, v = self.made, self.made.v
        size = v.dtype.bits // 8
        columns = made.few_width // made.lanes
        weight = row * made.block_keys + _AT
        calls: list[ir.Stmt] = []
        for first in range(0, columns, made.few_columns):
            at = first * made.lanes
            tile = RowTile(
                rows,
                min(made.few_columns, columns - first),
                made.lanes,
                self.wide,
                v.dtype,
                made.width - at,
                known_stride(v.line, size),
                made.block_keys,
                made.few_width,
                _is_first(row) and not first,
            )
            total = row * made.few_width + at
            places = (
                Place(SCRATCH, self.within(self.rooms.scores, _ROOM + weight)),
                Place(v.array, v.at(FIRST_KEY + _AT, ir.index(at))),
                Place(SCRATCH, self.within(self.rooms.sums, _ROOM + total)),
            )
            numbers = (least(N_BLOCK - _AT, SOME_KEYS), v.line * size)
            calls.append(Call(tile, (*places, *self._later_values()), numbers))
        return tuple(calls)

    def _later_values(self) -> Iterator[Either]:
        """Where rows are that are read later: values of the block, and behind them the keys of the
        next, if there is one."""
        k, v = self.made.k, self.made.v
        has_next = ir.Binary("lt", FIRST_KEY + N_BLOCK, SEEN)
        for later in _LATER:
            next_key = FIRST_KEY + ir.Select(has_next, later, ZERO)
            yield Either(
                ir.Binary("lt", later, N_BLOCK),
                Place(v.array, v.at(FIRST_KEY + later, ZERO)),
                Place(k.array, k.at(next_key, ZERO)),
            )

    def _cleared(self) -> ir.Stmt:
        """Sums of a row, at the start of a block of keys."""
        width = self.made.few_width
        return self.fill(self.rooms.sums, _ROOM + _ROW * width, ir.index(width), 0.0)

    def _join(self) -> ir.Block:
        made, rooms = self.made, self.rooms
        tile = JoinTile(made.few_width // made.lanes, made.lanes, self.wide)
        starts = (rooms.results, rooms.sums)
        places = (
            *(Place(SCRATCH, self.within(at, _ROOM + _ROW * made.few_width)) for at in starts),
            Place(SCRATCH, self.within(rooms.factor, _ROOM + _ROW)),
        )
        return (Call(tile, places, ()),)

    def _mask(self) -> ir.Block:
        made, rooms, wide = self.made, self.rooms, self.wide
        at = _ROOM + _ROW * made.block_keys + K
        score = self.get(rooms.scores, at)
        steps: list[ir.Stmt] = []
        if made.mask is not None or made.k_scale is not None:
            if made.k_scale is not None:
                score = ir.Binary("mul", score, self.get(rooms.scales, K))
            value = masked(made, score, QUERY, FIRST_KEY + K)
            store = self.put(rooms.scores, at, value)
            steps.append(ir.For(K.name, ZERO, N_BLOCK, (store,), vector=True))
        hide = self.put(rooms.scores, at, constant(float("-inf"), wide))
        seen: ir.Expr = N_BLOCK
        end = QUERY + made.offset + 1 - FIRST_KEY
        if made.is_causal:
            seen = most(least(end, N_BLOCK), 0)
        steps.append(ir.For(K.name, seen, self._in_turns(), (hide,), vector=True))
        if made.window:
            near = least(end - made.window, N_BLOCK)
            steps.append(ir.For(K.name, ZERO, near, (hide,), vector=True))
        return tuple(steps)

    def _in_turns(self) -> ir.Expr:
        """Keys of the block, and some that nobody sees, as many for each sum of weights."""
        n_sums = self.made.weight_sums
        return (N_BLOCK + (n_sums - 1)) // n_sums * n_sums

    def _weigh(self, rows: int, row: ir.Expr) -> ir.Block:
        made, rooms = self.made, self.rooms
        tile = WeighTile(rows, made.lanes, self.wide, made.block_keys, made.v_scale is not None)
        starts = (rooms.highest, rooms.total, rooms.factor)
        places = (
            Place(SCRATCH, self.within(rooms.scores, _ROOM + row * made.block_keys)),
            *(Place(SCRATCH, self.within(start, _ROOM + row)) for start in starts),
            Place(SCRATCH, self.within(rooms.scales, ir.index(made.block_keys))),
        )
        return (Call(tile, places, (self._in_turns() // made.weight_sums,)),)


def _is_first(row: ir.Expr) -> bool:
    """Whether these may be the first rows of a unit, which ask for all of them."""
    return not isinstance(row, ir.Const) or row == ZERO
