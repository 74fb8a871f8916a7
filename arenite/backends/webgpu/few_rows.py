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
from arenite.ir.dim import Dim, bounds, ceildiv

#: Lanes that share a column.
TEAM = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """A group has `teams` teams, a team so many columns at once, one set of them after another in
    `turns`; a lane has so many loads under way."""

    teams: int
    columns: int
    loads: int = 1
    turns: int = 1

    @property
    def group_columns(self) -> int:
        return self.teams * self.columns * self.turns


#: Of one row, and of several, for which a lane takes more columns beside each other.
FLOATS, FLOATS_OF_ROWS = Cut(1, 1, 8), Cut(1, 4, 1)


def can_be_few(builder: ProductBuilder) -> bool:
    """Whether the sides lie so that a kernel for few rows can read them."""
    x = builder.x
    if not builder.is_plain or x is None or not x.is_in_fours(builder.depth):
        return False
    return all(lies_in_rows(builder, w) for w in builder.weights)


def lies_in_rows(builder: ProductBuilder, w: Side) -> bool:
    """Whether a column is a row of the weights, in whole blocks or by four words."""
    if w.dtype.is_block:
        return w.deep == 1 and w.first == 0 and w.step == builder.depth
    return w.is_in_fours(builder.depth)


def build_float_rows(builder: ProductBuilder, m: int, n_blocks: Dim = 1) -> Built:
    """The kernel for up to m rows by floats, or for so many blocks of them."""
    cut = FLOATS if m == 1 else FLOATS_OF_ROWS
    n_sums = cut.group_columns * m
    row, column = place_of_result(m, cut)
    arrays = builder.arrays
    shared = [ir.SharedArray(SUMS, FLOAT32, n_sums * len(builder.weights))]
    block: ir.Block = (
        *builder.few_rows_of_x(m, n_blocks),
        ir.Foreign(
            _float_text(builder, cut, m),
            FEW_ROWS,
            arrays,
            (SUMS,),
            arrays,
            (TEAM,),
            accesses=builder.accesses(),
            turns=ir.index(_turns(builder, cut, m)),
        ),
        ir.Barrier(),
        builder.results(n_sums, row, column),
    )
    n_tiles = ceildiv(builder.n_columns, cut.group_columns) * n_blocks
    return builder.kernel_of(n_tiles, block, cut.teams * TEAM, shared)


#: What text of a few rows asks for.
FEW_ROWS = tuple(map(ir.Name, ("column_tile", "n_rows", "x_first")))


def place_of_result(m: int, cut: Cut) -> tuple[ir.Expr, ir.Expr]:
    """The row and the column of a result in shared memory, of which those of a column lie side by
    side."""
    result = ir.Name("result")
    row = ir.Name("first_row") + (result % m if m > 1 else 0)
    return row, ir.Name("column_tile") * cut.group_columns + result // m


def halves_text(dtype: DType, word: str) -> str:
    """Two floats of 16 bits as a vec2f."""
    if dtype.name == "bfloat16":
        return f"vec2f(bitcast<f32>({word} << 16u), bitcast<f32>({word} & 0xffff0000u))"
    return f"unpack2x16float({word})"


