"""Long reductions to few elements become two: of chunks, side by side, then of what those gave.

    sum of x[1000003]     main = sum over axis 1 of x[:1000000] as [16, 62500]
                          sum of main, + sum of x[1000000:]

One element would be the work of one thread. Chunks follow from the shape alone, so a result does
not depend on how many threads there are. Small floats are summed in float32 all the way.
"""

from __future__ import annotations

from arenite.dtype import FLOAT32, Kind
from arenite.ir import Dim, Node, bounds, ceildiv, make, product
from arenite.ir.compose.basic import slice_axis

#: Elements from which on a reduction is split, where fewer tiles than this are made of it.
SPLIT_FROM = 1 << 18
FEW_TILES = 8
#: Elements in one chunk, about, and chunks at the most.
CHUNK = 1 << 16
MAX_CHUNKS = 256
#: Of an axis that is open, as much goes into a chunk at its bound.
OPEN_CHUNK = 64
#: Outer elements that one tile has where these are what vectors run over.
_TILE_COLUMNS = 256

#: How two results become one.
_COMBINED = {
    "sum": "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "any": "or",
    "all": "and",
}


def split(node: Node) -> Node:
    if node.op not in _COMBINED or not node.attr("axes") or not _is_lopsided(node):
        return node
    [x] = node.inputs
    if node.op in ("sum", "prod") and x.dtype.kind is Kind.FLOAT and x.dtype.bits < 32:
        wide = make(node.op, make("cast", x, dtype=FLOAT32), axes=node.attr("axes"))
        return make("cast", _in_chunks(wide), dtype=node.dtype)
    return _in_chunks(node)


def _is_lopsided(node: Node) -> bool:
    """Whether much is to be read and few tiles could share the work."""
    if _n_read(node) < SPLIT_FROM:
        return False
    [x] = node.inputs
    outer = _outer(node)
    if outer and x.ndim - 1 not in node.attr("axes"):
        outer[-1] = ceildiv(outer[-1], _TILE_COLUMNS)
    return bounds(product(outer))[0] < FEW_TILES


def _outer(node: Node) -> list[Dim]:
    return [n for axis, n in enumerate(node.inputs[0].shape) if axis not in node.attr("axes")]


def _n_read(node: Node) -> int:
    """The most elements that few tiles would read. Where sizes are open there may be much to read,
    and few tiles, but not both at once."""
    [x] = node.inputs
    axes = node.attr("axes")
    inner = bounds(product(x.shape[axis] for axis in axes))[1]
    most = FEW_TILES if x.ndim - 1 in axes else FEW_TILES * _TILE_COLUMNS
    return inner * min(bounds(product(_outer(node)))[1], most)


def _in_chunks(node: Node) -> Node:
    [x] = node.inputs
    axes = tuple(sorted(node.attr("axes")))
    axis = max(axes, key=lambda a: (bounds(x.shape[a])[1], -a))
    size = x.shape[axis]
    chunks = _n_chunks(size, _n_read(node))
    if chunks < 2:
        return node
    length = size // chunks
    whole = length * chunks
    shape = (*x.shape[:axis], chunks, length, *x.shape[axis + 1 :])
    inner = tuple(a if a < axis else a + 1 for a in axes)
    partial = make(node.op, make("reshape", slice_axis(x, axis, 0, whole), shape=shape), axes=inner)
    at = sum(1 for a in range(axis) if a not in axes)
    total = make(node.op, partial, axes=(at,))
    if whole == size:
        return total
    rest = make(node.op, slice_axis(x, axis, whole, size), axes=axes)
    return make(_COMBINED[node.op], total, rest)


def _n_chunks(size: Dim, points: int) -> int:
    """How many chunks, such that nothing is left over if a number near the wanted one allows it."""
    wanted = min(MAX_CHUNKS, max(2, points // CHUNK))
    if not isinstance(size, int):
        # Most sizes are far below their bound, and are to have whole chunks too.
        return min(wanted, bounds(size)[1] // OPEN_CHUNK)
    wanted = min(wanted, size)
    return next((n for n in range(wanted, 2 * wanted) if size % n == 0), wanted)
