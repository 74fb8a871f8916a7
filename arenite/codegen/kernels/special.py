"""Kernels of their own: indexing by data, scans, random bits.

Each sees its values as three axes, [before, along, after]: those in front of the axis the op works
on, that axis, and those behind it. Rows are points of `before` (and of `along` where its points do
not depend on each other); `after` is contiguous and so is what vectors run over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.values import check_dtype, compute_dtype, index_expr, read_dtype
from arenite.dtype import BY_NAME, DType, Kind, uint8
from arenite.errors import IndexOutOfRange
from arenite.ir.dim import Dim, bounds, ceildiv, product, variables
from arenite.ir.node import Node
from arenite.ir.ops.reductions import greatest, least
from arenite.schedule.kernel import Kernel

UINT32, UINT64 = BY_NAME["uint32"], BY_NAME["uint64"]
#: Elements in one tile, about.
TILE_POINTS = 16_384


def build_special(kernel: Kernel) -> Built:
    node = kernel.stages[0].node
    for value in (node, *node.inputs):
        check_dtype(value)
    return _BUILDERS[node.op](RowKernel(kernel))


class RowKernel:
    """What all of them need: names of the arrays, and the frame of rows cut into tiles."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.node = kernel.stages[0].node
        self.names = {value: f"in{k}" for k, value in enumerate(kernel.inputs)}

    def load(self, value: Node, at: ir.Expr, mask: ir.Expr | None = None) -> ir.Load:
        return ir.Load(self.names[value], at, read_dtype(value.dtype), mask)

    def finish(
        self, rows: Dim, row_points: Dim, body: ir.Block, role: Literal["out", "inout"] = "out"
    ) -> Built:
        """`body` for each `row`."""
        tile_rows = max(1, TILE_POINTS // max(1, bounds(row_points)[1]))
        return self.in_tiles(rows, tile_rows, body, role)

    def in_tiles(
        self,
        rows: Dim,
        tile_rows: Dim,
        body: ir.Block,
        role: Literal["out", "inout"] = "out",
        scratch: tuple[Scratch, ...] = (),
    ) -> Built:
        """`body` for each `row`, so many of them in a tile."""
        first = ir.Name("tile") * index_expr(tile_rows)
        last = ir.Binary("min", first + index_expr(tile_rows), index_expr(rows))
        arrays = [
            ir.ArrayArg(name, uint8 if value.dtype.is_block else read_dtype(value.dtype), "in")
            for value, name in self.names.items()
        ]
        arrays.append(ir.ArrayArg("out0", read_dtype(self.node.dtype), role))
        arrays += [ir.ArrayArg(f"scratch{k}", s.dtype, "inout") for k, s in enumerate(scratch)]
        shapes = [self.node.shape, *(value.shape for value in self.kernel.inputs)]
        sizes = {var.symbol for shape in shapes for dim in shape for var in variables(dim)}
        tiles = ceildiv(rows, tile_rows)
        loops = ir.LoopKernel(
            self.kernel.name,
            tuple(arrays),
            tuple(sorted(sizes)),
            index_expr(tiles),
            "tile",
            (ir.For("row", first, last, body),),
        )
        return Built(loops, tiles, scratch)


def three_axes(shape: tuple[Dim, ...], axis: int) -> tuple[Dim, Dim, Dim]:
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def _of_whole_elements(value: Node, axis: int) -> tuple[Dim, Dim, Dim]:
    """The three axes of what is moved as it is: of a complex number both parts."""
    before, along, after = three_axes(value.shape, axis)
    return before, along, after * 2 if value.dtype.kind is Kind.COMPLEX else after


def _within(at: ir.Expr, size: Dim) -> ir.Expr:
    return (at >= 0) & (at < index_expr(size))


_OUT_OF_RANGE = ir.index(IndexOutOfRange.code)
_ROW = ir.Name("row")


def _gather(draft: RowKernel) -> Built:
    """Rows are (before, index): each copies `after` elements from where its index points."""
    data, indices = draft.node.inputs
    before, size, after = _of_whole_elements(data, draft.node.attr("axis"))
    count = product(indices.shape)
    if bounds(after) == (1, 1):
        at, inside = ir.Name("at"), ir.Name("inside", ir.BOOL)
        k = ir.Name("k")
        source = _ROW * index_expr(size) + at
        body: ir.Block = (
            ir.Let("at", draft.load(indices, k)),
            ir.Let("inside", _within(at, size)),
            ir.Require(inside, _OUT_OF_RANGE),
            ir.Store("out0", _ROW * index_expr(count) + k, draft.load(data, source, inside)),
        )
        loop = ir.For("k", ir.index(0), index_expr(count), body, vector=True)
        return draft.finish(before, count, (loop,))
    at, inside, v = ir.Name("at"), ir.Name("inside", ir.BOOL), ir.Name("v")
    base = (_ROW // index_expr(count) * index_expr(size) + at) * index_expr(after)
    copy = ir.For(
        "v",
        ir.index(0),
        index_expr(after),
        (ir.Store("out0", _ROW * index_expr(after) + v, draft.load(data, base + v, inside)),),
        vector=True,
    )
    return draft.finish(
        before * count,
        after,
        (
            ir.Let("at", draft.load(indices, _ROW % index_expr(count))),
            ir.Let("inside", _within(at, size)),
            ir.Require(inside, _OUT_OF_RANGE),
            copy,
        ),
    )


def _gather_elements(draft: RowKernel) -> Built:
    data, indices = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = three_axes(data.shape, axis)
    count = indices.shape[axis]
    # One loop over all of a row's indices: (along, after) as one axis.
    k, at, inside = ir.Name("k"), ir.Name("at"), ir.Name("inside", ir.BOOL)
    points = count * after
    place = _ROW * index_expr(points) + k
    behind = k % index_expr(after) if after != 1 else ir.index(0)
    source = (_ROW * index_expr(size) + at) * index_expr(after) + behind
    body: ir.Block = (
        ir.Let("at", draft.load(indices, place)),
        ir.Let("inside", _within(at, size)),
        ir.Require(inside, _OUT_OF_RANGE),
        ir.Store("out0", place, draft.load(data, source, inside)),
    )
    loop = ir.For("k", ir.index(0), index_expr(points), body, vector=True)
    return draft.finish(before, points, (loop,))


def _scatter_elements(draft: RowKernel) -> Built:
    """Rows are points of `before`: a copy of the data, then the updates in order."""
    data, indices, updates = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = three_axes(data.shape, axis)
    count = indices.shape[axis]
    v, k, at, inside = ir.Name("v"), ir.Name("k"), ir.Name("at"), ir.Name("inside", ir.BOOL)
    whole = index_expr(size * after)
    here = _ROW * whole + v
    copy = ir.For(
        "v",
        ir.index(0),
        whole,
        (ir.Store("out0", here, draft.load(data, here)),),
        vector=True,
    )
    place = (_ROW * index_expr(count) + k) * index_expr(after) + v
    target = (_ROW * index_expr(size) + at) * index_expr(after) + v
    update: ir.Expr = draft.load(updates, place)
    reduction = draft.node.attr("reduction")
    if reduction != "none":
        wide = compute_dtype(draft.node.dtype)
        old = ir.Load("out0", target, draft.node.dtype, inside)
        combined = ir.Binary(reduction, _cast(old, wide), _cast(update, wide))
        update = _cast(combined, draft.node.dtype)
    put: ir.Block = (
        ir.Let("at", draft.load(indices, place)),
        ir.Let("inside", _within(at, size)),
        ir.Require(inside, _OUT_OF_RANGE),
        ir.Store("out0", target, update, inside),
    )
    columns = ir.For("v", ir.index(0), index_expr(after), put, vector=after != 1)
    updates_loop = ir.For("k", ir.index(0), index_expr(count), (columns,))
    return draft.finish(before, (size + count) * after, (copy, updates_loop), "inout")


#: Elements behind the axis from which on a row is worth a row of the frame.
LONG_ROW = 64


def _update_slice(draft: RowKernel) -> Built:
    """Rows are those that are put in, or, where they are short, all of them at a point of `before`.
    Where the result has other bytes than the data, points of `before`, each copied first."""
    data, rows, start = draft.node.inputs
    axis = draft.node.attr("axis")
    before, size, after = _of_whole_elements(data, axis)
    count = rows.shape[axis]
    k, v, at, inside = ir.Name("k"), ir.Name("v"), ir.Name("at"), ir.Name("inside", ir.BOOL)
    found: ir.Block = (
        ir.Let("at", draft.load(start, ir.index(0))),
        ir.Let("inside", (at >= 0) & (at <= index_expr(size - count))),
        ir.Require(inside, _OUT_OF_RANGE),
    )

    def put(point: ir.Expr, row: ir.Expr, n: Dim) -> ir.For:
        """`n` elements from a row on."""
        target = (point * index_expr(size) + at + row) * index_expr(after) + v
        source = (point * index_expr(count) + row) * index_expr(after) + v
        store = ir.Store("out0", target, draft.load(rows, source), inside)
        return ir.For("v", ir.index(0), index_expr(n), (store,), vector=n != 1)

    if not draft.kernel.overwrites:
        whole = index_expr(size * after)
        here = _ROW * whole + v
        store = ir.Store("out0", here, draft.load(data, here))
        copy = ir.For("v", ir.index(0), whole, (store,), vector=True)
        each = ir.For("k", ir.index(0), index_expr(count), (*found, put(_ROW, k, after)))
        return draft.finish(before, (size + count) * after, (copy, each))
    if bounds(after)[1] >= LONG_ROW:
        n_rows, row = before * count, _ROW % index_expr(count)
        return draft.finish(n_rows, after, (*found, put(_ROW // index_expr(count), row, after)))
    return draft.finish(before, count * after, (*found, put(_ROW, ir.index(0), count * after)))


def _transfer(draft: RowKernel) -> Built:
    """Between devices it is theirs to copy; on one device these are the loops."""
    count, place = product(draft.node.shape), _ROW * TILE_POINTS + ir.Name("v")
    stop = ir.Binary("min", index_expr(count) - _ROW * TILE_POINTS, ir.index(TILE_POINTS))
    store = ir.Store("out0", place, draft.load(draft.node.inputs[0], place))
    loop = ir.For("v", ir.index(0), stop, (store,), vector=True)
    return draft.finish(ceildiv(count, TILE_POINTS), TILE_POINTS, (loop,))


def _cast(value: ir.Expr, dtype: DType) -> ir.Expr:
    return value if value.dtype == dtype else ir.Cast(value, dtype)


def _scan(op: str) -> Callable[[RowKernel], Built]:
    def build(draft: RowKernel) -> Built:
        [x] = draft.node.inputs
        before, size, after = three_axes(x.shape, draft.node.attr("axis"))
        wide = compute_dtype(x.dtype)
        first = {"add": 0, "mul": 1, "max": least(wide), "min": greatest(wide)}[op]
        k, v = ir.Name("k"), ir.Name("v")
        at = (_ROW * index_expr(size) + k) * index_expr(after) + v
        step: ir.Block = (
            ir.Accumulate("total", op, _cast(draft.load(x, at), wide)),
            ir.Store("out0", at, _cast(ir.Name("total", wide), x.dtype)),
        )
        column: ir.Block = (
            ir.Accumulator("total", ir.Const(first, wide)),
            ir.For("k", ir.index(0), index_expr(size), step),
        )
        loop = ir.For("v", ir.index(0), index_expr(after), column, vector=after != 1)
        return draft.finish(before, size * after, (loop,))

    return build


def _random_bits(draft: RowKernel) -> Built:
    """Philox4x32-10, one element at a time: the word i % 4 of the block i // 4."""
    [seed] = draft.node.inputs
    count = product(draft.node.shape)
    counter = draft.node.attr("counter")
    low = ir.Const(0xFFFFFFFF, UINT64)
    thirty_two = ir.Const(32, UINT64)
    statements: list[ir.Stmt] = [
        ir.Let("i", ir.Cast(_ROW * TILE_POINTS + ir.Name("v"), UINT64)),
        ir.Let("block", ir.Binary("shift_right", ir.Name("i", UINT64), ir.Const(2, UINT64))),
    ]

    def name(text: str, value: ir.Expr) -> ir.Expr:
        statements.append(ir.Let(text, value))
        return ir.Name(text, UINT64)

    block = ir.Name("block", UINT64)
    key_word = ir.Name("key", UINT64)
    x: list[ir.Expr] = [
        name("x0", ir.Binary("and", block, low)),
        name("x1", ir.Binary("shift_right", block, thirty_two)),
        ir.Const(counter & 0xFFFFFFFF, UINT64),
        ir.Const(counter >> 32, UINT64),
    ]
    keys = [ir.Binary("and", key_word, low), ir.Binary("shift_right", key_word, thirty_two)]
    for step in range(10):
        k = [
            ir.Binary("and", ir.Binary("add", key, ir.Const(step * weyl, UINT64)), low)
            for key, weyl in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)
        ]
        a = name(f"a{step}", ir.Binary("mul", x[0], ir.Const(0xD2511F53, UINT64)))
        b = name(f"b{step}", ir.Binary("mul", x[2], ir.Const(0xCD9E8D57, UINT64)))
        high_b = ir.Binary("shift_right", b, thirty_two)
        high_a = ir.Binary("shift_right", a, thirty_two)
        x = [
            name(f"p{step}", ir.Binary("xor", ir.Binary("xor", high_b, x[1]), k[0])),
            name(f"q{step}", ir.Binary("and", b, low)),
            name(f"r{step}", ir.Binary("xor", ir.Binary("xor", high_a, x[3]), k[1])),
            name(f"s{step}", ir.Binary("and", a, low)),
        ]
    word = name("word", ir.Binary("and", ir.Name("i", UINT64), ir.Const(3, UINT64)))
    chosen = x[3]
    for k_word in (2, 1, 0):
        is_it = ir.Binary("eq", word, ir.Const(k_word, UINT64))
        chosen = ir.Select(is_it, x[k_word], chosen)
    place = _ROW * TILE_POINTS + ir.Name("v")
    statements.append(ir.Store("out0", place, ir.Cast(chosen, UINT32)))
    left = index_expr(count) - _ROW * TILE_POINTS
    stop = ir.Binary("min", left, ir.index(TILE_POINTS))
    loop = ir.For("v", ir.index(0), stop, tuple(statements), vector=True)
    body: ir.Block = (ir.Let("key", draft.load(seed, ir.index(0))), loop)
    return draft.finish(ceildiv(count, TILE_POINTS), TILE_POINTS, body)


_BUILDERS: dict[str, Callable[[RowKernel], Built]] = {
    "gather": _gather,
    "gather_elements": _gather_elements,
    "scatter_elements": _scatter_elements,
    "update_slice": _update_slice,
    "transfer": _transfer,
    "cumsum": _scan("add"),
    "cumprod": _scan("mul"),
    "cummax": _scan("max"),
    "cummin": _scan("min"),
    "random_bits": _random_bits,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_special)
