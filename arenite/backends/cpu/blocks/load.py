"""Kernels that read blocks or make them: dequantised values and rows, panels, quantised runs.

Blocks are arguments as plain bytes. One tile does some rows of the result; panels and dequantised
weights are made once, when a program is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arenite.backends.cpu.blocks.panels import PanelReader
from arenite.backends.cpu.blocks.runs import quantise
from arenite.backends.cpu.ops.block_forms import (
    BLOCK,
    LANES,
    LINE_NBYTES,
    PANEL,
    STEP,
    Form,
    form_of,
)
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import BlockReader, above, as_float, bits, number
from arenite.codegen.kernels.blocks import AT, taken_rows
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _ROW, RowKernel
from arenite.dtype import BY_NAME, FLOAT32, UINT8, DType
from arenite.dtype.block_types import Scale
from arenite.dtype.blocks import block_type
from arenite.ir import Node, bounds, product
from arenite.schedule.kernel import Kernel

#: A block, of all columns.
_BLOCK = ir.Name("whole_block")


def build_blocks(kernel: Kernel, target: Target, choice: str = "") -> Built:
    draft = RowKernel(kernel)
    return _BUILDERS[draft.node.op](draft)


def _size(node: Node, axis: int) -> int:
    return bounds(node.shape[axis])[1]


def _rows_of_panels(draft: RowKernel) -> Built:
    panels, indices = draft.node.inputs
    columns, depth = draft.node.attr("columns"), _size(draft.node, -1)
    block, step = ir.Name("block"), ir.Name("step")
    form = form_of(draft.node.attr("dtype"))
    reader = PanelReader(form, depth, draft.names[panels], ir.index(0), AT, block)
    groups: list[ir.Stmt] = []
    for group in range(BLOCK // STEP):
        place = _ROW * depth + (block * BLOCK + group * STEP) + step
        store = ir.Store("out0", place, reader.element(group, step))
        groups.append(ir.For("step", ir.index(0), ir.index(STEP), (store,), vector=True))
    body = ir.For("block", ir.index(0), ir.index(depth // BLOCK), tuple(groups))
    return taken_rows(draft, indices, columns, (body,))


@dataclass(frozen=True, slots=True)
class FieldReader(BlockReader):
    """Block `index` of fields that are apart; `array` has the numbers."""

    floats: Mapping[str, str]  # arrays by field
    index: ir.Expr

    def float_of(self, scale: Scale, element: int) -> ir.Expr:
        field = self.block.fields[scale.field]
        part = element * field.length // self.block.length
        at = self.index * field.length + part
        return ir.Load(self.floats[scale.field], at, BY_NAME[field.dtype])


def _pack(draft: RowKernel) -> Built:
    [w] = draft.node.inputs
    at = _BLOCK * w.dtype.block_nbytes
    return _panels(
        draft, w.dtype, _size(w, -1), _size(w, -2), BlockReader(w.dtype, draft.names[w], at)
    )


def _pack_joined(draft: RowKernel) -> Built:
    dtype = draft.node.attr("dtype")
    fields = block_type(dtype).fields
    arrays = dict(zip(fields, (draft.names[one] for one in draft.node.inputs), strict=True))
    n_columns, count = (_size(draft.node.inputs[0], axis) for axis in (0, 1))
    [name] = {bits.field for plane in block_type(dtype).number.planes for bits in plane}
    at = _BLOCK * fields[name].nbytes - fields[name].offset
    reader = FieldReader(dtype, arrays[name], at, arrays, _BLOCK)
    return _panels(draft, dtype, count * dtype.block_length, n_columns, reader)


def _panels(
    draft: RowKernel, dtype: DType, depth: int, n_columns: int, reader: BlockReader
) -> Built:
    """Row `row` of the result is a panel: column by column, block by block. The reader is of block
    `_BLOCK` of all."""
    form, length = form_of(dtype), dtype.block_length
    n_panels = _size(draft.node, -2)
    block, column, first_block = ir.Name("block"), ir.Name("column"), ir.Name("first_block")
    step = ir.Name("step")
    block_nbytes = length // BLOCK // form.blocks * form.shared_nbytes
    panel = _ROW * form.panel_nbytes(depth) + block * block_nbytes
    half, in_half = column // LANES, column % LANES
    stores: list[ir.Stmt] = []
    for part in range(length // BLOCK):
        first = panel + (_block_offset(form, part) + form.codes_nbytes)
        for k, value in enumerate(_vectors(reader, form, part, step)):
            where = first + half * form.numbers_nbytes + k * LINE_NBYTES + in_half * STEP + step
            stores.append(ir.Store("out0", where, ir.Cast(value, UINT8)))
    numbers = ir.For("step", ir.index(0), ir.index(STEP), tuple(stores), vector=True)
    scales = (*_floats(reader, form, panel, column), *_codes(reader, form, panel, column))
    own = ir.Let(_BLOCK.name, first_block + block)
    blocks = ir.For("block", ir.index(0), ir.index(depth // length), (own, numbers, *scales))
    within = ir.Binary("min", _ROW % n_panels * PANEL + column, ir.index(n_columns - 1))
    source = _ROW // n_panels * n_columns + within
    columns = ir.For(
        "column",
        ir.index(0),
        ir.index(PANEL),
        (ir.Let("first_block", source * (depth // length)), blocks),
    )
    return draft.finish(product(draft.node.shape[:-1]), draft.node.shape[-1], (columns,))


def _block_offset(form: Form, block: int) -> int:
    """Where a block of 32 begins in a panel, from the first of its block of the type."""
    shared, within = divmod(block, form.blocks)
    return shared * form.shared_nbytes + form.floats_nbytes + within * form.block_nbytes


def _vectors(reader: BlockReader, form: Form, part: int, step: ir.Expr) -> list[ir.Expr]:
    """The bytes of one column and step in all vectors of a block of 32."""
    groups = [
        reader.number(part * BLOCK + group * STEP, step, STEP) for group in range(BLOCK // STEP)
    ]
    vectors: list[ir.Expr] = []
    below = 0
    for plane in form.planes:
        shared = 8 // plane
        for first in range(0, len(groups), shared):
            value = number(0)
            for k, whole in enumerate(groups[first : first + shared]):
                piece = above(bits(whole, below, plane), k * plane)
                value = ir.Binary("or", value, piece)
            vectors.append(value)
        below += plane
    return vectors


def _floats(reader: BlockReader, form: Form, at: ir.Expr, column: ir.Expr) -> list[ir.Stmt]:
    """The scales of one column, for a block of the type."""
    nbytes = form.scale.bits // 8
    whole = BY_NAME[f"uint{form.scale.bits}"]
    stores: list[ir.Stmt] = []
    n_shared = reader.block.length // (BLOCK * form.blocks)
    for own in range(n_shared * form.floats):
        shared, part = divmod(own, form.floats)
        element = shared * BLOCK * form.blocks + part * form.part
        for k, scale in enumerate(reader.block.scales):
            value = reader.float_of(scale, element)
            if form.factor != 1 or value.dtype != form.scale:
                wide = ir.Binary("mul", as_float(value), ir.Const(form.factor, FLOAT32))
                value = wide if form.scale == FLOAT32 else ir.Cast(wide, form.scale)
            raw = ir.Bitcast(value, whole)
            first = shared * form.shared_nbytes + (k * form.floats + part) * form.float_nbytes
            for byte in range(nbytes):
                moved = ir.Binary("shift_right", raw, ir.Const(8 * byte, whole))
                where = at + (first + byte) + column * nbytes
                stores.append(ir.Store("out0", where, ir.Cast(moved, UINT8)))
    return stores


def _codes(reader: BlockReader, form: Form, at: ir.Expr, column: ir.Expr) -> list[ir.Stmt]:
    """The whole numbers that scale parts of one column, for a block of the type."""
    stores: list[ir.Stmt] = []
    for element in range(0, reader.block.length, form.part):
        codes = [
            ir.Binary("sub", reader.code(scale.codes, element), number(scale.codes.bias))
            for scale in reader.block.scales
            if scale.codes
        ]
        if form.codes == "nibbles":
            codes = [ir.Binary("or", codes[0], above(codes[1], 4))]
        block, part = divmod(element // form.part, form.parts)
        first = _block_offset(form, block) + part * form.code_nbytes
        for k, code in enumerate(codes):
            where = at + (first + k * PANEL) + column
            stores.append(ir.Store("out0", where, ir.Cast(code, UINT8)))
    return stores


_BUILDERS: dict[str, Callable[[RowKernel], Built]] = {
    "rows_of_panels": _rows_of_panels,
    "pack_blocks": _pack,
    "pack_joined": _pack_joined,
    "quantise_blocks": quantise,
}

BUILDERS = dict.fromkeys(_BUILDERS, build_blocks)
