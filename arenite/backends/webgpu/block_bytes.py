"""Any block type as functions of the device, from its description.

In: a block type of `dtype.block_types`. Out: text of functions that read a block which begins at a
byte of an array, wherever that lies in a word:

    W_numbers(at, e)     elements e .. e + 3 as four bytes, int8
    W_scale(at, e)       what these are multiplied with, and what is then added

A number stands for scale * number + least: zeros are in the least, and of numbers up to 255 the
half of the range.
"""

from __future__ import annotations

from arenite.backends.webgpu.block_parts import Part, Read, Unit
from arenite.dtype import DType
from arenite.dtype.block_types import BlockType, Field, Number, Pieces, Scale
from arenite.dtype.blocks import block_type
from arenite.errors import NotCompiled

ONES = 0x01010101
#: Elements of a lane: those with one scale of x.
RUN = 32


def described_unit(dtype: DType) -> Unit:
    """A lane reads 32 elements."""
    block = block_type(dtype)
    step = elements_of_a_scale(block)

    def read(w: str, r: str) -> Read:
        text, parts = [f"let from{r} = {RUN}u * part{r};"], []
        for first in range(0, RUN, step):
            scale = f"scale{first}_{r}"
            text.append(f"let {scale} = {w}_scale(at{r}, from{r} + {first}u);")
            numbers = []
            for eight in range(first // 8, (first + step) // 8):
                words = (f"n{8 * eight}_{r}", f"n{8 * eight + 4}_{r}")
                for k, word in enumerate(words):
                    at = 8 * eight + 4 * k
                    text.append(f"let {word} = {w}_numbers(at{r}, from{r} + {at}u);")
                numbers.append((eight, words))
            least = f"{scale}.y" if has_least(block) else ""
            parts.append(Part(f"{scale}.x", least, tuple(numbers)))
        return Read([], text, parts)

    per_block, functions = block.length // RUN, block_functions(dtype)
    first = f"{RUN // 8}u * part"
    return Unit(per_block, RUN // 8, first, read, functions=functions, is_inside=False)


def block_functions(dtype: DType) -> str:
    """The functions of a type, of which `$w` is the array."""
    return _Functions(block_type(dtype)).text()


def elements_of_a_scale(block: BlockType) -> int:
    """Elements of a run for which one scale is read, at the most all."""
    smallest = min(block.length // block.n_scales(scale) for scale in block.scales)
    if smallest % 8:
        raise NotCompiled(f"{block.name}: scales of {smallest} elements are not done on WebGPU")
    return min(smallest, RUN)


def has_least(block: BlockType) -> bool:
    """Whether anything is added to scale * number."""
    return block.least is not None or _zero(block) != 0


def _fills_bytes(number: Number) -> bool:
    """Whether numbers are more than int8 has: they are read less 128."""
    return not number.signed and not number.table and sum(number.widths) == 8


def _zero(block: BlockType) -> int:
    """What stands for 0 among the numbers as they are read."""
    number = block.number
    return (0 if number.signed else number.bias) - 128 * _fills_bytes(number)


class _Functions:
    def __init__(self, block: BlockType) -> None:
        self.block = block

    def text(self) -> str:
        block = self.block
        made = [
            "fn $w_bytes(at: u32) -> u32 {\n"
            "  let by = (at & 3u) * 8u;\n"
            "  let low = $w_word(at >> 2u);\n"
            "  if (by == 0u) { return low; }\n"
            "  return (low >> by) | ($w_word((at >> 2u) + 1u) << (32u - by));\n}",
            self._numbers(),
        ]
        lines = ["fn $w_scale(at: u32, e: u32) -> vec2f {"]
        for name, scale in zip(("scale", "least"), block.scales, strict=False):
            if scale.codes is not None:
                made.append(self._codes(f"$w_{name}_code", scale.codes))
            lines.append(f"  let {name} = {self._scale(scale, f'$w_{name}_code')};")
        least = "least" if block.least else "0.0"
        factor = _whole_table(block.number.table)[1] if block.number.table else 1.0
        if _zero(block):
            least = f"{least} - {float(_zero(block))!r} * scale"
        value = "scale" if factor == 1 else f"scale * {factor!r}"
        return "\n".join([*made, *lines, f"  return vec2f({value}, {least});", "}"])

    def _scale(self, scale: Scale, codes: str) -> str:
        field = self.block.fields[scale.field]
        part = self.block.length // field.length
        before = f" + e / {part}u * {field.item_nbytes}u" if field.length > 1 else ""
        made = _float(self.block, field, f"$w_bytes(at + {field.offset}u{before})")
        if scale.codes is not None:
            count = self.block.n_numbers(scale.codes)
            made = f"{made} * {codes}(at, e / {self.block.length // count}u)"
        return f"-({made})" if scale.negative else made

    def _codes(self, name: str, codes: Number) -> str:
        """Whole number i of those that scale parts, as a float."""
        lines = [f"fn {name}(at: u32, e: u32) -> f32 {{", "  var number = 0u;"]
        lines += self._planes(codes, 1)
        width = sum(codes.widths)
        value = f"f32(extractBits(bitcast<i32>(number), 0u, {width}u))"
        if not codes.signed:
            value = f"f32(number) - {float(codes.bias)!r}"
        return "\n".join([*lines, f"  return {value};", "}"])

    def _numbers(self) -> str:
        number = self.block.number
        lines = ["fn $w_numbers(at: u32, e: u32) -> u32 {", "  var number = 0u;"]
        lines += self._planes(number, 4)
        if number.table:
            w = [f"vec4u({one}u)" for one in _packed(_whole_table(number.table)[0])]
            # Chosen word by word: an index into a vector would be one into memory.
            lines += [
                "  let at4 = (vec4u(number) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(15u);",
                "  let is_odd = (at4 & vec4u(4u)) != vec4u();",
                f"  let low = select({w[0]}, {w[1]}, is_odd);",
                f"  let high = select({w[2]}, {w[3]}, is_odd);",
                "  let chosen = select(low, high, (at4 & vec4u(8u)) != vec4u());",
                "  let own = (chosen >> ((at4 & vec4u(3u)) * 8u)) & vec4u(255u);",
                "  let meant = own.x | (own.y << 8u) | (own.z << 16u) | (own.w << 24u);",
            ]
            lines.append("  return meant;")
        else:
            lines.append(f"  return number{' ^ 0x80808080u' if _fills_bytes(number) else ''};")
        return "\n".join([*lines, "}"])

    def _planes(self, of: Number, count: int) -> list[str]:
        """`count` numbers from e on, a byte each, put together in `number`."""
        lines, below = [], 0
        for plane in of.planes:
            pieces = self.block.pieces(plane)
            for k, one in enumerate(pieces):
                is_last = k == len(pieces) - 1
                condition = "" if is_last else f"if (e < {one.stop}u) "
                lines.append(f"  {'else ' if k else ''}{condition}{{")
                lines += self._bits(one, count, below)
                lines.append("  }")
            below += plane[0].width
        return lines

    def _bits(self, pieces: Pieces, count: int, below: int) -> list[str]:
        own = pieces.bits
        mask = (1 << own.width) - 1
        lines = [f"    let i = e - {pieces.start}u;"]
        if own.group == 1:
            lines.append(f"    let word = $w_bytes(at + {pieces.offset}u + i * {own.width}u / 8u);")
            lines.append(f"    let first = i * {own.width}u % 8u;")
            lines += [
                f"    number |= ((word >> (first + {k * own.width}u)) & {mask}u)"
                f" << {8 * k + below}u;"
                for k in range(count)
            ]
            return lines
        cycle = own.group * own.a_byte
        lines += [
            f"    let piece = i % {cycle}u / {own.group}u;",
            f"    let byte = i / {cycle}u * {own.group}u + i % {own.group}u;",
            f"    let word = $w_bytes(at + {pieces.offset}u + byte);",
        ]
        if own.digits:
            powers = ", ".join(f"{3**k}u" for k in range(own.digits))
            lines.append(f"    var powers = array<u32, {own.digits}>({powers});")
            lines += [
                f"    number |= ((((((word >> {8 * k}u) & 255u) * powers[piece]) & 255u) * 3u)"
                f" >> 8u) << {8 * k + below}u;"
                for k in range(count)
            ]
            return lines
        steps = {b - a for a, b in zip(own.shifts, own.shifts[1:], strict=False)} or {0}
        if len(steps) > 1:
            raise NotCompiled(f"{self.block.name}: bits at {own.shifts} are not done on WebGPU")
        shift = f"({own.shifts[0]}u + piece * {steps.pop()}u)"
        of_all = mask * (ONES if count == 4 else 1)
        return [*lines, f"    number |= ((word >> {shift}) & {of_all}u) << {below}u;"]


def _float(block: BlockType, field: Field, word: str) -> str:
    if field.dtype == "float16":
        return f"unpack2x16float({word}).x"
    if field.dtype == "float32":
        return f"bitcast<f32>({word})"
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
    raise NotCompiled(f"{block.name}: scales of {field.dtype} are not done on WebGPU yet")


def _whole_table(table: tuple[float, ...]) -> tuple[list[int], float]:
    """The entries as whole numbers, and what these are multiplied with."""
    for factor in (1.0, 0.5):
        whole = [value / factor for value in table]
        if all(value == int(value) and -128 <= value <= 127 for value in whole):
            return [int(value) for value in whole], factor
    raise NotCompiled(f"a table {table} is not done on WebGPU yet")


def _packed(values: list[int]) -> list[int]:
    """Four bytes to a word."""
    return [
        sum((value & 255) << 8 * k for k, value in enumerate(values[at : at + 4]))
        for at in range(0, 16, 4)
    ]
