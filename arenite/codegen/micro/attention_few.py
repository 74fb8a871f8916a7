"""Few: rows one by one, which are queries of heads that share keys, with vectors along the width
and along the keys.

    for block of keys
        scores[row][key]       row dots of queries and keys
        mask; new maxima; weights and their sums
        results[row][e]        = results * factor + weights times values, read in order
    divide the results by the sums

Nothing is turned round and keys and values are read once, as they lie; bytes at their own width,
for the scores and the weights take their scales.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.attention_form import (
    FIRST_KEY,
    N_BLOCK,
    ZERO,
    Call,
    Form,
    K,
    Place,
    in_even_heights,
    known_stride,
)
from arenite.codegen.micro.attention_kernel import (
    HEAD,
    LOG2_E,
    N_ROWS,
    QUERY,
    UNIT,
    constant,
    least,
    load,
    masked,
    most,
    stored_behind,
)
from arenite.codegen.micro.attention_tiles import DOT_KEYS, DotTile, RowTile
from arenite.codegen.micro.kernel import SCRATCH

_ROW = ir.Name("row")


class Few(Form):
    def block(self) -> ir.Block:
        made = self.made
        return (
            self._each_row(self._start()),
            *self.each_key_block(ZERO, made.n_queries, self._key_block()),
            self._each_row(self._finish()),
        )

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
        store = self.put(rooms.queries, _ROW * made.depth + d, scaled)
        return (
            ir.For(d.name, ZERO, ir.index(made.depth), (store,), vector=True),
            self.fill(rooms.results, _ROW * made.few_width, ir.index(made.few_width), 0.0),
            self.put(rooms.highest, _ROW, constant(float("-inf"), wide)),
            self.put(rooms.total, _ROW, constant(0.0, wide)),
        )

    def _finish(self) -> ir.Block:
        made, rooms, wide = self.made, self.rooms, self.wide
        e, total, one = ir.Name("e"), ir.Name("all", wide), constant(1.0, wide)
        divisor = ir.Select(ir.Binary("eq", total, constant(0.0, wide)), one, total)
        result = self.get(rooms.results, _ROW * made.few_width + e)
        if made.chunk:
            kept = ir.Store(made.out.array, made.out.at(QUERY, e), result)
            highest, whole = self.get(rooms.highest, _ROW), self.get(rooms.total, _ROW)
            return (
                ir.For(e.name, ZERO, ir.index(made.width), (kept,), vector=True),
                *stored_behind(made, QUERY, highest, whole),
            )
        value: ir.Expr = ir.Binary("mul", result, ir.Name("inverse", wide))
        if made.out.dtype != wide:
            value = ir.Cast(value, made.out.dtype)
        store = ir.Store(made.out.array, made.out.at(QUERY, e), value)
        return (
            ir.Let("all", self.get(rooms.total, _ROW)),
            ir.Let("inverse", ir.Binary("div", one, divisor)),
            ir.For(e.name, ZERO, ir.index(made.width), (store,), vector=True),
        )

    def _key_block(self) -> ir.Block:
        return (
            *self._in_rows(self._scores),
            self._each_row((*self._mask(), *self._weights())),
            *self._in_rows(self._mix),
        )

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
        """Calls for all keys of the block, some at a time."""
        made, k, v = self.made, self.made.k, self.made.v
        size = k.dtype.bits // 8
        tile = DotTile(
            rows,
            made.strands,
            self.wide,
            k.dtype,
            made.depth,
            known_stride(k.line, size),
            made.block_keys,
            known_stride(v.line, size),
            # The first rows ask for all.
            0 if isinstance(row, ir.Const) and row != ZERO else made.width,
        )
        at = ir.Name("some") * DOT_KEYS
        call = Call(
            tile,
            (
                Place(SCRATCH, self.within(self.rooms.queries, row * made.depth)),
                Place(k.array, k.at(FIRST_KEY + at, ZERO)),
                Place(v.array, v.at(FIRST_KEY + at, ZERO)),
                Place(SCRATCH, self.within(self.rooms.scores, row * made.block_keys + at)),
            ),
            (N_BLOCK - at, k.line * size, v.line * size),
        )
        n_calls = (N_BLOCK + (DOT_KEYS - 1)) // DOT_KEYS
        return (ir.For("some", ZERO, n_calls, (call,)),)

    def _mix(self, rows: int, row: ir.Expr) -> ir.Block:
        made, v = self.made, self.made.v
        size = v.dtype.bits // 8
        columns = made.few_width // made.lanes
        first_seen = self.n_unseen()
        first_weight = row * made.block_keys + first_seen
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
            )
            start = row * made.few_width + at
            calls.append(
                Call(
                    tile,
                    (
                        Place(SCRATCH, self.within(self.rooms.scores, first_weight)),
                        Place(v.array, v.at(FIRST_KEY + first_seen, ir.index(at))),
                        Place(SCRATCH, self.within(self.rooms.results, start)),
                        Place(SCRATCH, self.within(self.rooms.factor, row)),
                    ),
                    (N_BLOCK - first_seen, v.line * size),
                )
            )
        return tuple(calls)

    def _mask(self) -> ir.Block:
        made, rooms, wide = self.made, self.rooms, self.wide
        at = _ROW * made.block_keys + K
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

    def _weights(self) -> ir.Block:
        wide, rooms = self.wide, self.rooms
        at = _ROW * self.made.block_keys + K
        top, old, subtracted = (ir.Name(name, wide) for name in ("top", "old", "subtracted"))
        weight, fresh = ir.Name("weight", wide), ir.Name("fresh", wide)
        lowest, zero = constant(float("-inf"), wide), constant(0.0, wide)
        score = self.get(rooms.scores, at)
        factor = ir.Name("factor", wide)
        kept = ir.Binary("mul", self.get(rooms.total, _ROW), factor)
        return (
            ir.Let("old", self.get(rooms.highest, _ROW)),
            ir.Accumulator("top", old),
            ir.For(K.name, ZERO, N_BLOCK, (ir.Accumulate("top", "max", score),), vector=True),
            ir.Let("subtracted", ir.Select(ir.Binary("eq", top, lowest), zero, top)),
            ir.Let("factor", ir.Unary("exp2", ir.Binary("sub", old, subtracted))),
            self.put(rooms.highest, _ROW, top),
            ir.Accumulator("fresh", zero),
            ir.For(
                K.name,
                ZERO,
                self._in_turns(),
                (
                    ir.Let("weight", ir.Unary("exp2", ir.Binary("sub", score, subtracted))),
                    self.put(rooms.scores, at, self.to_be_mixed(weight)),
                    ir.Accumulate("fresh", "add", weight),
                ),
                vector=True,
                unroll=self.made.weight_sums // self.made.lanes,
            ),
            self.put(rooms.factor, _ROW, factor),
            self.put(rooms.total, _ROW, ir.Binary("add", kept, fresh)),
        )
