"""Products of a few rows: each weight is read once, and that is all the time they take.

    floats     a team of 32 lanes has a column, which is a row of the weights: lane k of them reads
               four words, then those 32 times four words further; x comes from the caches
    blocks     a group quantises its rows of x into shared memory, then teams read blocks as they
               are in the file (`block_units`), and multiply bytes

What the lanes of a team have is summed by the device where it has sums over lanes, else through
shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.webgpu.block_parts import Read
from arenite.backends.webgpu.block_units import unit_of
from arenite.backends.webgpu.products import SUMS, ProductBuilder, Side
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32, UINT32
from arenite.dtype import DType
from arenite.errors import NotCompiled
from arenite.ir.dim import bounds, ceildiv

#: Rows that are few, and lanes that share a column.
MOST_ROWS = 8
TEAM = 32
#: Elements with one scale of x.
RUN = 32
#: Elements of x that shared memory holds at once; quantised they take 1.25 bytes each.
ROOM = 8192
#: Lanes that share a run of x, as they quantise it.
QUARTER = 4
#: Elements of a row from which on a group has more threads, to quantise it; columns from which on a
#: team takes two; and words that a lane has under way.
LONG_ROW = 4096
MANY_COLUMNS = 8192
LOADED_WORDS = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """A group has `teams` teams, a team so many columns at once; a lane has so many loads under
    way."""

    teams: int
    columns: int
    loads: int = 1

    @property
    def group_columns(self) -> int:
        return self.teams * self.columns


#: Of one row, and of several, for which a lane takes more columns beside each other.
FLOATS, FLOATS_OF_ROWS = Cut(1, 1, 8), Cut(1, 4, 1)


def can_be_few(builder: ProductBuilder) -> bool:
    """Whether the sides lie so that a kernel for few rows can read them."""
    x, w = builder.x, builder.w
    if not builder.is_plain or x is None or w is None or not x.is_in_fours(builder.depth):
        return False
    if w.dtype.is_block:
        return w.deep == 1 and w.first == 0 and w.step == builder.depth
    return w.is_in_fours(builder.depth)


def build_few_rows(builder: ProductBuilder, most_rows: int) -> Built:
    """The kernel for up to so many rows."""
    assert builder.x is not None
    assert builder.w is not None
    if builder.w.dtype.is_block:
        return _blocks(builder, builder.x, builder.w, most_rows)
    return _floats(builder, builder.x, builder.w, most_rows)


def _floats(builder: ProductBuilder, x: Side, w: Side, m: int) -> Built:
    cut = FLOATS if m == 1 else FLOATS_OF_ROWS
    text = _float_text(cut, x, w, m, builder.depth, builder.n_columns)
    names = tuple(map(ir.Name, ("tile", "n_rows", "x_first")))
    n_sums = cut.group_columns * m
    result = ir.Name("result")
    column = ir.Name("tile") * cut.group_columns + result // m
    block: ir.Block = (
        *builder.rows_of_x(),
        ir.Foreign(text, names, (x.array, w.array), (SUMS,), (x.array, w.array), (TEAM,)),
        ir.Barrier(),
        builder.results(n_sums, result % m if m > 1 else ir.index(0), column),
    )
    n_tiles = ceildiv(builder.n_columns, cut.group_columns)
    shared = [ir.SharedArray(SUMS, FLOAT32, n_sums)]
    return builder.kernel_of(n_tiles, block, cut.teams * TEAM, shared)


def halves_text(dtype: DType, word: str) -> str:
    """Two floats of 16 bits as a vec2f."""
    if dtype.name == "bfloat16":
        return f"vec2f(bitcast<f32>({word} << 16u), bitcast<f32>({word} & 0xffff0000u))"
    return f"unpack2x16float({word})"


def _float_text(cut: Cut, x: Side, w: Side, m: int, depth: int, n_columns: int) -> str:
    per_four = 128 // w.dtype.bits
    steps = depth // per_four
    whole = steps // (TEAM * cut.loads)
    columns, rows = range(cut.columns), range(m)
    lines = [
        f"let team = lane / {TEAM}u; let member = lane % {TEAM}u;",
        f"let first = u32($tile) * {cut.group_columns}u + team * {cut.columns}u;",
        *(
            f"let w{c} = min(first + {c}u, {n_columns - 1}u) * {w.step // per_four}u + "
            f"{bounds(w.first)[1] // per_four}u;"
            for c in columns
        ),
        *(f"let x{r} = {row_text(r)} * {x.step // 4}u + u32($x_first) / 4u;" for r in rows),
        *(f"var sum{c}_{r} = 0.0;" for c in columns for r in rows),
    ]

    def step(loads: int, at: str) -> list[str]:
        made = []
        for k in range(loads):
            made.append(f"let j{k} = {at} + {k * TEAM}u;")
            made += [f"let w{c}_{k} = {w.array}_four(w{c} + j{k});" for c in columns]
        for k in range(loads):
            for r in rows:
                for part in range(per_four // 4):
                    place = f"x{r} + {per_four // 4}u * j{k} + {part}u"
                    value = f"x{k}_{r}_{part}"
                    made.append(f"let {value} = bitcast<vec4f>({x.array}_four({place}));")
                    for c in columns:
                        four = f"bitcast<vec4f>(w{c}_{k})"
                        if w.dtype.bits == 16:
                            words = (f"w{c}_{k}.{'xyzw'[2 * part + i]}" for i in range(2))
                            four = f"vec4f({', '.join(halves_text(w.dtype, i) for i in words)})"
                        made.append(f"sum{c}_{r} += dot({four}, {value});")
        return made

    if whole:
        lines += [
            f"for (var i = 0u; i < {whole}u; i++) {{",
            *step(cut.loads, f"i * {TEAM * cut.loads}u + member"),
            "}",
        ]
    if steps % (TEAM * cut.loads):
        first = whole * TEAM * cut.loads
        lines += [
            f"for (var i = {first}u + member; i < {steps}u; i += {TEAM}u) {{",
            *step(1, "i"),
            "}",
        ]
    return "\n".join([*lines, *_sums_text(cut, m)])


def row_text(row: int) -> str:
    """A row of x, or the last one."""
    return f"min({row}u, u32($n_rows) - 1u)" if row else "0u"


def _sums_text(cut: Cut, m: int) -> list[str]:
    """What the lanes of teams have, summed and put where results are read."""
    lines = []
    for c in range(cut.columns):
        for r in range(m):
            name, place = f"sum{c}_{r}", f"(team * {cut.columns}u + {c}u) * {m}u + {r}u"
            lines += [
                f"{name} = team_add_{TEAM}(lane, {name});",
                f"if (member == 0u) {{ ${SUMS}[{place}] = {name}; }}",
            ]
    return lines


# Blocks.

NUMBERS, SCALES = "numbers", "scales"


def _blocks(builder: ProductBuilder, x: Side, w: Side, m: int) -> Built:
    text = _BlockText(builder, x, w, m)
    unit, cut = text.unit, text.cut
    names = tuple(map(ir.Name, ("tile", "n_rows", "x_first")))
    n_sums = cut.group_columns * m
    result = ir.Name("result")
    column = ir.Name("tile") * cut.group_columns + result // m
    block: ir.Block = (
        *builder.rows_of_x(),
        ir.Foreign(
            "\n".join(text.lines()),
            names,
            (x.array, w.array),
            (SUMS, NUMBERS, SCALES),
            (x.array, *((w.array,) if unit.is_wide else ())),
            (QUARTER, TEAM),
            unit.functions.replace("$w", w.array),
        ),
        ir.Barrier(),
        builder.results(n_sums, result % m if m > 1 else ir.index(0), column),
    )
    shared = [
        ir.SharedArray(NUMBERS, UINT32, m * text.round_depth // 8, 2),
        ir.SharedArray(SCALES, FLOAT32, m * text.round_depth // RUN, 2),
        ir.SharedArray(SUMS, FLOAT32, n_sums),
    ]
    n_tiles = ceildiv(builder.n_columns, cut.group_columns)
    return builder.kernel_of(n_tiles, block, cut.teams * TEAM, shared)


class _BlockText:
    """The text of a product by blocks: what lanes read first is under way while x is quantised,
    and from then on what they read next while they multiply."""

    def __init__(self, builder: ProductBuilder, x: Side, w: Side, m: int) -> None:
        self.x, self.w, self.m = x, w, m
        self.depth, self.n_columns = builder.depth, builder.n_columns
        self.unit = unit_of(w.dtype)
        self.length = w.dtype.block_length
        if self.unit.is_wide and w.dtype.nbytes((self.depth,)) % 16:
            raise NotCompiled(f"rows of {self.depth} elements of {w.dtype} are not done on WebGPU")
        # Elements of x that are held at once, in whole blocks; sums go on in the next round.
        self.round_depth = min(self.depth, max(self.length, ROOM // m // self.length * self.length))
        many = self.n_columns >= MANY_COLUMNS and not self.unit.functions
        self.cut = Cut(8 if self.depth >= LONG_ROW else 4, 2 if many else 1)
        self.n_units = self.round_depth // self.length * self.unit.per_block
        self.batch = self._units_at_once()

    def _units_at_once(self) -> int:
        """Units of a lane whose words are loaded together, for each of its columns."""
        loads = self.unit.read(self.w.array, "").loads
        n_words = sum(4 if kind == "vec4u" else 1 for _, kind, _ in loads) * self.cut.columns
        most = max(1, LOADED_WORDS // n_words) if n_words else 1
        wanted = -(-self.n_units // TEAM)
        batch = 1
        while 2 * batch <= min(most, wanted):
            batch *= 2
        return batch

    def lines(self) -> list[str]:
        cells = [(c, r) for c in range(self.cut.columns) for r in range(self.m)]
        row_nbytes = self.w.dtype.nbytes((self.depth,))
        lines = [
            f"let team = lane / {TEAM}u; let member = lane % {TEAM}u;",
            f"let column = u32($tile) * {self.cut.group_columns}u + team * {self.cut.columns}u;",
            *(
                f"let row{c} = min(column + {c}u, {self.n_columns - 1}u) * {row_nbytes}u;"
                for c in range(self.cut.columns)
            ),
            *(f"var sum{c}_{r} = 0.0;" for c, r in cells),
        ]
        one_round = [
            f"let n_units = min({self.n_units}u, "
            f"({self.depth}u - base) / {self.length}u * {self.unit.per_block}u);",
            *self._batches(),
        ]
        if self.round_depth == self.depth:
            return [*lines, "let base = 0u;", *one_round, *_sums_text(self.cut, self.m)]
        return [
            *lines,
            f"for (var base = 0u; base < {self.depth}u; base += {self.round_depth}u) {{",
            *one_round,
            "workgroupBarrier();",
            "}",
            *_sums_text(self.cut, self.m),
        ]

    def _batches(self) -> list[str]:
        """One round: the first batch is loaded, x quantised, then each multiplied."""
        step = TEAM * self.batch
        quantised = [*self._quantise(), "workgroupBarrier();"]
        units = range(self.batch)
        loads = [one for u in units for one in self._reads(u)]
        if not loads:
            return [
                *quantised,
                f"for (var i = 0u; i < n_units; i += {step}u) {{",
                *self._places("i"),
                *(line for u in units for line in self._products(u)),
                "}",
            ]
        if self.n_units <= step:
            return [
                *self._places("0u"),
                *(f"let {name} = {value};" for name, _, value in loads),
                *quantised,
                *(line for u in units for line in self._products(u)),
            ]
        return [
            *(f"var next_{name} = {kind}();" for name, kind, _ in loads),
            "{",
            *self._places("0u"),
            *(f"next_{name} = {value};" for name, _, value in loads),
            "}",
            *quantised,
            f"for (var i = 0u; i < n_units; i += {step}u) {{",
            *(f"let {name} = next_{name};" for name, _, _ in loads),
            "{",
            *self._places(f"i + {step}u"),
            *(f"next_{name} = {value};" for name, _, value in loads),
            "}",
            *self._places("i"),
            *(line for u in units for line in self._products(u)),
            "}",
        ]

    def _places(self, first: str) -> list[str]:
        """Where the units of a batch begin; behind the last one it is that again."""
        unit, lines = self.unit, []
        for u in range(self.batch):
            block = f"unit{u} / {unit.per_block}u"
            lines += [
                f"let unit{u} = min({first} + {u * TEAM}u + member, n_units - 1u);",
                f"let first{u} = (base / {self.length}u + {block}) * {self.w.dtype.block_nbytes}u;",
            ]
            for c in range(self.cut.columns):
                lines.append(f"let at{c}_{u} = row{c} + first{u};")
                lines.append(f"let part{c}_{u} = unit{u} % {unit.per_block}u;")
        return lines

    def _reads(self, u: int) -> list[tuple[str, str, str]]:
        columns = range(self.cut.columns)
        return [one for c in columns for one in self.unit.read(self.w.array, f"{c}_{u}").loads]

    def _quantise(self) -> list[str]:
        """Runs of x from `base` on, a quarter a thread: numbers of eight to an element, scales
        beside their products with the sum of numbers."""
        x, threads = self.x, self.cut.teams * TEAM
        quarters = self.round_depth // 8
        count = self.m * quarters
        turns = range(min(4, -(-count // threads)))
        # All threads go through, as sums over lanes want them to; all loads come first.
        lines = [f"for (var first = 0u; first < {count}u; first += {len(turns) * threads}u) {{"]
        for t in turns:
            lines += [
                f"let quarter{t} = min(first + {t * threads}u + lane, {count - 1}u);",
                f"let row{t} = min(quarter{t} / {quarters}u, u32($n_rows) - 1u);",
                f"let deep{t} = min(base + quarter{t} % {quarters}u * 8u, {self.depth - 8}u);",
                f"let source{t} = (row{t} * {x.step}u + u32($x_first) + deep{t}) / 4u;",
                *(f"let given{t}_{k} = {x.array}_four(source{t} + {k}u);" for k in range(2)),
            ]
        for t in turns:
            lines += ["{", *self._quarter(t, t * threads, count), "}"]
        return [*lines, "}"]

    def _quarter(self, turn: int, behind: int, count: int) -> list[str]:
        """Eight elements of x, of which all four lanes of the run know the scale."""
        lines = [
            *(f"let v{k} = bitcast<vec4f>(given{turn}_{k});" for k in range(2)),
            *greatest_text(2),
            # By halves, which are floats as they are: bits of NaN would be lost in a comparison.
            f"let wide = team_max_{QUARTER}(lane, f32(most >> 16u));",
            "let fine = select(0.0, f32(most & 0xffffu), f32(most >> 16u) == wide);",
            f"let run_most = (u32(wide) << 16u) | u32(team_max_{QUARTER}(lane, fine));",
            *scale_text("run_most"),
        ]
        for k in range(2):
            number = f"select(vec4i(), vec4i(round(v{k} * inverse)), is_finite)"
            lines.append(f"let q{k} = pack4xI8({number});")
        ones = " + ".join(f"dot4I8Packed(q{k}, 0x01010101u)" for k in range(2))
        return [
            *lines,
            f"let total = team_add_{QUARTER}(lane, f32({ones}));",
            f"if (first + {behind}u + lane < {count}u) {{",
            f"${NUMBERS}[quarter{turn}] = vec2u(q0, q1);",
            f"if (lane % {QUARTER}u == 0u) {{ ${SCALES}[quarter{turn} / 4u] = "
            "vec2f(scale, scale * total); }",
            "}",
        ]

    def _products(self, u: int) -> list[str]:
        """Unit u of a batch by the numbers in shared memory."""
        columns = range(self.cut.columns)
        eights = self.round_depth // 8
        reads = [self.unit.read(self.w.array, f"{c}_{u}") for c in columns]
        first = self.unit.first.replace("part", f"part0_{u}")
        block = f"unit{u} / {self.unit.per_block}u"
        is_sure = self.n_units % (TEAM * self.batch) == 0 and self.depth % self.round_depth == 0
        at = "i" if self.n_units > TEAM * self.batch or not reads[0].loads else "0u"
        lines = ["{" if is_sure else f"if ({at} + {u * TEAM}u + member < n_units) {{"]
        lines.append(f"let eight = {block} * {self.length // 8}u + {first};")
        for read in reads:
            lines += read.text
        for r in range(self.m):
            lines += self._row(r, reads, eights)
        return [*lines, "}"]

    def _row(self, r: int, reads: list[Read], eights: int) -> list[str]:
        """What row r of x has of a unit."""
        lines: list[str] = []
        loaded: set[int] = set()
        for number, ours in enumerate(zip(*(read.parts for read in reads), strict=True)):
            found = [k for k, _ in ours[0].numbers]
            for k in found:
                if k not in loaded:
                    loaded.add(k)
                    lines.append(f"let x{r}_{k} = ${NUMBERS}[{r * eights}u + eight + {k}u];")
            scale = f"given{r}_{number}"
            place = f"{r * eights // 4}u + (eight + {found[0]}u) / 4u"
            lines.append(f"let {scale} = ${SCALES}[{place}];")
            for c, part in enumerate(ours):
                dots = [
                    f"dot4I8Packed({word}, x{r}_{k}.{lane})"
                    for k, words in part.numbers
                    for word, lane in zip(words, "xy", strict=True)
                ]
                whole = f"f32({' + '.join(dots)})"
                lines.append(f"sum{c}_{r} += ({part.scale} * {scale}.x) * {whole};")
                if part.least:
                    ones = [
                        f"dot4I8Packed(0x01010101u, x{r}_{k}.{lane})"
                        for k in found
                        for lane in "xy"
                    ]
                    is_run = len(found) == RUN // 8
                    total = f"{scale}.y" if is_run else f"{scale}.x * f32({' + '.join(ones)})"
                    lines.append(f"sum{c}_{r} += {part.least} * ({total});")
        return lines


def greatest_text(fours: int) -> list[str]:
    """The greatest of v0, v1, ... without sign, by bits: NaN is the greatest of all."""
    bits = [f"(bitcast<vec4u>(v{k}) & vec4u(0x7fffffffu))" for k in range(fours)]
    most = bits[0]
    for one in bits[1:]:
        most = f"max({most}, {one})"
    return [
        f"let most4 = {most};",
        "let most = max(max(most4.x, most4.y), max(most4.z, most4.w));",
    ]


def scale_text(most: str) -> list[str]:
    """The scale of a run by the bits of its greatest number, as `ir.ops.blocks` says; and what
    numbers are multiplied with."""
    return [
        f"let spread = bitcast<f32>({most} | parameters.zero) / 127.0;",
        # 127 * 2^-126, below which a scale would be no normal number.
        f"let is_zero = {most} < 0x03fe0000u; let is_finite = {most} < 0x7f800000u;",
        "let scale = select(spread, 0.0, is_zero);",
        "let inverse = select(1.0 / spread, 0.0, is_zero || !is_finite);",
    ]
