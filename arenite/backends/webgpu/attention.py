"""Attention: a group has some queries of a head, its teams the keys in turn.

    team        as many lanes as hold a key by four words each; lane p has part p of the queries,
                of each key and value, and of what it sums
    a round     four keys a team: scores by a sum over the team, the highest of them, weights, and
                weighted values; what was summed with a lower highest score is scaled down
    at the end  the teams' sums are joined through shared memory

One query of a head (or few) is a group of many threads; of many queries a group takes several at
once, so that keys and values are read once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from arenite.backends.webgpu.few_rows import halves_text
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import FLOAT32, cast, index_expr, loop
from arenite.dtype import DType, Kind
from arenite.ir.dim import (
    Dim,
    LoopVar,
    Var,
    bounds,
    ceildiv,
    maximum,
    minimum,
    product,
    substitute,
    terms_of,
)
from arenite.ir.node import Node
from arenite.ir.ops.access import coefficient, linear, sources
from arenite.ir.ops.attention import heads_a_group, operands
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import computed_by

#: Elements of a query, key or value, at the most.
MOST_WIDTH = 256
#: Keys of a team in a round.
KEYS = 4
#: Scores are powers of 2.
LOG2_E = 1.4426950408889634
#: Below every score; and of a key that is not seen, so far below that its weight is 0 beside it.
LOWEST, UNSEEN = "-3.0e38", "-3.3e38"

_QUERY, _KEY, _DEEP = (LoopVar(name, 0, 2**31 - 1) for name in ("query", "key", "deep"))


@dataclass(frozen=True, slots=True)
class Cut:
    """Queries of a group, and its threads."""

    queries: int
    threads: int


ONE, MANY = Cut(1, 512), Cut(4, 128)


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
    n_queries = node.shape[-2]
    fewest, most = bounds(n_queries)
    if most <= MANY.queries:
        return _Builder(kernel, node, ONE).built()
    many = _Builder(kernel, node, MANY).built()
    if fewest > MANY.queries or not isinstance(n_queries, Var):
        return many
    one = _Builder(kernel, node, ONE).built()
    assert isinstance(many.loops, ir.GroupKernel)
    assert isinstance(one.loops, ir.GroupKernel)
    smaller = ((n_queries.symbol, MANY.queries, one.loops),)
    is_many = minimum(maximum(n_queries - MANY.queries, 0), 1)
    tiles = is_many * many.tiles + (1 - is_many) * one.tiles
    return replace(many, loops=replace(many.loops, smaller=smaller), tiles=tiles)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Element (line, deep) of an operand is at `base` + line * `step` + deep * `run`."""

    array: str
    dtype: DType
    base: Dim
    step: Dim
    run: Dim

    @property
    def is_in_fours(self) -> bool:
        per_four = 128 // self.dtype.bits
        numbers = [n for dim in (self.base, self.step) for n in terms_of(dim).values()]
        return self.run == 1 and not any(n % per_four for n in numbers)


