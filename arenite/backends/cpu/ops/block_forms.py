"""How blocks of weights are laid out for kernels: planes of bits, and scales beside them.

A panel is 32 columns of a product (32 rows of the weights) with all of K, in the order in which a
kernel reads it, in whole cache lines:

    shared   scales of 32 columns, then what is added, for as many blocks of 32 elements as share
             them; where parts of a block have scales of their own, those of all parts
    codes    of each block, where parts of it are scaled by whole numbers: part by part
    numbers  of each block: of the first 16 columns, then of the others; one plane of bits after the
             other. A vector is 64 bytes, 16 columns x 4 neighbours in K, so eight groups of 4 make
             a block, and 8 // bits of them share the bytes of a vector, the first in the lowest
             bits

Columns past the last repeat the last one. A weight is scale * (number - zero) + least, where the
number may be an index of a table. What a type becomes follows from its description.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, Array, DType
from arenite.dtype.block_types import BlockType, Number
from arenite.dtype.blocks import block_type, code_values, floats_of, unsigned
from arenite.errors import TypeMismatch

#: Elements of activations with one scale, columns of a panel, and of a vector.
BLOCK = 32
PANEL = 32
LANES = 16
#: Elements beside each other in K that one step of a dot product takes.
STEP = 4
LINE_NBYTES = LANES * STEP

#: Whole numbers that scale parts of a block: one of 8 bits and a least one beside it, one with a
#: sign, or both in the halves of a byte.
Codes = Literal["none", "unsigned", "signed", "nibbles"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a block type becomes in a panel."""

    planes: tuple[int, ...]  # bits of each, the lowest of a number first
    zero: int
    table: tuple[int, ...]  # what numbers stand for, the zero added; empty for themselves
    codes: Codes
    part: int  # elements with one scale
    blocks: int  # of 32 elements that share their scales
    scale: DType  # of the scales that blocks share
    factor: float  # scales are those of the type times this
    has_least: bool
    is_least_negative: bool

    @property
    def parts(self) -> int:
        """Parts of a block."""
        return BLOCK // self.part

    @property
    def largest(self) -> int:
        """The largest number before the zero is taken off."""
        return max(self.table) if self.table else 2 ** sum(self.planes) - 1

    @property
    def floats(self) -> int:
        """Scales of a column that blocks share."""
        return self.parts if self.codes == "none" else 1

    @property
    def float_nbytes(self) -> int:
        """Bytes of one scale of all columns."""
        return self.scale.bits // 8 * PANEL

    @property
    def floats_nbytes(self) -> int:
        """Bytes of the scales of a panel that blocks share."""
        return self.float_nbytes * self.floats * (1 + self.has_least)

    @property
    def code_nbytes(self) -> int:
        """Bytes of the codes of one part."""
        if self.codes == "none":
            return 0
        return PANEL * (1 + (self.has_least and self.codes != "nibbles"))

    @property
    def codes_nbytes(self) -> int:
        """Bytes of the codes of one block."""
        return self.parts * self.code_nbytes

    @property
    def numbers_nbytes(self) -> int:
        """Bytes of the numbers of one block, for the columns of a vector."""
        return LINE_NBYTES * sum(self.planes)

    @property
    def block_nbytes(self) -> int:
        return self.codes_nbytes + PANEL // LANES * self.numbers_nbytes

    @property
    def shared_nbytes(self) -> int:
        """Bytes of all blocks that share scales, with these."""
        return self.floats_nbytes + self.blocks * self.block_nbytes

    def panel_nbytes(self, depth: int) -> int:
        return depth // (BLOCK * self.blocks) * self.shared_nbytes


def form_of(dtype: DType) -> Form:
    """The panels of a type; TypeMismatch where it is one that panels do not hold."""
    return _form(block_type(dtype))


