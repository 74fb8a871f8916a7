"""Products of many rows: a group has a rectangle of results, a thread 8 x 8 of them.

          columns
         ┌─────────────┐     a step copies 16 elements of each row and of each column into shared
    rows │  8 x 8 each │     memory, turned so that four neighbours are one load; then a thread
         └─────────────┘     multiplies 8 by 8 numbers, 16 times

Weights of 16 bits and blocks become float32 on their way into shared memory; x beside blocks is
rounded to the numbers of its runs there, as the op says. Sums leave through shared memory, an
eighth at a time, so that what follows is computed and stored in order.
"""

from __future__ import annotations

from arenite.backends.webgpu.block_bytes import block_functions, described_run
from arenite.backends.webgpu.few_rows import RUN, greatest_text, halves_text, scale_text
from arenite.backends.webgpu.products import SUMS, ProductBuilder, Side
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32, index_expr, loop
from arenite.dtype import Kind
from arenite.ir.dim import bounds, ceildiv

#: Elements of a row in a step, and results of a thread along each side.
STEP = 16
OWN = 8
#: Groups that a large device runs at once: with fewer, rectangles are smaller.
MANY_GROUPS = 120

_X, _W = "of_rows", "of_columns"


def can_be_many(builder: ProductBuilder) -> bool:
    """Whether the sides lie so that a kernel for many rows can read them."""
    x, w = builder.x, builder.w
    if not builder.is_plain or x is None or w is None or not x.is_in_fours(builder.depth):
        return False
    if w.dtype.is_block:
        return w.deep == 1 and w.first == 0 and w.step == builder.depth
    return w.is_in_fours(builder.depth) or _is_turned(builder, w)


def _is_turned(builder: ProductBuilder, w: Side) -> bool:
    """Whether weights lie row by row of the depth, so that columns are neighbours."""
    if w.dtype.kind is not Kind.FLOAT or w.dtype.bits not in (16, 32) or w.step != 1:
        return False
    per_four = 128 // w.dtype.bits
    return not any(n % per_four for n in (bounds(w.first)[1], w.deep, builder.n_columns))


