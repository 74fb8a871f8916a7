"""Products of many rows by floats: a group has a rectangle of results, a thread 8 x 8 of them.

          columns
         ┌─────────────┐     a step copies some elements of each row and of each column into shared
    rows │  8 x 8 each │     memory, turned so that four neighbours are one load; then a thread
         └─────────────┘     multiplies 8 by 8 numbers for each

Weights of 16 bits become float32 on their way into shared memory. Of two products each has half of
a rectangle. Sums leave through shared memory, an eighth at a time, so that what follows is computed
and stored in order. Blocks: see `block_tiles`.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.webgpu.depth_parts import STRETCH, DepthParts
from arenite.backends.webgpu.few_rows import halves_text, lies_in_rows
from arenite.backends.webgpu.products import SUMS, ProductBuilder, Side
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import FLOAT32, index_expr, loop
from arenite.dtype import Kind
from arenite.ir.dim import Dim, bounds, ceildiv, maximum

#: Elements of a row in a step, of each half where there are two; and results of a thread along each
#: side.
STEP, HALF_STEP = 8, 16
OWN = 8
#: Groups that a large device runs at once: with fewer, rectangles are smaller.
MANY_GROUPS = 120

_X, _W = "of_rows", "of_columns"
_TILE = ir.Name("tile")


def can_be_many(builder: ProductBuilder) -> bool:
    """Whether the sides lie so that a kernel for many rows can read them."""
    x = builder.x
    if not builder.is_plain or x is None or not x.is_in_fours(builder.depth):
        return False
    return all(lies_in_rows(builder, w) or _is_turned(builder, w) for w in builder.weights)


def _is_turned(builder: ProductBuilder, w: Side) -> bool:
    """Whether weights lie row by row of the depth, so that columns are neighbours."""
    if w.dtype.kind is not Kind.FLOAT or w.dtype.bits not in (16, 32) or w.step != 1:
        return False
    per_four = 128 // w.dtype.bits
    return not any(n % per_four for n in (bounds(w.first)[1], w.deep, builder.n_columns))


def build_many_rows(builder: ProductBuilder, may_part: bool) -> Built:
    """The kernel for any number of rows; whether its depth may be in parts, which takes memory."""
    n_products = len(builder.weights)
    most_rows = bounds(builder.n_rows)[1]
    height, width = rectangle(most_rows, builder.n_columns * n_products)
    # Small rectangles have few threads: twice as many, of which each half takes every other step.
    halves = 2 if height * width < 128 * 128 else 1
    text = _Text(builder, height, width, halves)
    if may_part and n_products == 1:
        n_groups = -(-most_rows // height) * -(-builder.n_columns // width)
        in_parts = DepthParts.of(n_groups, MANY_GROUPS, text.depth, text.step)
        if in_parts.count > 1:
            return _in_parts(builder, text, in_parts)
    block = (
        *squares(builder, height, width // n_products),
        *_summed(builder, text),
        *parts(text.part(), height, width // n_products, builder.results, n_products),
    )
    n_tiles = n_squares(builder, height, width // n_products)
    return builder.kernel_of(n_tiles, block, text.threads, text.shared)


def _in_parts(builder: ProductBuilder, text: _Text, in_parts: DepthParts) -> Built:
    height, width = text.height, text.width

    def stored(count: int, row: ir.Expr, column: ir.Expr) -> ir.For:
        return in_parts.stored(builder, count, row, column)

    block = (
        *in_parts.places(_TILE, text.depth),
        *squares(builder, height, width, ir.Name("rectangle")),
        *_summed(builder, text, STRETCH),
        *parts(text.part(), height, width, stored),
    )
    n_tiles = n_squares(builder, height, width) * in_parts.count
    scratch = (in_parts.scratch(builder),)
    built = builder.kernel_of(n_tiles, block, text.threads, text.shared, scratch)
    return in_parts.with_sums(builder, built, height * width)


def _summed(builder: ProductBuilder, text: _Text, stretch: tuple[ir.Name, ...] = ()) -> ir.Block:
    """Sums over the depth, or from one name of a stretch to the other, which each thread has in
    variables."""
    arrays = builder.arrays
    steps = -(-text.depth // text.step)
    return (
        ir.Foreign(
            text.sums(*(f"u32(${one.name})" for one in stretch)),
            (*SQUARE, *stretch),
            arrays,
            (_X, _W),
            arrays,
            accesses=builder.accesses(),
            turns=ir.index(1 + steps * (text.own_step + 2)),
        ),
        ir.Barrier(),
    )


#: What text of a rectangle asks for.
SQUARE = tuple(map(ir.Name, ("square_row", "square_column", "n_rows", "x_first")))


def squares(builder: ProductBuilder, height: int, width: int, tile: ir.Expr = _TILE) -> ir.Block:
    """Which rectangle a tile is."""
    down = index_expr(maximum(ceildiv(builder.n_rows, height), 1))
    return (
        *builder.rows_of_x(),
        ir.Let("square_row", tile % down),
        ir.Let("square_column", tile // down),
    )


def n_squares(builder: ProductBuilder, height: int, width: int) -> Dim:
    return ceildiv(builder.n_rows, height) * -(-builder.n_columns // width)


def parts(
    text: str,
    height: int,
    width: int,
    results: Callable[[int, ir.Expr, ir.Expr], ir.For],
    n_products: int = 1,
) -> ir.Block:
    """Results, of so many at these rows and columns, by what text puts into shared memory, one row
    of each thread after another."""
    result, part, count = ir.Name("result"), ir.Name("part"), height // OWN * width
    n_sums = ir.index(count * n_products)
    own = ir.Access(SUMS, result, ((result.name, n_sums - 1),))
    row = ir.Name("square_row") * height + result // width * OWN + part
    column = ir.Name("square_column") * width + result % width
    every = loop(
        "part",
        OWN,
        ir.Foreign(text, (part,), (), (SUMS,), accesses=(own,)),
        ir.Barrier(),
        results(count, row, column),
        ir.Barrier(),
        vector=False,
    )
    return (every,)


def rectangle(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a rectangle: large ones read less, small ones are more of them."""
    height = 128 if rows > 64 else 64 if rows > 32 else 32
    for sides in ((height, 128), (height, 64)):
        if -(-rows // sides[0]) * -(-columns // sides[1]) >= MANY_GROUPS:
            return sides
    return min(height, 64), 64


def row_parts(height: int, width: int, n_products: int, sign: str) -> list[str]:
    """The part-th row of each thread's sums c, where results are read: of one product columns from
    both halves, of two a half each."""
    count, own = height // OWN * width // n_products, width // n_products
    lines = ["switch (u32($part)) {"]
    for i in range(OWN):
        lines.append(f"case {i}u: {{")
        for j in range(2):
            first = j * count if n_products == 2 else j * width // 2
            for q, lane in enumerate("xyzw"):
                at = f"ty * {own}u + 4u * tx + {first + q}u"
                lines.append(f"${SUMS}[{at}] {sign} c{i}{j}.{lane};")
        lines.append("}")
    return [*lines, "default: {}", "}"]


class _Text:
    """The text of one kernel; rectangles are `height` by `width`."""

    def __init__(self, builder: ProductBuilder, height: int, width: int, halves: int) -> None:
        assert builder.x is not None
        self.builder, self.x, self.weights = builder, builder.x, builder.weights
        self.height, self.width = height, width
        self.halves, self.own_step = halves, HALF_STEP if halves > 1 else STEP
        self.step = halves * self.own_step
        self.threads = height * width // OWN**2 * halves
        self.depth, self.n_columns = builder.depth, builder.n_columns
        self.own_width = width // len(builder.weights)
        self.cells = [(i, j) for i in range(OWN) for j in range(2)]

    @property
    def shared(self) -> list[ir.SharedArray]:
        """Arrays in shared memory."""
        return [
            ir.SharedArray(_X, FLOAT32, self.step * (self.height // 4 + 1), 4),
            ir.SharedArray(_W, FLOAT32, self.step * (self.width // 4 + 1), 4),
            ir.SharedArray(SUMS, FLOAT32, self.height // OWN * self.width),
        ]

    def sums(self, begin: str = "0u", end: str = "") -> str:
        """All sums, over a stretch of the depth or all of it, in variables of each thread."""
        end = end or f"{self.depth}u"
        lines = [
            f"let tx = lane % {self.width // OWN}u;",
            f"let ty = lane / {self.width // OWN}u % {self.height // OWN}u;",
            f"let deep0 = lane / {self.threads // self.halves}u * {self.own_step}u;",
            f"let m0 = u32($square_row) * {self.height}u;",
            f"let n0 = u32($square_column) * {self.own_width}u;",
            *(f"var c{i}{j} = vec4f();" for i, j in self.cells),
        ]
        loads, stores, declared = self._float_copies()
        last = (self.depth - 1) // self.step * self.step
        lines += [
            *declared,
            f"{{ let k = {begin};",
            *loads,
            "}",
            f"for (var step = {begin}; step < {end}; step += {self.step}u) {{",
            *stores,
            "workgroupBarrier();",
            # The following step is under way while this one is multiplied.
            f"{{ let k = min(step + {self.step}u, {last}u);",
            *loads,
            "}",
            *self._products(),
            "workgroupBarrier();",
            "}",
        ]
        return "\n".join(lines)

    def part(self) -> str:
        """Sums of the part-th row of each thread, where results are read."""
        shape = (self.height, self.width, len(self.weights))
        lines = row_parts(*shape, "=")
        if self.halves > 1:
            first = ["if (deep0 == 0u) {", *lines, "}", "workgroupBarrier();"]
            lines = [*first, "if (deep0 != 0u) {", *row_parts(*shape, "+="), "}"]
        return "\n".join(lines)

    def _products(self) -> list[str]:
        pitch_x, pitch_w = self.height // 4 + 1, self.width // 4 + 1
        deep = "kk" if self.halves == 1 else "(deep0 + kk)"
        return [
            f"for (var kk = 0u; kk < {self.own_step}u; kk++) {{",
            *(f"let a{i} = ${_X}[{deep} * {pitch_x}u + ty * 2u + {i}u];" for i in range(2)),
            *(
                f"let b{j} = ${_W}[{deep} * {pitch_w}u + tx + {j * self.width // 8}u];"
                for j in range(2)
            ),
            *(
                f"c{i}{j} = fma(vec4f(a{i // 4}.{'xyzw'[i % 4]}), b{j}, c{i}{j});"
                for i, j in self.cells
            ),
            "}",
        ]

    def _float_copies(self) -> tuple[list[str], list[str], list[str]]:
        """Loads of a step at `k`, stores of what they hold, and the variables between."""
        x_parts = self._deep_copy("p", (self.x,), _X, self.height)
        if self.weights[0].deep == 1:
            w_parts = self._deep_copy("q", tuple(self.weights), _W, self.width)
        else:
            w_parts = self._turned_copy()
        return (
            x_parts[0] + w_parts[0],
            x_parts[1] + w_parts[1],
            x_parts[2] + w_parts[2],
        )

    def _deep_copy(
        self, name: str, sides: tuple[Side, ...], array: str, length: int
    ) -> tuple[list[str], list[str], list[str]]:
        """Rows of a side along the depth, or of two that share the length, four words a load,
        turned as they are stored."""
        per_four = 128 // sides[0].dtype.bits
        fours, pitch = self.step // per_four, length // 4 + 1
        is_x, own = sides[0] is self.x, length // len(sides)
        loads, stores, declared = [], [], []
        for i in range(-(-length * fours // self.threads)):
            held, element = f"{name}{i}", f"(lane + {i * self.threads}u)"
            declared.append(f"var {held} = vec4u();")
            row, at = f"({element} / {fours}u)", f"({element} % {fours}u)"
            deep = f"k + {at} * {per_four}u"
            is_whole = self.depth % self.step == 0
            near = deep if is_whole else f"min({deep}, {self.depth - per_four}u)"
            values = []
            for side in sides:
                first, count = ("m0", "u32($n_rows)") if is_x else ("n0", f"{self.n_columns}u")
                begin = "u32($x_first)" if is_x else f"{bounds(side.first)[1]}u"
                line = f"min({first} + {row} % {own}u, {count} - 1u)"
                place = f"{line} * {side.step}u + {begin} + {near}"
                value = f"{side.array}_four(({place}) / {per_four}u)"
                if not is_whole:
                    value = f"select(vec4u(), {value}, {deep} < {self.depth}u)"
                values.append(f"{held} = {value};")
            is_partial = (i + 1) * self.threads > length * fours
            guard = f"if ({element} < {length * fours}u) {{ " if is_partial else "{ "
            loaded = values[0]
            if len(sides) > 1:
                loaded = f"if ({row} < {own}u) {{ {values[0]} }} else {{ {values[1]} }}"
            loads.append(f"{guard}{loaded} }}")
            stores.append(guard)
            stores += _floats_of(sides[0], held)
            for q in range(per_four):
                value = f"f{q // 4}.{'xyzw'[q % 4]}"
                place = f"({at} * {per_four}u + {q}u) * {pitch}u + {row} / 4u"
                stores.append(f"${array}[{place}][{row} % 4u] = {value};")
            stores.append("}")
        return loads, stores, declared

    def _turned_copy(self) -> tuple[list[str], list[str], list[str]]:
        """Weights that lie as they are wanted: four columns are four neighbours."""
        [side] = self.weights
        per_four = 128 // side.dtype.bits
        fours, pitch = self.width // per_four, self.width // 4 + 1
        loads, stores, declared = [], [], []
        for i in range(-(-self.step * fours // self.threads)):
            held, element = f"q{i}", f"(lane + {i * self.threads}u)"
            declared.append(f"var {held} = vec4u();")
            deep, at = f"({element} / {fours}u)", f"({element} % {fours}u)"
            column = f"min(n0 / {per_four}u + {at}, {self.n_columns // per_four - 1}u)"
            row = f"min(k + {deep}, {self.depth - 1}u)"
            place = f"({row} * {side.deep}u + {bounds(side.first)[1]}u) / {per_four}u + {column}"
            value = f"{side.array}_four({place})"
            if self.depth % self.step:
                value = f"select(vec4u(), {value}, k + {deep} < {self.depth}u)"
            is_partial = (i + 1) * self.threads > self.step * fours
            guard = f"if ({element} < {self.step * fours}u) {{ " if is_partial else "{ "
            loads.append(f"{guard}{held} = {value}; }}")
            stores.append(guard)
            stores += _floats_of(side, held)
            stores += [
                f"${_W}[{deep} * {pitch}u + {at} * {per_four // 4}u + {q}u] = f{q};"
                for q in range(per_four // 4)
            ]
            stores.append("}")
        return loads, stores, declared


def _floats_of(side: Side, held: str) -> list[str]:
    """The numbers of four words as f0, f1."""
    if side.dtype.bits == 32:
        return [f"let f0 = bitcast<vec4f>({held});"]
    halves = [halves_text(side.dtype, f"{held}.{lane}") for lane in "xyzw"]
    return [f"let f{k} = vec4f({halves[2 * k]}, {halves[2 * k + 1]});" for k in range(2)]
