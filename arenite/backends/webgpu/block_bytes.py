"""Any block type as text for one lane, from its description: a block a lane, byte by byte.

In: a block type of `dtype.block_types`. Out: a Unit. Words of four numbers are made of the bytes
in which their bits lie; offsets are known, whether a block begins inside a word is not.
"""

from __future__ import annotations

from arenite.backends.webgpu.block_parts import Part, Unit
from arenite.dtype import DType
from arenite.dtype.block_types import BlockType, Field, Number, Pieces, Scale
from arenite.dtype.blocks import block_type
from arenite.errors import NotCompiled

ONES = 0x01010101


def described_unit(dtype: DType) -> Unit:
    """A lane reads a whole block."""
    block = block_type(dtype)

    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        return _Block(block, w, r).read(0, block.length)

    return Unit(1, block.length // 8, "0u", read)


def described_run(dtype: DType, w: str, first: int, count: int) -> tuple[list[str], list[str]]:
    """Elements of the block that begins at byte `at0`: text before them, then four at a time as
    vec4f."""
    text, parts = _Block(block_type(dtype), w, 0).read(first, count)
    values = []
    for part in parts:
        for _, words in part.numbers:
            for word in words:
                number = f"{part.scale} * vec4f(unpack4xI8({word}))"
                values.append(f"{number} + vec4f({part.least})" if part.least else number)
    return text, values


class _Block:
    """The block of row r, which begins at byte `at{r}`."""

    def __init__(self, block: BlockType, w: str, r: int) -> None:
        self.block, self.w, self.r = block, w, r
        self.lines: list[str] = []
        self.words: dict[int, str] = {}  # by the byte from which on

    def read(self, begin: int, count: int) -> tuple[list[str], list[Part]]:
        """Elements from one on, in whole parts of eight at the least."""
        block = self.block
        smallest = min(block.length // block.n_scales(scale) for scale in block.scales)
        if smallest % 8:
            raise NotCompiled(f"{block.name}: scales of {smallest} elements are not done on WebGPU")
        # Sums that a least is multiplied with are known for runs of 32.
        step = min(smallest, 32, count)
        parts = []
        for first in range(begin, begin + count, step):
            numbers = tuple(
                (at // 8, (self._number(at), self._number(at + 4)))
                for at in range(first, first + step, 8)
            )
            scale, *least = (self._scale(one, first) for one in block.scales)
            factor = 1.0
            if block.number.table:
                factor = _whole_table(block.number.table)[1]
                scale = self._named(f"({scale} * {factor!r})")
            zero = 0 if block.number.signed else block.number.bias
            added = " ".join([*least, *([f"- {float(zero)!r} * {scale}"] if zero else [])])
            parts.append(Part(scale, f"({added})" if added else "", numbers))
        return self.lines, parts

    def _named(self, text: str) -> str:
        name = f"v{self.r}_{len(self.lines)}"
        self.lines.append(f"let {name} = {text};")
        return name

    def _four_bytes(self, offset: int) -> str:
        """The word that begins at a byte of the block, wherever that lies."""
        if offset not in self.words:
            at = f"(at{self.r} + {offset}u)"
            low, high = (f"{self.w}_word(({at} >> 2u) + {k}u)" for k in range(2))
            by = f"(({at} & 3u) * 8u)"
            if self.block.nbytes % 4 == 0 and offset % 4 == 0:
                self.words[offset] = self._named(low)
            else:
                self.words[offset] = self._named(
                    f"({low} >> {by}) | (({high} << 1u) << (31u - {by}))"
                )
        return self.words[offset]

    def _number(self, element: int) -> str:
        """Four numbers, a byte each."""
        of = self.block.number
        made, below = "", 0
        for plane in of.planes:
            [pieces] = [p for p in self.block.pieces(plane) if p.start <= element < p.stop]
            bits = self._four_of(pieces, element - pieces.start)
            made = f"{made} | (({bits}) << {below}u)" if made else f"({bits})"
            below += plane[0].width
        word = self._named(made)
        if not of.table:
            return word
        packed = _packed(_whole_table(of.table)[0])
        entries = []
        for k in range(4):
            index = f"(({word} >> {8 * k}u) & 15u)"
            chosen = f"vec4u({', '.join(f'{p}u' for p in packed)})[{index} >> 2u]"
            entries.append(f"((({chosen} >> (({index} & 3u) * 8u)) & 255u) << {8 * k}u)")
        return self._named(" | ".join(entries))

    def _four_of(self, pieces: Pieces, first: int) -> str:
        own = pieces.bits
        if own.group == 1:
            return self._side_by_side(pieces, first)
        cycle, within = divmod(first, own.group * own.a_byte)
        piece, byte = divmod(within, own.group)
        word = self._four_bytes(pieces.offset + cycle * own.group + byte)
        if own.digits:
            digits = [
                f"((((((({word} >> {8 * k}u) & 255u) * {3**piece}u) & 255u) * 3u) >> 8u) << {8 * k}u)"
                for k in range(4)
            ]
            return " | ".join(digits)
        return f"({word} >> {own.shifts[piece]}u) & {((1 << own.width) - 1) * ONES}u"

    def _side_by_side(self, pieces: Pieces, first: int) -> str:
        """Numbers of a few bits after each other, spread over the bytes of a word."""
        width = pieces.bits.width
        byte, shift = divmod(first * width, 8)
        word = self._four_bytes(pieces.offset + byte)
        spread = [
            f"((({word} >> {shift + k * width}u) & {(1 << width) - 1}u) << {8 * k}u)"
            for k in range(4)
        ]
        return " | ".join(spread)

    def _scale(self, scale: Scale, element: int) -> str:
        field = self.block.fields[scale.field]
        before = element * field.length // self.block.length * field.item_nbytes
        made = self._float(field, field.offset + before)
        if scale.codes is not None:
            made = f"{made} * {self._code(scale.codes, element)}"
        return self._named(f"-({made})" if scale.negative else made)

    def _float(self, field: Field, offset: int) -> str:
        word = self._four_bytes(offset)
        if field.dtype == "float16":
            return f"unpack2x16float({word}).x"
        if field.dtype == "float8_e8m0fnu":
            code = f"({word} & 255u)"
            power = f"select({code} << 23u, 0x00400000u, {code} == 0u)"
            nan = f"select(parameters.zero, 0x00400000u, {code} == 255u)"
            return f"bitcast<f32>({power} | {nan})"
        if field.dtype == "float8_e4m3fn":
            code = f"({word} & 127u)"
            power = f"(bitcast<f32>(({code} << 20u) | parameters.zero) * {2.0**120!r})"
            size = f"select({power}, f32({code}) * {2.0**-9!r}, {code} < 8u)"
            nan = f"select(parameters.zero, 0x7fc00000u, {code} == 127u)"
            return f"bitcast<f32>(bitcast<u32>({size}) | (({word} & 128u) << 24u) | {nan})"
        raise NotCompiled(f"{self.block.name}: scales of {field.dtype} are not done on WebGPU yet")

    def _code(self, codes: Number, element: int) -> str:
        """The whole number that scales an element's part, as a float."""
        part = element * self.block.n_numbers(codes) // self.block.length
        made, below = "", 0
        for plane in codes.planes:
            [pieces] = [p for p in self.block.pieces(plane) if p.start <= part < p.stop]
            bits = f"({self._one_of(pieces, part - pieces.start)} << {below}u)"
            made = f"({made} | {bits})" if made else bits
            below += plane[0].width
        if codes.signed:
            return f"f32(extractBits(bitcast<i32>({made}), 0u, {below}u))"
        return f"(f32({made}) - {float(codes.bias)!r})" if codes.bias else f"f32({made})"

    def _one_of(self, pieces: Pieces, first: int) -> str:
        own = pieces.bits
        if own.group == 1:
            byte, shift = divmod(first * own.width, 8)
        else:
            cycle, within = divmod(first, own.group * own.a_byte)
            piece, byte = divmod(within, own.group)
            byte, shift = cycle * own.group + byte, own.shifts[piece]
        word = self._four_bytes(pieces.offset + byte)
        return f"(({word} >> {shift}u) & {(1 << own.width) - 1}u)"


def _whole_table(table: tuple[float, ...]) -> tuple[list[int], float]:
    """The entries as whole numbers, and what these are multiplied with."""
    for factor in (1.0, 0.5):
        whole = [value / factor for value in table]
        if all(value == int(value) and -128 <= value <= 127 for value in whole):
            return [int(value) for value in whole], factor
    raise NotCompiled(f"a table {table} is not done on WebGPU yet")


def _packed(values: list[int]) -> list[int]:
    return [
        sum((value & 255) << 8 * k for k, value in enumerate(values[at : at + 4]))
        for at in range(0, 16, 4)
    ]
