"""Kernels of their own: indexing by data, scans, random bits.

Each sees its values as three axes, [before, along, after]: those in front of the axis the op works
on, that axis, and those behind it. Rows are points of `before` (and of `along` where its points do
not depend on each other); `after` is contiguous and so is what vectors run over.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratches
from arenite.codegen.kernels.values import (
    cast,
    check_dtype,
    compute_dtype,
    index_expr,
    loop,
    neutral,
    read_dtype,
)
from arenite.dtype import UINT8, UINT32, UINT64, Kind
from arenite.errors import IndexOutOfRange
from arenite.ir import Dim, Node, bounds, ceildiv, product
from arenite.schedule.kernel import Kernel

#: Elements in one tile, about.
TILE_POINTS = 16_384


def build_special(kernel: Kernel) -> Built:
    return built_by(RowKernel(kernel))


def built_by(draft: RowKernel) -> Built:
    """The same in a frame of rows of its own."""
    for value in (draft.node, *draft.node.inputs):
        check_dtype(value)
    return _BUILDERS[draft.node.op](draft)


class RowKernel:
    """What all of them need: names of the arrays, and the frame of rows cut into tiles."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.node = kernel.stages[0].node
        self.names = {value: f"in{k}" for k, value in enumerate(kernel.inputs)}

    def load(self, value: Node, at: ir.Expr, mask: ir.Expr | None = None) -> ir.Load:
        return ir.Load(self.names[value], at, read_dtype(value.dtype), mask)

    def index(self, value: Node, at: ir.Expr) -> ir.Expr:
        """An index that data gives, as indices are computed with."""
        return cast(self.load(value, at), ir.INT64)

    def finish(self, rows: Dim, row_points: Dim, body: ir.Block, role: ir.Role = "out") -> Built:
        """`body` for each `row`."""
        tile_rows = max(1, TILE_POINTS // max(1, bounds(row_points)[1]))
        return self.in_tiles(rows, tile_rows, body, role)

    def in_tiles(
        self,
        rows: Dim,
        tile_rows: Dim,
        body: ir.Block,
        role: ir.Role = "out",
        scratch: Scratches = (),
    ) -> Built:
        """`body` for each `row`, so many of them in a tile."""
        first = ir.Name("tile") * index_expr(tile_rows)
        last = ir.Binary("min", first + index_expr(tile_rows), index_expr(rows))
        block = (ir.For("row", first, last, body),)
        return self.built(ceildiv(rows, tile_rows), block, role, scratch)

    def built(
        self, tiles: Dim, body: ir.Block, role: ir.Role = "out", scratch: Scratches = ()
    ) -> Built:
        """`body` for each tile."""
        arrays = [
            ir.ArrayArg(name, UINT8 if value.dtype.is_block else read_dtype(value.dtype), "in")
            for value, name in self.names.items()
        ]
        made = self.node.dtype
        arrays.append(ir.ArrayArg("out0", UINT8 if made.is_block else read_dtype(made), role))
        shapes = (self.node.shape, *(value.shape for value in self.kernel.inputs))
        dims = [dim for shape in shapes for dim in shape]
        return Built.of(self.kernel.name, arrays, dims, tiles, body, scratch)


def three_axes(shape: tuple[Dim, ...], axis: int) -> tuple[Dim, Dim, Dim]:
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def _of_whole_elements(value: Node, axis: int) -> tuple[Dim, Dim, Dim]:
    """The three axes of what is moved as it is: of a complex number both parts."""
    before, along, after = three_axes(value.shape, axis)
    return before, along, after * 2 if value.dtype.kind is Kind.COMPLEX else after


def _within(at: ir.Expr, size: Dim) -> ir.Expr:
    return (at >= 0) & (at < index_expr(size))


_OUT_OF_RANGE = ir.index(IndexOutOfRange.code)
_ROW, _K, _V = (ir.Name(name) for name in ("row", "k", "v"))
#: An index, and whether it may be used, as `_found` names them.
_AT, _INSIDE = ir.Name("at"), ir.Name("inside", ir.BOOL)


def _found(index: ir.Expr, size: Dim) -> ir.Block:
    """An index that data gives, which must lie in an axis."""
    return (
        ir.Let("at", index),
        ir.Let("inside", _within(_AT, size)),
        ir.Require(_INSIDE, _OUT_OF_RANGE),
    )


def _gather(draft: RowKernel) -> Built:
    """Rows are (before, index): each copies `after` elements from where its index points."""
    data, indices = draft.node.inputs
    before, size, after = _of_whole_elements(data, draft.node.attr("axis"))
    count = product(indices.shape)
    if bounds(after) == (1, 1):
        value = draft.load(data, _ROW * index_expr(size) + _AT, _INSIDE)
        store = ir.Store("out0", _ROW * index_expr(count) + _K, value)
        found = _found(draft.index(indices, _K), size)
        return draft.finish(before, count, (loop("k", count, *found, store),))
    found = _found(draft.index(indices, _ROW % index_expr(count)), size)
    # Where there is a first row, that is what a wrong index reads: a copy without a mask is faster.
    has_rows = bounds(size)[0] > 0
    at, mask = (ir.Select(_INSIDE, _AT, ir.index(0)), None) if has_rows else (_AT, _INSIDE)
    base = ir.Let("base", (_ROW // index_expr(count) * index_expr(size) + at) * index_expr(after))
    value = draft.load(data, ir.Name("base") + _V, mask)
    store = ir.Store("out0", _ROW * index_expr(after) + _V, value)
    return draft.finish(before * count, after, (*found, base, loop("v", after, store)))


def _gather_elements(draft: RowKernel) -> Built:
    data, indices = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = three_axes(data.shape, axis)
    # One loop over all of a row's indices: (along, after) as one axis.
    points = indices.shape[axis] * after
    place = _ROW * index_expr(points) + _K
    behind = _K % index_expr(after) if after != 1 else ir.index(0)
    source = (_ROW * index_expr(size) + _AT) * index_expr(after) + behind
    store = ir.Store("out0", place, draft.load(data, source, _INSIDE))
    found = _found(draft.load(indices, place), size)
    return draft.finish(before, points, (loop("k", points, *found, store),))


def _copied(draft: RowKernel, data: Node, count: Dim) -> ir.For:
    """A row of the data, as it is."""
    here = _ROW * index_expr(count) + _V
    return loop("v", count, ir.Store("out0", here, draft.load(data, here)))


def _scatter_elements(draft: RowKernel) -> Built:
    """Rows are points of `before`: a copy of the data, then the updates in order."""
    data, indices, _ = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = three_axes(data.shape, axis)
    count = indices.shape[axis]
    columns = loop("v", after, *scattered(draft, _INSIDE), vector=after != 1)
    body = (_copied(draft, data, size * after), loop("k", count, columns, vector=False))
    return draft.finish(before, (size + count) * after, body, "inout")


def scattered(draft: RowKernel, mask: ir.Name, *more: ir.Stmt) -> ir.Block:
    """Update `k` of column `v` of a row, where the mask holds: that the index is `inside`, or what
    `more` makes of it."""
    data, indices, updates = draft.node.inputs
    axis = draft.node.attr("axis")
    _, size, after = three_axes(data.shape, axis)
    place = (_ROW * index_expr(indices.shape[axis]) + _K) * index_expr(after) + _V
    target = (_ROW * index_expr(size) + _AT) * index_expr(after) + _V
    update: ir.Expr = draft.load(updates, place)
    reduction = draft.node.attr("reduction")
    if reduction != "none":
        wide = compute_dtype(draft.node.dtype)
        old = ir.Load("out0", target, draft.node.dtype, mask)
        combined = ir.Binary(reduction, cast(old, wide), cast(update, wide))
        update = cast(combined, draft.node.dtype)
    found = _found(draft.load(indices, place), size)
    return *found, *more, ir.Store("out0", target, update, mask)


#: Elements behind the axis from which on a row is worth a row of the frame.
LONG_ROW = 64


def _update_slice(draft: RowKernel) -> Built:
    """Where the result has other bytes than the data, rows are points of `before`, each copied
    first."""
    if draft.kernel.overwrites:
        return updated_rows(draft)
    data, rows, _ = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = _of_whole_elements(data, axis)
    count = rows.shape[axis]
    each = loop("k", count, *_put(draft, _ROW, _K, after), vector=False)
    body = (_copied(draft, data, size * after), each)
    return draft.finish(before, (size + count) * after, body)


def updated_rows(draft: RowKernel) -> Built:
    """Rows are those that are put in, or, where they are short and side by side, all of them at a
    point of `before`."""
    data, rows, start = draft.node.inputs
    axis = draft.node.attr("axis")
    before, _, after = _of_whole_elements(data, axis)
    count = rows.shape[axis]
    if start.ndim or bounds(after)[1] >= LONG_ROW:
        row = _ROW % index_expr(count)
        return draft.finish(
            before * count, after, _put(draft, _ROW // index_expr(count), row, after)
        )
    return draft.finish(before, count * after, _put(draft, _ROW, ir.index(0), count * after))


def _put(draft: RowKernel, point: ir.Expr, row: ir.Expr, n: Dim) -> ir.Block:
    """`n` elements from a row on, at a point of `before`."""
    data, rows, start = draft.node.inputs
    axis = draft.node.attr("axis")
    _, size, after = _of_whole_elements(data, axis)
    count = rows.shape[axis]
    target_row: ir.Expr = _AT
    if start.ndim:
        found = _found(draft.index(start, row), size)
    else:
        inside = (_AT >= 0) & (index_expr(size - count) >= _AT)
        found = (
            ir.Let("at", draft.index(start, ir.index(0))),
            ir.Let("inside", inside),
            ir.Require(_INSIDE, _OUT_OF_RANGE),
        )
        target_row = _AT + row
    target = (point * index_expr(size) + target_row) * index_expr(after) + _V
    source = (point * index_expr(count) + row) * index_expr(after) + _V
    store = ir.Store("out0", target, draft.load(rows, source), _INSIDE)
    return *found, loop("v", n, store, vector=n != 1)


def _transfer(draft: RowKernel) -> Built:
    """Between devices it is theirs to copy; on one device these are the loops."""
    count, place = product(draft.node.shape), _ROW * TILE_POINTS + _V
    stop = ir.Binary("min", index_expr(count) - _ROW * TILE_POINTS, ir.index(TILE_POINTS))
    store = ir.Store("out0", place, draft.load(draft.node.inputs[0], place))
    copy = ir.For("v", ir.index(0), stop, (store,), vector=True)
    return draft.finish(ceildiv(count, TILE_POINTS), TILE_POINTS, (copy,))


def _scan(draft: RowKernel) -> Built:
    before, size, after = three_axes(draft.node.shape, draft.node.attr("axis"))
    body = (loop("v", after, *scanned(draft), vector=after != 1),)
    return draft.finish(before, size * after, body)


#: How a scan combines what it has with the next element.
SCANS = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def scanned(draft: RowKernel) -> ir.Block:
    """Column `v` of a row, from its first element to its last."""
    [x] = draft.node.inputs
    _, size, after = three_axes(x.shape, draft.node.attr("axis"))
    op, wide = SCANS[draft.node.op], compute_dtype(x.dtype)
    at = (_ROW * index_expr(size) + _K) * index_expr(after) + _V
    total = ir.Name("total", wide)
    return (
        ir.Accumulator("total", ir.Const(neutral(op, wide), wide)),
        loop(
            "k",
            size,
            ir.Accumulate("total", op, cast(draft.load(x, at), wide)),
            ir.Store("out0", at, cast(total, x.dtype)),
            vector=False,
        ),
    )


def _random_bits(draft: RowKernel) -> Built:
    """Philox4x32-10, one element at a time: the word i % 4 of the block i // 4."""
    [seed] = draft.node.inputs
    count = product(draft.node.shape)
    counter = draft.node.attr("counter")
    place = _ROW * TILE_POINTS + _V
    statements: list[ir.Stmt] = []

    def name(text: str, value: ir.Expr) -> ir.Expr:
        statements.append(ir.Let(text, value))
        return ir.Name(text, UINT64)

    i = name("i", ir.Cast(place, UINT64))
    block = name("block", i >> 2)
    low, key_word = 0xFFFFFFFF, ir.Name("key", UINT64)
    x: list[ir.Expr] = [
        name("x0", block & low),
        name("x1", block >> 32),
        ir.Const(counter & low, UINT64),
        ir.Const(counter >> 32, UINT64),
    ]
    keys = [key_word & low, key_word >> 32]
    for step in range(10):
        k = [
            (key + step * weyl) & low
            for key, weyl in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)
        ]
        a = name(f"a{step}", x[0] * 0xD2511F53)
        b = name(f"b{step}", x[2] * 0xCD9E8D57)
        x = [
            name(f"p{step}", (b >> 32) ^ x[1] ^ k[0]),
            name(f"q{step}", b & low),
            name(f"r{step}", (a >> 32) ^ x[3] ^ k[1]),
            name(f"s{step}", a & low),
        ]
    word = name("word", i & 3)
    chosen = x[3]
    for k_word in (2, 1, 0):
        chosen = ir.Select(ir.Binary("eq", word, ir.Const(k_word, UINT64)), x[k_word], chosen)
    statements.append(ir.Store("out0", place, ir.Cast(chosen, UINT32)))
    left = index_expr(count) - _ROW * TILE_POINTS
    stop = ir.Binary("min", left, ir.index(TILE_POINTS))
    every = ir.For("v", ir.index(0), stop, tuple(statements), vector=True)
    body: ir.Block = (ir.Let("key", draft.load(seed, ir.index(0))), every)
    return draft.finish(ceildiv(count, TILE_POINTS), TILE_POINTS, body)


_BUILDERS: dict[str, Callable[[RowKernel], Built]] = {
    "gather": _gather,
    "gather_elements": _gather_elements,
    "scatter_elements": _scatter_elements,
    "update_slice": _update_slice,
    "transfer": _transfer,
    **dict.fromkeys(SCANS, _scan),
    "random_bits": _random_bits,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_special)
