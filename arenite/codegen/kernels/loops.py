"""The loops of a kernel: which axes become one, which is vectorised, how work is cut into tiles.

An axis that accesses divide by a number is cut there into two. Neighbouring axes that every access
walks as one are joined, so that an elementwise kernel over [8, 3, 64] is a loop over 1536. The
vector axis is the one along which most accesses are contiguous. A tile is a block of rows (all
outer axes but the vector one, counted through) and a chunk of the vector axis; tiles depend on
sizes alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arenite.codegen.affine import REPEATS
from arenite.ir import Dim, Var, bounds, ceildiv, maximum, product
from arenite.ir.dim import LoopVar, exact_quotient, substitute
from arenite.ir.ops.access import Index, coefficient, divisors, space_vars
from arenite.schedule.kernel import Kernel

#: Points of the space in one tile: some ten microseconds of plain arithmetic.
TILE_POINTS = 32_768
#: What a map costs, in additions, that is cut into two tiles where it would be one: some 500 ns.
HALVED_COST = 1 << 14
#: Elements of a chunk of the vector axis.
CHUNK = 4096
#: Elements of that axis at the least, where all others are reduced: a row's worth of lines.
COLUMNS = 256
#: Elements of the side of a block that is transposed.
BLOCK = 64
#: Elements of a row up to which its number is not taken apart for each row, where that is possible.
SHORT_ROW = 128
#: Elements of an axis at the least that is worth a vector loop.
SHORT = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its variable and size, and whether it is reduced."""

    var: Var
    size: Dim
    is_reduced: bool


