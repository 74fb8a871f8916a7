"""The text of attention: a group has some queries, its teams the keys in turn.

team        as many lanes as hold a key by four words each; lane p has part p of the queries,
            of each key and value, and of what it sums
a round     four keys a team: scores by a sum over the team, the highest of them, weights, and
            weighted values; what was summed with a lower highest score is scaled down
at the end  the teams' sums are joined through shared memory
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from arenite.backends.webgpu.few_rows import halves_text
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType
from arenite.ir.dim import Dim, bounds, terms_of

#: Keys of a team in a round.
KEYS = 4
#: Scores are powers of 2.
LOG2_E = 1.4426950408889634
#: Below every score; and of a key that is not seen, so far below that its weight is 0 beside it.
LOWEST, UNSEEN = "-3.0e38", "-3.3e38"

#: Arrays in shared memory: what teams have, the highest scores of each, and what comes out.
MIXED, HIGHEST, SUMS = "mixed", "highest", "sums"


@dataclass(frozen=True, slots=True)
class Cut:
    """Queries of a group: so many rows of one head, or one row of so many heads, which share their
    keys; and its threads."""

    rows: int
    heads: int
    threads: int

    @property
    def queries(self) -> int:
        return self.rows * self.heads


@dataclass(frozen=True, slots=True)
class Lines:
    """Element (line, deep) of an operand is at `base` + line * `step` + deep * `run` of an array;
    in the next head at `head_step` more, where heads are so far apart."""

    array: str
    dtype: DType
    base: Dim
    step: Dim
    run: Dim
    head_step: Dim | None

    @property
    def is_in_fours(self) -> bool:
        per_four = 128 // self.dtype.bits
        numbers = [n for dim in (self.base, self.step) for n in terms_of(dim).values()]
        return self.run == 1 and not any(n % per_four for n in numbers)


@dataclass(frozen=True)
class AttentionText:
    """`depth` elements a query; with `is_part` results are of some of the keys, and behind those
    of a query come its highest score and the sum of weights beside it."""

    q: Lines
    k: Lines
    v: Lines
    depth: int
    cut: Cut
    scale: float
    causal: bool
    window: int
    is_part: bool = False

    @cached_property
    def per_four(self) -> int:
        return 128 // self.k.dtype.bits

    @cached_property
    def lanes(self) -> int:
        return self.depth // self.per_four

    @cached_property
    def team(self) -> int:
        return 1 << (self.lanes - 1).bit_length()

    @cached_property
    def n_teams(self) -> int:
        return self.cut.threads // self.team

    @property
    def width(self) -> int:
        """Numbers of a query that come out."""
        return self.depth + 2 * self.is_part

    @property
    def shared(self) -> tuple[tuple[str, int], ...]:
        """Arrays of floats in shared memory."""
        return (
            (MIXED, self.n_teams * (self.depth + 1)),
            (HIGHEST, self.n_teams),
            (SUMS, self.cut.queries * self.width),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What it asks for."""
        used = "first_query n_queries n_keys begin end q_at k_at v_at q_step k_step v_step".split()
        more = {"offset": self.causal, "q_head_step": self.cut.heads > 1}
        return (*used, *(name for name, is_used in more.items() if is_used))

    @property
    def _last(self) -> str:
        """What all keys are below."""
        return "end" if self.is_part else "n_keys"

    def turns(self, n_keys: ir.Expr) -> ir.Expr:
        """Of all loops: a round of keys has a sum of a team for each key and query, by halves; what
        the teams have is joined for each query, at the most one by one."""
        queries, round_keys = self.cut.queries, self.n_teams * KEYS
        of_round = 1 + queries * KEYS * self.team.bit_length()
        joined = queries * (self.n_teams + 2) * (self.depth // self.cut.threads + 4)
        return (n_keys // round_keys + 2) * of_round + joined

    def lines(self) -> list[str]:
        queries, per_four = range(self.cut.queries), self.per_four
        team, n_teams, fours = self.team, self.n_teams, self.per_four // 4
        scale = self.scale * LOG2_E
        round_keys = n_teams * KEYS
        lines = [
            f"let team = lane / {team}u; let member = lane % {team}u;",
            f"let deep = min(member, {self.lanes - 1}u) * {per_four}u;",
            f"let is_whole = member < {self.lanes}u;",
        ]
        for i in queries:
            row, head = i % self.cut.rows, i // self.cut.rows
            query = f"min(u32($first_query) + {row}u, u32($n_queries) - 1u)"
            behind = f" + {head}u * u32($q_head_step)" if head else ""
            lines.append(f"let query{i} = u32($q_at) + {query} * u32($q_step){behind};")
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

    def _run(self, lines: Lines) -> str:
        return "" if lines.run == 1 else f" * {_word(bounds(lines.run)[1])}"

    def _numbers(self, lines: Lines, at: str) -> str:
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
        more, or that of another part, which may be infinite: 0, since a weight of 0 would make it
        NaN."""
        for n in range(KEYS):
            if self.k.is_in_fours:
                yield f"kwords{n}", f"next_kwords{n}"
            if self.v.is_in_fours:
                key = f"first + {n * self.n_teams}u + team"
                yield f"vwords{n}", f"select(vec4u(), next_vwords{n}, {key} < u32(${self._last}))"

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
                        value = f"select(vec4f(), {value}, key{n} < u32(${self._last}))"
                    made.append(f"let {name}{n}_{f} = {value};")
        return made

    def _scores(self, i: int) -> list[str]:
        """The round for query i."""
        fours, row = range(self.per_four // 4), i % self.cut.rows
        made = []
        for n in range(KEYS):
            dots = " + ".join(f"dot(q{i}_{f}, k{n}_{f})" for f in fours)
            if self.lanes < self.team:  # others have no part of the key
                dots = f"select(0.0, {dots}, is_whole)"
            made.append(f"let s{i}_{n} = team_add_{self.team}(lane, {dots});")
            seen = f"key{n} < u32($end)"
            if self.causal:
                # Queries behind the last may see nothing: what they make is not stored.
                behind = f"(i32(u32($first_query) + {row}u) + $offset - i32(key{n}))"
                seen += f" && {behind} >= 0"
                if self.window:
                    seen += f" && {behind} < {self.window}"
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
            f"$sums[{i * self.width}u + e] = select(sum / whole, 0.0, whole == 0.0);",
            *(
                f"if (e == 0u) {{ $sums[{i * self.width + depth + k}u] = {value}; }}"
                for k, value in enumerate((f"top{i}", "whole") if self.is_part else ())
            ),
            "}",
            "workgroupBarrier();",
        ]


def _word(number: int) -> str:
    """A number that is added or multiplied modulo 2**32: one below zero steps back."""
    return f"{number % 2**32}u"
