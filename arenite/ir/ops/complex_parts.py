"""Complex numbers, taken apart and put together.

real(x), imag(x)             floats of half the width
complex(re, im)              a complex number of two floats
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import BY_NAME, FLOAT32, FLOAT64, Array, DType, Kind
from arenite.errors import ShapeMismatch, TypeMismatch
from arenite.ir.element import numpy_dtype
from arenite.ir.node import Node
from arenite.ir.ops.define import Attrs, Inferred, Sizes, define, need_kind

#: What the real and the imaginary part are.
PART_OF = {
    BY_NAME["complex64"]: FLOAT32,
    BY_NAME["complex128"]: FLOAT64,
}
COMPLEX_OF = {part: whole for whole, part in PART_OF.items()}


def _part(name: str) -> None:
    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        need_kind(name, inputs[0], (Kind.COMPLEX,))
        return inputs[0].shape, PART_OF[inputs[0].dtype]

    def reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
        return np.array(getattr(arrays[0], name))

    define(name, "elementwise", (1, 1), infer, reference)


_part("real")
_part("imag")


def _infer_complex(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    re, im = inputs
    if re.dtype not in COMPLEX_OF or im.dtype != re.dtype:
        raise TypeMismatch(
            f"complex takes two of float32 or of float64, not {re.type_text} and {im.type_text}"
        )
    if re.shape != im.shape:
        raise ShapeMismatch(f"complex: shapes {re.shape} and {im.shape} differ")
    return re.shape, COMPLEX_OF[re.dtype]


def _complex_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    made = np.empty(shape, numpy_dtype(dtype))
    made.real, made.imag = arrays
    return made


define("complex", "elementwise", (2, 2), _infer_complex, _complex_reference)
