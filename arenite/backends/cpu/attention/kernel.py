"""AttentionKernel: softmax(Q Kᵀ scale + mask) V in one launch, without its scores in memory.

A block is some queries of one head. Their scores against a block of keys lie in scratch with the
queries side by side, so that a vector holds one key and many queries:

    scores[key][query]  = sum over d of  k[key][d] * queries[d][query]
    results[e][query]   = sum over key of  v[key][e] * weights[key][query]

Keys and values are read where they lie, one number at a time, whatever their strides; queries and
results are turned round once. Maxima and sums are vectors over queries and never cross lanes.
Scores count in powers of two: log2(e) is in the scale. Blocks of keys that no query of a block sees
are never read; a value in the others that is not finite reaches queries that do not see its key,
as it does where weights of zero are multiplied with it.

As a LoopKernel its body computes a block query by query: that is its meaning, for people and for
checks. What is compiled is made of register tiles, as `attention` lays down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arenite.backends.cpu.gemm.kernel import Operand, fields_text
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import kernel_text, loop_text
from arenite.dtype import DType

TILE, BLOCK = ir.Name("tile"), ir.Name("block")
#: The tiles of a call: from the first to before the last.
FIRST_TILE, LAST_TILE = ir.Name("first_tile"), ir.Name("last_tile")
FIRST_QUERY, N_ROWS = ir.Name("first_query"), ir.Name("n_rows")
#: Heads that share keys and are taken together.
UNIT, HEAD = ir.Name("unit"), ir.Name("head")
#: Units that are taken together, and what they have in common: batch and part of the keys.
FIRST_UNIT, LAST_UNIT, RUN = ir.Name("first_unit"), ir.Name("last_unit"), ir.Name("run")
#: Which part of the keys a block is of.
CHUNK = ir.Name("chunk")
QUERY, KEY, D, E = ir.Name("query"), ir.Name("key"), ir.Name("d"), ir.Name("e")

#: Of a row whose keys lie in pages: its position, and where the pages of its text begin.
POSITION, FIRST_PAGE = ir.Name("position"), ir.Name("first_page")

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class PagedOperand(Operand):
    """Keys or values in pages of so many lines: a table of their numbers says where each page is;
    numbers that are none are as good as the nearest."""

    table: str
    table_dtype: DType
    page: int
    n_pages: int

    def at(self, line: ir.Expr, k: ir.Expr) -> ir.Expr:
        number = self.number(line // self.page)
        number = least(most(number, 0), self.n_pages - 1)
        return self.base + (number * self.page + line % self.page) * self.line + k * self.step

    def number(self, page: ir.Expr) -> ir.Expr:
        """What the table has for a page of the text."""
        found = ir.Load(self.table, FIRST_PAGE + page, self.table_dtype)
        return found if self.table_dtype == ir.INT64 else ir.Cast(found, ir.INT64)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where in the scratch of a tile each thing begins, in elements, and how long that is."""

    queries: int  # [panel][d][lane]
    results: int  # [panel][e][lane]
    highest: int  # [panel][lane], in scores so far
    total: int  # [panel][lane], of weights so far
    sums: int  # [row][e], of weights times values of a block, beside few queries
    factor: int  # [lane], by which earlier results shrink
    scores: int  # [key][lane]
    scales: int  # [k or v][key], of a block
    keys: int  # [key][d], where they are copied
    values: int  # [key][e]
    length: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Operands lie along queries or keys (`line`) and along their width (`step`); the mask along
    queries and keys, scales along keys. `place` names, for a block, what the bases are over, and
    FIRST_QUERY. Up to `decode_up_to` queries make one block with those of `fold` heads that share
    keys, a unit: rows, query by query. `decode_place` then names what the bases are over but for
    the group and the head, whose number UNIT * fold + row % fold is."""

    q: Operand
    k: Operand
    v: Operand
    mask: Operand | None
    k_scale: Operand | None
    v_scale: Operand | None
    out: Operand
    wide: DType  # what is computed in
    scale: float
    is_causal: bool
    offset: ir.Expr
    window: int  # keys that a query sees; 0: all before it
    chunk: int  # keys of one block of a part; 0 where all are seen at once
    page: int  # keys of a page; 0 where all lie in a row
    n_queries: ir.Expr
    n_keys: ir.Expr
    depth: int  # the width of q and k
    width: int  # of v and the result
    blocks: ir.Expr
    tiles: ir.Expr
    place: ir.Block
    lanes: int
    columns: int
    block_queries: int
    block_keys: int
    strands: int  # sums of a dot
    tallest: int  # rows of a register tile, at the most
    has_narrow: bool  # panels of one vector of queries, at the end of a block
    copies_k: bool
    copies_v: bool
    has_panels: bool
    decode_up_to: int  # queries that are few; 0: none are
    fold: int
    decode_blocks: ir.Expr
    decode_place: ir.Block
    decode_group: ir.Expr  # of a unit
    n_units: ir.Expr
    decode_tallest: int
    decode_width: int  # of the result, in whole vectors
    decode_columns: int  # vectors of it in one tile
    rooms: Rooms
    decode_rooms: Rooms

    @property
    def weight_sums(self) -> int:
        """Sums of the weights of a block: two vectors of them, beside few queries."""
        return 2 * self.lanes

    @property
    def panel(self) -> int:
        """Queries side by side."""
        return self.columns * self.lanes


@dataclass(frozen=True, slots=True)
class AttentionKernel(ir.LoopKernel):
    attention: Attention


@kernel_text.register
def _(kernel: AttentionKernel) -> str:
    spec = fields_text(kernel.attention, without=("place", "decode_place"))
    return f"// attention in register tiles: {spec}\n{loop_text(kernel)}"


def load(operand: Operand, line: ir.Expr, step: ir.Expr, wide: DType) -> ir.Expr:
    """An element, as what is computed in."""
    value = ir.Load(operand.array, operand.at(line, step), operand.dtype)
    return value if operand.dtype in (wide, ir.BOOL) else ir.Cast(value, wide)


def constant(value: float, dtype: DType) -> ir.Expr:
    return ir.Const(value, dtype)


def least(a: ir.Expr, b: ir.Expr | int) -> ir.Expr:
    return ir.Binary("min", a, b if isinstance(b, ir.Expr) else ir.index(b))


def most(a: ir.Expr, b: ir.Expr | int) -> ir.Expr:
    return ir.Binary("max", a, b if isinstance(b, ir.Expr) else ir.index(b))


def masked(spec: Attention, score: ir.Expr, query: ir.Expr, key: ir.Expr) -> ir.Expr:
    """A score after the mask."""
    if spec.mask is None:
        return score
    given = load(spec.mask, query, key, spec.wide)
    if spec.mask.dtype == ir.BOOL:
        return ir.Select(given, score, constant(float("-inf"), spec.wide))
    return ir.Binary("add", score, shift_of(given, spec.wide))


def shift_of(given: ir.Expr, wide: DType) -> ir.Expr:
    """What an element of a mask adds to a score. Only -inf hides: the least numbers stay numbers,
    and a query whose keys all have them sees these alike."""
    shift = ir.Binary("mul", given, constant(LOG2_E, wide))
    least_number = constant(float(np.finfo(wide.to_numpy()).min), wide)
    is_hidden = ir.Binary("eq", given, constant(float("-inf"), wide))
    return ir.Select(is_hidden, given, ir.Binary("max", shift, least_number))


def scaled(value: ir.Expr, scales: Operand | None, key: ir.Expr, wide: DType) -> ir.Expr:
    """A number of a key times its scale, if it has one."""
    if scales is None:
        return value
    return ir.Binary("mul", value, load(scales, key, ir.index(0), wide))


def tile_body(spec: Attention) -> ir.Block:
    """What a tile of the kernel computes, query by query."""
    wide = spec.wide
    zero, lowest = constant(0.0, wide), constant(float("-inf"), wide)
    product = ir.Binary("mul", load(spec.q, QUERY, D, wide), load(spec.k, KEY, D, wide))
    dot = ir.Binary("mul", ir.Name("dot", wide), constant(spec.scale * LOG2_E, wide))
    score = masked(spec, scaled(dot, spec.k_scale, KEY, wide), QUERY, KEY)
    if spec.is_causal:
        score = ir.Select(ir.Binary("le", KEY, QUERY + spec.offset), score, lowest)
    if spec.window:
        is_near = ir.Binary("gt", KEY, QUERY + spec.offset - spec.window)
        score = ir.Select(is_near, score, lowest)

    def each_key(name: str, op: str, value: ir.Expr) -> ir.Block:
        """An accumulator over all keys; `score` is known inside."""
        inside = (
            ir.Accumulator("dot", zero),
            ir.For(
                D.name, ir.index(0), ir.index(spec.depth), (ir.Accumulate("dot", "add", product),)
            ),
            ir.Let("score", score),
            ir.Accumulate(name, op, value),
        )
        start = lowest if op == "max" else zero
        return (ir.Accumulator(name, start), ir.For(KEY.name, *key_range(spec), inside))

    highest, total = ir.Name("highest", wide), ir.Name("total", wide)
    weight = ir.Unary("exp2", ir.Binary("sub", ir.Name("score", wide), ir.Name("subtracted", wide)))
    mixed = ir.Binary("mul", weight, scaled(load(spec.v, KEY, E, wide), spec.v_scale, KEY, wide))
    value: ir.Expr = ir.Name("mixed", wide)
    if not spec.chunk:
        value = ir.Binary("div", value, ir.Name("divisor", wide))
    if spec.out.dtype != wide:
        value = ir.Cast(value, spec.out.dtype)
    element: ir.Block = (
        *each_key("mixed", "add", mixed),
        ir.Store(spec.out.array, spec.out.at(QUERY, E), value),
    )
    row: ir.Block = (
        *each_key("highest", "max", ir.Name("score", wide)),
        ir.Let("subtracted", ir.Select(ir.Binary("eq", highest, lowest), zero, highest)),
        *each_key("total", "add", weight),
        ir.Let("divisor", ir.Select(ir.Binary("eq", total, zero), constant(1.0, wide), total)),
        ir.For(E.name, ir.index(0), ir.index(spec.width), element),
        *(stored_behind(spec, QUERY, highest, total) if spec.chunk else ()),
    )
    queries = ir.For(QUERY.name, FIRST_QUERY, FIRST_QUERY + N_ROWS, row)
    return in_blocks(spec, (queries,))


def key_range(spec: Attention) -> tuple[ir.Expr, ir.Expr]:
    """The keys that a block looks at: all, or those of its part."""
    if not spec.chunk:
        return ir.index(0), spec.n_keys
    return CHUNK * spec.chunk, least(spec.n_keys, CHUNK * spec.chunk + spec.chunk)


def stored_behind(
    spec: Attention, query: ir.Expr, highest: ir.Expr, total: ir.Expr
) -> tuple[ir.Stmt, ir.Stmt]:
    """What joins parts, behind the sums of a query."""
    first, second = (spec.out.at(query, ir.index(spec.width + k)) for k in range(2))
    array = spec.out.array
    return ir.Store(array, first, highest), ir.Store(array, second, total)


def in_blocks(spec: Attention, body: ir.Block) -> ir.Block:
    """The body for every block of a tile: a run of them, for these share keys, or where later
    blocks see more keys every n-th."""
    turn = ir.Name("turn")
    block: ir.Expr = turn
    first, last = _run_of(spec, spec.blocks)
    if spec.is_causal:
        block = TILE + turn * spec.tiles
        first, last = ir.index(0), (spec.blocks - TILE + spec.tiles - 1) // spec.tiles
    rows = least(spec.n_queries - FIRST_QUERY, spec.block_queries)
    inside = (
        ir.Let(BLOCK.name, block),
        *spec.place,
        ir.Let(N_ROWS.name, rows),
        *body,
    )
    return (ir.For(turn.name, first, last, inside),)


def in_decode_blocks(spec: Attention, body: ir.Block) -> ir.Block:
    """The body for the units of all tiles of a call, where all queries are few: for as many of a
    run at a time as there are tiles, for each of them has scratch."""
    first, last = ir.Name("first_block"), ir.Name("last_block")
    turn, n_turns = ir.Name("turn"), ir.Name("n_turns")
    begin, end = ir.Name("begin"), ir.Name("end")
    n_units, n_tiles = spec.n_units, LAST_TILE - FIRST_TILE
    units = (
        ir.Let(FIRST_UNIT.name, begin + turn * n_tiles),
        ir.Let(LAST_UNIT.name, least(FIRST_UNIT + n_tiles, end)),
        *body,
    )
    run = (
        *spec.decode_place,
        ir.Let(N_ROWS.name, spec.n_queries * spec.fold),
        ir.Let(begin.name, most(first - RUN * n_units, 0)),
        ir.Let(end.name, least(last - RUN * n_units, n_units)),
        ir.Let(n_turns.name, (end - begin + n_tiles - 1) // n_tiles),
        ir.For(turn.name, ir.index(0), n_turns, units),
    )
    return (
        ir.Let(first.name, FIRST_TILE * spec.decode_blocks // most(spec.tiles, 1)),
        ir.Let(last.name, LAST_TILE * spec.decode_blocks // most(spec.tiles, 1)),
        ir.For(RUN.name, first // n_units, (last + n_units - 1) // n_units, run),
    )


def _run_of(spec: Attention, blocks: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """The blocks of a tile, where these follow each other."""
    return TILE * blocks // spec.tiles, (TILE + 1) * blocks // spec.tiles