@dataclass(frozen=True, slots=True)
class Nest:
    """`position` maps the variables of the kernel's space to those of the loops."""

    axes: tuple[Axis, ...]
    position: dict[Var, Dim]
    vector: Axis | None  # None for a space of one point
    tile_rows: int
    chunk: int
    #: A row axis along which some access is contiguous that is not along the vector axis: the two
    #: are walked in square blocks, which are transposed in registers.
    across: Axis | None = None

    @property
    def reduced(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.is_reduced)

    @property
    def outer(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if not axis.is_reduced)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Outer axes other than the vector axis and the one across it."""
        special = (self.vector, self.across)
        return tuple(axis for axis in self.outer if axis not in special)

    @property
    def inner_rows(self) -> int:
        """Rows of the last of several row axes, where tiles can hold them all; else 1."""
        size = self.rows[-1].size if len(self.rows) > 1 else 1
        return size if isinstance(size, int) and 1 < size <= self.tile_rows else 1

    @property
    def n_rows(self) -> Dim:
        return product([axis.size for axis in self.rows])

    @property
    def vector_is_outer(self) -> bool:
        return self.vector is not None and not self.vector.is_reduced

    @property
    def n_chunks(self) -> Dim:
        if self.vector is None or self.vector.is_reduced:
            return 1
        return ceildiv(self.vector.size, self.chunk)

    @property
    def n_blocks(self) -> Dim:
        return 1 if self.across is None else ceildiv(self.across.size, BLOCK)

    @property
    def n_tiles(self) -> Dim:
        return ceildiv(self.n_rows, self.tile_rows) * self.n_blocks * self.n_chunks

    def map_index(self, index: Index) -> Index:
        return tuple(substitute(dim, self.position) for dim in index)


def loop_var(name: str, size: Dim) -> Var:
    """The variable of a loop over [0, size)."""
    return LoopVar(name, 0, max(0, bounds(size)[1] - 1))


def nest(kernel: Kernel, accesses: Sequence[Dim]) -> Nest:
    """The loops for a kernel whose accesses (positions, guards) are given in its space."""
    variables = space_vars(kernel.space)
    axes = [
        Axis(var, size, k in kernel.axes)
        for k, (var, size) in enumerate(zip(variables, kernel.space, strict=True))
    ]
    position: dict[Var, Dim] = {var: var for var in variables}
    used = list(dict.fromkeys(accesses))
    axes, position, used = _without_ones(axes, position, used)
    if not kernel.axes:
        axes, position, used = _cut(axes, position, used)
    axes, position, used = _joined(axes, position, used)
    vector = _vector_axis(axes, used)
    across = None if kernel.axes else _across_axis(axes, used, vector)
    inner = product([axis.size for axis in axes if axis.is_reduced])
    if vector is not None and not vector.is_reduced:
        width = min(bounds(vector.size)[1], CHUNK)
        alone = all(axis is vector or axis.is_reduced for axis in axes)
        points = max(1, min(bounds(inner)[1], TILE_POINTS))
        chunk = max(COLUMNS, TILE_POINTS // points) if alone else CHUNK
        chunk = min(chunk, 4 * CHUNK) // 64 * 64
    else:
        width, chunk = 1, 1
    row_points = max(1, bounds(inner)[1]) * max(1, width)
    if across is not None:
        chunk = 4 * BLOCK
        row_points = max(1, min(width, chunk)) * max(1, min(bounds(across.size)[1], BLOCK))
    tile_rows = max(1, TILE_POINTS // row_points)
    made = Nest(tuple(axes), position, vector, tile_rows, chunk, across)
    if row_points <= SHORT_ROW and made.inner_rows > 1 and not kernel.axes:
        made = replace(made, tile_rows=tile_rows - tile_rows % made.inner_rows)
    cost = bounds(made.n_rows)[1] * row_points * kernel.map_cost
    if made.n_tiles == 1 and isinstance(made.n_rows, int) and cost >= HALVED_COST:
        return replace(made, tile_rows=-(-made.n_rows // 2))
    return made


_State = tuple[list[Axis], dict[Var, Dim], list[Dim]]


def _replaced(
    position: dict[Var, Dim], used: list[Dim], new: dict[Var, Dim]
) -> tuple[dict[Var, Dim], list[Dim]]:
    return (
        {var: substitute(dim, new) for var, dim in position.items()},
        list(dict.fromkeys(substitute(dim, new) for dim in used)),
    )


def _without_ones(axes: list[Axis], position: dict[Var, Dim], used: list[Dim]) -> _State:
    ones: dict[Var, Dim] = {axis.var: 0 for axis in axes if axis.size == 1}
    position, used = _replaced(position, used, ones)
    return [axis for axis in axes if axis.size != 1], position, used


def _cut(axes: list[Axis], position: dict[Var, Dim], used: list[Dim]) -> _State:
    """Axes that accesses divide by one number, and are affine but for that, made two; the last one
    stays whole where its parts are short."""
    for axis in list(axes):
        found = [divisors(dim, axis.var) for dim in used]
        lengths = {length for one in found if one is not None for length in one}
        if None in found or len(lengths) != 1:
            continue
        [length] = lengths
        count = exact_quotient(axis.size, length)
        if count is None or (axis is axes[-1] and bounds(length)[1] < SHORT):
            continue
        outer, inner = (
            Axis(loop_var(f"{axis.var.name}{part}", size), size, axis.is_reduced)
            for part, size in (("h", count), ("l", length))
        )
        place = outer.var * length + inner.var
        position, used = _replaced(position, used, {axis.var: place})
        at = axes.index(axis)
        axes[at : at + 1] = [outer, inner]
    return axes, position, used


def _joined(axes: list[Axis], position: dict[Var, Dim], used: list[Dim]) -> _State:
    """Neighbours that every access walks as one, made one; and a short last axis along which what
    is read stays the same."""
    k = len(axes) - 2
    while k >= 0:
        outer, inner = axes[k], axes[k + 1]
        is_repeat = k == len(axes) - 2 and inner.size in REPEATS and not inner.is_reduced
        if outer.is_reduced == inner.is_reduced and all(
            _walks_as_one(dim, outer, inner) or (is_repeat and _repeats(dim, outer, inner))
            for dim in used
        ):
            size = outer.size * inner.size
            var = loop_var(f"{outer.var.name}_", size)
            whole = var // maximum(inner.size, 1)
            position, used = _replaced(
                position, used, {outer.var: whole, inner.var: var - whole * inner.size}
            )
            axes[k : k + 2] = [Axis(var, size, outer.is_reduced)]
        k -= 1
        k = min(k, len(axes) - 2)
    return axes, position, used


def _walks_as_one(dim: Dim, outer: Axis, inner: Axis) -> bool:
    far, near = coefficient(dim, outer.var), coefficient(dim, inner.var)
    return far is not None and near is not None and far == near * inner.size


def _repeats(dim: Dim, outer: Axis, inner: Axis) -> bool:
    return coefficient(dim, inner.var) == 0 and coefficient(dim, outer.var) in (0, 1)


def _vector_axis(axes: list[Axis], used: list[Dim]) -> Axis | None:
    """The last outer or the last reduced axis, whichever accesses like better."""
    candidates = [a for a in axes if not a.is_reduced][-1:] + [a for a in axes if a.is_reduced][-1:]
    best: Axis | None = None
    best_score = -(10**9)
    for axis in candidates:
        score = 0
        for dim in used:
            step = coefficient(dim, axis.var)
            score += 3 if step == 1 else 1 if step == 0 else -4
        if bounds(axis.size)[1] < SHORT:
            score -= 100
        if score > best_score:
            best, best_score = axis, score
    return best


def _across_axis(axes: list[Axis], used: list[Dim], vector: Axis | None) -> Axis | None:
    """The axis that most accesses want which the vector axis does not suit."""
    if vector is None:
        return None
    unsuited = [dim for dim in used if coefficient(dim, vector.var) not in (0, 1, None)]
    for axis in reversed(axes):
        is_wanted = any(coefficient(dim, axis.var) == 1 for dim in unsuited)
        if axis is not vector and is_wanted and bounds(axis.size)[1] >= SHORT:
            return axis
    return None
