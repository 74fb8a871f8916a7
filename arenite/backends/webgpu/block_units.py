"""Blocks of weights as text: what one lane reads of a row, as whole numbers and their scales.

In: a block type and the number of elements of a row. Out: a Unit, text that reads some elements of
a block as words of four bytes, and which elements these are. How a row is dealt out decides the
speed: neighbouring lanes should read neighbouring words, and each word once.

    q4_0           two blocks, which are whole words; or one
    q8_0, q4_1     a block
    q4_k, q5_k     64 elements, which share 32 bytes; read by four words
    q6_k           32 elements, whose upper bits lie side by side
    all others     32 elements, byte by byte as `dtype.block_types` describes them

A number stands for scale * number + least, by words of int8: zeros are in the least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from arenite.backends.webgpu.block_bytes import described_unit
from arenite.backends.webgpu.block_parts import Part, Read, Unit
from arenite.dtype import DType

_Numbers: TypeAlias = tuple[tuple[int, tuple[str, str]], ...]


def _word(w: str, at: str) -> str:
    return f"{w}_word({at})"


class _Words:
    """Words from an even byte on, `name` and a number: one more is loaded, for where they begin in
    the middle of one; else the last again, since the next may lie outside."""

    def __init__(self, w: str, r: str, name: str, first: str, count: int) -> None:
        raw = [f"{name}raw{k}_{r}" for k in range(count + 1)]
        places = [f"(({first}) >> 2u) + {k}u" for k in range(count)]
        places.append(f"(({first} + 2u) >> 2u) + {count - 1}u")
        self.loads = [(one, "u32", _word(w, at)) for one, at in zip(raw, places, strict=True)]
        self.text = [f"let {name}odd_{r} = (({first}) & 2u) != 0u;"]
        self.text += [
            f"let {name}{k}_{r} = select({raw[k]}, ({raw[k]} >> 16u) | ({raw[k + 1]} << 16u), "
            f"{name}odd_{r});"
            for k in range(count)
        ]


class _Half:
    """A float16 at an even byte."""

    def __init__(self, w: str, r: str, name: str, at: str) -> None:
        self.loads = [(f"{name}raw_{r}", "u32", _word(w, f"({at}) >> 2u"))]
        shift = f"((({at}) & 2u) * 8u)"
        self.text = [f"let {name}_{r} = unpack2x16float({name}raw_{r} >> {shift}).x;"]


def unit_of(dtype: DType, depth: int) -> Unit:
    """How lanes read rows of so many elements of these blocks."""
    if dtype.name == "q4_0" and depth % (2 * dtype.block_length) == 0:
        return _q4_0_pair()
    made = _UNITS.get(dtype.name)
    return made() if made is not None else described_unit(dtype)


def _q8_0() -> Unit:
    def read(w: str, r: str) -> Read:
        scale = _Half(w, r, "d", f"at{r}")
        words = _Words(w, r, "q", f"at{r} + 2u", 8)
        numbers = tuple((k, (f"q{2 * k}_{r}", f"q{2 * k + 1}_{r}")) for k in range(4))
        return Read(
            scale.loads + words.loads, scale.text + words.text, [Part(f"d_{r}", "", numbers)]
        )

    return Unit(1, 4, "0u", read)


def _nibbles(word: str) -> tuple[str, str]:
    return f"({word} & 0x0f0f0f0fu)", f"(({word} >> 4u) & 0x0f0f0f0fu)"


def _of_nibbles(words: list[str]) -> _Numbers:
    """Four words: low nibbles are the first 16 numbers, high ones the others."""
    low, high = zip(*map(_nibbles, words), strict=True)
    return (
        (0, (low[0], low[1])),
        (1, (low[2], low[3])),
        (2, (high[0], high[1])),
        (3, (high[2], high[3])),
    )


def _q4_0_pair() -> Unit:
    """Two blocks, which begin at a whole word: the first has its words between those of memory, the
    second in them."""

    def read(w: str, r: str) -> Read:
        raw = [f"raw{k}_{r}" for k in range(9)]
        loads = [(one, "u32", _word(w, f"(at{r} >> 2u) + {k}u")) for k, one in enumerate(raw)]
        shifted = [f"q{k}_{r}" for k in range(4)]
        text = [
            f"let d0_{r} = unpack2x16float({raw[0]}).x;",
            f"let d1_{r} = unpack2x16float({raw[4]}).y;",
            *(
                f"let {one} = ({raw[k]} >> 16u) | ({raw[k + 1]} << 16u);"
                for k, one in enumerate(shifted)
            ),
        ]
        parts = []
        for block, own in enumerate((shifted, raw[5:])):
            moved = tuple((4 * block + k, pair) for k, pair in _of_nibbles(own))
            parts.append(Part(f"d{block}_{r}", f"(-8.0 * d{block}_{r})", moved))
        return Read(loads, text, parts)

    return Unit(1, 8, "0u", read, blocks=2)


def _q4_0() -> Unit:
    def read(w: str, r: str) -> Read:
        raw = [f"raw{k}_{r}" for k in range(5)]
        loads = [(one, "u32", _word(w, f"(at{r} >> 2u) + {k}u")) for k, one in enumerate(raw)]
        text = [
            f"let odd_{r} = (at{r} & 2u) != 0u;",
            f"let d_{r} = unpack2x16float(select({raw[0]}, {raw[0]} >> 16u, odd_{r})).x;",
            *(
                f"let q{k}_{r} = select(({raw[k]} >> 16u) | ({raw[k + 1]} << 16u), "
                f"{raw[k + 1]}, odd_{r});"
                for k in range(4)
            ),
        ]
        numbers = _of_nibbles([f"q{k}_{r}" for k in range(4)])
        return Read(loads, text, [Part(f"d_{r}", f"(-8.0 * d_{r})", numbers)])

    return Unit(1, 4, "0u", read)


def _q4_1() -> Unit:
    def read(w: str, r: str) -> Read:
        raw = [f"raw{k}_{r}" for k in range(5)]
        loads = [(one, "u32", _word(w, f"(at{r} >> 2u) + {k}u")) for k, one in enumerate(raw)]
        text = [f"let d_{r} = unpack2x16float({raw[0]});"]
        return Read(loads, text, [Part(f"d_{r}.x", f"d_{r}.y", _of_nibbles(raw[1:]))])

    return Unit(1, 4, "0u", read)


def _k_scales(r: str, head: str) -> list[str]:
    """Six-bit scales and leasts of runs 2 * part and 2 * part + 1, from the words of a head."""
    low = f"({head}.y >> by_{r}), ({head}.z >> by_{r})"
    fours = f"({head}.w >> by_{r})"
    return [
        f"let by_{r} = (part{r} & 1u) * 16u;",
        f"let dm_{r} = unpack2x16float({head}.x);",
        # Bytes 0 and 1: of the first four runs six bits each; of others four here, two there.
        f"let early_{r} = vec2u({low}) & vec2u(0x3f3fu);",
        f"let late_{r} = (vec2u({fours}, {fours} >> 4u) & vec2u(0x0f0fu)) | "
        f"((vec2u({low}) >> vec2u(2u)) & vec2u(0x3030u));",
        f"let code_{r} = select(late_{r}, early_{r}, part{r} < 2u);",
        *(
            f"let d{k}_{r} = dm_{r}.x * f32((code_{r}.x >> {8 * k}u) & 63u); "
            f"let m{k}_{r} = -dm_{r}.y * f32((code_{r}.y >> {8 * k}u) & 63u);"
            for k in range(2)
        ),
    ]


def _k_quants(has_fifth: bool) -> Unit:
    def read(w: str, r: str) -> Read:
        first = 3 if has_fifth else 1

        def four(name: str, at: str) -> tuple[str, str, str]:
            return name, "vec4u", f"{w}_four((at{r} >> 4u) + {at})"

        loads = [four(f"head_{r}", "0u")]
        loads += [four(f"q{k}_{r}", f"{first + k}u + 2u * part{r}") for k in range(2)]
        text = _k_scales(r, f"head_{r}")
        if has_fifth:
            loads += [four(f"h{k}_{r}", f"{1 + k}u") for k in range(2)]
        parts = []
        for nibble in range(2):
            numbers = []
            for k in range(4):
                words = []
                for lane in "xyzw"[2 * (k % 2) : 2 * (k % 2) + 2]:
                    word = _nibbles(f"q{k // 2}_{r}.{lane}")[nibble]
                    if has_fifth:
                        by = f"(2u * part{r} + {nibble}u)"
                        fifth = f"((h{k // 2}_{r}.{lane} >> {by}) & 0x01010101u) << 4u"
                        word = f"({word} | ({fifth}))"
                    words.append(word)
                numbers.append((4 * nibble + k, (words[0], words[1])))
            parts.append(Part(f"d{nibble}_{r}", f"m{nibble}_{r}", tuple(numbers)))
        return Read(loads, text, parts)

    return Unit(4, 8, "part * 8u", read, is_wide=True)


def _q6_k() -> Unit:
    """Part p has of a half of a block, p / 4, bytes 8 (p % 4) to 8 (p % 4) + 7 of its 32 pairs of
    upper bits, and of the low nibbles that go with them: eight elements of each run of 32."""

    def read(w: str, r: str) -> Read:
        half, near = f"(part{r} >> 2u)", f"8u * (part{r} & 3u)"
        low = [
            _Words(w, r, f"q{k}", f"at{r} + 64u * {half} + {near} + {32 * k}u", 2) for k in (0, 1)
        ]
        high = _Words(w, r, "h", f"at{r} + 128u + 32u * {half} + {near}", 2)
        codes = _Words(w, r, "c", f"at{r} + 192u + 8u * {half}", 2)
        scale = _Half(w, r, "d", f"at{r} + 208u")
        fields: list[_Words | _Half] = [*low, high, codes, scale]
        loads = [one for field in fields for one in field.loads]
        text = [line for field in fields for line in field.text]
        text.append(f"let by_{r} = ((part{r} & 3u) >> 1u) * 8u;")
        parts = []
        for run in range(4):
            code = f"bitcast<i32>(c{run // 2}_{r}), by_{r} + {16 * (run % 2)}u, 8u"
            text.append(f"let s{run}_{r} = d_{r} * f32(extractBits({code}));")
            words = []
            for k in range(2):
                nibble = _nibbles(f"q{run % 2}{k}_{r}")[run // 2]
                pair = f"((h{k}_{r} >> {2 * run}u) & 0x03030303u) << 4u"
                # Less 32, byte by byte.
                words.append(f"n{run}{k}_{r}")
                text.append(
                    f"let {words[-1]} = ((({nibble} | ({pair})) | 0x80808080u)"
                    " - 0x20202020u) ^ 0x80808080u;"
                )
            parts.append(Part(f"s{run}_{r}", "", ((4 * run, (words[0], words[1])),)))
        return Read(loads, text, parts)

    return Unit(8, 4, "16u * (part >> 2u) + (part & 3u)", read)


_UNITS: dict[str, Callable[[], Unit]] = {
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q4_k": lambda: _k_quants(has_fifth=False),
    "q5_k": lambda: _k_quants(has_fifth=True),
    "q6_k": _q6_k,
}
