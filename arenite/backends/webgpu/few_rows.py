"""Products of a few rows: each weight is read once, and that is all the time they take.

    floats     a team of 32 lanes has a column, which is a row of the weights: lane k of them reads
               four words, then those 32 times four words further; x comes from the caches
    blocks     see `block_rows`

What the lanes of a team have is summed by the device where it has sums over lanes, else through
shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.backends.webgpu.products import SUMS, ProductBuilder, Side
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32
from arenite.dtype import DType
from arenite.ir.dim import bounds, ceildiv

#: Rows that are few, and lanes that share a column.
MOST_ROWS = 8
TEAM = 32


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


def build_float_rows(builder: ProductBuilder, m: int) -> Built:
    """The kernel for up to m rows by floats."""
    x, w = builder.x, builder.w
    assert x is not None
    assert w is not None
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
    return "\n".join([*lines, *sums_text(cut, m)])


def row_text(row: int) -> str:
    """A row of x, or the last one."""
    return f"min({row}u, u32($n_rows) - 1u)" if row else "0u"


def sums_text(cut: Cut, m: int) -> list[str]:
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
