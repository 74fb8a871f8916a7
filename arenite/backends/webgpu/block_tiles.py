"""Products of many rows by blocks, in bytes: a group has a rectangle of results, as `many_rows`.

A step takes one run of 32 elements, or two where rectangles are small: half of the threads each.
Two threads quantise half of a run each for a row of x, and read half of it each for a column of
weights, as `block_bytes` describes any type:

    shared memory   words[8][rows], of int8; scales; sums of numbers times the scale, one for each
                    scale that the weights have in a run
    a thread        8 x 8 results, 8 x 4 at a time: 8 products of four bytes each, then scales

What the next step needs is read while this one is multiplied.
"""

from __future__ import annotations

from arenite.backends.webgpu.block_bytes import block_functions, elements_of_a_scale, has_least
from arenite.backends.webgpu.many_rows import (
    OWN,
    SQUARE,
    n_squares,
    parts,
    rectangle,
    row_parts,
    squares,
)
from arenite.backends.webgpu.products import SUMS, ProductBuilder
from arenite.backends.webgpu.quantised_rows import RUN, greatest_text, scale_text
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32, UINT32
from arenite.dtype.blocks import block_type
from arenite.ir.dim import bounds

#: Words of a run, elements that a thread reads of it, and threads that share it.
WORDS = RUN // 4
HALF = RUN // 2
PAIR = 2

_X, _W = "of_rows", "of_columns"
_X_SCALES, _X_SUMS, _W_SCALES, _W_LEASTS = "row_scales", "row_sums", "column_scales", "leasts"


