"""How attention is cut for groups of threads, by how many rows and keys there are.

    few rows      a head of a row is a group of many threads
    and far more  the keys in parts: heads that share them are a group for each part, and what parts
    keys          have is joined by a dispatch of its own (`attention_parts.py`)
    many rows     a group takes several rows of a head, so that keys are read once for all of them

Where sizes are open, a launch has all of these, and one is taken when they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from arenite.backends.webgpu.attention_parts import Parts, places_of_tile
from arenite.backends.webgpu.attention_text import SUMS, AttentionText, Cut, Lines
from arenite.backends.webgpu.fast_products import is_above
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratches
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import FLOAT32, cast, index_expr, loop
from arenite.dtype import Kind
from arenite.ir.dim import Dim, LoopVar, Var, bounds, ceildiv, maximum, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import coefficient, linear, sources
from arenite.ir.ops.attention import heads_a_group, operands
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import computed_by

#: Elements of a query, key or value, at the most.
MOST_WIDTH = 256
#: Of one row, and of many; rows that are few.
ONE, MANY, FEW_ROWS = Cut(1, 1, 512), Cut(4, 1, 128), 4
#: Heads of a group that has a part of the keys, at the most, and its threads; keys from which on
#: there are parts, how many at the most, and groups that a large device runs at once.
PART_HEADS, PART_THREADS, LONG = 2, 512, 1792
MOST_PARTS, MANY_GROUPS = 32, 132

_QUERY, _KEY, _DEEP = (LoopVar(name, 0, 2**31 - 1) for name in ("query", "key", "deep"))


def why_written_out(node: Node) -> str | None:
    """Why an attention has no kernel of its own here; None where it has one."""
    given = operands(node.inputs)
    if given.mask is not None or given.k_scale is not None:
        return "kernels take neither masks nor scales"
    depth, width = given.q.shape[-1], given.v.shape[-1]
    if not isinstance(depth, int) or depth != width or not 1 <= depth <= MOST_WIDTH:
        return f"keys of {depth} and values of {width} elements"
    if given.q.dtype != FLOAT32:
        return f"queries of {given.q.dtype}"
    kind = given.k.dtype
    if kind.kind is not Kind.FLOAT or kind.bits not in (16, 32) or depth % (128 // kind.bits):
        return f"keys of {depth} elements of {kind}"
    return None


def build_attention(kernel: Kernel) -> Built | None:
    """The kernel of an attention; None for all others."""
    node = computed_by(kernel.stages[0].node, kernel.inputs)
    if node.op != "attention":
        return None
    builder = _Builder(kernel, node)
    n_queries = node.shape[-2]
    fewest, most = bounds(n_queries)
    if most <= FEW_ROWS:
        return _of_few_rows(builder)
    if fewest > FEW_ROWS or not isinstance(n_queries, Var):
        return builder.built(MANY)
    # All have the same arrays, the memory of parts among them.
    few = _of_few_rows(builder)
    return _instead(builder.built(MANY, scratch=few.scratch), n_queries, FEW_ROWS, few)


def _of_few_rows(builder: _Builder) -> Built:
    parts, n_keys = builder.parts(), builder.n_keys
    if parts is None:
        return builder.built(ONE)
    in_parts = builder.built_in_parts(parts)
    if not isinstance(n_keys, Var) or bounds(n_keys)[0] > LONG:
        return in_parts
    return _instead(in_parts, n_keys, LONG, builder.built(ONE, scratch=parts.scratch))


def _instead(built: Built, size: Var, most: int, other: Built) -> Built:
    """The other one in launches in which a size is no more than that."""
    assert isinstance(built.loops, ir.GroupKernel)
    assert isinstance(other.loops, ir.GroupKernel)
    above = is_above(size, most)
    loops = replace(built.loops, smaller=((size.symbol, most, other.loops),))
    return replace(built, loops=loops, tiles=above * built.tiles + (1 - above) * other.tiles)


class _Builder:
    def __init__(self, kernel: Kernel, node: Node) -> None:
        self.kernel, self.node = kernel, node
        self.result = kernel.stages[0].node
        self.names = {value: f"in{k}" for k, value in enumerate(kernel.inputs)}
        given = operands(node.inputs)
        *self.batch, self.heads, self.n_queries, depth = given.q.shape
        self.n_keys = given.k.shape[-2]
        self.depth = bounds(depth)[1]
        self.ratio = maximum(heads_a_group(given.q, given.k), 1)
        self.outer = [
            *(loop_var(f"batch{k}", size) for k, size in enumerate(self.batch)),
            loop_var("head", self.heads),
        ]
        group = loop_var("head_group", given.k.shape[-3])
        of_keys = [*self.outer[:-1], group]
        self.q = self._operand(given.q, [*self.outer, _QUERY], _QUERY)
        self.k = self._operand(given.k, [*of_keys, _KEY], _KEY)
        self.v = self._operand(given.v, [*of_keys, _KEY], _KEY)

    def _operand(self, node: Node, at: Sequence[Dim], line: Var) -> Lines:
        index: tuple[Dim, ...] = tuple(
            0 if size == 1 else position
            for size, position in zip(node.shape, (*at, _DEEP), strict=True)
        )
        while node not in self.names:
            [source] = sources(node, index)
            assert not source.guards
            node, index = source.node, source.index
        place = linear(index, node.shape)
        step, run, head_step = (coefficient(place, v) for v in (line, _DEEP, self.outer[-1]))
        assert step is not None
        assert run is not None
        base = substitute(place, {line: 0, _DEEP: 0})
        return Lines(self.names[node], node.dtype, base, step, run, head_step)

    def parts(self) -> Parts | None:
        """How keys are cut in parts; None where there are never many, or where that is not known
        ahead, and where heads are many."""
        fewest, most = bounds(self.n_keys)
        is_known = isinstance(self.n_keys, Var) or fewest > LONG
        if most <= LONG or not is_known or not isinstance(self.heads, int):
            return None
        n_heads = 1
        if isinstance(self.ratio, int) and self.q.head_step is not None:
            n_heads = max(n for n in range(1, PART_HEADS + 1) if self.ratio % n == 0)
        n_groups = bounds(product([*self.batch, self.heads // n_heads]))[1]
        count = min(MOST_PARTS, MANY_GROUPS // max(n_groups, 1))
        if count < 2:
            return None  # there are groups enough
        return Parts(
            count,
            tuple(self.outer[:-1]),
            tuple(self.batch),
            self.heads,
            n_heads,
            min(bounds(self.n_queries)[1], FEW_ROWS),
            self.n_keys,
            self.depth,
        )

    def built_in_parts(self, parts: Parts) -> Built:
        """The kernel for parts of the keys, and behind it the one that joins them."""
        cut = Cut(1, parts.n_heads, PART_THREADS)
        built = self.built(cut, parts, scratch=parts.scratch)
        assert isinstance(built.loops, ir.GroupKernel)
        following = parts.joining(built.loops, self._axes(cut, parts), self._store)
        return replace(built, loops=replace(built.loops, following=following))

    def built(self, cut: Cut, parts: Parts | None = None, scratch: Scratches = ()) -> Built:
        text = AttentionText(
            self.q,
            self.k,
            self.v,
            self.depth,
            cut,
            float(self.node.attr("scale")),
            bool(self.node.attr("causal")),
            int(self.node.attr("window")),
            is_part=parts is not None,
        )
        axes = self._axes(cut, parts)
        lets: list[ir.Stmt] = [*places_of_tile(axes)]
        offset = self.node.attr("offset")
        last = index_expr(self.n_keys)
        first_query, n_queries = ir.Name("first_query"), index_expr(self.n_queries)
        lets += [
            ir.Let("head", ir.Name("head_block") * cut.heads),
            ir.Let("head_group", ir.Name("head") // index_expr(self.ratio)),
            ir.Let("first_query", ir.Name("query_block") * cut.rows),
            ir.Let("n_queries", n_queries),
            ir.Let("n_keys", last),
            *self._places("q", self.q),
            *self._places("k", self.k),
            *self._places("v", self.v),
        ]
        # Keys that some of the queries sees: from the first of the first to the last of the last.
        begin: ir.Expr = ir.index(0)
        end = last
        if parts is not None:
            part_keys = index_expr(parts.part_keys)
            begin = ir.Name("part") * part_keys
            end = ir.Binary("min", last, begin + part_keys)
        if text.causal:
            seen = first_query + index_expr(offset)
            end = ir.Binary("max", ir.Binary("min", end, seen + cut.rows), ir.index(0))
            if text.window:
                begin = ir.Binary("max", seen - (text.window - 1), begin)
            lets.append(ir.Let("offset", index_expr(offset)))
        lets += [ir.Let("begin", begin), ir.Let("end", end)]
        if cut.heads > 1:
            lets.append(ir.Let("q_head_step", index_expr(self.q.head_step or 0)))
        given = {one.array for one in (self.q, self.k, self.v)}
        wide = {one.array for one in (self.q, self.k, self.v) if one.is_in_fours}
        body = ir.Foreign(
            "\n".join(text.lines()),
            tuple(map(ir.Name, text.names)),
            tuple(sorted(given)),
            tuple(name for name, _ in text.shared),
            tuple(sorted(wide)),
            (text.team,),
            accesses=tuple(self._accesses(cut)),
            turns=text.turns(ir.Name("n_keys")),
        )
        arrays = [
            *(ir.ArrayArg(name, node.dtype, "in") for node, name in self.names.items()),
            ir.ArrayArg("out0", self.result.dtype, "out"),
        ]
        dims: list[Dim] = [d for n in (self.node, *self.kernel.inputs) for d in n.shape]
        dims += [offset, self.n_keys]
        stores = self._results(cut) if parts is None else parts.stores()
        block = (*lets, body, ir.Barrier(), stores)
        tiles = product([size for _, size in axes])
        made = Built.of(self.kernel.name, arrays, dims, tiles, block, scratch)
        shared = tuple(ir.SharedArray(name, FLOAT32, count) for name, count in text.shared)
        loops = ir.GroupKernel(*made.loops.parts, threads=cut.threads, shared=shared)
        return replace(made, loops=loops)

    def _axes(self, cut: Cut, parts: Parts | None) -> list[tuple[str, Dim]]:
        """Those that tiles are along, the one that is walked first first."""
        assert cut.heads == 1 or isinstance(self.heads, int)
        blocks: Dim = self.heads // cut.heads if isinstance(self.heads, int) else self.heads
        axes: list[tuple[str, Dim]] = [] if parts is None else [("part", parts.count)]
        axes += [("query_block", ceildiv(self.n_queries, cut.rows)), ("head_block", blocks)]
        return axes + [(f"batch{k}", size) for k, size in reversed([*enumerate(self.batch)])]

    def _accesses(self, cut: Cut) -> Iterator[ir.Access]:
        """The elements that text reads. Where there may be no key it says none, and is checked: the
        last one is read before it is known whether a query sees any."""
        if bounds(self.n_keys)[0] < 1:
            return
        line, deep, head = ir.Name("line"), ir.Name("deep"), ir.Name("next_head")
        depth = (deep.name, ir.index(self.depth - 1))
        for name, lines in (("q", self.q), ("k", self.k), ("v", self.v)):
            n_lines = ir.Name("n_queries" if name == "q" else "n_keys")
            at = (
                ir.Name(f"{name}_at") + line * index_expr(lines.step) + deep * index_expr(lines.run)
            )
            most = [(line.name, n_lines - 1), depth]
            if name == "q" and cut.heads > 1:
                at = at + head * index_expr(lines.head_step or 0)
                most.append((head.name, ir.index(cut.heads - 1)))
            yield ir.Access(lines.array, at, tuple(most))

    def _places(self, name: str, lines: Lines) -> list[ir.Stmt]:
        return [
            ir.Let(f"{name}_at", index_expr(lines.base)),
            ir.Let(f"{name}_step", index_expr(lines.step)),
        ]

    def _results(self, cut: Cut) -> ir.For:
        """Stores what is in shared memory, in the order in which it is read."""
        result, row = ir.Name("result"), ir.Name("result_row")
        store = self._store(
            ir.Name("head"), row, result % self.depth, ir.Load(SUMS, result, FLOAT32)
        )
        return loop(
            "result",
            cut.queries * self.depth,
            ir.Let(row.name, ir.Name("first_query") + result // self.depth),
            ir.If(row < ir.Name("n_queries"), store),
        )

    def _store(self, head: ir.Expr, row: ir.Expr, element: ir.Expr, value: ir.Expr) -> ir.Block:
        """One result, where it belongs."""
        own = loop_var("own_head", self.heads)
        query, deep = loop_var("own_query", self.n_queries), loop_var("own_element", self.depth)
        index: list[Dim] = [*self.outer[:-1], own, query, deep]
        if self.result is not self.node:
            index = [index[axis] for axis in self.result.attr("axes")]
        place = index_expr(linear(index, self.result.shape))
        return (
            ir.Let(own.name, head),
            ir.Let(query.name, row),
            ir.Let(deep.name, element),
            ir.Store("out0", place, cast(value, self.result.dtype)),
        )
