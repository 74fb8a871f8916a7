"""Products of a few rows by blocks as they are in a file.

A group quantises its rows of x into shared memory (`quantised_rows`). Then teams of lanes read
blocks (`block_units`) and multiply bytes, one set of columns after another; a lane that has the
same numbers of x in each keeps them. Words are loaded well before they are used: the first while x
is quantised.
"""

from __future__ import annotations

from arenite.backends.webgpu.block_parts import Part, Read
from arenite.backends.webgpu.block_units import unit_of
from arenite.backends.webgpu.few_rows import (
    FEW_ROWS,
    TEAM,
    Cut,
    declared_sums,
    place_of_result,
    sum_turns,
    sums_text,
)
from arenite.backends.webgpu.products import SUMS, ProductBuilder
from arenite.backends.webgpu.quantised_rows import NUMBERS, QUARTER, RUN, QuantisedRows
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32
from arenite.errors import NotCompiled
from arenite.ir.dim import Dim, ceildiv

#: Elements of x that shared memory holds at once; quantised they take 1.25 bytes each.
ROOM = 8192
#: Teams of a group, which quantise x together, of a long row twice as many; groups that a large
#: device runs at once: with more columns, teams take several, one after another; and words that a
#: lane has under way.
TEAMS = 8
LONG_ROW = 4096
MANY_GROUPS = 528
LOADED_WORDS = 32
#: Words of a lane at which all that it has of a row is under way at once.
ROW_WORDS = 80


def build_block_rows(builder: ProductBuilder, m: int, n_blocks: Dim = 1) -> Built:
    """The kernel for up to m rows by blocks, or for so many blocks of rows."""
    text = _BlockText(builder, m)
    unit, cut, weights = text.unit, text.cut, [w.array for w in builder.weights]
    n_sums = cut.group_columns * m
    row, column = place_of_result(m, cut)
    shared = [*text.rows.shared, ir.SharedArray(SUMS, FLOAT32, n_sums * len(weights))]
    block: ir.Block = (
        *builder.few_rows_of_x(m, n_blocks),
        ir.Foreign(
            "\n".join(text.lines()),
            FEW_ROWS,
            builder.arrays,
            (SUMS, *text.rows.writes),
            builder.arrays if unit.is_wide else (text.rows.x.array,),
            (QUARTER, TEAM),
            "\n".join(unit.functions.replace("$w", array) for array in dict.fromkeys(weights)),
            builder.accesses() if unit.is_inside else (),
            ir.index(text.turns),
        ),
        ir.Barrier(),
        builder.results(n_sums, row, column),
    )
    n_tiles = ceildiv(builder.n_columns, cut.group_columns) * n_blocks
    return builder.kernel_of(n_tiles, block, cut.teams * TEAM, shared)


