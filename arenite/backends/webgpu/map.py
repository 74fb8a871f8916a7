"""Maps: all points counted through, a stretch of them a group.

32-bit results      an iteration makes one element; so it does where that is a short sum
narrower ones       an iteration makes as many as fill a word, and stores the word:

    rows     4w   4w+1  4w+2  4w+3       of the last word only the bytes that belong to the
    word w   [ a  |  b  |  c  |  d ]     array are changed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.groups import grouped
from arenite.codegen.kernels.build import KernelBuilder
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.values import UINT32, Scope, index_expr
from arenite.codegen.kernels.window_bounds import Ends
from arenite.dtype import BY_NAME
from arenite.ir.dim import Dim, LoopVar, Var, bounds, ceildiv, product, substitute
from arenite.ir.node import Node
from arenite.ir.ops.access import Index, linear
from arenite.schedule.kernel import Kernel, Role, Stage

#: Threads of a group; every device has as many.
THREADS = 256
#: Elements of a short sum.
MOST_SUMMED = 64
#: Iterations of one thread at the most, and groups from which on it makes more than one.
MOST_PER_THREAD = 16
MANY_GROUPS = 4096


def build_map(kernel: Kernel) -> Built:
    """The loops of a kernel that reduces nothing."""
    return Map(kernel).build()


def build_short_sums(kernel: Kernel) -> Built | None:
    """The loops of a kernel whose results are made of few elements each, as in pools and depthwise
    convolutions, where neighbours read neighbours; None for all others."""
    is_row = any(stage.role is Role.ROW for stage in kernel.stages)
    most = bounds(product([kernel.space[axis] for axis in kernel.axes]))[1]
    is_narrow = any(node.dtype.bits < 32 for node in kernel.outputs)
    if is_row or is_narrow or most > MOST_SUMMED:
        return None
    builder = _ShortSums(kernel)
    return builder.build() if builder.nest.vector_is_outer else None


class Map(KernelBuilder):
    """A kernel whose points wait for none of each other."""

    def build(self) -> Built:
        narrowest = min(node.dtype.bits for node in self.stores)
        n_points = product([axis.size for axis in self.nest.axes])
        return self._words(n_points, 32 // narrowest) if narrowest < 32 else self._plain(n_points)

    def _plain(self, n_points: Dim) -> Built:
        scope = Scope()
        self._name_rows(scope, self.nest.axes)
        self._row(scope)
        return self.in_stretches("row", n_points, scope.block)

    def in_stretches(self, var: str, count: Dim, block: ir.Block) -> Built:
        return in_stretches(self.loop_kernel, var, count, block)

    def _words(self, n_points: Dim, per_word: int) -> Built:
        """As many elements an iteration as the narrowest result has in a word; there are more than
        none, so that one behind the end can be the last one again."""
        scope = Scope()
        rows = [self._row_at(k, per_word, n_points, scope) for k in range(per_word)]
        # All values first: a result may lie in the bytes of what another is computed from.
        made = {
            node: [self.values.stored(node, row, scope) for row in rows] for node in self.stores
        }
        for node, name in self.stores.items():
            if node.dtype.bits < 32:
                values = [value for [value] in made[node]]
                self._store_words(node, name, values, n_points, scope)
                continue
            for row, parts in zip(rows, made[node], strict=True):
                first = linear(row, node.shape) * len(parts)
                for k, value in enumerate(parts):
                    scope.statements.append(ir.Store(name, index_expr(first + k), value))
        built = self.in_stretches("word", ceildiv(n_points, per_word), scope.block)
        narrow = {name for node, name in self.stores.items() if node.dtype.bits < 32}
        arrays = tuple(
            ir.ArrayArg(one.name, UINT32, "inout") if one.name in narrow else one
            for one in built.loops.arrays
        )
        return replace(built, loops=replace(built.loops, arrays=arrays))

    def _row_at(self, k: int, per_word: int, n_points: Dim, scope: Scope) -> Index:
        """The index of element k of a word, named in the scope."""
        last = index_expr(n_points) - 1
        row = ir.Binary("min", ir.Name("word") * per_word + k, last)
        old = self.nest.axes
        new = [LoopVar(f"{axis.var.name}_{k}", axis.var.low, axis.var.high) for axis in old]
        axes = [replace(axis, var=var) for axis, var in zip(old, new, strict=True)]
        moved: dict[Var, Dim] = {axis.var: var for axis, var in zip(old, new, strict=True)}
        self._name_rows(scope, axes, scope.let(f"row_{k}", row))
        return tuple(substitute(dim, moved) for dim in self.point)

    def _store_words(
        self, node: Node, name: str, values: list[ir.Expr], n_points: Dim, scope: Scope
    ) -> None:
        bits = node.dtype.bits
        per_word = 32 // bits
        for first in range(0, len(values), per_word):
            word = word_of(values[first : first + per_word], bits)
            row = ir.Name("word") * len(values) + first
            at = ir.Name("word") * (len(values) // per_word) + first // per_word
            self._store_word(name, at, word, index_expr(n_points) - row, bits, scope)

    def _store_word(
        self, name: str, at: ir.Expr, word: ir.Expr, left: ir.Expr, bits: int, scope: Scope
    ) -> None:
        """A word of which `left` elements belong to the array, or all."""
        here, n_left = (self.values.named(one, scope) for one in (at, left))
        is_whole = self.values.named(n_left >= 32 // bits, scope)
        is_some = self.values.named(n_left > 0, scope)
        part = ~is_whole & is_some
        old = ir.Load(name, here, UINT32, part)
        n_bits = ir.Cast(ir.Select(part, n_left * bits, ir.index(32)), UINT32)
        kept = ir.Const(0xFFFFFFFF, UINT32) << n_bits  # 0 where all are ours
        scope.statements.append(ir.Store(name, here, (word & ~kept) | (old & kept), is_some))


class _ShortSums(Map):
    """A thread makes one result, as a map does, with the sums inside."""

    def _ends(self, walked: Sequence[Stage]) -> Ends:
        """None: neighbours see other ends of what is padded, and go through it together."""
        return {}

    def build(self) -> Built:
        scope = Scope()
        self._name_rows(scope, self.nest.outer)
        self._row(scope)
        n_points = product([axis.size for axis in self.nest.outer])
        return self.in_stretches("row", n_points, scope.block)


def in_stretches(
    built_of: Callable[[Dim, ir.Block], Built], var: str, count: Dim, block: ir.Block
) -> Built:
    """`block` for each `var` below a count, a stretch of them a group; `built_of` has the arrays,
    and is given tiles and what each does."""
    per_thread = max(1, bounds(count)[1] // (THREADS * MANY_GROUPS))
    length = THREADS * min(MOST_PER_THREAD, per_thread)
    first = ir.Name("tile") * length
    last = ir.Binary("min", first + length, index_expr(count))
    loop = ir.For(var, first, last, block, vector=True)
    built = built_of(ceildiv(count, length), (loop,))
    return replace(built, loops=grouped(built.loops, THREADS))


def word_of(values: Sequence[ir.Expr], bits: int) -> ir.Expr:
    """As many elements as a word has, the first in its lowest bits."""
    word = _bits_of(values[0], bits)
    for k, value in enumerate(values[1:], 1):
        word = word | (_bits_of(value, bits) << k * bits)
    return word


def _bits_of(value: ir.Expr, bits: int) -> ir.Expr:
    if value.dtype == ir.BOOL:
        return ir.Select(value, ir.Const(1, UINT32), ir.Const(0, UINT32))
    unsigned = BY_NAME[f"uint{bits}"]
    same = value if value.dtype == unsigned else ir.Bitcast(value, unsigned)
    return ir.Cast(same, UINT32)
