"""Panels: many queries of a block side by side in vectors.

turn the queries round, scaled; clear results, maxima and sums
for block of keys that one of them sees             copied side by side where that pays
    for panel of queries
        scores; mask; new maxima; weights and their sums; results = results * factor + ...
divide the results by the sums and turn them back
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from arenite.backends.cpu.attention.form import (
    FIRST_KEY,
    N_BLOCK,
    ZERO,
    Call,
    Element,
    Form,
    K,
    known_stride,
)
from arenite.backends.cpu.attention.kernel import (
    FIRST_QUERY,
    LOG2_E,
    N_ROWS,
    Attention,
    constant,
    least,
    load,
    most,
    shift_of,
)
from arenite.backends.cpu.attention.tiles import MixTile, ScoreTile
from arenite.backends.cpu.gemm.kernel import SCRATCH, Operand
from arenite.backends.cpu.gemm.rows import even_height
from arenite.codegen import loop_ir as ir
from arenite.dtype import UINT8

_PANEL, _PANEL_ROWS, _LANE = ir.Name("panel"), ir.Name("panel_rows"), ir.Name("lane")
_COUNT, _AHEAD = ir.Name("count"), ir.Name("ahead")


@dataclass(frozen=True, slots=True)
class _Factor:
    """Keys or values as register tiles read them."""

    array: str
    at: Callable[[ir.Expr, ir.Expr], ir.Expr]  # of a key of the block and a place in its width
    line: ir.Expr
    step: ir.Expr


class Panels(Form):
    def __init__(self, spec: Attention) -> None:
        super().__init__(spec, spec.rooms)
        self.n_panels = (N_ROWS + (spec.panel - 1)) // spec.panel
        self.k = self._factor(spec.k, spec.copies_k, self.rooms.keys, spec.depth)
        self.v = self._factor(spec.v, spec.copies_v, self.rooms.values, spec.width)

    def block(self) -> ir.Block:
        return (
            self._each_panel(self._start()),
            *self.each_key_block(FIRST_QUERY, FIRST_QUERY + N_ROWS, self._key_block()),
            self._each_panel(self._finish()),
        )

    def _each_panel(self, body: ir.Block) -> ir.Stmt:
        rows = least(N_ROWS - _PANEL * self.spec.panel, self.spec.panel)
        return ir.For(_PANEL.name, ZERO, self.n_panels, (ir.Let(_PANEL_ROWS.name, rows), *body))

    # Queries come in, results go out.

    def _start(self) -> ir.Block:
        spec, panel = self.spec, self.spec.panel
        d = ir.Name("d")
        start = _PANEL * (spec.depth * panel)
        query = FIRST_QUERY + _PANEL * panel + _LANE
        value = ir.Binary(
            "mul", load(spec.q, query, d, self.wide), constant(spec.scale * LOG2_E, self.wide)
        )
        store = self.put(self.rooms.queries, start + d * panel + _LANE, value)
        lanes = ir.For(_LANE.name, ZERO, _PANEL_ROWS, (store,), vector=True)
        return (
            # Lanes without a query compute something too; it should be nothing slow.
            ir.If(
                ir.Binary("lt", _PANEL_ROWS, ir.index(panel)),
                (self.fill(self.rooms.queries, start, ir.index(spec.depth * panel), 0.0),),
            ),
            ir.For(d.name, ZERO, ir.index(spec.depth), (lanes,), vector=True),
            self.fill(
                self.rooms.results, _PANEL * (spec.width * panel), ir.index(spec.width * panel), 0.0
            ),
            self.fill(self.rooms.highest, _PANEL * panel, ir.index(panel), float("-inf")),
            self.fill(self.rooms.total, _PANEL * panel, ir.index(panel), 0.0),
        )

    def _finish(self) -> ir.Block:
        spec, panel, wide = self.spec, self.spec.panel, self.wide
        e = ir.Name("e")
        total = ir.Name("all", wide)
        is_none = ir.Binary("eq", total, constant(0.0, wide))
        one = constant(1.0, wide)
        divisor = ir.Select(is_none, one, total)
        inverse: ir.Block = (
            ir.Let("all", self.get(self.rooms.total, _PANEL * panel + _LANE)),
            self.put(self.rooms.factor, _LANE, ir.Binary("div", one, divisor)),
        )
        at = _PANEL * (spec.width * panel) + e * panel + _LANE
        value: ir.Expr = ir.Binary(
            "mul", self.get(self.rooms.results, at), self.get(self.rooms.factor, _LANE)
        )
        if spec.out.dtype != wide:
            value = ir.Cast(value, spec.out.dtype)
        query = FIRST_QUERY + _PANEL * panel + _LANE
        store = ir.Store(spec.out.array, spec.out.at(query, e), value)
        row = ir.For(e.name, ZERO, ir.index(spec.width), (store,), vector=True)
        return (
            ir.For(_LANE.name, ZERO, ir.index(panel), inverse, vector=True),
            ir.For(_LANE.name, ZERO, _PANEL_ROWS, (row,), vector=True),
        )

    # Keys.

    def _factor(self, operand: Operand, is_copied: bool, start: int, width: int) -> _Factor:
        if is_copied:
            return _Factor(
                SCRATCH,
                lambda key, at: self.within(start, key * width + at),
                ir.index(width),
                ir.index(1),
            )
        return _Factor(
            operand.array,
            lambda key, at: operand.at(FIRST_KEY + key, at),
            operand.line,
            operand.step,
        )

    def _key_block(self) -> ir.Block:
        spec = self.spec
        copies: list[ir.Stmt] = []
        for is_copied, operand, start, width in (
            (spec.copies_k, spec.k, self.rooms.keys, spec.depth),
            (spec.copies_v, spec.v, self.rooms.values, spec.width),
        ):
            if is_copied:
                at = ir.Name("at")
                value = load(operand, FIRST_KEY + K, at, self.wide)
                store = self.put(start, K * width + at, value)
                row = ir.For(at.name, ZERO, ir.index(width), (store,), vector=True)
                is_turned = operand.step != ir.index(1)
                copies.append(ir.For(K.name, ZERO, N_BLOCK, (row,), vector=is_turned))
        ahead = FIRST_QUERY + _PANEL * spec.panel + spec.offset - FIRST_KEY
        steps = self._steps(spec.columns)
        if spec.has_narrow:
            is_narrow = ir.Binary("le", _PANEL_ROWS, ir.index(spec.lanes))
            steps = (ir.If(is_narrow, self._steps(1), steps),)
        if spec.is_causal:
            unseen = most(_AHEAD + (1 - spec.window), 0) if spec.window else ZERO
            inside: ir.Block = (
                ir.Let(_AHEAD.name, ahead),
                ir.Let(_COUNT.name, least(_AHEAD + _PANEL_ROWS, N_BLOCK)),
                ir.If(ir.Binary("gt", _COUNT, unseen), steps),
            )
        else:
            inside = (ir.Let(_COUNT.name, N_BLOCK), *steps)
        return (*self.copied_scales(), *copies, self._each_panel(inside))

    def _steps(self, columns: int) -> ir.Block:
        """A block of keys beside a panel, of which these columns are looked at."""
        spec = self.spec
        known = self.known_counts()
        score = partial(self._score, columns)
        # Of each dot the register tile has a strand and the sum of those before.
        tallest = max(1, spec.tallest // 2)
        return (
            *self.in_heights(_COUNT, known, tallest, score),
            *self._mask(),
            *(self._unseen(columns) if spec.is_causal else ()),
            *(self._out_of_window(columns) if spec.window else ()),
            self._weights(columns),
            *self._mix(columns),
        )

    def _score(self, columns: int, rows: int, key: ir.Expr) -> ir.Block:
        spec, rooms, k = self.spec, self.rooms, self.k
        size = self.wide.bits // 8
        tile = ScoreTile(
            rows,
            columns,
            spec.lanes,
            spec.panel,
            self.wide,
            spec.depth,
            known_stride(k.line, size),
            known_stride(k.step, size),
            spec.strands,
            spec.k_scale is not None,
        )
        places = (
            Element(k.array, k.at(key, ZERO)),
            Element(SCRATCH, self.within(rooms.queries, _PANEL * (spec.depth * spec.panel))),
            Element(SCRATCH, self.within(rooms.scores, key * spec.panel)),
            Element(SCRATCH, self.within(rooms.scales, key)),
        )
        return (Call(tile, places, (k.line * size, k.step * size)),)

    def _mix(self, columns: int) -> ir.Block:
        spec, rooms, v = self.spec, self.rooms, self.v
        size = self.wide.bits // 8
        first_seen = self.n_unseen()
        calls: list[ir.Stmt] = []
        at = 0
        while at < spec.width:
            rows = even_height(spec.width - at, spec.tallest)
            tile = MixTile(
                rows,
                columns,
                spec.lanes,
                spec.panel,
                self.wide,
                known_stride(v.step, size),
                known_stride(v.line, size),
            )
            start = _PANEL * (spec.width * spec.panel) + at * spec.panel
            places = (
                Element(v.array, v.at(first_seen, ir.index(at))),
                Element(SCRATCH, self.within(rooms.scores, first_seen * spec.panel)),
                Element(SCRATCH, self.within(rooms.results, start)),
                Element(SCRATCH, self.within(rooms.factor, ZERO)),
            )
            calls.append(Call(tile, places, (_COUNT - first_seen, v.step * size, v.line * size)))
            at += rows
        return tuple(calls)

    def _score_at(self, key: ir.Expr) -> ir.Expr:
        return key * self.spec.panel + _LANE

    def _mask(self) -> ir.Block:
        spec = self.spec
        if spec.mask is None:
            return ()
        query, key = FIRST_QUERY + _PANEL * spec.panel + _LANE, FIRST_KEY + K
        score = self.get(self.rooms.scores, self._score_at(K))
        place = spec.mask.at(query, key)
        if spec.mask.dtype == ir.BOOL:
            # As bytes: these can be turned round in registers.
            is_seen = ir.Binary("ne", ir.Load(spec.mask.array, place, UINT8), ir.Const(0, UINT8))
            score = ir.Select(is_seen, score, constant(float("-inf"), self.wide))
        else:
            given = load(spec.mask, query, key, self.wide)
            score = ir.Binary("add", score, shift_of(given, self.wide))
        store = self.put(self.rooms.scores, self._score_at(K), score)
        lanes = ir.For(_LANE.name, ZERO, _PANEL_ROWS, (store,), vector=True)
        return (ir.For(K.name, ZERO, _COUNT, (lanes,), vector=True),)

    def _unseen(self, columns: int) -> ir.Block:
        """Of keys that not all queries of the panel see, the scores of those who don't."""
        return self._hidden(columns, most(_AHEAD + 1, 0), _COUNT, _LANE >= K - _AHEAD)

    def _out_of_window(self, columns: int) -> ir.Block:
        """The same of keys that lie too far before a query."""
        window, panel = self.spec.window, self.spec.panel
        seen_by_all = least(most(_AHEAD + (panel - window), 0), _COUNT)
        is_near = ir.Binary("le", _LANE, K - _AHEAD + (window - 1))
        return self._hidden(columns, ZERO, seen_by_all, is_near)

    def _hidden(self, columns: int, first: ir.Expr, last: ir.Expr, is_seen: ir.Expr) -> ir.Block:
        """Scores of some keys become those of keys that are not seen, but where they are."""
        score = self.get(self.rooms.scores, self._score_at(K))
        hidden = ir.Select(is_seen, score, constant(float("-inf"), self.wide))
        store = self.put(self.rooms.scores, self._score_at(K), hidden)
        n_lanes = ir.index(columns * self.spec.lanes)
        lanes = ir.For(_LANE.name, ZERO, n_lanes, (store,), vector=True)
        return (ir.For(K.name, first, last, (lanes,)),)

    def _weights(self, columns: int) -> ir.Stmt:
        """Scores become weights beside the greatest score so far, and these are added up."""
        wide, rooms, panel = self.wide, self.rooms, self.spec.panel
        at = _PANEL * panel + _LANE
        top, old, subtracted = (ir.Name(name, wide) for name in ("top", "old", "subtracted"))
        score, fresh = ir.Name("score", wide), ir.Name(_sum_name(1), wide)
        lowest = constant(float("-inf"), wide)
        # NaN need not be the greatest: its weight is NaN, and so the sum.
        higher = ir.Select(ir.Binary("gt", score, top), score, top)
        factor = ir.Unary("exp2", ir.Binary("sub", old, subtracted))
        kept = ir.Binary("mul", self.get(rooms.total, at), factor)
        body: ir.Block = (
            ir.Let("old", self.get(rooms.highest, at)),
            ir.Accumulator("top", old),
            ir.For(
                K.name,
                ZERO,
                _COUNT,
                (
                    ir.Let("score", self.get(rooms.scores, self._score_at(K))),
                    ir.Accumulate("top", "set", higher),
                ),
            ),
            ir.Let(
                "subtracted",
                ir.Select(ir.Binary("eq", top, lowest), constant(0.0, wide), top),
            ),
            self.put(rooms.highest, at, top),
            *self._added_up(1),
            self.put(rooms.factor, _LANE, factor),
            self.put(rooms.total, at, ir.Binary("add", kept, fresh)),
        )
        n_lanes = ir.index(columns * self.spec.lanes)
        return ir.For(_LANE.name, ZERO, n_lanes, body, vector=True, unroll=columns)

    def _added_up(self, apart: int) -> ir.Block:
        """Weights, each in its place, and their sum: of every n-th key.

        The order is that beside few queries: sums side by side, then the upper half of them onto
        the lower until one is left.
        """
        wide, rooms, n_sums = self.wide, self.rooms, self.spec.weight_sums
        name = _sum_name(apart)
        first = ZERO if apart == 1 else ir.Name(f"first{apart}")
        declared = ir.Accumulator(name, constant(0.0, wide))
        if apart < n_sums:
            half = ir.Name(f"half{apart}")
            inside: ir.Block = (
                ir.Let(f"first{2 * apart}", first + half * apart),
                *self._added_up(2 * apart),
                ir.Accumulate(name, "add", ir.Name(_sum_name(2 * apart), wide)),
            )
            return declared, ir.For(half.name, ZERO, ir.index(2), inside)
        turn, weight = ir.Name("turn_of_keys"), ir.Name("weight", wide)
        score = self.get(rooms.scores, self._score_at(K))
        exponent = ir.Binary("sub", score, ir.Name("subtracted", wide))
        inside = (
            ir.Let(K.name, first + turn * n_sums),
            ir.Let("weight", ir.Unary("exp2", exponent)),
            self.put(rooms.scores, self._score_at(K), self.to_be_mixed(weight)),
            ir.Accumulate(name, "add", weight),
        )
        count = (_COUNT - first + (n_sums - 1)) // n_sums
        return declared, ir.For(turn.name, ZERO, count, inside)


def _sum_name(apart: int) -> str:
    return f"sum{apart}"
