"""Elements narrower than a byte for tests: all values of a type, and judges that are none of ours:
Python's integers, exact fractions, ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph

Array = NDArray[Any]

INTEGERS = [BY_NAME[name] for name in ("int4", "uint4", "int2", "uint2")]
FLOAT4 = BY_NAME["float4_e2m1fn"]
FLOATS = [FLOAT4, BY_NAME["float6_e2m3fn"], BY_NAME["float6_e3m2fn"]]
NARROW = [*INTEGERS, *FLOATS]

#: The numbers of each float that are not negative, in the order of their codes.
_VALUES = {
    name: [Fraction(n, unit) for numbers in parts for n in numbers]
    for name, unit, parts in (
        ("float4_e2m1fn", 2, [[0, 1, 2, 3, 4, 6, 8, 12]]),
        ("float6_e2m3fn", 8, [range(16), range(16, 32, 2), range(32, 64, 4)]),
        (
            "float6_e3m2fn",
            16,
            [range(8), *(range(8 * step, 16 * step, 2 * step) for step in (1, 2, 4, 8, 16, 32))],
        ),
    )
}


def name_of(dtype: DType) -> str:
    return dtype.name


def numpy_of(dtype: DType) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype.name, None) or dtype.name)


def wrapped(value: int, dtype: DType) -> int:
    """The integer of the type that has the same low bits."""
    low = value % (1 << dtype.bits)
    is_negative = dtype.kind is Kind.SIGNED and low >> (dtype.bits - 1)
    return low - (1 << dtype.bits) if is_negative else low


def every(dtype: DType) -> Array:
    """All values of a narrow type."""
    if dtype in FLOATS:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(numpy_of(dtype))
    return integers(range(1 << dtype.bits), dtype)


def integers(values: Any, dtype: DType) -> Array:
    """Python's integers, wrapped."""
    return np.array([wrapped(int(v), dtype) for v in values], np.int8).astype(numpy_of(dtype))


def random(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).choice(every(dtype), shape))


def wide(array: Array) -> Array:
    """In a type that NumPy counts exactly in."""
    is_float = array.dtype in map(numpy_of, FLOATS)
    return array.astype(np.float32).astype(np.float64 if is_float else np.int64)


def narrowed(values: Array, dtype: DType) -> Array:
    """Exact numbers as elements of a narrow type, the shape as it is."""
    if dtype in FLOATS:
        return values.astype(np.float32).astype(numpy_of(dtype))
    return integers(values.reshape(-1), dtype).reshape(values.shape)


def as_integer(value: float, dtype: DType) -> int:
    """A float as an integer of the type: towards zero, saturating, NaN is 0."""
    if math.isnan(value):
        return 0
    low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    if dtype.kind is Kind.UNSIGNED:
        low, high = 0, (1 << dtype.bits) - 1
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


def as_float_code(value: float | int, dtype: DType) -> int:
    """The code of the nearest number of the type, of two equally near ones the even one."""
    values = _VALUES[dtype.name]
    sign = len(values) if math.copysign(1, value) < 0 else 0
    if isinstance(value, float) and math.isnan(value):
        return len(values) - sign
    if isinstance(value, float) and math.isinf(value):
        return sign + len(values) - 1
    exact = abs(Fraction(value))
    return sign + min(range(len(values)), key=lambda c: (abs(values[c] - exact), c & 1))


def inputs_of(arrays: list[Array], dtypes: list[DType]) -> list[Node]:
    return [
        ir.graph_input(f"x{k}", k, array.shape, dtype)
        for k, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True))
    ]


def run(graph: Graph, arrays: list[Array]) -> list[Array]:
    """The results of one thread, which two threads, a second run and a checked one agree with."""
    made = []
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            made += [program(*arrays), program(*arrays)]
            program.verify()
    with compile_graph(graph) as program:
        made.append(program.run_checked(*arrays))
    for other in made[1:]:
        for node, one, two in zip(graph.outputs, made[0], other, strict=True):
            assert one.dtype == two.dtype, node
            assert one.shape == two.shape, node
            assert one.tobytes() == two.tobytes(), node
    return made[0]
