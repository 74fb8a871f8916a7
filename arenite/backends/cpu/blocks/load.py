"""Kernels that read blocks or make them: dequantised values and rows, panels, quantised runs.

Blocks are arguments as plain bytes. One tile does some rows of the result; panels and dequantised
weights are made once, when a program is loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.cpu.blocks.panels import PanelReader
from arenite.backends.cpu.blocks.read import RUN, UINT16, BlockReader, number
from arenite.backends.cpu.blocks.runs import quantise
from arenite.backends.cpu.ops.block_forms import BLOCK, LANES, LINE_NBYTES, PANEL, STEP, form_of
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _OUT_OF_RANGE, _ROW, Draft, _within
from arenite.dtype import uint8
from arenite.ir.dim import Dim, bounds, product
from arenite.ir.node import Node
from arenite.schedule.kernel import Kernel

_LANE, _AT = ir.Name("lane"), ir.Name("at")


def build_blocks(kernel: Kernel, target: Target, choice: str = "") -> Built:
    draft = Draft(kernel)
    return _BUILDERS[draft.node.op](draft)


def _size(node: Node, axis: int) -> int:
    return bounds(node.shape[axis])[1]


def _row_nbytes(w: Node) -> int:
    return w.dtype.nbytes((_size(w, -1),))


def _row_of_blocks(reader: Callable[[ir.Expr], BlockReader], w: Node) -> ir.Block:
    """Row `row` of the result, dequantised."""
    length, depth = w.dtype.block_length, _size(w, 1)
    block = ir.Name("block")
    source = reader(block * w.dtype.block_nbytes)
    runs: list[ir.Stmt] = []
    for run in range(length // RUN):
        place = _ROW * depth + (block * length + run * RUN) + _LANE
        store = ir.Store("out0", place, source.element(run, _LANE))
        runs.append(ir.For("lane", ir.index(0), ir.index(RUN), (store,), vector=True))
    return (ir.For("block", ir.index(0), ir.index(depth // length), tuple(runs)),)


def _dequantise(draft: Draft) -> Built:
    [w] = draft.node.inputs
    name, row_nbytes = draft.names[w], _row_nbytes(w)
    body = _row_of_blocks(lambda at: BlockReader(w.dtype, name, _ROW * row_nbytes + at), w)
    return draft.finish(w.shape[0], w.shape[1], body)


def _rows(draft: Draft) -> Built:
    w, indices = draft.node.inputs
    name, row_nbytes = draft.names[w], _row_nbytes(w)
    start = _AT * row_nbytes
    body = _row_of_blocks(lambda place: BlockReader(w.dtype, name, start + place), w)
    return _taken(draft, indices, w.shape[0], body)


def _rows_of_panels(draft: Draft) -> Built:
    panels, indices = draft.node.inputs
    columns, depth = draft.node.attr("columns"), _size(draft.node, -1)
    block, step = ir.Name("block"), ir.Name("step")
    form = form_of(draft.node.attr("dtype"))
    reader = PanelReader(form, depth, draft.names[panels], ir.index(0), _AT, block)
    groups: list[ir.Stmt] = []
    for group in range(BLOCK // STEP):
        place = _ROW * depth + (block * BLOCK + group * STEP) + step
        store = ir.Store("out0", place, reader.element(group, step))
        groups.append(ir.For("step", ir.index(0), ir.index(STEP), (store,), vector=True))
    body = ir.For("block", ir.index(0), ir.index(depth // BLOCK), tuple(groups))
    return _taken(draft, indices, columns, (body,))


def _taken(draft: Draft, indices: Node, n_rows: Dim, body: ir.Block) -> Built:
    """`body` makes a row of the result of row `at`, which an index names."""
    index, inside = ir.Name("index"), ir.Name("inside", ir.BOOL)
    return draft.finish(
        product(indices.shape),
        draft.node.shape[-1],
        (
            ir.Let("index", draft.load(indices, _ROW)),
            ir.Let("inside", _within(index, n_rows)),
            ir.Require(inside, _OUT_OF_RANGE),
            ir.Let("at", ir.Select(inside, index, ir.index(0))),
            *body,
        ),
    )


def _pack(draft: Draft) -> Built:
    """Row `row` of the result is a panel: column by column, block by block."""
    [w] = draft.node.inputs
    form, depth = form_of(w.dtype), _size(w, -1)
    length, n_columns = w.dtype.block_length, _size(w, -2)
    n_panels = _size(draft.node, -2)
    block, column, place = ir.Name("block"), ir.Name("column"), ir.Name("place")
    at = place + block * w.dtype.block_nbytes
    reader = BlockReader(w.dtype, draft.names[w], at)
    step = ir.Name("step")
    panel = _ROW * form.panel_nbytes(depth)
    shared = panel + block * form.shared_nbytes
    half, in_half = column // LANES, column % LANES
    stores: list[ir.Stmt] = []
    for part in range(length // BLOCK):
        first = shared + (form.halves_nbytes + part * form.block_nbytes + form.codes_nbytes)
        vectors = _vectors(reader, part, step)
        for k, value in enumerate(vectors):
            where = first + half * form.numbers_nbytes + k * LINE_NBYTES + in_half * STEP + step
            stores.append(ir.Store("out0", where, ir.Cast(value, uint8)))
    scales = _scales(reader, shared, column)
    numbers = ir.For("step", ir.index(0), ir.index(STEP), tuple(stores), vector=True)
    blocks = ir.For("block", ir.index(0), ir.index(depth // length), (numbers, *scales))
    within = ir.Binary("min", _ROW % n_panels * PANEL + column, ir.index(n_columns - 1))
    source = _ROW // n_panels * n_columns + within
    columns = ir.For(
        "column",
        ir.index(0),
        ir.index(PANEL),
        (ir.Let("place", source * _row_nbytes(w)), blocks),
    )
    return draft.finish(product(draft.node.shape[:-1]), draft.node.shape[-1], (columns,))


def _vectors(reader: BlockReader, part: int, step: ir.Expr) -> list[ir.Expr]:
    """The bytes of one column and step in all vectors of a block of 32."""
    groups = []
    for group in range(BLOCK // STEP):
        run, lane = divmod(part * BLOCK + group * STEP, RUN)
        groups.append(reader.number(run, step + lane))
    made: list[ir.Expr] = []
    below = 0
    for plane in reader.form.planes:
        shared = 8 // plane
        for first in range(0, len(groups), shared):
            value = number(0)
            for k, group_number in enumerate(groups[first : first + shared]):
                value = ir.Binary("or", value, _piece(group_number, below, plane, k * plane))
            made.append(value)
        below += plane
    return made


def _piece(value: ir.Expr, below: int, plane: int, shift: int) -> ir.Expr:
    """Some bits of a number, moved to their place in a byte."""
    moved = ir.Binary("shift_right", value, number(below)) if below else value
    masked = ir.Binary("and", moved, number(2**plane - 1))
    return ir.Binary("shift_left", masked, number(shift)) if shift else masked


def _scales(reader: BlockReader, at: ir.Expr, column: ir.Expr) -> list[ir.Stmt]:
    """The scales of one column, for a block of the type."""
    made: list[ir.Stmt] = []
    for k, half in enumerate(reader.halves()):
        for byte in range(2):
            moved = ir.Binary("shift_right", half, ir.Const(8 * byte, UINT16))
            where = at + (2 * PANEL * k + byte) + column * 2
            made.append(ir.Store("out0", where, ir.Cast(moved, uint8)))
    form = reader.form
    if form.codes == "none":
        return made
    for part in range(form.blocks * form.parts):
        block, within = divmod(part, form.parts)
        first = form.halves_nbytes + block * form.block_nbytes + within * form.code_nbytes
        for k, code in enumerate(reader.codes(part)):
            where = at + (first + k * PANEL) + column
            made.append(ir.Store("out0", where, ir.Cast(code, uint8)))
    return made


_BUILDERS: dict[str, Callable[[Draft], Built]] = {
    "dequantise": _dequantise,
    "rows_of_blocks": _rows,
    "rows_of_panels": _rows_of_panels,
    "pack_blocks": _pack,
    "quantise_blocks": quantise,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_blocks)
