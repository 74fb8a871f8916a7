"""What all kernels for products have in common: where the sides lie, and what follows the sums.

    result[row, column] = sum over k of x[row, k] * w[column, k]

A kernel has one product, or two of the same x by weights of the same type; few rows of x may be
normed on the way in. What is made here computes sums by text of the device's own into shared
memory; from there on it is loops, one result a thread: bias, residual, activation, as the schedule
has joined them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built, Scratches
from arenite.codegen.kernels.loops import Axis, Nest, loop_var
from arenite.codegen.kernels.values import FLOAT32, Scope, cast, index_expr, loop
from arenite.dtype import DType, Kind, uint8
from arenite.ir.dim import Dim, Var, bounds, substitute, terms_of, variables
from arenite.ir.node import Node
from arenite.ir.ops.access import Source, coefficient, is_view, linear, sources, space_vars
from arenite.schedule.kernel import Kernel, Role

#: Results of a group, as shared memory holds them.
SUMS = "sums"


@dataclass(frozen=True, slots=True)
class Side:
    """Element (i, k) of a side is element `first` + i * `step` + k * `deep` of an array."""

    array: str
    dtype: DType
    first: Dim
    step: int
    deep: int

    def is_in_fours(self, depth: int) -> bool:
        """Whether rows can be read by four words, to their end."""
        if self.dtype.kind is not Kind.FLOAT or self.dtype.bits not in (16, 32):
            return False
        per_four = 128 // self.dtype.bits
        numbers = (*terms_of(self.first).values(), self.step, depth)
        return self.deep == 1 and not any(n % per_four for n in numbers)


class ProductBuilder(KernelBuilder):
    """A kernel that is one product, or two, and what follows."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.products = [stage.node for stage in kernel.stages if stage.role is Role.REDUCE]
        self.node = self.products[0]
        space = space_vars(kernel.space)
        left, right, *others = self.reduction(self.node).factors(space)
        self.rows = own_axis(self.nest, left, right)
        self.columns = own_axis(self.nest, right, left)
        #: None where a side does not lie as a matrix.
        self.x, self.w = self._side(left, self.rows), self._side(right, self.columns)
        more = (self.reduction(node).factors(space)[1] for node in self.products[1:])
        found = [self.w, *(self._side(other, self.columns) for other in more)]
        self.weights = [side for side in found if side is not None]
        #: What x is multiplied with once its rows are normed; None where they are not.
        self.gain = self._side(others[0], None) if others else None
        self._normed = self._side(others[1], self.rows) if others[1:] else None
        self._has_all = len(found) == len(self.weights) and (self.gain is None) == (not others)

    def of_normed_rows(self) -> ProductBuilder:
        """The same for rows that were normed before, where there are such."""
        if self.gain is None:
            return self
        other = copy(self)
        other.x, other.gain = self._normed, None
        return other

    def computed(self) -> Sequence[Node]:
        return [node for node in super().computed() if not node.dtype.is_block]

    @property
    def is_plain(self) -> bool:
        """Whether rows and columns are all there is, of float32 by a matrix."""
        others = [a for a in self.nest.outer if a not in (self.rows, self.columns)]
        return (
            not others
            and self._has_all
            and self.x is not None
            and self.w is not None
            and self.columns is not None
            and len(self.nest.reduced) == 1
            and isinstance(self.columns.size, int)
            and isinstance(self.nest.reduced[0].size, int)
            and self.node.dtype == FLOAT32
            and self.x.dtype == FLOAT32
            and all(isinstance(side.first, int) for side in self.weights)
            and (self.gain is None or self.gain.is_in_fours(self.depth))
            and min(self.depth, self.n_columns) > 0
        )

    @property
    def n_columns(self) -> int:
        assert self.columns is not None
        return bounds(self.columns.size)[1]

    @property
    def n_rows(self) -> Dim:
        return 1 if self.rows is None else self.rows.size

    @property
    def depth(self) -> int:
        return bounds(self.nest.reduced[0].size)[1]

    @property
    def arrays(self) -> tuple[str, ...]:
        """Those that text reads."""
        sides = (self.x, *self.weights, self.gain)
        return tuple(dict.fromkeys(side.array for side in sides if side is not None))

    def row_scale(self, squares: str) -> str:
        """What a row is multiplied with to be normed, by the sum of its squares."""
        epsilon = float(self.node.attr("epsilon"))
        return f"inverseSqrt({squares} / {float(self.depth)!r} + {epsilon!r})"

    def _side(self, side: Source, own: Axis | None) -> Side | None:
        if len(self.nest.reduced) != 1:
            return None
        node, index = side.node, self.nest.map_index(side.index)
        while node not in self.names:
            inner = sources(node, index) if is_view(node) else ()
            if len(inner) != 1 or inner[0].guards:
                return None
            node, index = inner[0].node, inner[0].index
        place = linear(index, node.shape)
        axes = [self.nest.reduced[0].var, *([] if own is None else [own.var])]
        steps = [coefficient(place, var) for var in axes]
        first = substitute(place, dict.fromkeys(axes, 0))
        found = (*steps[1:], *([] if own is not None else [0]), steps[0])
        if any(not isinstance(one, int) for one in found):
            return None
        if not isinstance(first, int) and any(a.var in variables(first) for a in self.nest.axes):
            return None
        step, deep = (bounds(one)[1] for one in found if one is not None)
        if min(step, deep) < 0:
            return None  # what is turned round is not read by four words
        return Side(self.names[node], node.dtype, first, step, deep)

    # Loops.

    def rows_of_x(self) -> ir.Block:
        """How many rows there are, and where the first one begins, as foreign text asks for."""
        assert self.x is not None
        return (
            ir.Let("n_rows", index_expr(self.n_rows)),
            ir.Let("x_first", index_expr(self.x.first)),
        )

    def few_rows_of_x(self, m: int, n_blocks: Dim) -> ir.Block:
        """The same of m rows, block number n of so many: those from `first_row` on, by the columns
        of `column_tile`."""
        tile, first_row = ir.Name("tile"), ir.Name("first_row")
        if n_blocks == 1:
            own = ir.Let("first_row", ir.index(0)), ir.Let("column_tile", tile)
            return (*own, *self.rows_of_x())
        assert self.x is not None
        blocks = index_expr(n_blocks)
        return (
            ir.Let("first_row", tile % blocks * m),
            ir.Let("column_tile", tile // blocks),
            ir.Let("n_rows", index_expr(self.n_rows) - first_row),
            ir.Let("x_first", index_expr(self.x.first) + first_row * self.x.step),
        )

    def accesses(self) -> tuple[ir.Access, ...]:
        """The elements that text reads which stays inside of the rows of its sides, for the proof
        that these lie in their arrays."""
        line, deep = ir.Name("line"), ir.Name("deep")
        assert self.x is not None
        sides: list[tuple[Side, ir.Expr, ir.Expr]]
        sides = [(self.x, ir.Name("x_first"), ir.Name("n_rows"))]
        sides += [(w, index_expr(w.first), ir.index(self.n_columns)) for w in self.weights]
        if self.gain is not None:
            sides.append((self.gain, index_expr(self.gain.first), ir.index(1)))
        found = []
        for side, first, n_lines in sides:
            step, length = side.step, self.depth
            if side.dtype.is_block:
                step, length = (side.dtype.nbytes((n,)) for n in (step, length))
            at = first + line * step + deep * side.deep
            most = ((line.name, n_lines - 1), (deep.name, ir.index(length - 1)))
            found.append(ir.Access(side.array, at, most))
        return tuple(found)

    def kernel_of(
        self,
        n_tiles: Dim,
        block: ir.Block,
        threads: int,
        shared: Sequence[ir.SharedArray],
        scratch: Scratches = (),
    ) -> Built:
        """All of it, where arrays of blocks are bytes."""
        built = self.loop_kernel(n_tiles, block, scratch)
        arrays = tuple(
            replace(one, dtype=uint8) if one.dtype.is_block else one for one in built.loops.arrays
        )
        loops = ir.GroupKernel(*built.loops.parts, threads=threads, shared=tuple(shared))
        return replace(built, loops=replace(loops, arrays=arrays))

    def results(self, count: int, row: ir.Expr, column: ir.Expr) -> ir.For:
        """What follows from `count` sums of each product in shared memory, of which number `result`
        belongs to this row and this column; some may lie outside."""
        scope = Scope()
        moved: dict[Var, Dim] = {}
        inside: ir.Expr | None = None
        for axis, value in ((self.rows, row), (self.columns, column)):
            name = "row" if value is row else "column"
            if axis is None:
                continue
            at = loop_var(f"result_{name}", axis.size)
            moved[axis.var] = at
            one = scope.let(at.name, value) < index_expr(axis.size)
            inside = one if inside is None else inside & one
        inner = Scope(scope)
        outer_point = self.outer_point
        self.outer_point = tuple(substitute(dim, moved) for dim in outer_point)
        for k, node in enumerate(self.products):
            total = ir.Load(SUMS, ir.Name("result") + k * count, FLOAT32)
            self.name_scalar(node, cast(total, node.dtype), inner)
        for stage in self.kernel.stages[len(self.products) :]:
            self._scalar(stage.node, inner)
        self.outer_point = outer_point
        assert inside is not None
        scope.statements.append(ir.If(inside, inner.block))
        return loop("result", count, *scope.block)


def own_axis(nest: Nest, side: Source, other: Source) -> Axis | None:
    """The last axis of the results that one side of a product has and the other has not."""
    own, others = place_in(nest, side), place_in(nest, other)
    for axis in reversed(nest.outer):
        if axis.var in variables(own) and axis.var not in variables(others):
            return axis
    return None


def place_in(nest: Nest, side: Source) -> Dim:
    """Where an element of a side lies in its array."""
    return substitute(linear(side.index, side.node.shape), nest.position)


def is_product(kernel: Kernel, *ops: str) -> bool:
    """Whether a kernel is products, by one of these ops, and what follows them."""
    reduced = [stage for stage in kernel.stages if stage.role is Role.REDUCE]
    is_first = len(reduced) > 0 and kernel.stages[: len(reduced)] == tuple(reduced)
    has_rows = any(stage.role is Role.ROW for stage in kernel.stages)
    return is_first and not has_rows and all(stage.node.op in ops for stage in reduced)