def build_block_tiles(builder: ProductBuilder) -> Built:
    """The kernel for any number of rows by blocks."""
    n_products = len(builder.weights)
    height, width = rectangle(bounds(builder.n_rows)[1], builder.n_columns * n_products)
    is_small = height * width < 128 * 128 and builder.depth % (2 * RUN) == 0
    text = _Text(builder, height, width, 2 if is_small else 1)
    arrays = builder.arrays
    weights = [w.array for w in builder.weights]
    functions = block_functions(text.dtype)
    shared = [
        ir.SharedArray(_X, UINT32, text.runs * WORDS * height // 4, 4),
        ir.SharedArray(_W, UINT32, text.runs * WORDS * width // 4, 4),
        ir.SharedArray(_X_SCALES, FLOAT32, text.runs * height),
        ir.SharedArray(_W_SCALES, FLOAT32, text.runs * text.n_scales * width // 4, 4),
        ir.SharedArray(SUMS, FLOAT32, height // OWN * width),
    ]
    if text.has_least:
        n_scales = text.runs * text.n_scales
        shared.append(ir.SharedArray(_X_SUMS, FLOAT32, n_scales * height))
        shared.append(ir.SharedArray(_W_LEASTS, FLOAT32, n_scales * width // 4, 4))
    block: ir.Block = (
        *squares(builder, height, width // n_products),
        ir.Foreign(
            text.sums(),
            SQUARE,
            arrays,
            tuple(one.name for one in shared if one.name != SUMS),
            tuple(name for name in arrays if name not in weights),
            (PAIR,),
            "\n".join(functions.replace("$w", array) for array in dict.fromkeys(weights)),
            turns=ir.index(text.turns),
        ),
        ir.Barrier(),
        *parts(text.part(), height, width // n_products, builder.results, n_products),
    )
    n_tiles = n_squares(builder, height, width // n_products)
    return builder.kernel_of(n_tiles, block, text.threads, shared)


class _Text:
    """The text of one kernel; rectangles are `height` by `width`, steps so many runs."""

    def __init__(self, builder: ProductBuilder, height: int, width: int, runs: int) -> None:
        assert builder.x is not None
        self.builder, self.x = builder, builder.x
        self.weights, self.dtype = builder.weights, builder.weights[0].dtype
        self.height, self.width = height, width
        self.own_width = width // len(builder.weights)
        self.runs, self.pieces = runs, PAIR * runs
        self.threads = height * width // OWN**2 * runs
        self.depth, self.n_columns = builder.depth, builder.n_columns
        block = block_type(self.dtype)
        self.scale_length = elements_of_a_scale(block)
        self.n_scales = RUN // self.scale_length
        self.has_least = has_least(block)

    def sums(self) -> str:
        """All sums, in variables of each thread."""
        x_turns, w_turns = self._turns(self.height), self._turns(self.width)
        n_steps = self.n_steps
        return "\n".join(
            [
                f"let tx = lane % {self.width // OWN}u;",
                f"let ty = lane / {self.width // OWN}u % {self.height // OWN}u;",
                # The run that is multiplied, and that which is read.
                f"let own_run = lane / {self.threads // self.runs}u;",
                f"let run = lane % {self.pieces}u / {PAIR}u; let half = lane % {PAIR}u;",
                f"let m0 = u32($square_row) * {self.height}u;",
                f"let n0 = u32($square_column) * {self.own_width}u;",
                *(f"var c{i}{j} = vec4f();" for i in range(OWN) for j in range(2)),
                *(line for t in x_turns for line in self._declared_row(t)),
                *(line for t in w_turns for line in self._declared_column(t)),
                "{ let k = 0u;",
                *self._loads(x_turns, w_turns),
                "}",
                f"for (var step = 0u; step < {n_steps}u; step++) {{",
                *(line for t in x_turns for line in self._store_row(t)),
                *(line for t in w_turns for line in self._store_column(t)),
                "workgroupBarrier();",
                f"{{ let k = min(step + 1u, {n_steps - 1}u) * {RUN * self.runs}u;",
                *self._loads(x_turns, w_turns),
                "}",
                *(line for j in range(2) for line in self._products(j)),
                "workgroupBarrier();",
                "}",
            ]
        )

    @property
    def n_steps(self) -> int:
        return self.depth // (RUN * self.runs)

    @property
    def turns(self) -> int:
        """Of the loop over the depth: sums of pairs by halves, and words of each scale."""
        of_rows = 3 * PAIR.bit_length() * len(self._turns(self.height))
        return 1 + self.n_steps * (1 + of_rows + 2 * (WORDS + self.n_scales))

    def part(self) -> str:
        """Sums of the part-th row of each thread, where results are read."""
        shape = (self.height, self.width, len(self.weights))
        lines = row_parts(*shape, "=")
        if self.runs > 1:
            first = ["if (own_run == 0u) {", *lines, "}", "workgroupBarrier();"]
            lines = [*first, "if (own_run != 0u) {", *row_parts(*shape, "+="), "}"]
        return "\n".join(lines)

    def _turns(self, length: int) -> range:
        """How often threads, two for a run, go through rows or columns."""
        return range(-(-length * self.pieces // self.threads))

    def _line(self, turn: int) -> str:
        return f"((lane + {turn * self.threads}u) / {self.pieces}u)"

    def _loads(self, x_turns: range, w_turns: range) -> list[str]:
        lines = [line for t in x_turns for line in self._load_row(t)]
        return lines + [line for t in w_turns for line in self._load_column(t)]

    # Rows of x.

    def _declared_row(self, t: int) -> list[str]:
        return [f"var x{t}_{v} = vec4u();" for v in range(HALF // 4)]

    def _load_row(self, t: int) -> list[str]:
        x = self.x
        row = f"min(m0 + {self._line(t)}, u32($n_rows) - 1u)"
        deep = f"k + run * {RUN}u + half * {HALF}u"
        lines = [f"{{ let source = ({row} * {x.step}u + u32($x_first) + {deep}) / 4u;"]
        lines += [f"x{t}_{v} = {x.array}_four(source + {v}u);" for v in range(HALF // 4)]
        return [*lines, "}"]

    def _store_row(self, t: int) -> list[str]:
        """Half a run, by the greatest number of both halves."""
        fours, row = range(HALF // 4), self._line(t)
        lines = [
            "{",
            *(f"let v{v} = bitcast<vec4f>(x{t}_{v});" for v in fours),
            *greatest_text(len(fours)),
            # By halves, which are floats as they are: bits of NaN would be lost in a comparison.
            f"let wide = team_max_{PAIR}(lane, f32(most >> 16u));",
            "let fine = select(0.0, f32(most & 0xffffu), f32(most >> 16u) == wide);",
            f"let run_most = (u32(wide) << 16u) | u32(team_max_{PAIR}(lane, fine));",
            *scale_text("run_most"),
        ]
        for v in fours:
            number = f"select(vec4i(), vec4i(round(v{v} * inverse)), is_finite)"
            lines.append(f"let q{v} = pack4xI8({number});")
        guard = self._guard(t, self.height)
        lines += [f"let row = {row};", guard]
        for v in fours:
            word = f"(run * {WORDS}u + half * {HALF // 4}u + {v}u)"
            place = f"{word} * {self.height // 4}u + row / 4u"
            lines.append(f"${_X}[{place}][row % 4u] = q{v};")
        lines.append(f"${_X_SCALES}[run * {self.height}u + row] = scale;")
        lines.append("}")
        if self.has_least:
            lines += self._store_row_sums(guard)
        return [*lines, "}"]

    def _store_row_sums(self, guard: str) -> list[str]:
        """The scale times the sum of numbers, for each scale of the weights in the run."""
        words = self.scale_length // 4  # of a scale
        if self.n_scales == 1:
            ones = " + ".join(f"dot4I8Packed(q{v}, 0x01010101u)" for v in range(HALF // 4))
            total = f"team_add_{PAIR}(lane, f32({ones}))"
            place = f"run * {self.height}u + row"
            return [f"let total = {total};", guard, f"${_X_SUMS}[{place}] = scale * total;", "}"]
        lines = [guard]
        for s in range(self.n_scales // 2):
            some = range(s * words, (s + 1) * words)
            ones = " + ".join(f"dot4I8Packed(q{v}, 0x01010101u)" for v in some)
            number = f"run * {self.n_scales}u + half * {self.n_scales // 2}u + {s}u"
            place = f"({number}) * {self.height}u + row"
            lines.append(f"${_X_SUMS}[{place}] = scale * f32({ones});")
        return [*lines, "}"]

    def _guard(self, t: int, length: int) -> str:
        is_partial = (t + 1) * self.threads > length * self.pieces
        return f"if ({self._line(t)} < {length}u) {{" if is_partial else "{"

    # Columns of weights.

    def _own_scales(self) -> range:
        """Scales that a thread reads, of its half of a run."""
        return range(max(1, self.n_scales // 2))

    def _declared_column(self, t: int) -> list[str]:
        lines = [f"var w{t}_{v} = 0u;" for v in range(HALF // 4)]
        return lines + [f"var scale{t}_{s} = vec2f();" for s in self._own_scales()]

    def _load_column(self, t: int) -> list[str]:
        length, row_nbytes = self.dtype.block_length, self.dtype.nbytes((self.depth,))
        column = f"min(n0 + {self._line(t)} % {self.own_width}u, {self.n_columns - 1}u)"
        lines = [
            f"{{ let deep = k + run * {RUN}u;",
            f"let at = {column} * {row_nbytes}u + deep / {length}u * {self.dtype.block_nbytes}u;",
            f"let e = deep % {length}u + half * {HALF}u;",
        ]
        read = []
        for w in self.weights:
            own = [f"w{t}_{v} = {w.array}_numbers(at, e + {4 * v}u);" for v in range(HALF // 4)]
            own += [
                f"scale{t}_{s} = {w.array}_scale(at, e + {s * self.scale_length}u);"
                for s in self._own_scales()
            ]
            read.append(own)
        if len(read) == 1:
            return [*lines, *read[0], "}"]
        is_first = f"if ({self._line(t)} < {self.own_width}u) {{"
        return [*lines, is_first, *read[0], "} else {", *read[1], "}", "}"]

    def _store_column(self, t: int) -> list[str]:
        lines = [self._guard(t, self.width), f"let column = {self._line(t)};"]
        pitch = self.width // 4
        for v in range(HALF // 4):
            word = f"(run * {WORDS}u + half * {HALF // 4}u + {v}u)"
            place = f"{word} * {pitch}u + column / 4u"
            lines.append(f"${_W}[{place}][column % 4u] = w{t}_{v};")
        for s in self._own_scales():
            number = f"half * {self.n_scales // 2}u + {s}u" if self.n_scales > 1 else "0u"
            place = f"(run * {self.n_scales}u + {number}) * {pitch}u + column / 4u"
            lines.append(f"${_W_SCALES}[{place}][column % 4u] = scale{t}_{s}.x;")
            if self.has_least:
                lines.append(f"${_W_LEASTS}[{place}][column % 4u] = scale{t}_{s}.y;")
        return [*lines, "}"]

    # Products.

    def _products(self, j: int) -> list[str]:
        """Half of a thread's results by what is in shared memory."""
        rows, words = range(OWN), WORDS // self.n_scales
        column = f"tx + {j * self.width // 8}u"
        first = f"own_run * {WORDS}u + " if self.runs > 1 else ""
        own_scales = f"own_run * {self.n_scales}u + " if self.runs > 1 else ""
        own_row = f"own_run * {self.height}u + " if self.runs > 1 else ""
        lines = ["{"]
        for s in range(self.n_scales):
            lines += ["{", *(f"var n{i} = vec4i();" for i in rows)]
            lines.append(f"for (var word = {s * words}u; word < {(s + 1) * words}u; word++) {{")
            lines += [
                f"let a{h} = ${_X}[({first}word) * {self.height // 4}u + ty * 2u + {h}u];"
                for h in range(2)
            ]
            lines.append(f"let b = ${_W}[({first}word) * {self.width // 4}u + {column}];")
            for i in rows:
                given = f"a{i // 4}.{'xyzw'[i % 4]}"
                dots = ", ".join(f"dot4I8Packed({given}, b.{q})" for q in "xyzw")
                lines.append(f"n{i} += vec4i({dots});")
            lines.append("}")
            place = f"({own_scales}{s}u) * {self.width // 4}u + {column}"
            lines.append(f"let scale = ${_W_SCALES}[{place}];")
            if self.has_least:
                lines.append(f"let least = ${_W_LEASTS}[{place}];")
            for i in rows:
                row = f"ty * {OWN}u + {i}u"
                factor = f"${_X_SCALES}[{own_row}{row}] * scale"
                lines.append(f"c{i}{j} = fma({factor}, vec4f(n{i}), c{i}{j});")
                if self.has_least:
                    total = f"vec4f(${_X_SUMS}[({own_scales}{s}u) * {self.height}u + {row}])"
                    lines.append(f"c{i}{j} = fma({total}, least, c{i}{j});")
            lines.append("}")
        return [*lines, "}"]
