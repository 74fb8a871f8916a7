"""Elements of block-quantised values as loop-IR expressions over the bytes of a block.

A block is read in runs of 16 elements; which bytes, bits and scales a run has is known when code is
made, so expressions differ between runs and hold no tests. Types are as `dtype.blocks` lays them
out; numbers are those of `block_forms`, before the zero is taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.backends.cpu.ops.block_forms import Form, form_of
from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType, float32, uint8
from arenite.dtype.blocks import IQ4_VALUES, LAYOUTS

INT32, UINT16, FLOAT16 = BY_NAME["int32"], BY_NAME["uint16"], BY_NAME["float16"]

#: Elements of a run.
RUN = 16


def number(value: int) -> ir.Expr:
    return ir.Const(value, INT32)


def bits(value: ir.Expr, shift: int, count: int) -> ir.Expr:
    """So many bits of an int32."""
    moved = ir.Binary("shift_right", value, number(shift)) if shift else value
    return ir.Binary("and", moved, number(2**count - 1))


def above(value: ir.Expr, shift: int) -> ir.Expr:
    return ir.Binary("shift_left", value, number(shift)) if shift else value


def joined(low: ir.Expr, high: ir.Expr, shift: int) -> ir.Expr:
    return ir.Binary("or", low, above(high, shift))


def as_float(value: ir.Expr) -> ir.Expr:
    return ir.Cast(value, float32)


@dataclass(frozen=True, slots=True)
class BlockReader:
    """One block that begins at byte `at` of an array of bytes."""

    dtype: DType
    array: str
    at: ir.Expr

    @property
    def form(self) -> Form:
        return form_of(self.dtype)

    def number(self, run: int, lane: ir.Expr) -> ir.Expr:
        """The whole number of element `lane` of a run, int32."""
        return _NUMBERS[self.dtype.name](self, run, lane)

    def byte(self, field: str, offset: ir.Expr | int = 0) -> ir.Expr:
        """A byte of a field, int32."""
        return ir.Cast(self._load(field, offset), INT32)

    def half(self, field: str) -> ir.Expr:
        """A float16 of the block, as its bits."""
        low, high = (ir.Cast(self._load(field, k), UINT16) for k in (0, 1))
        return ir.Binary("or", low, ir.Binary("shift_left", high, ir.Const(8, UINT16)))

    def halves(self) -> list[ir.Expr]:
        """The float16 scales, and least values where there are any, as their bits."""
        return [self.half(field) for field in ("d", "m")[: 1 + self.form.has_least]]

    def codes(self, part: int) -> list[ir.Expr]:
        """The bytes that scale a part, as in a panel; int32."""
        return _CODES[self.dtype.name](self, part)

    def scales(self, part: int) -> list[ir.Expr]:
        """What a part's numbers are multiplied with, then what is added; float32."""
        halves = [as_float(ir.Bitcast(half, FLOAT16)) for half in self.halves()]
        if self.form.codes == "none":
            return halves
        codes = self.codes(part)
        if self.form.codes == "nibbles":
            [code] = codes
            codes = [bits(code, 0, 4), bits(code, 4, 4)]
        made = [
            ir.Binary("mul", half, as_float(code)) for half, code in zip(halves, codes, strict=True)
        ]
        return [made[0], *(ir.Unary("neg", least) for least in made[1:])]

    def element(self, run: int, lane: ir.Expr) -> ir.Expr:
        """Element `lane` of a run, float32."""
        scale, *least = self.scales(run * RUN // self.form.part)
        whole = self.number(run, lane)
        if self.form.has_table:
            whole = looked_up(whole)
        else:
            whole = ir.Binary("sub", whole, number(self.form.zero))
        value = ir.Binary("mul", scale, as_float(whole))
        return ir.Binary("add", value, least[0]) if least else value

    def _load(self, field: str, offset: ir.Expr | int) -> ir.Expr:
        layout = LAYOUTS[self.dtype.name]
        assert layout.fields is not None
        return ir.Load(self.array, self.at + layout.fields[field][1] + offset, uint8)


def looked_up(whole: ir.Expr) -> ir.Expr:
    """What an index of a table stands for: choices by its bits."""
    values: list[ir.Expr] = [number(value) for value in IQ4_VALUES]
    for bit in range(4):
        is_set = ir.Binary("ne", bits(whole, bit, 1), number(0))
        values = [
            ir.Select(is_set, odd, even)
            for even, odd in zip(values[::2], values[1::2], strict=True)
        ]
    return values[0]


# Numbers, by run and lane.


def _four(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    return bits(b.byte("qs", lane), 4 * run, 4)


def _five(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    word = joined(b.byte("qh", 2 * run), b.byte("qh", 2 * run + 1), 8)
    fifth = ir.Binary("shift_right", word, ir.Cast(lane, INT32))
    return joined(_four(b, run, lane), bits(fifth, 0, 1), 4)


def _eight(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    return ir.Binary("xor", b.byte("qs", lane + RUN * run), number(128))


def _in_32(run: int, lane: ir.Expr) -> ir.Expr:
    """The lane in a run of 32."""
    return lane + run % 2 * RUN


def _two(b: BlockReader, field: str, run: int, lane: ir.Expr) -> ir.Expr:
    """Two bits of a field in which 128 elements share 32 bytes."""
    half, within = divmod(run, 8)
    return bits(b.byte(field, _in_32(run, lane) + 32 * half), 2 * (within // 2), 2)


def _q2_k(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    return _two(b, "qs", run, lane)


def _q3_k(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    third = bits(b.byte("hmask", _in_32(run, lane)), run // 2, 1)
    return joined(_two(b, "qs", run, lane), third, 2)


def _q4_k(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    pair, within = divmod(run // 2, 2)
    return bits(b.byte("qs", _in_32(run, lane) + 32 * pair), 4 * within, 4)


def _q5_k(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    fifth = bits(b.byte("qh", _in_32(run, lane)), run // 2, 1)
    return joined(_q4_k(b, run, lane), fifth, 4)


def _q6_k(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    half, within = divmod(run, 8)
    low = bits(b.byte("ql", lane + (64 * half + within % 4 * RUN)), within // 4 * 4, 4)
    return joined(low, _two(b, "qh", run, lane), 4)


def _iq4_xs(b: BlockReader, run: int, lane: ir.Expr) -> ir.Expr:
    return bits(b.byte("qs", lane + run // 2 * RUN), 4 * (run % 2), 4)


_NUMBERS: dict[str, Callable[[BlockReader, int, ir.Expr], ir.Expr]] = {
    "q4_0": _four,
    "q4_1": _four,
    "q5_0": _five,
    "q5_1": _five,
    "q8_0": _eight,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _four,
    "iq4_xs": _iq4_xs,
}


# Codes, by part.


def _q2_codes(b: BlockReader, part: int) -> list[ir.Expr]:
    return [b.byte("scales", part)]


def _q3_codes(b: BlockReader, part: int) -> list[ir.Expr]:
    four = bits(b.byte("scales", part % 8), part // 8 * 4, 4)
    two = bits(b.byte("scales", 8 + part % 4), part // 4 * 2, 2)
    return [ir.Binary("sub", joined(four, two, 4), number(32))]


def _six_bits(b: BlockReader, part: int) -> list[ir.Expr]:
    if part < 4:
        return [bits(b.byte("scales", part + k), 0, 6) for k in (0, 4)]
    low = b.byte("scales", part + 4)
    return [
        joined(bits(low, 4 * k, 4), bits(b.byte("scales", part - 4 + 4 * k), 6, 2), 4)
        for k in (0, 1)
    ]


def _q6_codes(b: BlockReader, part: int) -> list[ir.Expr]:
    code = b.byte("scales", part)
    sign = ir.Binary("and", code, number(128))
    return [ir.Binary("sub", code, above(sign, 1))]


def _iq4_codes(b: BlockReader, part: int) -> list[ir.Expr]:
    four = bits(b.byte("scales_l", part // 2), part % 2 * 4, 4)
    two = bits(b.byte("scales_h", part // 4), part % 4 * 2, 2)
    return [ir.Binary("sub", joined(four, two, 4), number(32))]


_CODES: dict[str, Callable[[BlockReader, int], list[ir.Expr]]] = {
    "q2_k": _q2_codes,
    "q3_k": _q3_codes,
    "q4_k": _six_bits,
    "q5_k": _six_bits,
    "q6_k": _q6_codes,
    "iq4_xs": _iq4_codes,
}
