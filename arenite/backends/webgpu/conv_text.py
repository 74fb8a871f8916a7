"""The text of a convolution's sums, in WGSL: copies into shared memory, products, and what is left
for what follows; and which elements all of it accesses. See `conv.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arenite.backends.webgpu.channels_last import FOUR, in_memory
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import index_expr
from arenite.ir.dim import Dim, bounds
from arenite.ir.node import Node

#: Arrays in shared memory.
X, W, SUMS = "of_rows", "of_columns", "sums"

#: Of the depth, in a step of one team.
STEP = 16
#: Of these, products that are written one after another.
UNROLLED = 8


class Cut(NamedTuple):
    """A rectangle of results, those of a thread, and how many teams share the depth."""

    height: int
    width: int
    own_rows: int
    own_columns: int
    teams: int

    @property
    def down(self) -> int:
        return self.height // self.own_rows

    @property
    def across(self) -> int:
        return self.width // self.own_columns

    @property
    def threads(self) -> int:
        return self.down * self.across * self.teams

    @property
    def step(self) -> int:
        return STEP * self.teams

    @property
    def n_sums(self) -> int:
        """Results of one row of each thread."""
        return self.down * self.width


class ConvText:
    """What a group does for its sums, and which elements it accesses."""

    def __init__(self, node: Node, names: Mapping[Node, str], n_columns: int, cut: Cut) -> None:
        self.cut, self.node = cut, node
        x, w = node.inputs
        self.x, self.w = names[in_memory(x)], names[in_memory(w)]
        self.taps = [bounds(size)[1] for size in w.shape[:-2]]
        self.channels = bounds(w.shape[-2])[1]
        self.depth = self.channels
        for taps in self.taps:
            self.depth *= taps
        self.of_x, self.of_w = bounds(x.shape[-1])[1], bounds(w.shape[-1])[1]
        self.n_columns = n_columns
        self.strides, self.dilations = node.attr("strides"), node.attr("dilations")
        self.sizes: dict[str, Dim] = {}
        axes = range(x.ndim - 2)
        #: Of the image, of the result, and what is outside before the image, along each axis.
        self.seen = [self._number(f"seen{k}", x.shape[1 + k]) for k in axes]
        self.places = [self._number(f"places{k}", node.shape[1 + k]) for k in axes]
        padding = node.attr("padding")
        self.before = [self._number(f"before{k}", padding[k][0]) for k in axes]
        self.is_padded = [padding[k] != (0, 0) for k in axes]
        self.pitch_x, self.pitch_w = cut.height // FOUR + 1, cut.width // FOUR + 1
        self.is_whole = self.depth % cut.step == 0
        #: A thread copies parts of these rows, at the same place in a step.
        self.fours = cut.step // FOUR
        self.n_x = cut.height * self.fours // cut.threads
        self.n_w = cut.step * cut.width // FOUR // cut.threads

    def _number(self, name: str, size: Dim) -> str:
        """A size as text: a number, or the name that it gets."""
        if isinstance(size, int):
            return f"{size}i"
        self.sizes[name] = size
        return f"i32(${name})"

    def sums(self) -> str:
        """All sums, in variables of each thread."""
        cut = self.cut
        last = (self.depth - 1) // cut.step * cut.step
        cells = [(i, j) for i in range(cut.own_rows) for j in range(cut.own_columns // FOUR)]
        loads = self._loads()
        lines = [
            f"let tx = lane % {cut.across}u;",
            f"let ty = lane / {cut.across}u % {cut.down}u;",
            f"let team = lane / {cut.across * cut.down}u;",
            f"let m0 = u32($square_row) * {cut.height}u;",
            f"let n0 = u32($square_column) * {cut.width}u;",
            f"let part4 = lane % {self.fours}u * {FOUR}u;",
            *self._rows(),
            *(f"var p{i} = vec4u();" for i in range(self.n_x)),
            *(f"var q{i} = vec4u();" for i in range(self.n_w)),
            *(f"var c{i}_{j} = vec4f();" for i, j in cells),
            "{ let k = 0u;",
            *loads,
            "}",
            f"for (var step = 0u; step < {self.depth}u; step += {cut.step}u) {{",
            *self._stores(),
            "workgroupBarrier();",
            # The following step is under way while this one is multiplied.
            f"{{ let k = min(step + {cut.step}u, {last}u);",
            *loads,
            "}",
            *self._products(cells),
            "workgroupBarrier();",
            "}",
        ]
        return "\n".join(lines)

    @property
    def turns(self) -> int:
        """Of the loops over the depth."""
        return 1 + -(-self.depth // self.cut.step) * (STEP // UNROLLED + 2)

    def _rows(self) -> list[str]:
        """Where the first tap of a row lies, and where its image begins."""
        lines = []
        for i in range(self.n_x):
            at = f"lane / {self.fours}u + {i * self.cut.threads // self.fours}u"
            lines.append(f"var left{i} = i32(min(m0 + {at}, u32($n_rows) - 1u));")
            for k in reversed(range(len(self.taps))):
                size, stride = self.places[k], self.strides[k]
                lines += [
                    f"let at{i}_{k} = left{i} % {size} * {stride}i - {self.before[k]};",
                    f"left{i} /= {size};",
                ]
        return lines

    def _loads(self) -> list[str]:
        return [*self._image_loads(), *self._weight_loads()]

    def _image_loads(self) -> list[str]:
        n_taps = self.depth // self.channels
        lines = ["let deep = k + part4;"]
        channel, tap = "deep", "0u"
        if n_taps > 1:
            lines += [
                f"let tap = deep / {self.channels}u;",
                f"let channel = deep - tap * {self.channels}u;",
            ]
            channel, tap = "channel", "tap"
        if self.of_x > self.channels:
            channel = f"({channel} + u32($group) * {self.channels}u)"
        below = 1
        for axis in reversed(range(len(self.taps))):
            taps, by = self.taps[axis], self.dilations[axis]
            at = tap if below == 1 else f"{tap} / {below}u"
            at = at if axis == 0 else f"({at}) % {taps}u"
            lines.append(f"let tap{axis} = i32({at}) * {by}i;")
            below *= taps
        for i in range(self.n_x):
            tests = [] if self.is_whole else [f"deep < {self.depth}u"]
            place = f"left{i}"
            for axis, size in enumerate(self.seen):
                lines.append(f"let y{i}_{axis} = at{i}_{axis} + tap{axis};")
                if self.is_padded[axis]:
                    tests.append(f"u32(y{i}_{axis}) < u32({size})")
                place = f"({place} * {size} + y{i}_{axis})"
            at = f"(u32({place}) * {self.of_x}u + {channel}) / {FOUR}u"
            load = f"p{i} = {self.x}_four({at});"
            if tests:
                load = f"p{i} = vec4u(); if ({' && '.join(tests)}) {{ {load} }}"
            lines.append(load)
        return lines

    def _weight_loads(self) -> list[str]:
        width4, lines = self.cut.width // FOUR, []
        last = self.of_w // FOUR - 1
        first = "n0"
        if self.of_x > self.channels:
            first = f"(n0 + u32($group) * {self.n_columns}u)"
        for i in range(self.n_w):
            at = f"(lane + {i * self.cut.threads}u)"
            row, column = f"k + {at} / {width4}u", f"{first} / {FOUR}u + {at} % {width4}u"
            place = f"({row}) * {self.of_w // FOUR}u + min({column}, {last}u)"
            load = f"q{i} = {self.w}_four({place});"
            if not self.is_whole:
                load = f"q{i} = vec4u(); if ({row} < {self.depth}u) {{ {load} }}"
            lines.append(load)
        return lines

    def _stores(self) -> list[str]:
        lines = []
        for i in range(self.n_x):
            row = f"(lane / {self.fours}u + {i * self.cut.threads // self.fours}u)"
            lines.append(f"let f{i} = bitcast<vec4f>(p{i});")
            lines += [
                f"${X}[(part4 + {q}u) * {self.pitch_x}u + {row} / 4u][{row} % 4u] = f{i}.{lane};"
                for q, lane in enumerate("xyzw")
            ]
        width4 = self.cut.width // FOUR
        for i in range(self.n_w):
            at = f"(lane + {i * self.cut.threads}u)"
            place = f"{at} / {width4}u * {self.pitch_w}u + {at} % {width4}u"
            lines.append(f"${W}[{place}] = bitcast<vec4f>(q{i});")
        return lines

    def _products(self, cells: Sequence[tuple[int, int]]) -> list[str]:
        cut = self.cut
        lines = [
            f"var x0 = team * {STEP * self.pitch_x}u + ty * {cut.own_rows // FOUR}u;",
            f"var w0 = team * {STEP * self.pitch_w}u + tx;",
            f"for (var turn = 0u; turn < {STEP // UNROLLED}u; turn++) {{",
        ]
        for k in range(UNROLLED):
            lines.append("{")
            for i in range(cut.own_rows // FOUR):
                lines.append(f"let a{i} = ${X}[x0 + {k * self.pitch_x + i}u];")
            for j in range(cut.own_columns // FOUR):
                lines.append(f"let b{j} = ${W}[w0 + {k * self.pitch_w + j * cut.across}u];")
            for i, j in cells:
                a = f"vec4f(a{i // FOUR}.{'xyzw'[i % FOUR]})"
                lines.append(f"c{i}_{j} = fma({a}, b{j}, c{i}_{j});")
            lines.append("}")
        return [
            *lines,
            f"x0 += {UNROLLED * self.pitch_x}u;",
            f"w0 += {UNROLLED * self.pitch_w}u;",
            "}",
        ]

    def part(self) -> str:
        """Sums of the part-th row of each thread, where results are read."""
        cut = self.cut
        lines = [
            f"let first = (team * {cut.down}u + ty) * {cut.width}u + {FOUR}u * tx;",
            "switch (u32($part)) {",
        ]
        for i in range(cut.own_rows):
            lines.append(f"case {i}u: {{")
            for j in range(cut.own_columns // FOUR):
                for q, lane in enumerate("xyzw"):
                    at = f"first + {FOUR * j * cut.across + q}u"
                    lines.append(f"${SUMS}[{at}] = c{i}_{j}.{lane};")
            lines.append("}")
        return "\n".join([*lines, "default: {}", "}"])

    def accesses(self) -> tuple[ir.Access, ...]:
        """Of the sums: four numbers of the image and of weights at once, and shared memory."""
        x, cut = self.node.inputs[0], self.cut
        of_x: list[Dim] = [x.shape[0]]
        for axis, size in enumerate(x.shape[1:-1]):
            last = (self.node.shape[1 + axis] - 1) * self.strides[axis]
            last = last + (self.taps[axis] - 1) * self.dilations[axis]
            of_x.append(size if self.is_padded[axis] else last + 1)
        image = [*zip(of_x, x.shape[:-1], strict=True), (self.of_x // FOUR, self.of_x // FOUR)]
        fours, width4 = self.of_w // FOUR, cut.width // FOUR
        rows4, columns4 = cut.own_rows // FOUR, cut.own_columns // FOUR
        last_row = (cut.threads - 1) // self.fours + (self.n_x - 1) * cut.threads // self.fours
        lines = -(-cut.threads * self.n_w // width4)
        return (
            _access(self.x, [*image, (FOUR, FOUR)]),
            _access(self.w, [(self.depth, self.depth), (fours, fours), (FOUR, FOUR)]),
            _access(X, [(cut.step, cut.step), (last_row // FOUR + 1, self.pitch_x)]),
            _access(X, [(cut.step, cut.step), (cut.down * rows4, self.pitch_x)]),
            _access(W, [(lines, cut.step), (width4, self.pitch_w)]),
            _access(W, [(cut.step, cut.step), (cut.across * columns4, self.pitch_w)]),
        )

    def part_accesses(self) -> tuple[ir.Access, ...]:
        cut = self.cut
        return (
            _access(SUMS, [(cut.teams * cut.down,) * 2, (cut.across * cut.own_columns, cut.width)]),
        )


def _access(array: str, axes: Sequence[tuple[Dim, Dim]]) -> ir.Access:
    """Elements of which so many are used along each axis, in an array of so many along it."""
    at: ir.Expr = ir.index(0)
    names = [f"axis{k}" for k in range(len(axes))]
    for name, (_, size) in zip(names, axes, strict=True):
        at = at * index_expr(size) + ir.Name(name)
    most = (index_expr(used - 1) for used, _ in axes)
    return ir.Access(array, at, tuple(zip(names, most, strict=True)))
