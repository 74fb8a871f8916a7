"""An attention of the schedule becomes an AttentionKernel: where its operands lie, how it is cut.

All sizes of blocks follow from shapes and the target, never from the number of threads. Tiles are
limited in number, for each has scratch of its own; a tile then takes several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arenite.backends.cpu.attention.form import cut_counts
from arenite.backends.cpu.attention.kernel import (
    BLOCK,
    CHUNK,
    FIRST_QUERY,
    HEAD,
    KEY,
    QUERY,
    RUN,
    UNIT,
    Attention,
    AttentionKernel,
    D,
    E,
    Rooms,
    tile_body,
)
from arenite.backends.cpu.gemm.blocking import SET_NBYTES
from arenite.backends.cpu.gemm.kernel import SCRATCH, Operand
from arenite.backends.cpu.gemm.row_dots import FOLDED
from arenite.backends.cpu.gemm.row_dots import most_rows as most_dot_rows
from arenite.backends.cpu.gemm.tile import lanes_of, most_columns, most_rows
from arenite.backends.cpu.passes.attention import few_queries
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import check_dtype, compute_dtype, index_expr
from arenite.errors import NotCompiled
from arenite.ir import OPS, Dim, Node, Var, bounds, ceildiv, maximum, minimum, product, variables
from arenite.ir.dim import LoopVar, substitute
from arenite.ir.ops.access import coefficient, linear, sources
from arenite.ir.ops.attention import Operands, heads_a_group, operands
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import computed_by

#: Queries of a block, at the most: each block reads all keys that it sees once.
BLOCK_QUERIES = 128
#: Keys of a block: their scores beside a panel of queries should stay in the first cache.
BLOCK_KEYS = 128
#: Sums of a dot, at the most: side by side beside few queries, one after the other in panels.
MOST_STRANDS = 8
#: Tiles of a launch, at the most.
MOST_TILES = 32
#: Few queries that are taken together.
FEW_TALLEST = 4
#: Elements of a cache line, or more.
LINE = 16


def build_attention(kernel: Kernel, target: Target, choice: str = "") -> Built | None:
    """The kernel of an attention, or None for a permute that is none."""
    node = computed_by(kernel.stages[0].node, kernel.inputs)
    return AttentionBuilder(kernel, node, target).built() if OPS[node.op].reads_views else None


class Seen(NamedTuple):
    """What the queries of a block see: see `Attention`."""

    is_causal: bool
    offset: ir.Expr
    n_keys: ir.Expr
    page: int = 0


class AttentionBuilder:
    """Makes the kernel of one node."""

    def __init__(self, kernel: Kernel, node: Node, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.result = kernel.stages[0].node
        self.node = node
        for value in (*kernel.inputs, self.node):
            check_dtype(value)
        self.names = {value: f"in{k}" for k, value in enumerate(kernel.inputs)}
        self.wide = compute_dtype(self.node.dtype)
        self.given = self._given()
        *self.batch, self.heads, self.n_queries, depth = self.given.q.shape
        *_, self.n_groups, self.n_keys, width = self.given.v.shape
        assert isinstance(depth, int)
        assert isinstance(width, int)
        self.depth, self.width = depth, width
        self.chunk = self.node.attr("chunk") if self.node.op == "attention_parts" else 0
        self.ratio = maximum(heads_a_group(self.given.q, self.given.k), 1)
        #: Heads whose few queries are taken together.
        self.fold = self.ratio if isinstance(self.ratio, int) else 1
        self.sizes: set[Var] = set()
        sizes = {
            **{f"batch{k}": size for k, size in enumerate(self.batch)},
            "head": self.heads,
            "group": self.n_groups,
            CHUNK.name: self.n_keys,
            QUERY.name: self.n_queries,
            KEY.name: self.n_keys,
            D.name: depth,
            E.name: width,
        }
        self.variables = {
            name: LoopVar(name, 0, max(0, bounds(size)[1] - 1)) for name, size in sizes.items()
        }

    def _given(self) -> Operands:
        return operands(self.node.inputs)

    def _seen(self) -> Seen:
        """The keys that queries see."""
        causal, offset = self.node.attr("causal"), self._size(self.node.attr("offset"))
        return Seen(causal, offset, self._size(self.n_keys))

    def built(self) -> Built:
        lanes = lanes_of(self.target, self.wide)
        columns = self._columns(lanes)
        panel = columns * lanes
        most_queries = max(1, bounds(self.n_queries)[1])
        block_queries = min(self._longest_block() // panel, -(-most_queries // panel)) * panel
        n_blocks = ceildiv(self.n_queries, block_queries)
        n_chunks = ceildiv(self.n_keys, self.chunk) if self.chunk else 1
        blocks = product([*self.batch, self.heads, n_blocks, n_chunks])
        decode_blocks = product([*self.batch, self.heads // self.fold, n_chunks])
        given, seen = self.given, self._seen()
        k_operand, v_operand = self._keys(given.k, D), self._keys(given.v, E)
        copies_k, copies_v = (self._lies_badly(operand) for operand in (k_operand, v_operand))
        decode_up_to, has_panels = self._forms(lanes, (k_operand, v_operand))
        tiles = minimum(blocks if has_panels else decode_blocks, MOST_TILES)
        if self.chunk and has_panels:
            raise NotCompiled(
                f"{self.node!r} has {self.n_queries} queries; parts are made of at most "
                f"{few_queries(self.fold)}, with keys and values in runs: use attention"
            )
        columns_of_v = -(-self.width // lanes)
        decode_tallest = min(FEW_TALLEST, most_dot_rows(self.target))
        decode_rows = decode_up_to * self.fold
        n_parts = -(-columns_of_v // most_columns(self.target, decode_tallest))
        n_scales = 2 * BLOCK_KEYS if given.k_scale is not None else 0
        rooms = _rooms(
            queries=block_queries * self.depth,
            results=block_queries * self.width,
            highest=block_queries,
            total=block_queries,
            sums=0,
            factor=panel,
            scores=BLOCK_KEYS * panel,
            scales=n_scales,
            keys=BLOCK_KEYS * self.depth if copies_k else 0,
            values=BLOCK_KEYS * self.width if copies_v else 0,
        )
        decode_rooms = _rooms(
            queries=decode_rows * self.depth,
            results=decode_rows * columns_of_v * lanes,
            highest=decode_rows,
            total=decode_rows,
            sums=decode_rows * columns_of_v * lanes,
            factor=decode_rows,
            scores=decode_rows * BLOCK_KEYS,
            scales=n_scales,
            keys=0,
            values=0,
        )
        lengths = [decode_rooms.length] * bool(decode_up_to) + [rooms.length] * has_panels
        spec = Attention(
            q=self._operand(given.q, "head", QUERY, D),
            k=k_operand,
            v=v_operand,
            mask=None if given.mask is None else self._operand(given.mask, "head", QUERY, KEY),
            k_scale=self._scales(given.k_scale),
            v_scale=self._scales(given.v_scale),
            out=self._out(),
            wide=self.wide,
            scale=float(self.node.attr("scale")),
            is_causal=seen.is_causal,
            offset=seen.offset,
            window=self.node.attr("window"),
            chunk=self.chunk,
            page=seen.page,
            n_queries=self._size(self.n_queries),
            n_keys=seen.n_keys,
            depth=self.depth,
            width=self.width,
            blocks=self._size(blocks),
            tiles=self._size(tiles),
            place=self._place(n_blocks, n_chunks, block_queries),
            lanes=lanes,
            columns=columns,
            block_queries=block_queries,
            block_keys=BLOCK_KEYS,
            strands=min(lanes, MOST_STRANDS),
            tallest=most_rows(self.target, columns),
            has_narrow=columns > 1 and self._may_end_with(lanes, block_queries, panel),
            copies_k=copies_k,
            copies_v=copies_v,
            has_panels=has_panels,
            decode_up_to=decode_up_to,
            fold=self.fold,
            decode_blocks=self._size(decode_blocks),
            decode_place=self._decode_place(n_chunks),
            decode_group=UNIT * self.fold // self._size(self.ratio),
            n_units=self._size(maximum(self.heads // self.fold, 1)),
            decode_tallest=decode_tallest,
            decode_width=columns_of_v * lanes,
            decode_columns=-(-columns_of_v // n_parts),
            rooms=rooms,
            decode_rooms=decode_rooms,
        )
        arrays = (
            *(ir.ArrayArg(name, node.dtype, "in") for node, name in self.names.items()),
            ir.ArrayArg("out0", self.node.dtype, "out"),
            ir.ArrayArg(SCRATCH, self.wide, "inout"),
        )
        loops = AttentionKernel(
            self.kernel.name,
            arrays,
            tuple(sorted(var.symbol for var in self.sizes)),
            spec.tiles,
            "tile",
            tile_body(spec),
            spec,
        )
        return Built(loops, tiles, (Scratch(self.wide, tiles * max(lengths)),))

    # How it is cut.

    def _columns(self, lanes: int) -> int:
        """Vectors of queries side by side: two (three short ones), or as many as there are."""
        usual = 2 if lanes >= 8 else 3
        return max(1, min(usual, -(-bounds(self.n_queries)[1] // lanes)))

    def _forms(self, lanes: int, factors: Sequence[Operand]) -> tuple[int, bool]:
        """Queries that are few, if there may be so few, and whether there may be more."""
        one = ir.index(1)
        is_in_runs = all(
            factor.step == one or width == 1
            for factor, width in zip(factors, (self.depth, self.width), strict=True)
        )
        if lanes < FOLDED or not is_in_runs:
            return 0, True
        few = few_queries(self.fold)
        fewest, most = bounds(self.n_queries)
        return few if fewest <= few else 0, most > few

    def _may_end_with(self, rows: int, block_queries: int, panel: int) -> bool:
        """Whether the last panel of a block may have so few rows."""
        if not isinstance(self.n_queries, int):
            return True
        counts = cut_counts(self.n_queries, block_queries)
        return any(1 <= count % panel <= rows for count in counts)

    def _longest_block(self) -> int:
        """Queries of a block, at the most: more where keys and values come from far each time."""
        nbytes = bounds(self.n_keys)[1] * (self.depth + self.width) * self.wide.bits // 8
        return BLOCK_QUERIES * (1 if nbytes <= self.target.l2_nbytes else 2)

    def _lies_badly(self, operand: Operand) -> bool:
        """Whether numbers are narrower than what is computed in, or rows share cache sets."""
        if operand.dtype != self.wide:
            return True
        line = operand.line
        nbytes = self.wide.bits // 8
        return isinstance(line, ir.Const) and int(line.value) * nbytes % SET_NBYTES == 0

    def _place(self, n_blocks: Dim, n_chunks: Dim, block_queries: int) -> ir.Block:
        """A block's number taken apart: batch axes, head, queries, and part of the keys, which
        varies fastest."""
        inner = [(CHUNK.name, n_chunks), ("query_block", n_blocks), (HEAD.name, self.heads)]
        return (
            *self._unravel(inner),
            ir.Let("group", HEAD // self._size(self.ratio)),
            ir.Let(FIRST_QUERY.name, ir.Name("query_block") * block_queries),
        )

    def _decode_place(self, n_chunks: Dim) -> ir.Block:
        """The same of runs of blocks that have all queries of some heads."""
        return tuple(self._unravel([(CHUNK.name, n_chunks)], RUN))

    def _unravel(self, inner: Sequence[tuple[str, Dim]], rest: ir.Expr = BLOCK) -> list[ir.Stmt]:
        lets: list[ir.Stmt] = []
        axes = [(f"batch{k}", size) for k, size in enumerate(self.batch)]
        for name, size in [*inner, *reversed(axes)]:
            count = self._size(maximum(size, 1))
            lets.append(ir.Let(name, rest % count))
            rest = rest // count
        return lets

    # Where operands lie.

    def _index(self, head: str, line: ir.Name, step: ir.Name) -> list[Dim]:
        names = [*(f"batch{k}" for k in range(len(self.batch))), head, line.name, step.name]
        return [self.variables[name] for name in names]

    def _result_index(self) -> list[Dim]:
        return self._index("head", QUERY, E)

    def _operand(self, node: Node, head: str, line: ir.Name, step: ir.Name) -> Operand:
        return self._in_memory(node, self._index(head, line, step), line, step)

    def _keys(self, node: Node, step: ir.Name) -> Operand:
        """Keys or values."""
        return self._operand(node, "group", KEY, step)

    def _scales(self, node: Node | None) -> Operand | None:
        if node is None:
            return None
        return self._in_memory(node, self._index("group", KEY, D)[:-1], KEY, D)

    def _in_memory(self, node: Node, at: Sequence[Dim], line: ir.Name, step: ir.Name) -> Operand:
        """A value seen through views, as it lies in memory."""
        index: Sequence[Dim] = [
            0 if size == 1 else position for size, position in zip(node.shape, at, strict=True)
        ]
        while node not in self.names:
            [source] = sources(node, tuple(index))
            assert not source.guards
            node, index = source.node, source.index
        return self._placed(node, self.names[node], index, line, step)

    def _out(self) -> Operand:
        """Where results go: as they are, or in the order in which they are read."""
        index = self._result_index()
        if self.chunk:
            index.insert(-1, self.variables[CHUNK.name])
        if self.result is not self.node:
            index = [index[axis] for axis in self.result.attr("axes")]
        return self._placed(self.result, "out0", index, QUERY, E)

    def _placed(
        self, node: Node, array: str, index: Sequence[Dim], line: ir.Name, step: ir.Name
    ) -> Operand:
        position = linear(index, node.shape)
        axes = [self.variables[name.name] for name in (line, step)]
        along = [coefficient(position, axis) for axis in axes]
        base = self._size(substitute(position, dict.fromkeys(axes, 0)))
        strides = [self._size(one) for one in along if one is not None]
        assert len(strides) == 2
        return Operand(array, node.dtype, base, *strides)

    def _size(self, dim: Dim) -> ir.Expr:
        """As an expression; the model's sizes in it become arguments."""
        own = set(self.variables.values())
        self.sizes |= {var for var in variables(dim) if var not in own}
        return index_expr(dim)


def _rooms(**lengths: int) -> Rooms:
    """One after the other, each from a cache line on; a line more keeps tiles out of one set."""
    starts: dict[str, int] = {}
    end = 0
    for name, length in lengths.items():
        starts[name] = end
        end += -(-length // LINE) * LINE
    return Rooms(**starts, length=end + LINE)


#: A permute may be the order in which an attention is written.
BUILDERS = dict.fromkeys(("attention", "attention_parts", "permute"), build_attention)