def build_many_rows(builder: ProductBuilder) -> Built:
    """The kernel for any number of rows."""
    x, w = builder.x, builder.w
    assert x is not None
    assert w is not None
    height, width = _sides(bounds(builder.n_rows)[1], builder.n_columns)
    text = _Text(builder, x, w, height, width)
    down = ceildiv(builder.n_rows, height)
    across = -(-builder.n_columns // width)
    names = tuple(map(ir.Name, ("square_row", "square_column", "n_rows", "x_first")))
    result, part = ir.Name("result"), ir.Name("part")
    n_sums = height // OWN * width
    row = ir.Name("square_row") * height + result // width * OWN + part
    column = ir.Name("square_column") * width + result % width
    outside: tuple[str, ...] = () if w.dtype.is_block else (w.array,)
    functions = block_functions(w.dtype).replace("$w", w.array) if w.dtype.is_block else ""
    block: ir.Block = (
        *builder.rows_of_x(),
        ir.Let("square_row", ir.Name("tile") % index_expr(down)),
        ir.Let("square_column", ir.Name("tile") // index_expr(down)),
        ir.Foreign(
            text.sums(),
            names,
            (x.array, w.array),
            (_X, _W),
            (x.array, *outside),
            functions=functions,
        ),
        ir.Barrier(),
        loop(
            "part",
            OWN,
            ir.Foreign(text.part(), (part,), (), (SUMS,)),
            ir.Barrier(),
            builder.results(n_sums, row, column),
            ir.Barrier(),
            vector=False,
        ),
    )
    shared = (
        ir.SharedArray(_X, FLOAT32, STEP * (height // 4 + 1), 4),
        ir.SharedArray(_W, FLOAT32, STEP * (width // 4 + 1), 4),
        ir.SharedArray(SUMS, FLOAT32, n_sums),
    )
    return builder.kernel_of(down * across, block, height * width // OWN**2, shared)


def _sides(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a rectangle: large ones read less, small ones are more of them."""
    height = 128 if rows > 64 else 64 if rows > 32 else 32
    for sides in ((height, 128), (height, 64)):
        if -(-rows // sides[0]) * -(-columns // sides[1]) >= MANY_GROUPS:
            return sides
    return min(height, 64), 64


class _Text:
    """The text of one kernel; rectangles are `height` by `width`."""

    def __init__(self, builder: ProductBuilder, x: Side, w: Side, height: int, width: int) -> None:
        self.builder, self.x, self.w = builder, x, w
        self.height, self.width = height, width
        self.threads = height * width // OWN**2
        self.depth, self.n_columns = builder.depth, builder.n_columns
        self.cells = [(i, j) for i in range(OWN) for j in range(2)]

    def sums(self) -> str:
        """All sums, in variables of each thread."""
        lines = [
            f"let tx = lane % {self.width // OWN}u; let ty = lane / {self.width // OWN}u;",
            f"let m0 = u32($square_row) * {self.height}u;",
            f"let n0 = u32($square_column) * {self.width}u;",
            *(f"var c{i}{j} = vec4f();" for i, j in self.cells),
        ]
        if self.w.dtype.is_block:
            copies = self._block_copies()
            lines += [
                f"for (var k = 0u; k < {self.depth}u; k += {STEP}u) {{",
                *copies,
                "workgroupBarrier();",
                *self._products(),
                "workgroupBarrier();",
                "}",
            ]
            return "\n".join(lines)
        loads, stores, declared = self._float_copies()
        last = (self.depth - 1) // STEP * STEP
        lines += [
            *declared,
            "{ let k = 0u;",
            *loads,
            "}",
            f"for (var step = 0u; step < {self.depth}u; step += {STEP}u) {{",
            *stores,
            "workgroupBarrier();",
            # The following step is under way while this one is multiplied.
            f"{{ let k = min(step + {STEP}u, {last}u);",
            *loads,
            "}",
            *self._products(),
            "workgroupBarrier();",
            "}",
        ]
        return "\n".join(lines)

    def part(self) -> str:
        """Sums of the part-th row of each thread, where results are read."""
        lines = ["switch (u32($part)) {"]
        place = f"ty * {self.width}u + 4u * tx"
        for i in range(OWN):
            lines.append(f"case {i}u: {{")
            for j in range(2):
                for q, lane in enumerate("xyzw"):
                    at = f"{place} + {j * self.width // 2 + q}u"
                    lines.append(f"${SUMS}[{at}] = c{i}{j}.{lane};")
            lines.append("}")
        return "\n".join([*lines, "default: {}", "}"])

    def _products(self) -> list[str]:
        pitch_x, pitch_w = self.height // 4 + 1, self.width // 4 + 1
        return [
            f"for (var kk = 0u; kk < {STEP}u; kk++) {{",
            *(f"let a{i} = ${_X}[kk * {pitch_x}u + ty * 2u + {i}u];" for i in range(2)),
            *(
                f"let b{j} = ${_W}[kk * {pitch_w}u + tx + {j * self.width // 8}u];"
                for j in range(2)
            ),
            *(
                f"c{i}{j} = fma(vec4f(a{i // 4}.{'xyzw'[i % 4]}), b{j}, c{i}{j});"
                for i, j in self.cells
            ),
            "}",
        ]

    # Floats.

    def _float_copies(self) -> tuple[list[str], list[str], list[str]]:
        """Loads of a step at `k`, stores of what they hold, and the variables between."""
        x_parts = self._deep_copy("p", self.x, _X, self.height, "m0", "u32($n_rows)")
        if self.w.deep == 1:
            w_parts = self._deep_copy("q", self.w, _W, self.width, "n0", f"{self.n_columns}u")
        else:
            w_parts = self._turned_copy()
        return (
            x_parts[0] + w_parts[0],
            x_parts[1] + w_parts[1],
            x_parts[2] + w_parts[2],
        )

    def _deep_copy(
        self, name: str, side: Side, array: str, length: int, first: str, count: str
    ) -> tuple[list[str], list[str], list[str]]:
        """Rows of a side along the depth, four words a load, turned as they are stored."""
        per_four = 128 // side.dtype.bits
        fours, pitch = STEP // per_four, length // 4 + 1
        loads, stores, declared = [], [], []
        for i in range(-(-length * fours // self.threads)):
            held, element = f"{name}{i}", f"(lane + {i * self.threads}u)"
            declared.append(f"var {held} = vec4u();")
            row, at = f"({element} / {fours}u)", f"({element} % {fours}u)"
            deep = f"k + {at} * {per_four}u"
            is_whole = self.depth % STEP == 0
            near = deep if is_whole else f"min({deep}, {self.depth - per_four}u)"
            begin = "u32($x_first)" if side is self.x else f"{bounds(side.first)[1]}u"
            place = f"min({first} + {row}, {count} - 1u) * {side.step}u + {begin} + {near}"
            value = f"{side.array}_four(({place}) / {per_four}u)"
            if not is_whole:
                value = f"select(vec4u(), {value}, {deep} < {self.depth}u)"
            is_partial = (i + 1) * self.threads > length * fours
            guard = f"if ({element} < {length * fours}u) {{ " if is_partial else "{ "
            loads.append(f"{guard}{held} = {value}; }}")
            stores.append(guard)
            stores += _floats_of(side, held)
            stores += [
                f"${array}[({at} * {per_four}u + {q}u) * {pitch}u + {row} / 4u][{row} % 4u] = "
                f"f{q // 4}.{'xyzw'[q % 4]};"
                for q in range(per_four)
            ]
            stores.append("}")
        return loads, stores, declared

    def _turned_copy(self) -> tuple[list[str], list[str], list[str]]:
        """Weights that lie as they are wanted: four columns are four neighbours."""
        side = self.w
        per_four = 128 // side.dtype.bits
        fours, pitch = self.width // per_four, self.width // 4 + 1
        loads, stores, declared = [], [], []
        for i in range(-(-STEP * fours // self.threads)):
            held, element = f"q{i}", f"(lane + {i * self.threads}u)"
            declared.append(f"var {held} = vec4u();")
            deep, at = f"({element} / {fours}u)", f"({element} % {fours}u)"
            column = f"min(n0 / {per_four}u + {at}, {self.n_columns // per_four - 1}u)"
            row = f"min(k + {deep}, {self.depth - 1}u)"
            place = f"({row} * {side.deep}u + {bounds(side.first)[1]}u) / {per_four}u + {column}"
            value = f"{side.array}_four({place})"
            if self.depth % STEP:
                value = f"select(vec4u(), {value}, k + {deep} < {self.depth}u)"
            is_partial = (i + 1) * self.threads > STEP * fours
            guard = f"if ({element} < {STEP * fours}u) {{ " if is_partial else "{ "
            loads.append(f"{guard}{held} = {value}; }}")
            stores.append(guard)
            stores += _floats_of(side, held)
            stores += [
                f"${_W}[{deep} * {pitch}u + {at} * {per_four // 4}u + {q}u] = f{q};"
                for q in range(per_four // 4)
            ]
            stores.append("}")
        return loads, stores, declared

    # Blocks.

    def _block_copies(self) -> list[str]:
        """Half a run of each column, dequantised, and of each row, rounded to its numbers."""
        pitch_x, pitch_w = self.height // 4 + 1, self.width // 4 + 1
        x, dtype = self.x, self.w.dtype
        length, row_nbytes = dtype.block_length, dtype.nbytes((self.depth,))
        lines = [
            f"for (var e = lane; e < {self.width + self.height}u; e += {self.threads}u) {{",
            f"if (e < {self.width}u) {{",
            f"let column = min(n0 + e, {self.n_columns - 1}u);",
            f"let at0 = column * {row_nbytes}u + k / {length}u * {dtype.block_nbytes}u;",
            *described_run(dtype, self.w.array, "at0", f"(k % {length}u)", STEP),
            *(
                f"${_W}[{4 * four + q}u * {pitch_w}u + e / 4u][e % 4u] = f{four}.{lane};"
                for four in range(STEP // 4)
                for q, lane in enumerate("xyzw")
            ),
            "} else {",
            f"let r = e - {self.width}u;",
            f"let source = (min(m0 + r, u32($n_rows) - 1u) * {x.step}u + u32($x_first) + "
            f"k / {RUN}u * {RUN}u) / 4u;",
            *(f"let v{k} = bitcast<vec4f>({x.array}_four(source + {k}u));" for k in range(8)),
            *greatest_text(8),
            *scale_text("most"),
            f"let is_upper = (k / {STEP}u) % {RUN // STEP}u == 1u;",
        ]
        for four in range(4):
            lines += [
                f"let u{four} = round(select(v{four}, v{four + 4}, is_upper) * inverse);",
                f"let n{four} = scale * select(vec4f(), u{four}, is_finite);",
                *(
                    f"${_X}[{4 * four + q}u * {pitch_x}u + r / 4u][r % 4u] = n{four}.{lane};"
                    for q, lane in enumerate("xyzw")
                ),
            ]
        return [*lines, "}", "}"]


def _floats_of(side: Side, held: str) -> list[str]:
    """The numbers of four words as f0, f1."""
    if side.dtype.bits == 32:
        return [f"let f0 = bitcast<vec4f>({held});"]
    halves = [halves_text(side.dtype, f"{held}.{lane}") for lane in "xyzw"]
    return [f"let f{k} = vec4f({halves[2 * k]}, {halves[2 * k + 1]});" for k in range(2)]