class _Builder:
    def __init__(self, kernel: Kernel, node: Node, cut: Cut) -> None:
        self.kernel, self.node, self.cut = kernel, node, cut
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
        self.per_four = 128 // self.k.dtype.bits
        self.lanes = self.depth // self.per_four
        self.team = 1 << (self.lanes - 1).bit_length()
        self.n_teams = cut.threads // self.team

    def _operand(self, node: Node, at: Sequence[Dim], line: Var) -> _Lines:
        index: tuple[Dim, ...] = tuple(
            0 if size == 1 else position
            for size, position in zip(node.shape, (*at, _DEEP), strict=True)
        )
        while node not in self.names:
            [source] = sources(node, index)
            assert not source.guards
            node, index = source.node, source.index
        place = linear(index, node.shape)
        step, run = (coefficient(place, var) for var in (line, _DEEP))
        assert step is not None
        assert run is not None
        base = substitute(place, {line: 0, _DEEP: 0})
        return _Lines(self.names[node], node.dtype, base, step, run)

    def built(self) -> Built:
        queries = self.cut.queries
        n_blocks = ceildiv(self.n_queries, queries)
        tiles = product([*self.batch, self.heads, n_blocks])
        rest: ir.Expr = ir.Name("tile")
        axes = [("query_block", n_blocks), ("head", self.heads)]
        axes += [(f"batch{k}", size) for k, size in reversed([*enumerate(self.batch)])]
        lets: list[ir.Stmt] = []
        for name, size in axes:
            count = index_expr(maximum(size, 1))
            lets.append(ir.Let(name, rest % count))
            rest = rest // count
        offset = self.node.attr("offset")
        last = index_expr(self.n_keys)
        first_query, n_queries = ir.Name("first_query"), index_expr(self.n_queries)
        lets += [
            ir.Let("head_group", ir.Name("head") // index_expr(self.ratio)),
            ir.Let("first_query", ir.Name("query_block") * queries),
            ir.Let("n_queries", n_queries),
            ir.Let("n_keys", last),
            *self._places("q", self.q),
            *self._places("k", self.k),
            *self._places("v", self.v),
        ]
        # Keys that some of the queries sees: from the first of the first to the last of the last.
        begin: ir.Expr = ir.index(0)
        end = last
        if self.node.attr("causal"):
            seen = first_query + index_expr(offset)
            end = ir.Binary("max", ir.Binary("min", last, seen + queries), ir.index(0))
            if self.node.attr("window"):
                begin = ir.Binary("max", seen - (self.node.attr("window") - 1), ir.index(0))
            lets.append(ir.Let("offset", index_expr(offset)))
        lets += [ir.Let("begin", begin), ir.Let("end", end)]
        used = "first_query n_queries n_keys begin end q_at k_at v_at q_step k_step v_step".split()
        used += ["offset"] if self.node.attr("causal") else []
        given = {one.array for one in (self.q, self.k, self.v)}
        wide = {one.array for one in (self.q, self.k, self.v) if one.is_in_fours}
        shared = (
            ir.SharedArray("mixed", FLOAT32, self.n_teams * (self.depth + 1)),
            ir.SharedArray("highest", FLOAT32, self.n_teams),
            ir.SharedArray("sums", FLOAT32, queries * self.depth),
        )
        body = ir.Foreign(
            "\n".join(self._text()),
            tuple(map(ir.Name, used)),
            tuple(sorted(given)),
            ("mixed", "highest", "sums"),
            tuple(sorted(wide)),
            (self.team,),
            accesses=tuple(self._accesses()),
            turns=self._turns(),
        )
        arrays = [
            *(ir.ArrayArg(name, node.dtype, "in") for node, name in self.names.items()),
            ir.ArrayArg("out0", self.result.dtype, "out"),
        ]
        dims: list[Dim] = [d for n in (self.node, *self.kernel.inputs) for d in n.shape]
        dims += [offset, self.n_keys]
        block = (*lets, body, ir.Barrier(), self._results())
        made = Built.of(self.kernel.name, arrays, dims, tiles, block)
        loops = ir.GroupKernel(*made.loops.parts, threads=self.cut.threads, shared=shared)
        return replace(made, loops=loops)

    def _turns(self) -> ir.Expr:
        """Of all loops: a round of keys has a sum of a team for each key and query, by halves; what
        the teams have is joined for each query, at the most one by one."""
        queries, round_keys = self.cut.queries, self.n_teams * KEYS
        of_round = 1 + queries * KEYS * self.team.bit_length()
        joined = queries * (self.n_teams + 2) * (self.depth // self.cut.threads + 4)
        return (ir.Name("n_keys") // round_keys + 2) * of_round + joined

    def _accesses(self) -> Iterator[ir.Access]:
        """The elements that text reads. Where there may be no key it says none, and is checked: the
        last one is read before it is known whether a query sees any."""
        if bounds(self.n_keys)[0] < 1:
            return
        line, deep = ir.Name("line"), ir.Name("deep")
        depth = (deep.name, ir.index(self.depth - 1))
        for name, lines in (("q", self.q), ("k", self.k), ("v", self.v)):
            n_lines = ir.Name("n_queries" if name == "q" else "n_keys")
            at = (
                ir.Name(f"{name}_at") + line * index_expr(lines.step) + deep * index_expr(lines.run)
            )
            yield ir.Access(lines.array, at, ((line.name, n_lines - 1), depth))

    def _places(self, name: str, lines: _Lines) -> list[ir.Stmt]:
        return [
            ir.Let(f"{name}_at", index_expr(lines.base)),
            ir.Let(f"{name}_step", index_expr(lines.step)),
        ]

    def _results(self) -> ir.For:
        """Stores what is in shared memory, in the order in which it is read."""
        result = ir.Name("result")
        query = loop_var("result_query", self.n_queries)
        element = loop_var("result_element", self.depth)
        index: list[Dim] = [*self.outer, query, element]
        if self.result is not self.node:
            index = [index[axis] for axis in self.result.attr("axes")]
        place = index_expr(linear(index, self.result.shape))
        value = cast(ir.Load("sums", result, FLOAT32), self.result.dtype)
        return loop(
            "result",
            self.cut.queries * self.depth,
            ir.Let(query.name, ir.Name("first_query") + result // self.depth),
            ir.Let(element.name, result % self.depth),
            ir.If(ir.Name(query.name) < ir.Name("n_queries"), (ir.Store("out0", place, value),)),
        )

    # Text.

    def _text(self) -> list[str]:
        queries, per_four = range(self.cut.queries), self.per_four
        team, n_teams, fours = self.team, self.n_teams, self.per_four // 4
        scale = float(self.node.attr("scale")) * LOG2_E
        round_keys = n_teams * KEYS
        lines = [
            f"let team = lane / {team}u; let member = lane % {team}u;",
            f"let deep = min(member, {self.lanes - 1}u) * {per_four}u;",
            f"let is_whole = member < {self.lanes}u;",
        ]
        for i in queries:
            query = f"min(u32($first_query) + {i}u, u32($n_queries) - 1u)"
            lines.append(f"let query{i} = u32($q_at) + {query} * u32($q_step);")
            for f in range(fours):
                value = self._numbers(self.q, f"(query{i} + (deep + {4 * f}u){self._run(self.q)})")
                lines.append(f"let q{i}_{f} = select(vec4f(), {value} * {scale!r}, is_whole);")
                lines.append(f"var o{i}_{f} = vec4f();")
            lines.append(f"var m{i} = {LOWEST}; var l{i} = 0.0;")
        lines += [
            *(f"var next_{name} = vec4u();" for name, _ in self._words("0u")),
            "{ let first = u32($begin);",
            *(f"next_{name} = {value};" for name, value in self._words("first")),
            "}",
            f"for (var first = u32($begin); first < u32($end); first += {round_keys}u) {{",
            *(f"let {name} = {words};" for name, words in self._loaded()),
            # The following round is under way while this one is computed.
            *(f"next_{name} = {value};" for name, value in self._words(f"(first + {round_keys}u)")),
            *self._numbers_of_round(),
        ]
        for i in queries:
            lines += self._scores(i)
        lines += ["}"]
        for i in queries:
            lines += self._joined(i)
        return lines

    def _run(self, lines: _Lines) -> str:
        return "" if lines.run == 1 else f" * {_word(bounds(lines.run)[1])}"

    def _numbers(self, lines: _Lines, at: str) -> str:
        """Four floats from an element on, wherever it lies."""
        array, run = lines.array, bounds(lines.run)[1]
        if lines.dtype.bits == 32:
            if lines.is_in_fours:
                return f"bitcast<vec4f>({array}_four({at} / 4u))"
            words = ", ".join(f"{array}_word({at} + {_word(k * run)})" for k in range(4))
            return f"bitcast<vec4f>(vec4u({words}))"
        halves = []
        for k in range(4):
            place = f"({at} + {_word(k * run)})"
            word = f"({array}_word({place} / 2u) >> (({place} % 2u) * 16u))"
            halves.append(f"{halves_text(lines.dtype, word)}.x")
        return f"vec4f({', '.join(halves)})"

    def _words(self, first: str) -> list[tuple[str, str]]:
        """Four words of each key and value of a round, where they are read so; behind the last one
        the last again."""
        made = []
        for n in range(KEYS):
            near = f"min({first} + {n * self.n_teams}u + team, u32($n_keys) - 1u)"
            for name, lines in (("k", self.k), ("v", self.v)):
                if lines.is_in_fours:
                    place = f"(u32(${name}_at) + {near} * u32(${name}_step) + deep)"
                    value = f"{lines.array}_four({place} / {self.per_four}u)"
                    made.append((f"{name}words{n}", value))
        return made

    def _loaded(self) -> Iterator[tuple[str, str]]:
        """The words of a round, as they were loaded. Behind the last key its value was loaded once
        more, which may be infinite: 0, since a weight of 0 would make it NaN."""
        for n in range(KEYS):
            if self.k.is_in_fours:
                yield f"kwords{n}", f"next_kwords{n}"
            if self.v.is_in_fours:
                key = f"first + {n * self.n_teams}u + team"
                yield f"vwords{n}", f"select(vec4u(), next_vwords{n}, {key} < u32($n_keys))"

    def _numbers_of_round(self) -> list[str]:
        """Keys and values of a round as floats."""
        made = []
        for n in range(KEYS):
            made.append(f"let key{n} = first + {n * self.n_teams}u + team;")
            for name, lines in (("k", self.k), ("v", self.v)):
                words = f"{name}words{n}"
                for f in range(self.per_four // 4):
                    if not lines.is_in_fours:
                        near = f"min(key{n}, u32($n_keys) - 1u)"
                        at = f"u32(${name}_at) + {near} * u32(${name}_step)"
                        place = f"({at} + (deep + {4 * f}u){self._run(lines)})"
                        value = self._numbers(lines, place)
                    elif lines.dtype.bits == 32:
                        value = f"bitcast<vec4f>({words})"
                    else:
                        halves = (f"{words}.{'xyzw'[2 * f + h]}" for h in range(2))
                        pair = ", ".join(halves_text(lines.dtype, half) for half in halves)
                        value = f"vec4f({pair})"
                    if name == "v" and not lines.is_in_fours:
                        value = f"select(vec4f(), {value}, key{n} < u32($n_keys))"
                    made.append(f"let {name}{n}_{f} = {value};")
        return made

    def _scores(self, i: int) -> list[str]:
        """The round for query i."""
        fours = range(self.per_four // 4)
        made = []
        for n in range(KEYS):
            dots = " + ".join(f"dot(q{i}_{f}, k{n}_{f})" for f in fours)
            if self.lanes < self.team:  # others have no part of the key
                dots = f"select(0.0, {dots}, is_whole)"
            made.append(f"let s{i}_{n} = team_add_{self.team}(lane, {dots});")
            seen = f"key{n} < u32($end)"
            if self.node.attr("causal"):
                # Queries behind the last may see nothing: what they make is not stored.
                behind = f"(i32(u32($first_query) + {i}u) + $offset - i32(key{n}))"
                seen += f" && {behind} >= 0"
                if self.node.attr("window"):
                    seen += f" && {behind} < {self.node.attr('window')}"
            made.append(f"let seen{i}_{n} = {seen};")
        greatest = f"m{i}"
        for n in range(KEYS):
            made.append(f"let t{i}_{n} = select({UNSEEN}, s{i}_{n}, seen{i}_{n});")
            greatest = f"max({greatest}, t{i}_{n})"
        made += [
            f"let top{i} = {greatest};",
            f"let less{i} = exp2(m{i} - top{i});",
            f"m{i} = top{i}; l{i} = l{i} * less{i};",
            *(f"o{i}_{f} = o{i}_{f} * less{i};" for f in fours),
        ]
        for n in range(KEYS):
            made.append(f"let w{i}_{n} = exp2(t{i}_{n} - top{i}); l{i} += w{i}_{n};")
            made += [f"o{i}_{f} = fma(vec4f(w{i}_{n}), v{n}_{f}, o{i}_{f});" for f in fours]
        return made

    def _joined(self, i: int) -> list[str]:
        """What the teams have of query i, as one: `few` teams at a time, then those of all. The sum
        of weights is one more element behind the others."""
        depth, n_teams, threads = self.depth, self.n_teams, self.cut.threads
        few = 1 << n_teams.bit_length() // 2
        rest, width = n_teams // few, depth + 1
        made = [
            f"if (member == 0u) {{ $highest[team] = m{i}; }}",
            "workgroupBarrier();",
            f"if (lane < {rest}u) {{",
            f"var top = $highest[lane * {few}u];",
            f"for (var t = 1u; t < {few}u; t++) {{ top = max(top, $highest[lane * {few}u + t]); }}",
            f"$highest[lane * {few}u] = top;",
            "}",
            "workgroupBarrier();",
            f"var top{i} = $highest[0];",
            f"for (var t = {few}u; t < {n_teams}u; t += {few}u) "
            f"{{ top{i} = max(top{i}, $highest[t]); }}",
            f"let share{i} = exp2(m{i} - top{i});",
            f"if (member == 0u) {{ $mixed[team * {width}u + {depth}u] = share{i} * l{i}; }}",
            "if (is_whole) {",
        ]
        for f in range(self.per_four // 4):
            for c, lane in enumerate("xyzw"):
                at = f"team * {width}u + deep + {4 * f + c}u"
                made.append(f"$mixed[{at}] = share{i} * o{i}_{f}.{lane};")
        return [
            *made,
            "}",
            "workgroupBarrier();",
            f"for (var e = lane; e < {rest * width}u; e += {threads}u) {{",
            f"let at = e / {width}u * {few * width}u + e % {width}u;",
            "var sum = $mixed[at];",
            f"for (var t = 1u; t < {few}u; t++) {{ sum += $mixed[at + t * {width}u]; }}",
            "$mixed[at] = sum;",
            "}",
            "workgroupBarrier();",
            f"for (var e = lane; e < {depth}u; e += {threads}u) {{",
            f"var sum = $mixed[e]; var whole = $mixed[{depth}];",
            f"for (var t = {few * width}u; t < {n_teams * width}u; t += {few * width}u) "
            f"{{ sum += $mixed[t + e]; whole += $mixed[t + {depth}u]; }}",
            f"$sums[{i * depth}u + e] = select(sum / whole, 0.0, whole == 0.0);",
            "}",
            "workgroupBarrier();",
        ]


def _word(number: int) -> str:
    """A number that is added or multiplied modulo 2**32: one below zero steps back."""
    return f"{number % 2**32}u"
