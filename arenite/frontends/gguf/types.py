"""GGML's numbers for tensor types, and the dtypes that stand for them.

The number of a type is part of the format and never changes its meaning. A type that is known by
name only is refused with that name; a number beyond the list is refused as a number.
"""

from __future__ import annotations

from arenite import dtype
from arenite.dtype import DType
from arenite.dtype.block_types import BLOCK_TYPES

#: Types that are read, by their number in a file.
DTYPES: dict[int, DType] = {
    number: dtype.of(name)
    for number, name in {
        0: "float32",
        1: "float16",
        **{b.gguf: name for name, b in BLOCK_TYPES.items() if b.gguf is not None},
        24: "int8",
        25: "int16",
        26: "int32",
        27: "int64",
        28: "float64",
        30: "bfloat16",
    }.items()
}

#: Names of types that are not read.
UNREAD: dict[int, str] = {
    number: name
    for number, name in {
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        21: "IQ3_S",
        22: "IQ2_S",
        29: "IQ1_M",
        41: "Q1_0",
    }.items()
    if number not in DTYPES
}
