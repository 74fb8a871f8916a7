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

from arenite.backends.webgpu.block_units import Unit, unit_of
from arenite.backends.webgpu.products import SUMS, ProductBuilder, Side
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32, UINT32, index_expr, loop
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
#: Groups from which on one takes several sets of columns, after it has quantised x once.
MANY_GROUPS = 2048


@dataclass(frozen=True, slots=True)
class Cut:
    """A group has `teams` teams, a team so many columns at once; a lane has so many loads under
    way."""

    teams: int
    columns: int
    loads: int = 4

    @property
    def group_columns(self) -> int:
        return self.teams * self.columns


FLOATS, BLOCKS, ANY_BLOCKS = Cut(1, 1), Cut(4, 2), Cut(4, 1)


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
    cut = FLOATS
    text = _float_text(cut, x, w, m, builder.depth, builder.n_columns)
    names = (ir.Name("tile"), ir.Name("n_rows"))
    n_sums = cut.group_columns * m
    result = ir.Name("result")
    column = ir.Name("tile") * cut.group_columns + result // m
    block: ir.Block = (
        ir.Let("n_rows", index_expr(builder.n_rows)),
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
            f"{w.first // per_four}u;"
            for c in columns
        ),
        *(f"let x{r} = {row_text(r)} * {x.step // 4}u + {x.first // 4}u;" for r in rows),
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
    unit = unit_of(w.dtype)
    cut = ANY_BLOCKS if unit.functions else BLOCKS
    depth, n_columns = builder.depth, builder.n_columns
    length = w.dtype.block_length
    if unit.is_wide and w.dtype.nbytes((depth,)) % 16:
        raise NotCompiled(f"rows of {depth} elements of {w.dtype} are not done on WebGPU")
    # Rounds of x that fit, in whole blocks; where there are several, sums go on in the next.
    round_depth = min(depth, max(length, ROOM // m // length * length))
    n_rounds = -(-depth // round_depth)
    n_sets = -(-n_columns // cut.group_columns)
    sets = max(1, n_sets // MANY_GROUPS) if n_rounds == 1 else 1
    names = (ir.Name("tile"), ir.Name("n_rows"))
    arrays = (x.array, *((w.array,) if unit.is_wide else ()))
    functions = unit.functions.replace("$w", w.array)
    quantise = _quantise_text(x, m, depth, round_depth, cut.teams * TEAM)
    dots = _dots_text(cut, unit, w, m, depth, round_depth, n_columns, sets)
    begin = [f"let team = lane / {TEAM}u; let member = lane % {TEAM}u;"]
    finish = [*_sums_text(cut, m)]
    one_round = [
        f"for (var base = 0u; base < {depth}u; base += {round_depth}u) {{",
        *quantise,
        "workgroupBarrier();",
        *dots,
        "workgroupBarrier();",
        "}",
    ]
    zeros = [f"var sum{c}_{r} = 0.0;" for c in range(cut.columns) for r in range(m)]
    n_sums = cut.group_columns * m
    result, tile_set = ir.Name("result"), ir.Name("tile_set")
    column = tile_set * cut.group_columns + result // m
    results = builder.results(n_sums, result % m if m > 1 else ir.index(0), column)
    rows = ir.Let("n_rows", index_expr(builder.n_rows))
    if sets == 1:
        text = "\n".join([*begin, *zeros, *one_round, *finish])
        uses = (*names, tile_set)
        block: ir.Block = (
            rows,
            ir.Let("tile_set", ir.Name("tile")),
            ir.Foreign(
                text,
                uses,
                (x.array, w.array),
                (SUMS, NUMBERS, SCALES),
                arrays,
                (TEAM,),
                functions,
            ),
            ir.Barrier(),
            results,
        )
    else:
        prepare = "\n".join(["{ let base = 0u;", *quantise, "}"])
        text = "\n".join(["{", *begin, *zeros, "let base = 0u;", *dots, *finish, "}"])
        each: ir.Block = (
            ir.Let("tile_set", ir.Name("tile") * sets + ir.Name("set")),
            ir.Foreign(
                text,
                (tile_set,),
                (w.array, NUMBERS, SCALES),
                (SUMS,),
                arrays,
                (TEAM,),
                functions,
            ),
            ir.Barrier(),
            results,
            ir.Barrier(),
        )
        block = (
            rows,
            ir.Foreign(prepare, names, (x.array,), (NUMBERS, SCALES), (x.array,)),
            ir.Barrier(),
            loop("set", sets, *each, vector=False),
        )
    shared = [
        ir.SharedArray(NUMBERS, UINT32, m * round_depth // 8, 2),
        ir.SharedArray(SCALES, FLOAT32, m * round_depth // RUN, 2),
        ir.SharedArray(SUMS, FLOAT32, n_sums),
    ]
    return builder.kernel_of(ceildiv(n_sets, sets), block, cut.teams * TEAM, shared)


def quantised_text(inverse: str = "inverse") -> list[str]:
    """Of a run of x, v0 .. v7, the scale as `ir.ops.blocks` says; and what it is multiplied with.
    The greatest by bits: NaN is the greatest of all, and the scale is then NaN."""
    bits = [f"(bitcast<vec4u>(v{k}) & vec4u(0x7fffffffu))" for k in range(8)]
    most = bits[0]
    for one in bits[1:]:
        most = f"max({most}, {one})"
    return [
        f"let most4 = {most};",
        "let most = max(max(most4.x, most4.y), max(most4.z, most4.w));",
        "let spread = bitcast<f32>(most | parameters.zero) / 127.0;",
        # 127 * 2^-126, below which a scale would be no normal number.
        "let is_zero = most < 0x03fe0000u; let is_finite = most < 0x7f800000u;",
        "let scale = select(spread, 0.0, is_zero);",
        f"let {inverse} = select(1.0 / spread, 0.0, is_zero || !is_finite);",
    ]


def _quantise_text(x: Side, m: int, depth: int, round_depth: int, threads: int) -> list[str]:
    """Runs of x from `base` on, one a thread: numbers of eight to an element, scales beside their
    products with the sum of numbers."""
    runs = round_depth // RUN
    lines = [
        f"for (var run = lane; run < {m * runs}u; run += {threads}u) {{",
        f"let row = run / {runs}u; let at = base + (run % {runs}u) * {RUN}u;",
        f"let source = (min(row, u32($n_rows) - 1u) * {x.step}u + {x.first}u + "
        f"min(at, {depth - RUN}u)) / 4u;",
        *(f"let v{k} = bitcast<vec4f>({x.array}_four(source + {k}u));" for k in range(8)),
        *quantised_text(),
        "var total = 0;",
    ]
    for k in range(4):
        for half in range(2):
            number = f"vec4i(round(v{2 * k + half} * inverse))"
            number = f"select(vec4i(), {number}, is_finite)"
            lines.append(f"let q{2 * k + half} = pack4xI8({number});")
            lines.append(f"total += dot4I8Packed(q{2 * k + half}, 0x01010101u);")
        lines.append(f"${NUMBERS}[run * 4u + {k}u] = vec2u(q{2 * k}, q{2 * k + 1});")
    return [*lines, f"${SCALES}[run] = vec2f(scale, scale * f32(total));", "}"]


def _dots_text(
    cut: Cut,
    unit: Unit,
    w: Side,
    m: int,
    depth: int,
    round_depth: int,
    n_columns: int,
    sets: int,
) -> list[str]:
    """The blocks of a round by the numbers in shared memory."""
    dtype = w.dtype
    row_nbytes, eights = dtype.nbytes((depth,)), round_depth // 8
    n_units = round_depth // dtype.block_length * unit.per_block
    lines = [
        f"let column = u32($tile_set) * {cut.group_columns}u + team * {cut.columns}u;",
        *(
            f"let row{c} = min(column + {c}u, {n_columns - 1}u) * {row_nbytes}u;"
            for c in range(cut.columns)
        ),
        f"let n_units = min({n_units}u, "
        f"({depth}u - base) / {dtype.block_length}u * {unit.per_block}u);",
        f"for (var i = member; i < n_units; i += {TEAM}u) {{",
        f"let block = i / {unit.per_block}u; let part = i % {unit.per_block}u;",
        f"let first8 = block * {dtype.block_length // 8}u + {unit.first};",
        f"let begin = (base / {dtype.block_length}u + block) * {dtype.block_nbytes}u;",
    ]
    parts = []
    for c in range(cut.columns):
        lines.append(f"let at{c} = row{c} + begin;")
        text, found = unit.read(w.array, c)
        lines += text
        parts.append(found)
    for r in range(m):
        loaded: set[int] = set()
        for number, ours in enumerate(zip(*parts, strict=True)):
            eight_numbers = [k for k, _ in ours[0].numbers]
            for k in eight_numbers:
                if k not in loaded:
                    loaded.add(k)
                    lines.append(f"let x{r}_{k} = ${NUMBERS}[{r * eights}u + first8 + {k}u];")
            scale = f"given{r}_{number}"
            place = f"{r * eights // 4}u + (first8 + {eight_numbers[0]}u) / 4u"
            lines.append(f"let {scale} = ${SCALES}[{place}];")
            is_run = len(eight_numbers) == RUN // 8
            for c, part in enumerate(ours):
                dots = [
                    f"dot4I8Packed({word}, x{r}_{k}.{lane})"
                    for k, words in part.numbers
                    for word, lane in zip(words, "xy", strict=True)
                ]
                lines.append(f"sum{c}_{r} += ({part.scale} * {scale}.x) * f32({' + '.join(dots)});")
                if part.least:
                    ones = [
                        f"dot4I8Packed(0x01010101u, x{r}_{k}.{lane})"
                        for k in eight_numbers
                        for lane in "xy"
                    ]
                    total = f"{scale}.y" if is_run else f"{scale}.x * f32({' + '.join(ones)})"
                    lines.append(f"sum{c}_{r} += {part.least} * ({total});")
    return [*lines, "}"]


def few_rows_of(builder: ProductBuilder) -> tuple[int, int]:
    """The fewest and the most rows that there may be."""
    return bounds(builder.n_rows)
