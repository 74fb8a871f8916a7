"""How blocks of weights are laid out for kernels: planes of bits, and scales beside them.

A panel is 16 columns of a product (16 rows of the weights) with all of K:

    panel    numbers of all blocks of 32, then scales; whole cache lines
    numbers  one plane after the other; a vector is 64 bytes: 16 columns x 4 neighbours in K, so
             eight groups of 4 make a block, and 8 // bits of them share the bytes of a vector,
             the first in the lowest bits
    scales   float16 for each column, then what is added; where parts of 256 elements have codes,
             these two serve all parts, whose codes follow, part by part

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

#: Elements of activations with one scale, and columns of a panel.
BLOCK = 32
PANEL = 16
#: Elements beside each other in K that one step of a dot product takes.
STEP = 4
LINE_NBYTES = 64
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
    def block_nbytes(self) -> int:
        """Bytes of the numbers of one block."""
        return LINE_NBYTES * sum(self.planes)

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
        return 2 * PANEL * (1 + self.has_least)

    @property
    def code_nbytes(self) -> int:
        """Bytes of the codes of one part."""
        if self.codes == "none":
            return 0
        return PANEL * (1 + (self.has_least and self.codes != "nibbles"))

    @property
    def scales_nbytes(self) -> int:
        """Bytes of all scales of as many blocks as share some."""
        return self.halves_nbytes + self.blocks * self.parts * self.code_nbytes

    def scales_at(self, depth: int) -> int:
        """Where scales begin in a panel."""
        return depth // BLOCK * self.block_nbytes

    def panel_nbytes(self, depth: int) -> int:
        used = self.scales_at(depth) + depth // (BLOCK * self.blocks) * self.scales_nbytes
        return -(-used // LINE_NBYTES) * LINE_NBYTES


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
    depth = apart.numbers.shape[1]
    n_panels = len(rows) // PANEL
    panels = np.zeros((n_panels, form.panel_nbytes(depth)), np.uint8)
    # panel, column, block, group, neighbour -> panel, block, group, column, neighbour
    groups = apart.numbers.reshape(n_panels, PANEL, -1, 8, STEP).transpose(0, 2, 3, 1, 4)
    planes, below = [], 0
    for bits in form.planes:
        piece = groups >> np.uint8(below) & np.uint8(2**bits - 1)
        shared = piece.reshape(*piece.shape[:2], bits, 8 // bits, LINE_NBYTES)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
        planes.append(np.bitwise_or.reduce(shared << shifts, axis=3))
        below += bits
    panels[:, : form.scales_at(depth)] = np.concatenate(planes, axis=2).reshape(n_panels, -1)
    scales = [
        np.ascontiguousarray(half.reshape(n_panels, PANEL, -1).transpose(0, 2, 1)).view(np.uint8)
        for half in apart.halves
    ]
    n_shared = scales[0].shape[1]
    codes = [
        code.reshape(n_panels, PANEL, n_shared, -1).transpose(0, 2, 3, 1) for code in apart.codes
    ]
    if codes:
        scales.append(np.concatenate(codes, axis=3).reshape(n_panels, n_shared, -1))
    used = np.concatenate(scales, axis=2).reshape(n_panels, -1)
    panels[:, form.scales_at(depth) :][:, : used.shape[1]] = used
    return panels


def panel_weights(panels: Array, dtype: DType, columns: int, depth: int) -> NDArray[np.float32]:
    """The weights that panels stand for, (columns, depth)."""
    form = form_of(dtype)
    n_panels = len(panels)
    numbers_at = form.scales_at(depth)
    vectors = panels[:, :numbers_at].reshape(n_panels, -1, sum(form.planes), LINE_NBYTES)
    groups = np.zeros((n_panels, depth // BLOCK, 8, LINE_NBYTES), np.uint8)
    first, below = 0, 0
    for bits in form.planes:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
        piece = vectors[:, :, first : first + bits, None] >> shifts & np.uint8(2**bits - 1)
        groups |= piece.reshape(groups.shape) << np.uint8(below)
        first, below = first + bits, below + bits
    numbers = groups.reshape(n_panels, -1, 8, PANEL, STEP).transpose(0, 3, 1, 2, 4)
    whole = numbers.reshape(n_panels * PANEL, -1, form.part).astype(np.float32)
    if form.has_table:
        whole = np.array(IQ4_VALUES, np.float32)[whole.astype(np.uint8)] + np.float32(form.zero)
    n_shared = depth // (BLOCK * form.blocks)
    used = panels[:, numbers_at : numbers_at + n_shared * form.scales_nbytes]
    shared = used.reshape(n_panels, n_shared, form.scales_nbytes)
    halves = np.ascontiguousarray(shared[:, :, : form.halves_nbytes]).view("<f2")
    of_columns = halves.reshape(n_panels, n_shared, -1, PANEL).transpose(2, 0, 3, 1)
    scales = of_columns.reshape(-1, n_panels * PANEL, n_shared, 1).astype(np.float32)
    if form.codes != "none":
        scales = scales * _codes(form, shared[:, :, form.halves_nbytes :])
    scales = scales.reshape(len(scales), n_panels * PANEL, -1, 1)
    weights = scales[0] * (whole - np.float32(form.zero))
    if form.has_least:
        sign = np.float32(1 if form.codes == "none" else -1)
        weights = weights + sign * scales[1]
    made: NDArray[np.float32] = weights.reshape(n_panels * PANEL, depth)[:columns]
    return made


def _codes(form: Form, raw: Array) -> NDArray[np.float32]:
    """Codes as numbers: (scales or least values, rows, blocks that share halves, parts)."""
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
