"""Attention over keys in parts, each of which a group of its own has seen, as one.

    part p of a query    o[p], beside the highest score m[p] and the sum of weights l[p] of its keys
    the query            sum of w[p] * o[p] / sum of w[p],  w[p] = l[p] * 2 ** (m[p] - highest m)

There are as many parts whatever the number of keys. They lie in memory of the launch, and are
joined in their order, whatever order they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from arenite.backends.webgpu.attention_text import SUMS
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Scratch, Scratches
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import FLOAT32, index_expr, loop
from arenite.ir.dim import Dim, Var, ceildiv, maximum, product
from arenite.ir.ops.access import linear

#: Threads of a group that joins parts.
THREADS = 64

_PARTS = "scratch0"
#: One result, where it belongs: by head, row, element and value.
Store = Callable[[ir.Expr, ir.Expr, ir.Expr, ir.Expr], ir.Block]


def places_of_tile(axes: Sequence[tuple[str, Dim]]) -> ir.Block:
    """The place of a tile along axes, of which the first is walked first."""
    rest: ir.Expr = ir.Name("tile")
    lets: list[ir.Stmt] = []
    for name, size in axes:
        count = index_expr(maximum(size, 1))
        lets.append(ir.Let(name, rest % count))
        rest = rest // count
    return tuple(lets)


@dataclass(frozen=True, slots=True)
class Parts:
    """So many of each row of heads; a group has one row of `n_heads` heads. There is room for `few`
    rows."""

    count: int
    outer: tuple[Var, ...]  # batch axes, of sizes `batch`
    batch: tuple[Dim, ...]
    heads: int
    n_heads: int
    few: int
    n_keys: Dim
    depth: int

    @property
    def part_keys(self) -> Dim:
        """Keys of a part; the last may have fewer, or none."""
        return ceildiv(self.n_keys, self.count)

    @property
    def width(self) -> int:
        """Numbers of a part of a query."""
        return self.depth + 2

    @property
    def scratch(self) -> Scratches:
        return (Scratch(FLOAT32, self._n_queries * (self.width * self.count)),)

    @property
    def _n_queries(self) -> Dim:
        """For which there is room."""
        return product([*self.batch, self.heads * self.few])

    def _query(self, head: ir.Expr, row: ir.Expr) -> tuple[ir.Block, ir.Expr]:
        """The number of a query among those, by numbers that have names."""
        own, at = loop_var("part_head", self.heads), loop_var("part_row", self.few)
        number = linear([*self.outer, own, at], (*self.batch, self.heads, self.few))
        return (ir.Let(own.name, head), ir.Let(at.name, row)), index_expr(number)

    def stores(self) -> ir.For:
        """What one group has in shared memory, into memory."""
        result = ir.Name("result")
        head = ir.Name("head") + result // self.width
        lets, query = self._query(head, ir.Name("query_block"))
        first = (ir.Name("part") * index_expr(self._n_queries) + query) * self.width
        stored = ir.Store(_PARTS, first + result % self.width, ir.Load(SUMS, result, FLOAT32))
        return loop("result", self.n_heads * self.width, *lets, stored)

    def joining(
        self, kernel: ir.GroupKernel, axes: Sequence[tuple[str, Dim]], store: Store
    ) -> ir.GroupKernel:
        """The kernel that joins them, over the tiles of one that makes them: where a group had a
        part of the keys for all elements of its queries, it has a part of these elements."""
        n_elements = self.n_heads * self.depth
        count = -(-n_elements // self.count)
        head = ir.Name("head_block") * self.n_heads
        lets, query = self._query(head, ir.Name("query_block"))
        n_queries = index_expr(self._n_queries)
        part, own, number = ir.Name("each_part"), ir.Name("each_head"), ir.Name("each_number")
        at = (part * n_queries + ir.Name("query") + own * self.few) * self.width + number
        most = {part.name: self.count, own.name: self.n_heads, number.name: self.width}
        text = ir.Foreign(
            "\n".join(self._text(count)),
            tuple(map(ir.Name, ("part", "query", "n_queries"))),
            (_PARTS,),
            (SUMS,),
            accesses=(
                ir.Access(_PARTS, at, tuple((name, ir.index(n - 1)) for name, n in most.items())),
            ),
            turns=ir.index(-(-count // THREADS) + 1),
        )
        result, element = ir.Name("result"), ir.Name("element")
        value = ir.Load(SUMS, result, FLOAT32)
        row, deep = ir.Name("query_block"), element % self.depth
        inside = ir.If(element < n_elements, store(head + element // self.depth, row, deep, value))
        stores = loop("result", count, ir.Let("element", ir.Name("part") * count + result), inside)
        lets = (*lets, ir.Let("query", query), ir.Let("n_queries", n_queries))
        body = (*places_of_tile(axes), *lets, text, ir.Barrier(), stores)
        shared = (ir.SharedArray(SUMS, FLOAT32, count),)
        return replace(kernel, body=body, threads=THREADS, shared=shared)

    def _text(self, count: int) -> list[str]:
        """A thread has an element, and reads all that it needs at once."""
        parts = range(self.count)
        top = "h0"
        for p in parts[1:]:
            top = f"max({top}, h{p})"
        return [
            f"for (var e = lane; e < {count}u; e += {THREADS}u) {{",
            f"let element = min(u32($part) * {count}u + e, {self.n_heads * self.depth - 1}u);",
            f"let own = u32($query) + element / {self.depth}u * {self.few}u;",
            f"let deep = element % {self.depth}u;",
            *(f"let at{p} = ({p}u * u32($n_queries) + own) * {self.width}u;" for p in parts),
            *(
                f"let {name}{p} = bitcast<f32>({_PARTS}_word(at{p} + {behind}));"
                for name, behind in (
                    ("h", f"{self.depth}u"),
                    ("l", f"{self.depth + 1}u"),
                    ("o", "deep"),
                )
                for p in parts
            ),
            f"let top = {top};",
            *(f"let w{p} = exp2(h{p} - top) * l{p};" for p in parts),
            f"let whole = {' + '.join(f'w{p}' for p in parts)};",
            f"let sum = {' + '.join(f'w{p} * o{p}' for p in parts)};",
            f"${SUMS}[e] = select(sum / whole, 0.0, whole == 0.0);",
            "}",
        ]
