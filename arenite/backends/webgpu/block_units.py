"""Blocks of weights as text: what one lane reads of a row, as whole numbers and their scales.

In: a block type and the number of elements of a row. Out: a Unit, text that reads some elements of
a block as words of four bytes, and which elements these are. How a row is dealt out decides the
speed: neighbouring lanes should read neighbouring words, and each word once.

    q8_0           8 elements a lane, so that 4 lanes share a block
    q4_0, q4_1     a block
    q4_k, q5_k     64 elements, which share 32 bytes; read by four words
    q6_k           16 elements, whose upper bits lie side by side
    all others     a block, byte by byte as `dtype.block_types` describes it

A number stands for scale * number + least, by words of int8: zeros are in the least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.backends.webgpu.block_bytes import described_unit
from arenite.backends.webgpu.block_parts import Part, Unit
from arenite.dtype import DType

__all__ = ["Part", "Unit", "unit_of"]


@dataclass(frozen=True, slots=True)
class _Row:
    """Row r: `w` is its array, `at{r}` the byte at which its block begins."""

    w: str
    r: int

    def word(self, at: str) -> str:
        return f"{self.w}_word({at})"

    def shifted(self, first: str, count: int, name: str) -> list[str]:
        """`count` words from an even byte on, as name0, name1, ..."""
        r = self.r
        return [
            f"let {name}odd{r} = (({first}) & 2u) != 0u; let {name}from{r} = ({first}) >> 2u;",
            *(
                f"let {name}raw{r}_{k} = {self.word(f'{name}from{r} + {k}u')};"
                for k in range(count + 1)
            ),
            *(
                f"let {name}{r}_{k} = select({name}raw{r}_{k}, ({name}raw{r}_{k} >> 16u) | "
                f"({name}raw{r}_{k + 1} << 16u), {name}odd{r});"
                for k in range(count)
            ),
        ]

    def half(self, at: str, name: str) -> str:
        """A float16 at an even byte."""
        word = self.word(f"({at}) >> 2u")
        return f"let {name}{self.r} = unpack2x16float({word} >> ((({at}) & 2u) * 8u)).x;"


def unit_of(dtype: DType) -> Unit:
    """How lanes read rows of these blocks."""
    made = _UNITS.get(dtype.name)
    return made() if made is not None else described_unit(dtype)


def _q8_0() -> Unit:
    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        row = _Row(w, r)
        text = [
            row.half(f"at{r}", "d"),
            *row.shifted(f"at{r} + 2u + 8u * part", 2, "q"),
        ]
        return text, [Part(f"d{r}", "", ((0, (f"q{r}_0", f"q{r}_1")),))]

    return Unit(4, 1, "part", read)


def _nibbles(word: str) -> tuple[str, str]:
    return f"({word} & 0x0f0f0f0fu)", f"(({word} >> 4u) & 0x0f0f0f0fu)"


def _of_nibbles(words: list[str]) -> tuple[tuple[int, tuple[str, str]], ...]:
    """Four words: low nibbles are the first 16 numbers, high ones the others."""
    low, high = zip(*map(_nibbles, words), strict=True)
    return (
        (0, (low[0], low[1])),
        (1, (low[2], low[3])),
        (2, (high[0], high[1])),
        (3, (high[2], high[3])),
    )


def _q4_0() -> Unit:
    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        row = _Row(w, r)
        text = [
            f"let odd{r} = (at{r} & 2u) != 0u; let from{r} = at{r} >> 2u;",
            *(f"let raw{r}_{k} = {row.word(f'from{r} + {k}u')};" for k in range(5)),
            f"let d{r} = unpack2x16float(select(raw{r}_0, raw{r}_0 >> 16u, odd{r})).x;",
            *(
                f"let q{r}_{k} = select((raw{r}_{k} >> 16u) | (raw{r}_{k + 1} << 16u), "
                f"raw{r}_{k + 1}, odd{r});"
                for k in range(4)
            ),
        ]
        numbers = _of_nibbles([f"q{r}_{k}" for k in range(4)])
        return text, [Part(f"d{r}", f"(-8.0 * d{r})", numbers)]

    return Unit(1, 4, "0u", read)


def _q4_1() -> Unit:
    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        row = _Row(w, r)
        text = [
            f"let from{r} = at{r} >> 2u;",
            f"let d{r} = unpack2x16float({row.word(f'from{r}')});",
            *(f"let q{r}_{k} = {row.word(f'from{r} + {k + 1}u')};" for k in range(4)),
        ]
        return text, [Part(f"d{r}.x", f"d{r}.y", _of_nibbles([f"q{r}_{k}" for k in range(4)]))]

    return Unit(1, 4, "0u", read)


def _k_scales(r: int, head: str) -> list[str]:
    """Six-bit scales and leasts of parts 2 * part and 2 * part + 1, from the words of a head."""
    low = f"({head}.y >> by{r}), ({head}.z >> by{r})"
    fours = f"({head}.w >> by{r})"
    return [
        f"let by{r} = (part & 1u) * 16u;",
        f"let dm{r} = unpack2x16float({head}.x);",
        # Bytes 0 and 1: of the first four parts six bits each; of others four here, two there.
        f"let early{r} = vec2u({low}) & vec2u(0x3f3fu);",
        f"let late{r} = (vec2u({fours}, {fours} >> 4u) & vec2u(0x0f0fu)) | "
        f"((vec2u({low}) >> vec2u(2u)) & vec2u(0x3030u));",
        f"let code{r} = select(late{r}, early{r}, part < 2u);",
        *(
            f"let d{r}_{k} = dm{r}.x * f32((code{r}.x >> {8 * k}u) & 63u); "
            f"let m{r}_{k} = -dm{r}.y * f32((code{r}.y >> {8 * k}u) & 63u);"
            for k in range(2)
        ),
    ]


def _k_quants(has_fifth: bool) -> Unit:
    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        first = 3 if has_fifth else 1
        text = [
            f"let from{r} = at{r} >> 4u;",
            f"let head{r} = {w}_four(from{r});",
            *_k_scales(r, f"head{r}"),
            *(f"let q{r}_{k} = {w}_four(from{r} + {first + k}u + 2u * part);" for k in range(2)),
        ]
        if has_fifth:
            text += [
                f"let h{r}_{k} = {w}_four(from{r} + {1 + k}u) >> vec4u(2u * part);" for k in (0, 1)
            ]
        parts = []
        for nibble in range(2):
            numbers = []
            for k in range(4):
                words = []
                for lane in "xyzw"[2 * (k % 2) : 2 * (k % 2) + 2]:
                    word = _nibbles(f"q{r}_{k // 2}.{lane}")[nibble]
                    if has_fifth:
                        fifth = f"((h{r}_{k // 2}.{lane} >> {nibble}u) & 0x01010101u) << 4u"
                        word = f"({word} | ({fifth}))"
                    words.append(word)
                numbers.append((4 * nibble + k, (words[0], words[1])))
            parts.append(Part(f"d{r}_{nibble}", f"m{r}_{nibble}", tuple(numbers)))
        return text, parts

    return Unit(4, 8, "part * 8u", read, is_wide=True)


def _q6_k() -> Unit:
    """Part p has of a half of a block, p / 8, the 8 bytes from 8 (p % 8) on: 8 low nibbles, and 8
    high ones, which are 64 elements further."""

    def read(w: str, r: int) -> tuple[list[str], list[Part]]:
        row = _Row(w, r)
        words = []
        text = [
            f"let upper{r} = ((part >> 2u) & 1u) * 2u;",
            *row.shifted(f"at{r} + 8u * part", 2, "q"),
            *row.shifted(f"at{r} + 128u + 32u * (part >> 3u) + 8u * (part & 3u)", 2, "h"),
            row.half(f"at{r} + 208u", "d"),
            f"let codeat{r} = at{r} + 192u + 8u * (part >> 3u) + ((part & 7u) >> 1u);",
            *(
                f"let s{r}_{k} = d{r} * f32(extractBits(bitcast<i32>("
                f"{row.word(f'(codeat{r} + {4 * k}u) >> 2u')}), "
                f"((codeat{r} + {4 * k}u) & 3u) * 8u, 8u));"
                for k in range(2)
            ),
        ]
        for k in range(4):
            nibble = _nibbles(f"q{r}_{k % 2}")[k // 2]
            pair = f"((h{r}_{k % 2} >> (upper{r} + {4 * (k // 2)}u)) & 0x03030303u) << 4u"
            # Less 32, byte by byte.
            text.append(
                f"let n{r}_{k} = ((({nibble} | ({pair})) | 0x80808080u) - 0x20202020u)"
                " ^ 0x80808080u;"
            )
            words.append(f"n{r}_{k}")
        return text, [
            Part(f"s{r}_{k}", "", ((8 * k, (words[2 * k], words[2 * k + 1])),)) for k in range(2)
        ]

    return Unit(16, 2, "16u * (part >> 3u) + (part & 7u)", read)


_UNITS: dict[str, Callable[[], Unit]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": lambda: _k_quants(has_fifth=False),
    "q5_k": lambda: _k_quants(has_fifth=True),
    "q6_k": _q6_k,
}
