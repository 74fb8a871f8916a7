"""What a tile of an AttentionKernel runs: loops, with calls of register tiles between them.

for block of queries
    turn the queries round, scaled; clear results, maxima and sums
    for block of keys that one of them sees             copied side by side where that pays
        for panel of queries
            scores; mask; new maxima; weights and their sums; results = results * factor + ...
    divide the results by the sums and turn them back
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.attention_kernel import (
    FIRST_QUERY,
    LOG2_E,
    N_ROWS,
    TILE,
    Attention,
    constant,
    in_blocks,
    least,
    load,
    most,
)
from arenite.codegen.micro.attention_tiles import PanelTile
from arenite.codegen.micro.kernel import SCRATCH, Operand
from arenite.codegen.micro.rows import even_height
from arenite.dtype import BY_NAME

UINT8 = BY_NAME["uint8"]

_ROOM, _PANEL, _PANEL_ROWS = ir.Name("room"), ir.Name("panel"), ir.Name("panel_rows")
_SEEN, _KEY_BLOCK, _FIRST_KEY = ir.Name("seen"), ir.Name("key_block"), ir.Name("first_key")
_N_BLOCK, _COUNT, _AHEAD = ir.Name("n_block"), ir.Name("count"), ir.Name("ahead")
_LANE, _K = ir.Name("lane"), ir.Name("k")
_ZERO = ir.index(0)


@dataclass(frozen=True, slots=True)
class Place:
    """An element of an array."""

    array: str
    at: ir.Expr


@dataclass(frozen=True, slots=True)
class Call(ir.Stmt):
    """Runs a register tile: distances in elements of A, the rest in scratch."""

    tile: PanelTile
    a: Place
    b: ir.Expr
    c: ir.Expr
    factor: ir.Expr
    depth: ir.Expr
    line: ir.Expr
    step: ir.Expr


@dataclass(frozen=True, slots=True)
class _Factor:
    """Keys or values as register tiles read them."""

    array: str
    at: Callable[[ir.Expr, ir.Expr], ir.Expr]  # of a key of the block and a place in its width
    line: ir.Expr
    step: ir.Expr


class Program:
    """The statements, for one layout."""

    def __init__(self, made: Attention) -> None:
        self.made = made
        self.rooms = made.rooms
        self.wide = made.wide
        self.n_panels = (N_ROWS + (made.panel - 1)) // made.panel
        self.k = self._factor(made.k, made.copies_k, self.rooms.keys, made.depth)
        self.v = self._factor(made.v, made.copies_v, self.rooms.values, made.width)

    def block(self) -> ir.Block:
        made = self.made
        seen = made.n_keys
        if made.is_causal:
            seen = most(least(FIRST_QUERY + N_ROWS + made.offset, made.n_keys), 0)
        count = (_SEEN + (made.block_keys - 1)) // made.block_keys
        keys = ir.For(_KEY_BLOCK.name, _ZERO, count, self._key_block())
        body = (
            self._each_panel(self._start()),
            ir.Let(_SEEN.name, seen),
            keys,
            self._each_panel(self._finish()),
        )
        room = ir.Let(_ROOM.name, TILE * self.rooms.length)
        return (room, *in_blocks(made, body))

    # Scratch.

    def _in(self, start: int, at: ir.Expr) -> ir.Expr:
        return _ROOM + start + at

    def _get(self, start: int, at: ir.Expr) -> ir.Expr:
        return ir.Load(SCRATCH, self._in(start, at), self.wide)

    def _put(self, start: int, at: ir.Expr, value: ir.Expr) -> ir.Stmt:
        return ir.Store(SCRATCH, self._in(start, at), value)

    def _fill(self, start: int, at: ir.Expr, count: int, value: float) -> ir.Stmt:
        store = self._put(start, at + ir.Name("i"), constant(value, self.wide))
        return ir.For("i", _ZERO, ir.index(count), (store,), vector=True)

    def _each_panel(self, body: ir.Block) -> ir.Stmt:
        rows = least(N_ROWS - _PANEL * self.made.panel, self.made.panel)
        return ir.For(_PANEL.name, _ZERO, self.n_panels, (ir.Let(_PANEL_ROWS.name, rows), *body))

    # Queries come in, results go out.

    def _start(self) -> ir.Block:
        made, panel = self.made, self.made.panel
        d = ir.Name("d")
        start = _PANEL * (made.depth * panel)
        query = FIRST_QUERY + _PANEL * panel + _LANE
        scaled = ir.Binary(
            "mul", load(made.q, query, d, self.wide), constant(made.scale * LOG2_E, self.wide)
        )
        store = self._put(self.rooms.queries, start + d * panel + _LANE, scaled)
        lanes = ir.For(_LANE.name, _ZERO, _PANEL_ROWS, (store,), vector=True)
        return (
            # Lanes without a query compute something too; it should be nothing slow.
            ir.If(
                ir.Binary("lt", _PANEL_ROWS, ir.index(panel)),
                (self._fill(self.rooms.queries, start, made.depth * panel, 0.0),),
            ),
            ir.For(d.name, _ZERO, ir.index(made.depth), (lanes,), vector=True),
            self._fill(self.rooms.results, _PANEL * (made.width * panel), made.width * panel, 0.0),
            self._fill(self.rooms.highest, _PANEL * panel, panel, float("-inf")),
            self._fill(self.rooms.total, _PANEL * panel, panel, 0.0),
        )

    def _finish(self) -> ir.Block:
        made, panel, wide = self.made, self.made.panel, self.wide
        e = ir.Name("e")
        total = ir.Name("all", wide)
        is_none = ir.Binary("eq", total, constant(0.0, wide))
        one = constant(1.0, wide)
        divisor = ir.Select(is_none, one, total)
        inverse: ir.Block = (
            ir.Let("all", self._get(self.rooms.total, _PANEL * panel + _LANE)),
            self._put(self.rooms.factor, _LANE, ir.Binary("div", one, divisor)),
        )
        at = _PANEL * (made.width * panel) + e * panel + _LANE
        value: ir.Expr = ir.Binary(
            "mul", self._get(self.rooms.results, at), self._get(self.rooms.factor, _LANE)
        )
        if made.out.dtype != wide:
            value = ir.Cast(value, made.out.dtype)
        query = FIRST_QUERY + _PANEL * panel + _LANE
        store = ir.Store(made.out.array, made.out.at(query, e), value)
        row = ir.For(e.name, _ZERO, ir.index(made.width), (store,), vector=True)
        return (
            ir.For(_LANE.name, _ZERO, ir.index(panel), inverse, vector=True),
            ir.For(_LANE.name, _ZERO, _PANEL_ROWS, (row,), vector=True),
        )

    # Keys.

    def _factor(self, operand: Operand, is_copied: bool, start: int, width: int) -> _Factor:
        if is_copied:
            return _Factor(
                SCRATCH,
                lambda key, at: self._in(start, key * width + at),
                ir.index(width),
                ir.index(1),
            )
        return _Factor(
            operand.array,
            lambda key, at: operand.at(_FIRST_KEY + key, at),
            operand.line,
            operand.step,
        )

    def _key_block(self) -> ir.Block:
        made = self.made
        copies: list[ir.Stmt] = []
        for is_copied, operand, start, width in (
            (made.copies_k, made.k, self.rooms.keys, made.depth),
            (made.copies_v, made.v, self.rooms.values, made.width),
        ):
            if is_copied:
                at = ir.Name("at")
                value = load(operand, _FIRST_KEY + _K, at, self.wide)
                store = self._put(start, _K * width + at, value)
                row = ir.For(at.name, _ZERO, ir.index(width), (store,), vector=True)
                is_turned = operand.step != ir.index(1)
                copies.append(ir.For(_K.name, _ZERO, _N_BLOCK, (row,), vector=is_turned))
        ahead = FIRST_QUERY + _PANEL * made.panel + made.offset - _FIRST_KEY
        steps: ir.Block = (
            *self._scores(),
            *self._mask(),
            *(self._unseen() if made.is_causal else ()),
            self._weights(),
            *self._mix(),
        )
        if made.is_causal:
            inside: ir.Block = (
                ir.Let(_AHEAD.name, ahead),
                ir.Let(_COUNT.name, least(_AHEAD + _PANEL_ROWS, _N_BLOCK)),
                ir.If(_COUNT > 0, steps),
            )
        else:
            inside = (ir.Let(_COUNT.name, _N_BLOCK), *steps)
        return (
            ir.Let(_FIRST_KEY.name, _KEY_BLOCK * made.block_keys),
            ir.Let(_N_BLOCK.name, least(_SEEN - _FIRST_KEY, made.block_keys)),
            *copies,
            self._each_panel(inside),
        )

    def _scores(self) -> ir.Block:
        """Calls for all keys of the block, as even as their number allows where that is known."""
        made = self.made
        n_keys = made.n_keys
        if not made.is_causal and isinstance(n_keys, ir.Const):
            full = self._even_scores(min(made.block_keys, int(n_keys.value)))
            rest = int(n_keys.value) % made.block_keys
            if rest == 0 or n_keys.value < made.block_keys:
                return full
            return (ir.If(ir.Binary("eq", _COUNT, ir.index(rest)), self._even_scores(rest), full),)
        tallest = made.tallest
        n_full = ir.Name("n_full")
        rest_keys = ir.Name("rest_keys")
        parts: list[ir.Stmt] = [
            ir.Let(n_full.name, _COUNT // tallest),
            ir.For(_K.name, _ZERO, n_full, (self._score(tallest, _K * tallest),)),
            ir.Let(rest_keys.name, _COUNT - n_full * tallest),
        ]
        height = 1 << (tallest - 1).bit_length() - 1
        while height:
            above = rest_keys // (2 * height) * (2 * height)
            is_there = ir.Binary("ge", rest_keys - above, ir.index(height))
            parts.append(ir.If(is_there, (self._score(height, n_full * tallest + above),)))
            height //= 2
        return tuple(parts)

    def _even_scores(self, count: int) -> ir.Block:
        calls, at = [], 0
        while at < count:
            height = even_height(count - at, self.made.tallest)
            calls.append(self._score(height, ir.index(at)))
            at += height
        return tuple(calls)

    def _score(self, rows: int, key: ir.Expr) -> ir.Stmt:
        made = self.made
        return self._call(
            rows,
            self.k,
            self.k.at(key, _ZERO),
            self._in(self.rooms.queries, _PANEL * (made.depth * made.panel)),
            self._in(self.rooms.scores, key * made.panel),
            ir.index(made.depth),
            (self.k.line, self.k.step),
            adds=False,
        )

    def _mix(self) -> ir.Block:
        made = self.made
        calls: list[ir.Stmt] = []
        at = 0
        while at < made.width:
            rows = even_height(made.width - at, made.tallest)
            start = _PANEL * (made.width * made.panel) + at * made.panel
            calls.append(
                self._call(
                    rows,
                    self.v,
                    self.v.at(_ZERO, ir.index(at)),
                    self._in(self.rooms.scores, _ZERO),
                    self._in(self.rooms.results, start),
                    _COUNT,
                    (self.v.step, self.v.line),
                    adds=True,
                )
            )
            at += rows
        return tuple(calls)

    def _call(
        self,
        rows: int,
        factor: _Factor,
        a: ir.Expr,
        b: ir.Expr,
        c: ir.Expr,
        depth: ir.Expr,
        strides: tuple[ir.Expr, ir.Expr],
        *,
        adds: bool,
    ) -> ir.Stmt:
        made, line, step = self.made, *strides
        size = self.wide.bits // 8
        tile = PanelTile(
            rows,
            made.columns,
            made.lanes,
            self.wide,
            _constant(depth, 1),
            _constant(line, size),
            _constant(step, size),
            adds,
        )
        kept = self._in(self.rooms.factor, _ZERO)
        return Call(tile, Place(factor.array, a), b, c, kept, depth, line, step)

    def _score_at(self, key: ir.Expr) -> ir.Expr:
        return key * self.made.panel + _LANE

    def _mask(self) -> ir.Block:
        made = self.made
        if made.mask is None:
            return ()
        query, key = FIRST_QUERY + _PANEL * made.panel + _LANE, _FIRST_KEY + _K
        score = self._get(self.rooms.scores, self._score_at(_K))
        place = made.mask.at(query, key)
        if made.mask.dtype == ir.BOOL:
            # As bytes: these can be turned round in registers.
            is_seen = ir.Binary("ne", ir.Load(made.mask.array, place, UINT8), ir.Const(0, UINT8))
            score = ir.Select(is_seen, score, constant(float("-inf"), self.wide))
        else:
            given = load(made.mask, query, key, self.wide)
            shift = ir.Binary("mul", given, constant(LOG2_E, self.wide))
            score = ir.Binary("add", score, shift)
        store = self._put(self.rooms.scores, self._score_at(_K), score)
        lanes = ir.For(_LANE.name, _ZERO, _PANEL_ROWS, (store,), vector=True)
        return (ir.For(_K.name, _ZERO, _COUNT, (lanes,), vector=True),)

    def _unseen(self) -> ir.Block:
        """Of keys that not all queries of the panel see, the scores of those who don't."""
        seen_by_all = most(_AHEAD + 1, 0)
        score = self._get(self.rooms.scores, self._score_at(_K))
        hidden = ir.Select(_LANE >= _K - _AHEAD, score, constant(float("-inf"), self.wide))
        store = self._put(self.rooms.scores, self._score_at(_K), hidden)
        lanes = ir.For(_LANE.name, _ZERO, ir.index(self.made.panel), (store,), vector=True)
        return (ir.For(_K.name, seen_by_all, _COUNT, (lanes,)),)

    def _weights(self) -> ir.Stmt:
        """Scores become weights beside the greatest score so far, and these are added up."""
        wide, rooms, panel = self.wide, self.rooms, self.made.panel
        at = _PANEL * panel + _LANE
        top, old, subtracted = (ir.Name(name, wide) for name in ("top", "old", "subtracted"))
        score, weight = ir.Name("score", wide), ir.Name("weight", wide)
        lowest = constant(float("-inf"), wide)
        # NaN need not be the greatest: its weight is NaN, and so the sum.
        higher = ir.Select(ir.Binary("gt", score, top), score, top)
        factor = ir.Unary("exp2", ir.Binary("sub", old, subtracted))
        fresh = ir.Name("fresh", wide)
        kept = ir.Binary("mul", self._get(rooms.total, at), factor)
        body: ir.Block = (
            ir.Let("old", self._get(rooms.highest, at)),
            ir.Accumulator("top", old),
            ir.For(
                _K.name,
                _ZERO,
                _COUNT,
                (
                    ir.Let("score", self._get(rooms.scores, self._score_at(_K))),
                    ir.Accumulate("top", "set", higher),
                ),
            ),
            ir.Let(
                "subtracted",
                ir.Select(ir.Binary("eq", top, lowest), constant(0.0, wide), top),
            ),
            self._put(rooms.highest, at, top),
            ir.Accumulator("fresh", constant(0.0, wide)),
            ir.For(
                _K.name,
                _ZERO,
                _COUNT,
                (
                    ir.Let(
                        "weight",
                        ir.Unary(
                            "exp2",
                            ir.Binary(
                                "sub", self._get(rooms.scores, self._score_at(_K)), subtracted
                            ),
                        ),
                    ),
                    self._put(rooms.scores, self._score_at(_K), weight),
                    ir.Accumulate("fresh", "add", weight),
                ),
            ),
            self._put(rooms.factor, _LANE, factor),
            self._put(rooms.total, at, ir.Binary("add", kept, fresh)),
        )
        return ir.For(
            _LANE.name, _ZERO, ir.index(panel), body, vector=True, unroll=self.made.columns
        )


def _constant(value: ir.Expr, times: int) -> int | None:
    return int(value.value) * times if isinstance(value, ir.Const) else None
