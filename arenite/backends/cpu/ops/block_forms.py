"""How blocks of weights are laid out for kernels: planes of bits, and scales beside them.

A panel is 32 columns of a product (32 rows of the weights) with all of K, in the order in which a
kernel reads it, in whole cache lines:

    shared   float16 scales of 32 columns, then what is added, for as many blocks as share them: one
             block of 32 elements, or eight
    codes    of each block, where parts of it are scaled by whole numbers: part by part
    numbers  of each block: of the first 16 columns, then of the others; one plane of bits after the
             other. A vector is 64 bytes, 16 columns x 4 neighbours in K, so eight groups of 4 make
             a block, and 8 // bits of them share the bytes of a vector, the first in the lowest
             bits

Columns past the last repeat the last one. A weight is scale * (number - zero) + least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import DType
from arenite.dtype.blocks import IQ4_VALUES, LAYOUTS
from arenite.errors import TypeMismatch

Array = NDArray[Any]

#: Elements of activations with one scale, columns of a panel, and of a vector.
BLOCK = 32
PANEL = 32
LANES = 16
#: Elements beside each other in K that one step of a dot product takes.
STEP = 4
LINE_NBYTES = LANES * STEP
#: What is added to a table's values, which makes all of them positive.
TABLE_ZERO = 128

#: Whole numbers that scale parts of a block: one of 8 bits and a least one beside it, one with a
#: sign, or both in the halves of a byte.
Codes = Literal["none", "unsigned", "signed", "nibbles"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a block type becomes in a panel."""

    planes: tuple[int, ...]  # bits of each, the lowest of a number first
    zero: int
    codes: Codes = "none"
    part: int = BLOCK  # elements with one scale
    has_least: bool = False
    has_table: bool = False  # numbers stand for others

    @property
    def blocks(self) -> int:
        """Blocks that share their float16 scales."""
        return 1 if self.codes == "none" else 8

    @property
    def parts(self) -> int:
        """Parts of a block."""
        return BLOCK // self.part

    @property
    def halves_nbytes(self) -> int:
        """Bytes of the float16 of a panel that blocks share."""
        return 2 * PANEL * (1 + self.has_least)

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
        return self.halves_nbytes + self.blocks * self.block_nbytes

    def panel_nbytes(self, depth: int) -> int:
        return depth // (BLOCK * self.blocks) * self.shared_nbytes


FORMS = {
    "q4_0": Form((4,), 8),
    "q4_1": Form((4,), 0, has_least=True),
    "q5_0": Form((4, 1), 16),
    "q5_1": Form((4, 1), 0, has_least=True),
    "q8_0": Form((8,), 128),
    "q2_k": Form((2,), 0, "nibbles", 16, has_least=True),
    "q3_k": Form((2, 1), 4, "signed", 16),
    "q4_k": Form((4,), 0, "unsigned", has_least=True),
    "q5_k": Form((4, 1), 0, "unsigned", has_least=True),
    "q6_k": Form((4, 2), 32, "signed", 16),
    "iq4_nl": Form((4,), TABLE_ZERO, has_table=True),
    "iq4_xs": Form((4,), TABLE_ZERO, "signed", has_table=True),
}


def form_of(dtype: DType) -> Form:
    if dtype.name not in FORMS:
        raise TypeMismatch(f"{dtype} is no block-quantised type that kernels read")
    return FORMS[dtype.name]


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A matrix taken apart: whole numbers, float16 scales, codes of parts, row by row."""

    numbers: NDArray[np.uint8]  # (rows, depth)
    halves: list[Array]  # scales, then least values: (rows, blocks that share them)
    codes: list[NDArray[np.uint8]]  # (rows, parts)


def packed_panels(raw: Array, dtype: DType) -> NDArray[np.uint8]:
    """The panels of a matrix whose rows are given as bytes."""
    form, layout = form_of(dtype), LAYOUTS[dtype.name]
    n_rows = raw.shape[0]
    rows = np.minimum(np.arange(-(-n_rows // PANEL) * PANEL), n_rows - 1)
    blocks = np.ascontiguousarray(raw).view(layout)[rows]
    apart = _TAKEN_APART[dtype.name](blocks)
    n_panels = len(rows) // PANEL
    n_shared = apart.halves[0].shape[1]
    halves = [
        np.ascontiguousarray(half.reshape(n_panels, PANEL, n_shared).transpose(0, 2, 1))
        for half in apart.halves
    ]
    shared = np.concatenate([half.view(np.uint8) for half in halves], axis=2)
    made = _planes(form, apart.numbers.reshape(n_panels, PANEL // LANES, LANES, -1, 8, STEP))
    inside = [made.reshape(n_panels, n_shared, form.blocks, -1)]
    if apart.codes:
        # panel, column, shared, block, part -> panel, shared, block, part, column
        codes = [
            code.reshape(n_panels, PANEL, n_shared, form.blocks, form.parts).transpose(
                0, 2, 3, 4, 1
            )
            for code in apart.codes
        ]
        inside.insert(0, np.concatenate(codes, axis=4).reshape(*inside[0].shape[:3], -1))
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
    halves = np.ascontiguousarray(shared[:, :, : form.halves_nbytes]).view("<f2")
    blocks = shared[:, :, form.halves_nbytes :].reshape(n_panels, n_shared, form.blocks, -1)
    numbers = _numbers(form, blocks[..., form.codes_nbytes :].reshape(n_panels, -1))
    if form.has_table:
        numbers = np.array(IQ4_VALUES, np.float32)[numbers.astype(np.uint8)] + np.float32(form.zero)
    # kind, column, shared, part
    of_columns = halves.reshape(n_panels, n_shared, -1, PANEL).transpose(2, 0, 3, 1)
    scales = of_columns.reshape(-1, n_panels * PANEL, n_shared, 1).astype(np.float32)
    if form.codes != "none":
        scales = scales * _codes(form, blocks[..., : form.codes_nbytes])
    scales = scales.reshape(len(scales), n_panels * PANEL, -1, 1)
    whole = numbers.reshape(n_panels * PANEL, -1, form.part) - np.float32(form.zero)
    weights = scales[0] * whole
    if form.has_least:
        sign = np.float32(1 if form.codes == "none" else -1)
        weights = weights + sign * scales[1]
    made: NDArray[np.float32] = weights.reshape(n_panels * PANEL, depth)[:columns]
    return made


def _numbers(form: Form, raw: Array) -> Array:
    """Whole numbers of all columns, (columns, depth), as floats."""
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
    return columns.reshape(len(raw) * PANEL, -1).astype(np.float32)


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


# Blocks of each type, taken apart. Records are (rows, blocks); fields as in `dtype.blocks`.


def _pieces(field: Array, bits: int, groups: int) -> NDArray[np.uint8]:
    """Numbers of so many bits: all lowest pieces of a group of bytes, then all next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    grouped = field.reshape(*field.shape[:2], groups, 1, -1)
    pieces: NDArray[np.uint8] = grouped >> shifts & np.uint8(2**bits - 1)
    return pieces.reshape(*field.shape[:2], -1)


