"""Rows of x as whole numbers in shared memory, as products by blocks take them.

For each run of 32 elements eight words of int8, then its scale and the scale times the sum of the
numbers: 5 pairs of words, so that lanes with neighbouring runs read from different banks.
"""

from __future__ import annotations

from arenite.backends.webgpu.few_rows import TEAM, fused_dot
from arenite.backends.webgpu.products import ProductBuilder
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import FLOAT32, UINT32
from arenite.ir.dim import bounds

#: Elements with one scale of x, lanes that share them as they quantise it, and pairs of words that
#: they take.
RUN = 32
QUARTER = 4
PAIRS = 5

NUMBERS, SQUARES = "numbers", "squares"


class QuantisedRows:
    """Text by which a group of so many threads quantises `held` elements of each of m rows, from
    element `base` on. `gap` pairs of words lie behind each two runs; gains are read by four words
    where `in_fours`."""

    def __init__(
        self,
        builder: ProductBuilder,
        m: int,
        held: int,
        threads: int,
        *,
        gap: int = 0,
        in_fours: bool = True,
    ) -> None:
        assert builder.x is not None
        self.builder, self.x, self.m = builder, builder.x, m
        self.held, self.threads, self.gap, self.in_fours = held, threads, gap, in_fours
        self.n_runs = held // RUN

    @property
    def shared(self) -> list[ir.SharedArray]:
        n_runs = self.m * self.n_runs
        numbers = ir.SharedArray(NUMBERS, UINT32, PAIRS * n_runs + n_runs // 2 * self.gap, 2)
        is_normed = self.builder.gain is not None
        return [numbers, *([ir.SharedArray(SQUARES, FLOAT32, n_runs)] if is_normed else [])]

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.shared)

    def run_at(self, run: str) -> str:
        """Where in shared memory a run begins."""
        return f"({run} * {PAIRS}u" + (f" + {run} / 2u)" if self.gap else ")")

    @property
    def turns(self) -> int:
        """Of loops: over quarters, each with up to four sums of a run by halves; over squares."""
        quarters = -(-self.m * self.held // (8 * self.threads))
        return 2 + quarters * (1 + 4 * QUARTER.bit_length()) + self.n_runs // TEAM + 1

    def lines(self) -> list[str]:
        """A quarter of a run a thread: numbers, and behind those of a run its scale beside the
        product with the sum of numbers."""
        x, gain, threads, depth = self.x, self.builder.gain, self.threads, self.builder.depth
        quarters = self.held // 8
        count = self.m * quarters
        turns = range(min(4, -(-count // threads)))
        # All threads go through, as sums over lanes want them to; all loads come first.
        lines = [f"for (var first = 0u; first < {count}u; first += {len(turns) * threads}u) {{"]
        for t in turns:
            lines += [
                f"let quarter{t} = min(first + {t * threads}u + lane, {count - 1}u);",
                f"let row{t} = min(quarter{t} / {quarters}u, u32($n_rows) - 1u);",
                f"let deep{t} = min(base + quarter{t} % {quarters}u * 8u, {depth - 8}u);",
                f"let source{t} = (row{t} * {x.step}u + u32($x_first) + deep{t}) / 4u;",
                *(f"let given{t}_{k} = {x.array}_four(source{t} + {k}u);" for k in range(2)),
            ]
            if gain is not None:
                first = bounds(gain.first)[1]
                fours = (self._gain_four(gain.array, f"deep{t}", first + 4 * k) for k in range(2))
                lines += [f"let gain{t}_{k} = {four};" for k, four in enumerate(fours)]
        for t in turns:
            lines += ["{", *self._quarter(t, t * threads, count), "}"]
        return [*lines, "}"]

    def _gain_four(self, array: str, deep: str, behind: int) -> str:
        """By four words where the weights are, among which it lies: of one buffer all are."""
        if self.in_fours:
            return f"{array}_four(({deep} + {behind}u) / 4u)"
        words = (f"{array}_word({deep} + {behind + k}u)" for k in range(4))
        return f"vec4u({', '.join(words)})"

    def _quarter(self, turn: int, behind: int, count: int) -> list[str]:
        """Eight elements of x, of which all four lanes of the run know the scale."""
        is_normed = self.builder.gain is not None
        given = [f"bitcast<vec4f>(given{turn}_{k})" for k in range(2)]
        gains = [f" * bitcast<vec4f>(gain{turn}_{k})" if is_normed else "" for k in range(2)]
        squares = " + ".join(fused_dot(one, one) for one in given)
        lines = [
            *(f"let v{k} = {given[k]}{gains[k]};" for k in range(2)),
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
        run, part = f"quarter{turn} / {QUARTER}u", f"quarter{turn} % {QUARTER}u"
        place = self.run_at(run)
        scale = "bitcast<vec2u>(vec2f(scale, scale * total))"
        at_run = [f"${NUMBERS}[{place} + {QUARTER}u] = {scale};"]
        if is_normed:
            lines.append(f"let run_squares = team_add_{QUARTER}(lane, {squares});")
            at_run.append(f"${SQUARES}[{run}] = run_squares;")
        return [
            *lines,
            f"let total = team_add_{QUARTER}(lane, f32({ones}));",
            f"if (first + {behind}u + lane < {count}u) {{",
            f"${NUMBERS}[{place} + {part}] = vec2u(q0, q1);",
            f"if (lane % {QUARTER}u == 0u) {{ {' '.join(at_run)} }}",
            "}",
        ]

    def squares(self) -> list[str]:
        """Each lane's share of the sums of squares of what is held, added to `squares` of a row."""
        if self.builder.gain is None:
            return []
        n_runs = f"min({self.n_runs}u, ({self.builder.depth}u - base) / {RUN}u)"
        return [
            f"for (var run = member; run < {n_runs}; run += {TEAM}u) {{",
            *(f"squares{r} += ${SQUARES}[{r * self.n_runs}u + run];" for r in range(self.m)),
            "}",
        ]

    def norms(self) -> list[str]:
        """What each row is multiplied with, `norm` of a row, where rows are normed."""
        if self.builder.gain is None:
            return []
        return [
            f"let norm{r} = {self.builder.row_scale(f'team_add_{TEAM}(lane, squares{r})')};"
            for r in range(self.m)
        ]


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
