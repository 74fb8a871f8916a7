"""Elements narrower than a byte, taken apart and put together.

    unpack(x)                    one element a byte, in the type that holds them
    pack(x; dtype)               elements of `dtype`, from values of it that are held one a byte

Memory has such elements side by side, low bits first; the bits behind the last one are zero. Of
held integers the low bits count; a held float is one of the narrow type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from arenite.dtype import BY_NAME, Array, DType
from arenite.errors import TypeMismatch
from arenite.ir.element import convert, held_dtype
from arenite.ir.node import Node
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, need_dtype

#: What elements of a narrow type are held in, one a byte: a type that has all of its values.
HELD = {
    BY_NAME[narrow]: BY_NAME[held]
    for narrow, held in {
        "int4": "int8",
        "int2": "int8",
        "uint4": "uint8",
        "uint2": "uint8",
        "float4_e2m1fn": "float8_e4m3fn",
        "float6_e2m3fn": "float8_e4m3fn",
        "float6_e3m2fn": "float8_e4m3fn",
    }.items()
}


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A float narrower than a byte. It has no infinity and no NaN: every code is a number."""

    bits: int
    mantissa_bits: int
    bias: int

    @property
    def exponents(self) -> range:
        """Of its normal numbers, which are 2**e to 2**(e + 1)."""
        n_codes = 1 << self.bits - 1 - self.mantissa_bits
        return range(1 - self.bias, n_codes - self.bias)

    @property
    def largest(self) -> float:
        return 2.0 ** self.exponents[-1] * (2 - 2.0**-self.mantissa_bits)

    def step(self, exponent: int) -> float:
        """How far apart numbers with an exponent are; those below the normal ones, too."""
        return 2.0 ** (exponent - self.mantissa_bits)

    # Codes without the sign, as those of the float8_e4m3fn that holds them: normal ones keep their
    # distances, times `1 << held_shift`, and lie `held_offset` further.

    @property
    def first_normal(self) -> int:
        return 1 << self.mantissa_bits

    @property
    def held_shift(self) -> int:
        return 3 - self.mantissa_bits

    @property
    def held_offset(self) -> int:
        return (7 - self.bias) << 3

    @property
    def held_below_normal(self) -> tuple[int, ...]:
        """What holds the codes below the first normal one, by code."""
        held = [0]
        for code in range(1, self.first_normal):
            mantissa, exponent = math.frexp(code * self.step(self.exponents[0]))
            held.append((exponent + 6) * 8 + int((2 * mantissa - 1) * 8))
        return tuple(held)


SMALL_FLOATS = {
    BY_NAME["float4_e2m1fn"]: SmallFloat(4, 1, 1),
    BY_NAME["float6_e2m3fn"]: SmallFloat(6, 3, 1),
    BY_NAME["float6_e3m2fn"]: SmallFloat(6, 2, 3),
}


def _need_narrow(op: str, dtype: DType, what: str) -> None:
    if dtype not in HELD:
        raise TypeMismatch(f"{op} is for {', '.join(map(str, HELD))}, not for {what}")


def _infer_unpack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    _need_narrow("unpack", x.dtype, x.type_text)
    return x.shape, HELD[x.dtype]


def _converted(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return convert(arrays[0], held_dtype(arrays[0].dtype), dtype)


define("unpack", "packing", (1, 1), _infer_unpack, _converted)


def _infer_pack(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (x,) = inputs
    dtype: DType = attrs["dtype"]
    _need_narrow("pack", dtype, str(dtype))
    need_dtype("pack", f"what holds {dtype}", x, HELD[dtype])
    return x.shape, dtype


define("pack", "packing", (1, 1), _infer_pack, _converted, {"dtype": DType})