class _BlockText:
    """The text of a product by blocks: what lanes read first is under way while x is quantised,
    and from then on what they read next while they multiply."""

    def __init__(self, builder: ProductBuilder, m: int) -> None:
        self.builder, self.m = builder, m
        self.dtype = builder.weights[0].dtype
        self.depth, self.n_columns = builder.depth, builder.n_columns
        self.unit = unit_of(self.dtype, self.depth)
        self.length = self.unit.blocks * self.dtype.block_length
        if self.unit.is_wide and self.dtype.nbytes((self.depth,)) % 16:
            name = self.dtype
            raise NotCompiled(f"rows of {self.depth} elements of {name} are not done on WebGPU")
        # Elements of x that are held at once, in whole blocks; sums go on in the next round.
        self.round_depth = min(self.depth, max(self.length, ROOM // m // self.length * self.length))
        is_whole = self.round_depth == self.depth
        teams = 2 * TEAMS if self.depth >= LONG_ROW else TEAMS
        n_columns = self.n_columns * len(builder.weights)
        turns = -(-n_columns // (teams * MANY_GROUPS)) if is_whole else 1
        self.cut = Cut(teams, 1, turns=turns)
        # Where a lane has two runs, lanes are an odd number of pairs apart.
        self.rows = QuantisedRows(
            builder,
            m,
            self.round_depth,
            teams * TEAM,
            gap=int(self.unit.eights == 2 * QUARTER),
            in_fours=self.unit.is_wide,
        )
        #: A lane reads these rows of weights: a column of each product, then the next.
        products = enumerate(builder.weights)
        self.cells = [(c, p, w.array) for p, w in products for c in range(self.cut.columns)]
        self.n_units = self.round_depth // self.length * self.unit.per_block
        self.batch = self._units_at_once()
        self.n_batches = -(-self.n_units // (TEAM * self.batch))
        #: Whether a lane multiplies the same numbers in every turn: then it keeps them.
        self.keeps = m == 1 and self.n_batches == 1 and turns > 1

    def _units_at_once(self) -> int:
        """Units of a lane whose words are loaded together, for each of its columns."""
        loads = self.unit.read("w", "").loads
        n_words = sum(4 if kind == "vec4u" else 1 for _, kind, _ in loads) * len(self.cells)
        wanted = -(-self.n_units // TEAM)
        if not n_words:
            return 1  # nothing is under way: it is read where it is used
        if n_words * wanted <= ROW_WORDS:
            return wanted
        most = max(1, LOADED_WORDS // n_words)
        batch = 1
        while 2 * batch <= min(most, wanted):
            batch *= 2
        return batch

    @property
    def turns(self) -> int:
        """Of all loops, in each round: x is quantised, then words are multiplied step by step, with
        sums behind each turn."""
        n_rounds, turns = -(-self.depth // self.round_depth), self.cut.turns
        of_sums = turns * sum_turns(self.builder, self.cut, self.m)
        return n_rounds * (self.rows.turns + turns * self.n_batches + 2) + of_sums

    def lines(self) -> list[str]:
        cut = self.cut
        lines = [
            f"let team = lane / {TEAM}u; let member = lane % {TEAM}u;",
            f"let column0 = u32($column_tile) * {cut.group_columns}u + team * {cut.columns}u;",
            *declared_sums(self.builder, cut, self.m),
        ]
        if self.round_depth == self.depth:
            return [*lines, "let base = 0u;", *self._round(cut.turns)]
        return [
            *lines,
            f"for (var base = 0u; base < {self.depth}u; base += {self.round_depth}u) {{",
            *self._round(0),
            "workgroupBarrier();",
            "}",
            *self.rows.norms(),
            *self._sums("0u"),
        ]

    def _round(self, turns: int) -> list[str]:
        """The first words are loaded, x quantised, then words multiplied step by step, in `turns`
        with sums behind each; 0: sums come later."""
        n_steps = max(turns, 1) * self.n_batches
        quantised = [*self.rows.lines(), "workgroupBarrier();"]
        quantised += [*self.rows.squares(), *(self.rows.norms() if turns else ())]
        products = [line for u in range(self.batch) for line in self._products(u)]
        if self.keeps:
            quantised += [line for u in range(self.batch) for line in self._kept(u)]
        if turns:
            is_last = f"step % {self.n_batches}u == {self.n_batches - 1}u"
            products += ["{" if self.n_batches == 1 else f"if ({is_last}) {{"]
            turn = f"step / {self.n_batches}u * {self.cut.teams * self.cut.columns}u"
            products += [*self._sums(turn), *self._sums_reset(), "}"]
        n_units = (
            f"let n_units = min({self.n_units}u, "
            f"({self.depth}u - base) / {self.length}u * {self.unit.per_block}u);"
        )
        loads = [one for u in range(self.batch) for one in self._reads(u)]
        if n_steps == 1:
            return [
                n_units,
                "let step = 0u;",
                *self._places(),
                *(f"let {name} = {value};" for name, _, value in loads),
                *quantised,
                *products,
            ]
        return [
            n_units,
            *(f"var next_{name} = {kind}();" for name, kind, _ in loads),
            *(["{ let step = 0u;"] if loads else []),
            *(self._places() if loads else []),
            *(f"next_{name} = {value};" for name, _, value in loads),
            *(["}"] if loads else []),
            *quantised,
            f"for (var now = 0u; now < {n_steps}u; now++) {{",
            *(f"let {name} = next_{name};" for name, _, _ in loads),
            *([f"if (now + 1u < {n_steps}u) {{ let step = now + 1u;"] if loads else []),
            *(self._places() if loads else []),
            *(f"next_{name} = {value};" for name, _, value in loads),
            *(["}"] if loads else []),
            "let step = now;",
            *self._places(),
            *products,
            "}",
        ]

    def _places(self) -> list[str]:
        """Where the units of a step begin; behind the last one it is that again."""
        unit, cut, lines = self.unit, self.cut, []
        unit_nbytes = unit.blocks * self.dtype.block_nbytes
        row_nbytes = self.dtype.nbytes((self.depth,))
        turn = f"step / {self.n_batches}u * {cut.teams * cut.columns}u"
        for c in range(cut.columns):
            near = f"min(column0 + {turn} + {c}u, {self.n_columns - 1}u)"
            lines.append(f"let row{c} = {near} * {row_nbytes}u;")
        lines.append(f"let unit_first = step % {self.n_batches}u * {TEAM * self.batch}u + member;")
        for u in range(self.batch):
            block = f"unit{u} / {unit.per_block}u"
            lines += [
                f"let unit{u} = min(unit_first + {u * TEAM}u, n_units - 1u);",
                f"let first{u} = (base / {self.length}u + {block}) * {unit_nbytes}u;",
            ]
            for c, p, _ in self.cells:
                lines.append(f"let at{c}_{p}_{u} = row{c} + first{u};")
                lines.append(f"let part{c}_{p}_{u} = unit{u} % {unit.per_block}u;")
        return lines

    def _reads(self, u: int) -> list[tuple[str, str, str]]:
        return [one for c, p, w in self.cells for one in self.unit.read(w, f"{c}_{p}_{u}").loads]

    def _sums(self, turn: str) -> list[str]:
        first = f"({turn} + team * {self.cut.columns}u)"
        return sums_text(self.builder, self.cut, self.m, first)

    def _sums_reset(self) -> list[str]:
        if self.cut.turns == 1:
            return []
        return [f"sum{c}_{p}_{r} = 0.0;" for c, p, _ in self.cells for r in range(self.m)]

    # Products.

    def _kept(self, u: int) -> list[str]:
        """The numbers of a lane's unit u, of every turn."""
        unit = f"min(member + {u * TEAM}u, n_units - 1u)"
        return [*self._eight(u, unit), *self._numbers(0, u, self.unit.read("w", "").parts)]

    def _eight(self, u: int, unit: str) -> list[str]:
        """Where the numbers of a unit begin, by eights."""
        first = self.unit.first.replace("part", f"({unit} % {self.unit.per_block}u)")
        return [f"let eight{u} = {unit} / {self.unit.per_block}u * {self.length // 8}u + {first};"]

    def _products(self, u: int) -> list[str]:
        """Unit u of a step by the numbers in shared memory."""
        reads = [self.unit.read(w, f"{c}_{p}_{u}") for c, p, w in self.cells]
        is_sure = self.n_units % (TEAM * self.batch) == 0 and self.depth % self.round_depth == 0
        lines = ["{" if is_sure else f"if (unit_first + {u * TEAM}u < n_units) {{"]
        if not self.keeps:
            lines += self._eight(u, f"unit{u}")
        for read in reads:
            lines += read.text
        for r in range(self.m):
            lines += [] if self.keeps else self._numbers(r, u, reads[0].parts)
            lines += self._row(r, u, reads)
        return [*lines, "}"]

    def _numbers(self, r: int, u: int, parts: list[Part]) -> list[str]:
        """What row r of x has for a unit."""
        lines: list[str] = []
        loaded: set[int] = set()
        for number, part in enumerate(parts):
            found = [k for k, _ in part.numbers]
            for k in found:
                if k not in loaded:
                    loaded.add(k)
                    at = f"(eight{u} + {k}u)"
                    run = self.rows.run_at(f"({at} / {QUARTER}u + {r * self.rows.n_runs}u)")
                    lines.append(f"let run{u}_{r}_{k} = {run};")
                    place = f"run{u}_{r}_{k} + {at} % {QUARTER}u"
                    lines.append(f"let x{u}_{r}_{k} = ${NUMBERS}[{place}];")
            pair = f"${NUMBERS}[run{u}_{r}_{found[0]} + {QUARTER}u]"
            lines.append(f"let given{u}_{r}_{number} = bitcast<vec2f>({pair});")
        return lines

    def _row(self, r: int, u: int, reads: list[Read]) -> list[str]:
        """Products of a unit with row r of x."""
        lines: list[str] = []
        for number, ours in enumerate(zip(*(read.parts for read in reads), strict=True)):
            found = [k for k, _ in ours[0].numbers]
            scale = f"given{u}_{r}_{number}"
            for (c, p, _), part in zip(self.cells, ours, strict=True):
                dots = [
                    f"dot4I8Packed({word}, x{u}_{r}_{k}.{lane})"
                    for k, words in part.numbers
                    for word, lane in zip(words, "xy", strict=True)
                ]
                whole = f"f32({' + '.join(dots)})"
                total = f"sum{c}_{p}_{r}"
                factor = f"{part.scale} * {scale}.x"
                lines.append(f"{total} = fma({factor}, {whole}, {total});")
                if part.least:
                    ones = [
                        f"dot4I8Packed(0x01010101u, x{u}_{r}_{k}.{lane})"
                        for k in found
                        for lane in "xy"
                    ]
                    is_run = len(found) == RUN // 8
                    given = f"{scale}.y" if is_run else f"{scale}.x * f32({' + '.join(ones)})"
                    lines.append(f"{total} = fma({part.least}, {given}, {total});")
        return lines
