"""Products: a group computes a square of results, through shared memory.

         64 columns
        ┌──────────────┐    a step copies 64 x 16 of the left side and 16 x 64 of the right into
     64 │ 16 x 16      │    shared memory, one element a thread and time; then each thread takes 4
   rows │ threads,     │    rows and 4 columns of them for its 16 sums
        │ 4 x 4 each   │    what lies outside of the matrices is 0, and is not stored
        └──────────────┘

What the sides are made of is computed on the way in, what follows the product on the way out.
"""

from __future__ import annotations

from dataclasses import replace

from arenite.backends.webgpu.products import own_axis, place_in
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.loops import Axis, loop_var
from arenite.codegen.kernels.values import FLOAT32, Scope, cast, index_expr, loop
from arenite.dtype import Kind
from arenite.ir.dim import Dim, Var, bounds, ceildiv, product, substitute
from arenite.ir.ops.access import Source, space_vars
from arenite.schedule.kernel import Kernel, Role

#: Results of a group along each side, results of a thread, and products of a step.
SIDE = 64
OWN = 4
DEPTH = 16
THREADS = (SIDE // OWN) ** 2
#: Rows below which a product is better done by rows: most of a square would be outside.
FEWEST_ROWS = 8


def build_product(kernel: Kernel) -> Built | None:
    """The loops of a kernel that is one product and what follows it; None for all others."""
    reduced = [stage for stage in kernel.stages if stage.role is Role.REDUCE]
    if len(reduced) != 1 or any(stage.role is Role.ROW for stage in kernel.stages):
        return None
    node = reduced[0].node
    is_product = node.op == "matmul" and node.dtype.kind is Kind.FLOAT and node.dtype.bits <= 32
    if not is_product or kernel.stages[0] is not reduced[0]:
        return None
    builder = _Product(kernel)
    return builder.build() if builder.is_square else None


class _Product(KernelBuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.node = kernel.stages[0].node
        self.left, self.right = self.reduction(self.node).factors(space_vars(kernel.space))
        self.rows = own_axis(self.nest, self.left, self.right)
        self.columns = own_axis(self.nest, self.right, self.left)

    @property
    def is_square(self) -> bool:
        if self.rows is None or self.columns is None or len(self.nest.reduced) != 1:
            return False
        return min(bounds(self.rows.size)[1], bounds(self.columns.size)[1]) >= FEWEST_ROWS

    def build(self) -> Built:
        rows, columns = self.rows, self.columns
        assert rows is not None
        assert columns is not None
        [depth] = self.nest.reduced
        others = [axis for axis in self.nest.outer if axis not in (rows, columns)]
        down, across = ceildiv(rows.size, SIDE), ceildiv(columns.size, SIDE)
        squares = [
            *others,
            Axis(loop_var("square_row", down), down, False),
            Axis(loop_var("square_column", across), across, False),
        ]
        outer, thread = Scope(), Scope()
        self._name_rows(outer, squares, outer.let("row", ir.Name("tile")))
        self._thread(thread, rows, columns, depth)
        threads = loop("thread", THREADS, *thread.block)
        n_tiles = product([axis.size for axis in squares])
        built = self.loop_kernel(n_tiles, (*outer.block, threads))
        shared = (
            ir.SharedArray("left", FLOAT32, SIDE * DEPTH),
            ir.SharedArray("right", FLOAT32, SIDE * DEPTH),
        )
        loops = ir.GroupKernel(*built.loops.parts, threads=THREADS, shared=shared)
        return replace(built, loops=loops)

    def _thread(self, scope: Scope, rows: Axis, columns: Axis, depth: Axis) -> None:
        """What one thread does: its part of each copy, its sums, its results."""
        thread, per_side = ir.Name("thread"), SIDE // OWN
        scope.statements += [
            ir.Let("down", thread // per_side * OWN),
            ir.Let("across", thread % per_side * OWN),
            *(ir.Accumulator(_sum(i, j), ir.Const(0.0, FLOAT32)) for i, j in _pairs()),
        ]
        step = Scope(scope)
        self._copy(step, "left", self.left, rows, "square_row", depth)
        self._copy(step, "right", self.right, columns, "square_column", depth)
        step.statements += [ir.Barrier(), self._multiply(), ir.Barrier()]
        n_steps = ceildiv(depth.size, DEPTH)
        scope.statements.append(loop("step", n_steps, *step.block, vector=False))
        for i, j in _pairs():
            self._result(scope, rows, columns, i, j)

    def _copy(
        self, scope: Scope, array: str, side: Source, own: Axis, square: str, depth: Axis
    ) -> None:
        """A thread's elements of one side of a step: along the axis in which memory runs."""
        place = place_in(self.nest, side)
        is_deep = _is_contiguous(place, depth.var)
        for k in range(SIDE * DEPTH // THREADS):
            element = ir.Name("thread") + k * THREADS
            near = DEPTH if is_deep else SIDE
            first, second = element % near, element // near
            in_depth, in_side = (first, second) if is_deep else (second, first)
            at, deep = loop_var(f"{array}{k}", own.size), loop_var(f"{array}{k}_deep", depth.size)
            of_side = scope.let(f"{array}{k}_from_side", in_side)
            of_depth = scope.let(f"{array}{k}_from_depth", in_depth)
            is_in_side = scope.let(at.name, ir.Name(square) * SIDE + of_side) < index_expr(own.size)
            in_step = scope.let(deep.name, ir.Name("step") * DEPTH + of_depth)
            is_inside = is_in_side & (in_step < index_expr(depth.size))
            inside = scope.let(f"{array}{k}_inside", is_inside)
            moved: dict[Var, Dim] = {own.var: at, depth.var: deep}
            index = tuple(
                substitute(substitute(dim, self.nest.position), moved) for dim in side.index
            )
            value = cast(self.values.at(side.node, index, scope, inside), FLOAT32)
            value = ir.Select(inside, value, ir.Const(0.0, FLOAT32))
            scope.statements.append(ir.Store(array, of_depth * SIDE + of_side, value))

    def _multiply(self) -> ir.For:
        """A step: what was copied into shared memory, multiplied."""
        deep = ir.Name("deep")
        body: list[ir.Stmt] = []
        for array, first in (("left", "down"), ("right", "across")):
            for k in range(OWN):
                load = ir.Load(array, deep * SIDE + ir.Name(first) + k, FLOAT32)
                body.append(ir.Let(f"{array}_{k}", load))
        for i, j in _pairs():
            both = ir.Name(f"left_{i}", FLOAT32), ir.Name(f"right_{j}", FLOAT32)
            body.append(ir.Accumulate(_sum(i, j), "add", ir.Binary("mul", *both)))
        return loop("deep", DEPTH, *body, vector=False)

    def _result(self, scope: Scope, rows: Axis, columns: Axis, i: int, j: int) -> None:
        """One of a thread's results, with what follows the product."""
        row, column = loop_var(f"row{i}_{j}", rows.size), loop_var(f"column{i}_{j}", columns.size)
        at_row = scope.let(row.name, ir.Name("square_row") * SIDE + ir.Name("down") + i)
        at_column = scope.let(column.name, ir.Name("square_column") * SIDE + ir.Name("across") + j)
        inner = Scope(scope)
        outer_point = self.outer_point
        moved: dict[Var, Dim] = {rows.var: row, columns.var: column}
        self.outer_point = tuple(substitute(dim, moved) for dim in outer_point)
        value = cast(ir.Name(_sum(i, j), FLOAT32), self.node.dtype)
        self.name_scalar(self.node, value, inner)
        for stage in self.kernel.stages[1:]:
            self._scalar(stage.node, inner)
        self.outer_point = outer_point
        inside = (at_row < index_expr(rows.size)) & (at_column < index_expr(columns.size))
        scope.statements.append(ir.If(inside, inner.block))


def _pairs() -> list[tuple[int, int]]:
    return [(i, j) for i in range(OWN) for j in range(OWN)]


def _sum(i: int, j: int) -> str:
    return f"sum{i}_{j}"


def _is_contiguous(place: Dim, var: Var) -> bool:
    following = substitute(place, {var: var + 1})
    return following - place == 1
