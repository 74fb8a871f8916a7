"""Mathematical functions as vector polynomials, written once for scalars and vectors of any width.

No function calls a library, flushes denormals or traps. Infinities, NaN, signed zeros and denormals
give what C's functions give. The greatest errors found are in `tests/codegen/test_maths.py`, which
holds every function to its bound.
"""

from __future__ import annotations

from collections.abc import Callable

from arenite.backends.cpu.lowering.maths.error_function import erf, erf1p, gelu
from arenite.backends.cpu.lowering.maths.exponential import exp, exp2, expm1, sigmoid
from arenite.backends.cpu.lowering.maths.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from arenite.backends.cpu.lowering.maths.inverse import acos, asin, atan
from arenite.backends.cpu.lowering.maths.logarithm import log, log1p, log2
from arenite.backends.cpu.lowering.maths.trigonometric import cos, sin, tan
from arenite.backends.cpu.lowering.vector import Vec

FLOAT_FUNCTIONS: dict[str, Callable[[Vec], Vec]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "sigmoid": sigmoid,
    "log": log,
    "log2": log2,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "erf1p": erf1p,
    "gelu": gelu,
}