def _float_text(builder: ProductBuilder, cut: Cut, m: int) -> str:
    x, gain, n_columns = builder.x, builder.gain, builder.n_columns
    assert x is not None
    dtype = builder.weights[0].dtype
    per_four = 128 // dtype.bits
    steps = builder.depth // per_four
    whole = steps // (TEAM * cut.loads)
    rows = range(m)
    #: A lane reads these rows of weights: a column of each product, then the next.
    cells = [(c, p, w) for c in range(cut.columns) for p, w in enumerate(builder.weights)]
    lines = [
        f"let team = lane / {TEAM}u; let member = lane % {TEAM}u;",
        f"let first = u32($column_tile) * {cut.group_columns}u + team * {cut.columns}u;",
        *(
            f"let w{c}_{p} = min(first + {c}u, {n_columns - 1}u) * {w.step // per_four}u + "
            f"{bounds(w.first)[1] // per_four}u;"
            for c, p, w in cells
        ),
        *(f"let x{r} = {row_text(r)} * {x.step // 4}u + u32($x_first) / 4u;" for r in rows),
        *declared_sums(builder, cut, m),
    ]

    def step(loads: int, at: str) -> list[str]:
        made = []
        for k in range(loads):
            made.append(f"let j{k} = {at} + {k * TEAM}u;")
            made += [f"let w{c}_{p}_{k} = {w.array}_four(w{c}_{p} + j{k});" for c, p, w in cells]
        for k in range(loads):
            for part in range(per_four // 4):
                for c, p, _ in cells:
                    four = f"bitcast<vec4f>(w{c}_{p}_{k})"
                    if dtype.bits == 16:
                        words = (f"w{c}_{p}_{k}.{'xyzw'[2 * part + i]}" for i in range(2))
                        four = f"vec4f({', '.join(halves_text(dtype, i) for i in words)})"
                    made.append(f"let f{c}_{p}_{k}_{part} = {four};")
                place = f"{per_four // 4}u * j{k} + {part}u"
                if gain is not None:
                    at_gain = f"{bounds(gain.first)[1] // 4}u + {place}"
                    made.append(f"let g{k}_{part} = bitcast<vec4f>({gain.array}_four({at_gain}));")
                for r in rows:
                    value = f"x{k}_{r}_{part}"
                    made.append(f"let {value} = bitcast<vec4f>({x.array}_four(x{r} + {place}));")
                    if gain is not None:
                        made.append(f"squares{r} += {fused_dot(value, value)};")
                        made.append(f"let y{k}_{r}_{part} = {value} * g{k}_{part};")
                        value = f"y{k}_{r}_{part}"
                    for c, p, _ in cells:
                        total = fused_dot(f"f{c}_{p}_{k}_{part}", value)
                        made.append(f"sum{c}_{p}_{r} += {total};")
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
    norms = [
        f"let norm{r} = {builder.row_scale(f'team_add_{TEAM}(lane, squares{r})')};"
        for r in rows
        if gain is not None
    ]
    return "\n".join([*lines, *norms, *sums_text(builder, cut, m, f"team * {cut.columns}u")])


def _turns(builder: ProductBuilder, cut: Cut, m: int) -> int:
    """Of all loops: over the depth, then what is left of it, and the sums of a team."""
    per_four = 128 // builder.weights[0].dtype.bits
    return (
        builder.depth // (per_four * TEAM * cut.loads) + cut.loads + 2 + sum_turns(builder, cut, m)
    )


def sum_turns(builder: ProductBuilder, cut: Cut, m: int) -> int:
    """Of the sums of a team by halves: of each column, product and row, and of each row's norm."""
    return TEAM.bit_length() * m * (cut.columns * len(builder.weights) + 1)


def fused_dot(a: str, b: str) -> str:
    """The products of four numbers, added up in an order that is the same in every kernel."""
    total = f"{a}.w * {b}.w"
    for lane in "zyx":
        total = f"fma({a}.{lane}, {b}.{lane}, {total})"
    return total


def row_text(row: int) -> str:
    """A row of x, or the last one."""
    return f"min({row}u, u32($n_rows) - 1u)" if row else "0u"


def declared_sums(builder: ProductBuilder, cut: Cut, m: int) -> list[str]:
    """Variables for sums: of a column, a product and a row; and of the squares of a row."""
    products = range(len(builder.weights))
    sums = [
        f"var sum{c}_{p}_{r} = 0.0;" for c in range(cut.columns) for p in products for r in range(m)
    ]
    return sums + [f"var squares{r} = 0.0;" for r in range(m) if builder.gain is not None]


def sums_text(builder: ProductBuilder, cut: Cut, m: int, first: str) -> list[str]:
    """What the lanes of teams have, summed, multiplied with `norm` of a row where there is one, and
    put where results are read; `first` is the place of the first column in the group."""
    lines = []
    for c in range(cut.columns):
        for p in range(len(builder.weights)):
            for r in range(m):
                name = f"sum{c}_{p}_{r}"
                place = f"({first} + {c}u) * {m}u + {p * cut.group_columns * m + r}u"
                normed = name if builder.gain is None else f"{name} * norm{r}"
                lines += [
                    f"{name} = team_add_{TEAM}(lane, {name});",
                    f"if (member == 0u) {{ ${SUMS}[{place}] = {normed}; }}",
                ]
    return lines
