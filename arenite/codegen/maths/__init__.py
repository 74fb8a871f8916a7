"""Mathematical functions as expressions of the loop IR, written once for all devices.

An op stays one op until a kernel is lowered; then it becomes a `Function` out of these tables
(`Definitions`), unless the device has an instruction for it. No function calls a library, flushes
denormals or traps. Infinities, NaN, signed zeros and denormals give what C's functions give. The
greatest errors found are in `tests/codegen/test_maths.py`, which holds every function to its bound.

A device must have: arithmetic and comparisons, `div` of floats and by its rules of integers,
bitwise ops, shifts, `neg`, `abs`, `sqrt` and `isnan` of floats, select, bitcasts, and the casts
named in `casts.cast`. Functions of 32 bits use nothing wider, but for `pow` where there is more.
"""

from __future__ import annotations

from functools import cache, partial

from arenite.codegen.maths import integers, rounding
from arenite.codegen.maths.definition import Definitions, Formula
from arenite.codegen.maths.error_function import erf, erf1p, gelu
from arenite.codegen.maths.exponential import exp, exp2, expm1, ldexp, sigmoid, times_sigmoid
from arenite.codegen.maths.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from arenite.codegen.maths.inverse import acos, asin, atan, atan2
from arenite.codegen.maths.logarithm import log, log1p, log2
from arenite.codegen.maths.power import power
from arenite.codegen.maths.remainder import floor_divide, floor_mod, product_error, truncated_mod
from arenite.codegen.maths.trigonometric import cos, sin, tan

#: Of float32 and float64.
EXPANSIONS: dict[str, Formula] = {
    **{f.__name__: f for f in (exp, exp2, expm1, ldexp, sigmoid, times_sigmoid, log, log2, log1p)},
    **{f.__name__: f for f in (sin, cos, tan, asin, acos, atan, atan2)},
    **{f.__name__: f for f in (sinh, cosh, tanh, asinh, acosh, atanh, erf, erf1p, gelu)},
    **{f.__name__: f for f in (product_error, rounding.copysign, rounding.sign)},
    "pow": power,
    "fmod": truncated_mod,
    "mod": floor_mod,
    "floordiv": floor_divide,
    "round": rounding.round_even,
    "floor": rounding.round_down,
    "ceil": rounding.round_up,
    "trunc": rounding.truncate,
    "isinf": rounding.is_infinite,
    "max": rounding.maximum,
    "min": rounding.minimum,
    "rsqrt": rounding.reciprocal_root,
    "reciprocal": rounding.reciprocal,
}

#: Instead of those, where Fma is rounded once.
FUSED_EXPANSIONS: dict[str, Formula] = {
    "sin": partial(sin, fused=True),
    "cos": partial(cos, fused=True),
    "tan": partial(tan, fused=True),
    "fmod": partial(truncated_mod, fused=True),
    "product_error": partial(product_error, fused=True),
}

#: Instead of those, where there is no float64.
NARROW_EXPANSIONS: dict[str, Formula] = {"pow": partial(power, has_float64=False)}

#: Instead of those, where division is not rounded to nearest.
LOOSE_EXPANSIONS: dict[str, Formula] = {
    "fmod": partial(truncated_mod, exact_division=False),
    "floordiv": partial(floor_divide, exact_division=False),
}

INTEGER_EXPANSIONS: dict[str, Formula] = {
    "abs": integers.absolute,
    "sign": integers.sign,
    "max": integers.maximum,
    "min": integers.minimum,
    "fmod": integers.truncated_mod,
    "mod": integers.floor_mod,
    "floordiv": integers.floor_divide,
    "pow": integers.power,
    "mulhi": integers.upper_product,
}


@cache
def definitions(*, has_fma: bool, has_float64: bool = True, is_ieee: bool = True) -> Definitions:
    """The functions of a device: whether it rounds Fma once, whether it has 64-bit numbers, and
    whether it keeps to IEEE 754: GPUs may divide inexactly and take denormals for 0."""
    fused = FUSED_EXPANSIONS if has_fma else {}
    narrow = {} if has_float64 else NARROW_EXPANSIONS
    loose = {} if is_ieee else LOOSE_EXPANSIONS
    return Definitions(EXPANSIONS | fused | narrow | loose, INTEGER_EXPANSIONS, is_ieee)