@cache
def _form(block: BlockType) -> Form:
    field = block.fields[block.scale.field]
    part = min(BLOCK, *(block.length // block.n_scales(scale) for scale in block.scales))
    table, zero, factor = _whole_table(block.number)
    made = Form(
        block.number.widths,
        zero,
        table,
        _codes_kind(block),
        part,
        max(1, block.length // field.length // BLOCK),
        *_panel_scale(BY_NAME[field.dtype], factor),
        block.least is not None,
        block.least is not None and block.least.negative,
    )
    _check(block, made)
    return made


def _whole_table(number: Number) -> tuple[tuple[int, ...], int, float]:
    """A table as whole numbers that are not negative; what was added; what makes up for the rest.

    What is added is a power of two, so that taking it off is a shift.
    """
    if not number.table:
        return (), number.bias, 1
    factor = 1.0
    while any(value / factor % 1 for value in number.table):
        factor /= 2
    whole = [int(value / factor) for value in number.table]
    zero = 1 << max(0, -min(whole) - 1).bit_length()
    return tuple(value + zero for value in whole), zero, factor


def _codes_kind(block: BlockType) -> Codes:
    codes = [scale.codes for scale in block.scales if scale.codes]
    if not codes:
        return "none"
    if len(codes) == 2 and all(sum(code.widths) == 4 and not code.bias for code in codes):
        return "nibbles"
    return "signed" if any(code.bias for code in codes) else "unsigned"


def _panel_scale(dtype: DType, factor: float) -> tuple[DType, float]:
    """The narrowest float that holds scales times the factor exactly: a bfloat16 any of 8 bits."""
    if factor == 1 and dtype.bits == 16:
        return dtype, factor
    return BY_NAME["bfloat16" if dtype.bits == 8 else "float32"], factor


def _check(block: BlockType, form: Form) -> None:
    groups = [p.bits.group for plane in block.number.planes for p in block.pieces(plane)]
    fields = [block.fields[scale.field] for scale in block.scales]
    codes = [scale.codes for scale in block.scales if scale.codes]
    kinds = {
        (field.dtype, field.length, block.n_scales(scale))
        for field, scale in zip(fields, block.scales, strict=True)
    }
    wrong = {
        "whole blocks of 32": block.length % BLOCK,
        "parts of 16 or 32 elements": form.part not in (LANES, BLOCK),
        "planes of 1, 2, 4 or 8 bits": {*form.planes} - {1, 2, 4, 8},
        "a zero that is a power of two": form.zero & form.zero - 1,
        "values of 8 bits": form.largest > 255,
        "tables of 16 for planes of 4 bits": form.table
        and (form.planes != (4,) or len(form.table) != 16),
        "groups of 1 byte or of fours": any(group % STEP and group != 1 for group in groups),
        "a power of two of blocks to a scale": form.blocks & form.blocks - 1,
        "scales and least values of one kind": len(kinds) > 1 or len(codes) == 1 < len(fields),
        "codes of one block or more": codes and block.length < BLOCK * fields[0].length,
        "codes of 8 bits without a table": any(
            code.table or (form.codes == "signed" and sum(code.widths) == 8 and not code.signed)
            for code in codes
        ),
    }
    for rule, is_broken in wrong.items():
        if is_broken:
            raise TypeMismatch(
                f"products take no {block.name}: panels hold types with {rule}; multiply with "
                "dequantise(w)"
            )


def _parts(raw: Array, block: BlockType, form: Form) -> tuple[Array, list[Array], list[Array]]:
    """Of every row its numbers; scales, then least values; and codes of both."""
    n_rows = len(raw)
    blocks = np.ascontiguousarray(raw).reshape(-1, block.nbytes)
    floats = []
    for scale in block.scales:
        own = floats_of(block, scale, blocks)
        if form.factor != 1 or own.dtype != form.scale.to_numpy():
            own = (own.astype(np.float32) * np.float32(form.factor)).astype(form.scale.to_numpy())
        floats.append(own.reshape(n_rows, -1))
    n_parts = block.length // form.part
    codes = []
    for scale in block.scales:
        if scale.codes:
            own = code_values(block, scale.codes, blocks).astype(np.int16).astype(np.uint8)
            codes.append(np.repeat(own, n_parts // own.shape[1], axis=1).reshape(n_rows, -1))
    if form.codes == "nibbles":
        codes = [codes[0] | codes[1] << np.uint8(4)]
    return unsigned(block, block.number, blocks).reshape(n_rows, -1), floats, codes


def packed_panels(raw: Array, dtype: DType) -> NDArray[np.uint8]:
    """The panels of a matrix whose rows are given as bytes."""
    form, block = form_of(dtype), block_type(dtype)
    n_rows = raw.shape[0]
    rows = np.minimum(np.arange(-(-n_rows // PANEL) * PANEL), n_rows - 1)
    numbers, floats, codes = _parts(raw[rows], block, form)
    n_panels = len(rows) // PANEL
    n_shared = numbers.shape[1] // (BLOCK * form.blocks)
    # panel, column, shared, float -> panel, shared, float, column
    turned = [own.reshape(n_panels, PANEL, n_shared, -1).transpose(0, 2, 3, 1) for own in floats]
    raw_floats = [np.ascontiguousarray(own).view(np.uint8) for own in turned]
    shared = np.concatenate([own.reshape(n_panels, n_shared, -1) for own in raw_floats], axis=2)
    planes = _planes(form, numbers.reshape(n_panels, PANEL // LANES, LANES, -1, 8, STEP))
    inside = [planes.reshape(n_panels, n_shared, form.blocks, -1)]
    if codes:
        # panel, column, shared, block, part -> panel, shared, block, part, column
        sizes = (n_panels, PANEL, n_shared, form.blocks, form.parts)
        of_parts = [code.reshape(sizes).transpose(0, 2, 3, 4, 1) for code in codes]
        inside.insert(0, np.concatenate(of_parts, axis=4).reshape(*inside[0].shape[:3], -1))
    whole = np.concatenate(inside, axis=3).reshape(n_panels, n_shared, -1)
    return np.concatenate([shared, whole], axis=2).reshape(n_panels, -1)


def _planes(form: Form, numbers: Array) -> Array:
    """[panel, half, column, block, group, step] -> [panel, block, half, vector, byte]"""
    groups = numbers.transpose(0, 3, 1, 4, 2, 5).reshape(
        len(numbers), -1, PANEL // LANES, 8, LINE_NBYTES
    )
    planes, below = [], 0
    for bits in form.planes:
        piece = groups >> np.uint8(below) & np.uint8(2**bits - 1)
        together = piece.reshape(*piece.shape[:3], bits, 8 // bits, LINE_NBYTES)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
        planes.append(np.bitwise_or.reduce(together << shifts, axis=4))
        below += bits
    return np.concatenate(planes, axis=3)


def panel_weights(panels: Array, dtype: DType, columns: int, depth: int) -> NDArray[np.float32]:
    """The weights that panels stand for, (columns, depth)."""
    form = form_of(dtype)
    n_panels, n_shared = len(panels), depth // (BLOCK * form.blocks)
    shared = panels.reshape(n_panels, n_shared, form.shared_nbytes)
    own = np.ascontiguousarray(shared[:, :, : form.floats_nbytes]).view(form.scale.to_numpy())
    blocks = shared[:, :, form.floats_nbytes :].reshape(n_panels, n_shared, form.blocks, -1)
    numbers = _numbers(form, blocks[..., form.codes_nbytes :].reshape(n_panels, -1))
    if form.table:
        numbers = np.array(form.table, np.uint8)[numbers]
    # kind, column, shared, part
    of_columns = own.reshape(n_panels, n_shared, 1 + form.has_least, form.floats, PANEL)
    turned = of_columns.transpose(2, 0, 4, 1, 3)
    scales = turned.reshape(-1, n_panels * PANEL, n_shared, form.floats).astype(np.float32)
    if form.codes != "none":
        scales = scales * _codes(form, blocks[..., : form.codes_nbytes])
    scales = scales.reshape(len(scales), n_panels * PANEL, -1, 1)
    whole = numbers.astype(np.float32) - np.float32(form.zero)
    weights = scales[0] * whole.reshape(*scales[0].shape[:2], -1)
    if form.has_least:
        weights = weights - scales[1] if form.is_least_negative else weights + scales[1]
    found: NDArray[np.float32] = weights.reshape(n_panels * PANEL, depth)[:columns]
    return found


def _numbers(form: Form, raw: Array) -> Array:
    """Whole numbers of all columns, (columns, depth)."""
    n_halves = PANEL // LANES
    vectors = raw.reshape(len(raw), -1, n_halves, sum(form.planes), LINE_NBYTES)
    groups = np.zeros((*vectors.shape[:3], 8, LINE_NBYTES), np.uint8)
    first, below = 0, 0
    for bits in form.planes:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
        piece = vectors[:, :, :, first : first + bits, None] >> shifts & np.uint8(2**bits - 1)
        groups |= piece.reshape(groups.shape) << np.uint8(below)
        first, below = first + bits, below + bits
    columns = groups.reshape(*groups.shape[:4], LANES, STEP).transpose(0, 2, 4, 1, 3, 5)
    return columns.reshape(len(raw) * PANEL, -1)


def _codes(form: Form, raw: Array) -> NDArray[np.float32]:
    """Codes as numbers: (scales or least values, columns, shared, parts)."""
    n_panels, n_shared = raw.shape[:2]
    codes = raw.reshape(n_panels, n_shared, -1, form.code_nbytes // PANEL, PANEL)
    if form.codes == "nibbles":
        codes = np.concatenate([codes & np.uint8(15), codes >> np.uint8(4)], axis=3)
    if form.codes == "signed":
        codes = codes.view(np.int8)
    turned = codes.transpose(3, 0, 4, 1, 2)
    return turned.reshape(turned.shape[0], -1, n_shared, turned.shape[-1]).astype(np.float32)
