"""GGML's numbers for tensor types, and the dtypes that stand for them.

The number of a type is part of the format and never changes its meaning. A type that is known by
name only is refused with that name; a number beyond the list is refused as a number.
"""

from __future__ import annotations

from arenite import dtype
from arenite.dtype import DType

#: Types that are read, by their number in a file.
DTYPES: dict[int, DType] = {
    number: dtype.of(name)
    for number, name in {
        0: "float32",
        1: "float16",
        2: "q4_0",
        3: "q4_1",
        6: "q5_0",
        7: "q5_1",
        8: "q8_0",
        10: "q2_k",
        11: "q3_k",
        12: "q4_k",
        13: "q5_k",
        14: "q6_k",
        20: "iq4_nl",
        23: "iq4_xs",
        24: "int8",
        25: "int16",
        26: "int32",
        27: "int64",
        28: "float64",
        30: "bfloat16",
    }.items()
}

#: Types of ggml that are not read.
UNREAD: dict[int, str] = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}
