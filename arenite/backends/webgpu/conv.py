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

from arenite.backends.webgpu.channels_last import CONV, FOUR
from arenite.backends.webgpu.conv_text import SUMS, ConvText, Cut, W, X
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Access, KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import loop_var
from arenite.codegen.kernels.values import FLOAT32, Scope, cast, index_expr, loop
from arenite.ir.dim import Dim, Var, bounds, ceildiv, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import linear, space_vars
from arenite.schedule.kernel import Kernel, Role, Stage, outer_index

#: What keeps a large device busy: with fewer, rectangles are smaller.
MANY_THREADS = 160 * 128
#: Columns of a group of channels below which most of a rectangle would be outside.
FEWEST_COLUMNS = 16

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
    channels = bounds(w.shape[-2])[1]
    if not channels or channels % FOUR or bounds(w.shape[-1])[1] % FOUR or not is_whole:
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
        text = ConvText(self.node, self.names, self.n_columns, cut)
        names = ("square_row", "square_column", "group", "n_rows", *text.sizes)
        arrays = (text.x, text.w)
        block: ir.Block = (
            ir.Let("square_column", tile % across),
            ir.Let("group", tile // across % self.groups),
            ir.Let("square_row", tile // (across * self.groups)),
            ir.Let("n_rows", index_expr(self.n_rows)),
            *(ir.Let(name, index_expr(size)) for name, size in text.sizes.items()),
            ir.Foreign(
                text.sums(),
                tuple(map(ir.Name, names)),
                arrays,
                (X, W),
                arrays,
                accesses=text.accesses(),
                turns=ir.index(text.turns),
            ),
            ir.Barrier(),
            loop(
                "part",
                cut.own_rows,
                ir.Foreign(
                    text.part(), (ir.Name("part"),), (), (SUMS,), accesses=text.part_accesses()
                ),
                ir.Barrier(),
                self._results(),
                ir.Barrier(),
                vector=False,
            ),
        )
        shared = (
            ir.SharedArray(X, FLOAT32, cut.step * text.pitch_x, FOUR),
            ir.SharedArray(W, FLOAT32, cut.step * text.pitch_w, FOUR),
            ir.SharedArray(SUMS, FLOAT32, cut.n_sums * cut.teams),
        )
        built = self.loop_kernel(down * across * self.groups, block)
        loops = ir.GroupKernel(*built.loops.parts, threads=cut.threads, shared=shared)
        return replace(built, loops=loops)

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
        total: ir.Expr = ir.Load(SUMS, number, FLOAT32)
        for team in range(1, cut.teams):
            total = total + ir.Load(SUMS, number + team * cut.n_sums, FLOAT32)
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