def _word_bits(words: Array, bits: int, count: int) -> NDArray[np.uint8]:
    """Pieces of a word of 16 or 32 bits, the lowest first."""
    shifts = np.arange(count, dtype=words.dtype) * words.dtype.type(bits)
    pieces: Array = words[..., None] >> shifts & words.dtype.type(2**bits - 1)
    return pieces.astype(np.uint8)


def _joined(numbers: Array, blocks: Array, *codes: Array, has_least: bool = False) -> _Numbers:
    halves = [blocks["d"], blocks["m"]] if has_least else [blocks["d"]]
    n_rows = len(blocks)
    return _Numbers(
        np.ascontiguousarray(numbers).reshape(n_rows, -1),
        halves,
        [np.ascontiguousarray(code).reshape(n_rows, -1).view(np.uint8) for code in codes],
    )


def _four(has_least: bool) -> Callable[[Array], _Numbers]:
    return lambda b: _joined(_pieces(b["qs"], 4, 1), b, has_least=has_least)


def _five(has_least: bool) -> Callable[[Array], _Numbers]:
    return lambda b: _joined(
        _pieces(b["qs"], 4, 1) | _word_bits(b["qh"], 1, 32) << np.uint8(4), b, has_least=has_least
    )


def _q8_0(b: Array) -> _Numbers:
    return _joined(b["qs"].view(np.uint8) ^ np.uint8(128), b)


def _q2_k(b: Array) -> _Numbers:
    return _joined(_pieces(b["qs"], 2, 2), b, b["scales"], has_least=True)


def _q3_k(b: Array) -> _Numbers:
    numbers = _pieces(b["qs"], 2, 2) | _pieces(b["hmask"], 1, 1) << np.uint8(2)
    four = _pieces(np.ascontiguousarray(b["scales"][..., :8]), 4, 1)
    two = _pieces(np.ascontiguousarray(b["scales"][..., 8:]), 2, 1)
    return _joined(numbers, b, (four | two << np.uint8(4)) - np.uint8(32))


def _six_bits(b: Array) -> tuple[Array, Array]:
    """Scales and least values of q4_k and q5_k, eight each."""
    first, second, third = np.split(b["scales"], 3, axis=2)
    six, above, four = np.uint8(63), np.uint8(6), np.uint8(4)
    scales = [first & six, (third & np.uint8(15)) | first >> above << four]
    least = [second & six, third >> four | second >> above << four]
    return np.concatenate(scales, axis=2), np.concatenate(least, axis=2)


def _q4_k(b: Array) -> _Numbers:
    return _joined(_pieces(b["qs"], 4, 4), b, *_six_bits(b), has_least=True)


def _q5_k(b: Array) -> _Numbers:
    numbers = _pieces(b["qs"], 4, 4) | _pieces(b["qh"], 1, 1) << np.uint8(4)
    return _joined(numbers, b, *_six_bits(b), has_least=True)


def _q6_k(b: Array) -> _Numbers:
    numbers = _pieces(b["ql"], 4, 2) | _pieces(b["qh"], 2, 2) << np.uint8(4)
    return _joined(numbers, b, b["scales"])


def _iq4_xs(b: Array) -> _Numbers:
    low = b["scales_l"]
    four = np.stack([low & np.uint8(15), low >> np.uint8(4)], 3).reshape(*low.shape[:2], -1)
    two = _word_bits(b["scales_h"], 2, 8)
    codes = (four | two << np.uint8(4)) - np.uint8(32)
    return _joined(_pieces(b["qs"], 4, 8), b, codes)


_TAKEN_APART: dict[str, Callable[[Array], _Numbers]] = {
    "q4_0": _four(has_least=False),
    "q4_1": _four(has_least=True),
    "q5_0": _five(has_least=False),
    "q5_1": _five(has_least=True),
    "q8_0": _q8_0,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _four(has_least=False),
    "iq4_xs": _iq4_xs,
}
