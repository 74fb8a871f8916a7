"""Convolutions as products: a row for every place, a column for every channel of the result.

          columns
         ┌───────────┐      a step copies some taps and channels of each row and each column into
    rows │ own x own │      shared memory, rows turned, so that four neighbours are one load; then a
         └───────────┘      thread multiplies its own rows by its own columns

    row      image, place        the image is read where it lies: rows know where their first tap
    depth    tap, channel        is, and a tap outside of the image is 0

Where results are few, groups take smaller rectangles, and several teams of threads in a group share
the depth. Sums leave through shared memory, a row of each thread at a time, so that what follows is
computed and stored in order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from arenite.backends.webgpu.channels_last import CONV, FOUR, in_memory
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Access, KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import FLOAT32, Scope, cast, index_expr, loop
from arenite.ir.dim import Dim, Var, bounds, ceildiv, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import linear, space_vars
from arenite.schedule.kernel import Kernel, Role, Stage, outer_index

#: Of the depth, in a step of one team.
STEP = 16
#: Of these, products that are written one after another.
UNROLLED = 8
#: What keeps a large device busy: with fewer, rectangles are smaller.
MANY_THREADS = 160 * 128
#: Columns of a group of channels below which most of a rectangle would be outside.
FEWEST_COLUMNS = 16

_X, _W, _SUMS = "of_rows", "of_columns", "sums"


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


#: From the one that reads least to the one of which there are most.
CUTS = (
    Cut(64, 64, 4, 8, 1),
    Cut(32, 64, 4, 8, 2),
    Cut(32, 32, 4, 4, 4),
    Cut(16, 32, 4, 4, 8),
)


def cut_for(rows: Dim, columns: int) -> Cut:
    """How results are cut: the largest rectangles of which there are many."""
    most = bounds(rows)[1]
    fitting = [cut for cut in CUTS if cut.width < 2 * columns] or [CUTS[-1]]
    many = (
        cut
        for cut in fitting
        if -(-most // cut.height) * -(-columns // cut.width) * cut.threads >= MANY_THREADS
    )
    return next(many, fitting[-1])


def build_conv(kernel: Kernel) -> Built | None:
    """The loops of a convolution and what follows it; None for all others."""
    first, *following = kernel.stages
    if first.node.op != CONV or any(stage.role is not Role.SCALAR for stage in following):
        return None
    w, groups = first.node.inputs[1], first.node.attr("groups")
    columns = first.node.attr("channels") // groups
    is_whole = groups == 1 or (columns % FOUR == 0 and columns >= FEWEST_COLUMNS)
    if bounds(w.shape[-2])[1] % FOUR or bounds(w.shape[-1])[1] % FOUR or not is_whole:
        return None
    return _Conv(kernel).build()


class _Conv(KernelBuilder):
    def __init__(self, kernel: Kernel) -> None:
        self.node = kernel.stages[0].node
        super().__init__(kernel)
        last = self.nest.position[space_vars(kernel.space)[self.node.ndim - 1]]
        self.column = next((axis for axis in self.nest.outer if axis.var == last), None)
        self.rows = [axis for axis in self.nest.outer if axis is not self.column]
        self.groups: int = self.node.attr("groups")
        self.n_columns: int = self.node.attr("channels") // self.groups
        self.n_rows = product([axis.size for axis in self.rows])
        self.cut = cut_for(self.n_rows * self.groups, self.n_columns)

    def _accesses(self, stages: Sequence[Stage], ready: Collection[Node]) -> list[Access]:
        """Text of its own reads the image and the weights: they don't decide about loops, but that
        columns are an axis by themselves."""
        space = space_vars(self.kernel.space)
        outer = outer_index(self.kernel.axes, space)
        own: list[Access] = [(None, outer[-1])]
        if self.node in self.stores:
            own.append((self.node, linear(outer, self.node.shape)))
        return [
            *own,
            *super()._accesses([one for one in stages if one.node is not self.node], ready),
        ]

    def build(self) -> Built:
        cut = self.cut
        down, across = ceildiv(self.n_rows, cut.height), -(-self.n_columns // cut.width)
        tile = ir.Name("tile")
        text = _Text(self, cut)
        names = ("square_row", "square_column", "group", "n_rows", *text.sizes)
        arrays = (text.x, text.w)
        block: ir.Block = (
            ir.Let("square_column", tile % across),
            ir.Let("group", tile // across % self.groups),
            ir.Let("square_row", tile // (across * self.groups)),
            ir.Let("n_rows", index_expr(self.n_rows)),
            *(ir.Let(name, index_expr(size)) for name, size in text.sizes.items()),
            ir.Foreign(text.sums(), tuple(map(ir.Name, names)), arrays, (_X, _W), arrays),
            ir.Barrier(),
            loop(
                "part",
                cut.own_rows,
                ir.Foreign(text.part(), (ir.Name("part"),), (), (_SUMS,)),
                ir.Barrier(),
                self._results(),
                ir.Barrier(),
                vector=False,
            ),
        )
        shared = (
            ir.SharedArray(_X, FLOAT32, cut.step * text.pitch_x, FOUR),
            ir.SharedArray(_W, FLOAT32, cut.step * text.pitch_w, FOUR),
            ir.SharedArray(_SUMS, FLOAT32, cut.n_sums * cut.teams),
        )
        built = self.loop_kernel(down * across * self.groups, block)
        loops = ir.GroupKernel(*built.loops.parts, threads=cut.threads, shared=shared)
        return replace(built, loops=replace(loops, is_proven=True))

    def _results(self) -> ir.For:
        """What follows from the sums in shared memory; some may lie outside. A thread has several
        results: it reads what it needs for all of them before it stores one, since a device does
        not know that these are other bytes."""
        scope, stores = Scope(), []
        for k in range(-(-self.cut.n_sums // self.cut.threads)):
            stores += self._result(scope, k)
        scope.statements += stores
        return loop("thread", self.cut.threads, *scope.block)

    def _result(self, scope: Scope, k: int) -> list[ir.Store]:
        """One of a thread's results, and the stores of it."""
        cut = self.cut
        number = scope.let(f"result{k}", ir.Name("thread") + k * cut.threads)
        is_one: ir.Expr = number < index_expr(cut.n_sums)
        if cut.n_sums < cut.threads:
            number = scope.let(f"known{k}", ir.Binary("min", number, ir.index(cut.n_sums - 1)))
        first = ir.Name("square_row") * cut.height
        row = scope.let(f"row{k}", first + number // cut.width * cut.own_rows + ir.Name("part"))
        column = scope.let(f"column{k}", ir.Name("square_column") * cut.width + number % cut.width)
        is_place = (row < index_expr(self.n_rows)) & (column < index_expr(self.n_columns))
        inside = scope.let(f"inside{k}", is_place & is_one)
        # What is outside reads what the last one reads: under a condition each would wait for it.
        near_row = ir.Binary("min", row, index_expr(self.n_rows) - 1)
        near_column = ir.Binary("min", column, ir.index(self.n_columns - 1))
        own = {axis.var: loop_var(f"{axis.var.name}_{k}", axis.size) for axis in self.nest.outer}
        rows = [replace(axis, var=own[axis.var]) for axis in self.rows]
        self._name_rows(scope, rows, near_row)
        if self.column is not None:
            before = ir.Name("group") * self.n_columns if self.groups > 1 else ir.index(0)
            scope.let(own[self.column.var].name, before + near_column)
        moved: dict[Var, Dim] = {**own}
        point = tuple(substitute(dim, moved) for dim in self.outer_point)
        total: ir.Expr = ir.Load(_SUMS, number, FLOAT32)
        for team in range(1, cut.teams):
            total = total + ir.Load(_SUMS, number + team * cut.n_sums, FLOAT32)
        stores = []
        for stage in self.kernel.stages:
            node = stage.node
            value = total if node is self.node else self.values.at(node, point, scope)
            value = self.values.named(cast(value, node.dtype), scope)
            scope.known[node, point, None] = value
            if node in self.stores:
                at = index_expr(linear(point, node.shape))
                stores.append(ir.Store(self.stores[node], at, value, inside))
        return stores


class _Text:
    """What a group does for its sums."""

    def __init__(self, builder: _Conv, cut: Cut) -> None:
        self.cut = cut
        node = builder.node
        x, w = node.inputs
        self.x, self.w = builder.names[in_memory(x)], builder.names[in_memory(w)]
        self.taps = [bounds(size)[1] for size in w.shape[:-2]]
        self.channels = bounds(w.shape[-2])[1]
        self.depth = self.channels
        for taps in self.taps:
            self.depth *= taps
        self.of_x, self.of_w = bounds(x.shape[-1])[1], bounds(w.shape[-1])[1]
        self.n_columns = builder.n_columns
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
                f"${_X}[(part4 + {q}u) * {self.pitch_x}u + {row} / 4u][{row} % 4u] = f{i}.{lane};"
                for q, lane in enumerate("xyzw")
            ]
        width4 = self.cut.width // FOUR
        for i in range(self.n_w):
            at = f"(lane + {i * self.cut.threads}u)"
            place = f"{at} / {width4}u * {self.pitch_w}u + {at} % {width4}u"
            lines.append(f"${_W}[{place}] = bitcast<vec4f>(q{i});")
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
                lines.append(f"let a{i} = ${_X}[x0 + {k * self.pitch_x + i}u];")
            for j in range(cut.own_columns // FOUR):
                lines.append(f"let b{j} = ${_W}[w0 + {k * self.pitch_w + j * cut.across}u];")
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
                    lines.append(f"${_SUMS}[{at}] = c{i}_{j}.{lane};")
            lines.append("}")
        return "\n".join([*lines, "default: {}", "}"])
