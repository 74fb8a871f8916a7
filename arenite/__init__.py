"""Arenite: a model becomes one native program over one planned block of memory.

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in nothing but this file, so that `import arenite` is quick. Rooms and the
names below load on first use.
"""

import logging
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_ROOMS = (
    "codegen device dtype errors fetch frontends generate hazards ir memory passes pipeline "
    "runtime schedule tensor"
).split()
#: What a user reaches for first, and the room it lives in.
_NAMES = {
    "Generator": "arenite.tensor",
    "State": "arenite.tensor",
    "Tensor": "arenite.tensor",
    "TensorSpec": "arenite.tensor",
    "Var": "arenite.ir",
    "abs": "arenite.tensor",
    "add": "arenite.tensor",
    "all": "arenite.tensor",
    "allclose": "arenite.tensor",
    "any": "arenite.tensor",
    "any_size": "arenite.tensor",
    "arange": "arenite.tensor",
    "arccos": "arenite.tensor",
    "arcsin": "arenite.tensor",
    "arctan": "arenite.tensor",
    "argmax": "arenite.tensor",
    "argmin": "arenite.tensor",
    "argsort": "arenite.tensor",
    "array_equal": "arenite.tensor",
    "asarray": "arenite.tensor",
    "broadcast_arrays": "arenite.tensor",
    "broadcast_to": "arenite.tensor",
    "cat": "arenite.tensor",
    "ceil": "arenite.tensor",
    "clip": "arenite.tensor",
    "compile": "arenite.tensor.compile",
    "concat": "arenite.tensor",
    "concatenate": "arenite.tensor",
    "cond": "arenite.tensor",
    "cos": "arenite.tensor",
    "cosh": "arenite.tensor",
    "cumprod": "arenite.tensor",
    "cumsum": "arenite.tensor",
    "diagonal": "arenite.tensor",
    "diff": "arenite.tensor",
    "divide": "arenite.tensor",
    "dot": "arenite.tensor",
    "einsum": "arenite.tensor",
    "equal": "arenite.tensor",
    "exp": "arenite.tensor",
    "exp2": "arenite.tensor",
    "expand_dims": "arenite.tensor",
    "expm1": "arenite.tensor",
    "eye": "arenite.tensor",
    "flip": "arenite.tensor",
    "floor": "arenite.tensor",
    "floor_divide": "arenite.tensor",
    "fori_loop": "arenite.tensor",
    "from_dlpack": "arenite.tensor",
    "from_numpy": "arenite.tensor",
    "full": "arenite.tensor",
    "full_like": "arenite.tensor",
    "greater": "arenite.tensor",
    "greater_equal": "arenite.tensor",
    "gru": "arenite.tensor",
    "host_call": "arenite.tensor",
    "hstack": "arenite.tensor",
    "inner": "arenite.tensor",
    "isclose": "arenite.tensor",
    "isfinite": "arenite.tensor",
    "isinf": "arenite.tensor",
    "isnan": "arenite.tensor",
    "less": "arenite.tensor",
    "less_equal": "arenite.tensor",
    "linspace": "arenite.tensor",
    "load": "arenite.loading",
    "log": "arenite.tensor",
    "log10": "arenite.tensor",
    "log1p": "arenite.tensor",
    "log2": "arenite.tensor",
    "logical_not": "arenite.tensor",
    "lstm": "arenite.tensor",
    "matmul": "arenite.tensor",
    "max": "arenite.tensor",
    "maximum": "arenite.tensor",
    "mean": "arenite.tensor",
    "median": "arenite.tensor",
    "meshgrid": "arenite.tensor",
    "min": "arenite.tensor",
    "minimum": "arenite.tensor",
    "moveaxis": "arenite.tensor",
    "multiply": "arenite.tensor",
    "nan_to_num": "arenite.tensor",
    "nonzero": "arenite.tensor",
    "not_equal": "arenite.tensor",
    "ones": "arenite.tensor",
    "ones_like": "arenite.tensor",
    "outer": "arenite.tensor",
    "pad": "arenite.tensor",
    "power": "arenite.tensor",
    "prod": "arenite.tensor",
    "ravel": "arenite.tensor",
    "remainder": "arenite.tensor",
    "repeat": "arenite.tensor",
    "reshape": "arenite.tensor",
    "roll": "arenite.tensor",
    "round": "arenite.tensor",
    "scan": "arenite.tensor",
    "sign": "arenite.tensor",
    "sin": "arenite.tensor",
    "sinh": "arenite.tensor",
    "sort": "arenite.tensor",
    "spec": "arenite.tensor",
    "specialize": "arenite.tensor",
    "split": "arenite.tensor",
    "sqrt": "arenite.tensor",
    "square": "arenite.tensor",
    "squeeze": "arenite.tensor",
    "stack": "arenite.tensor",
    "static": "arenite.tensor",
    "std": "arenite.tensor",
    "subtract": "arenite.tensor",
    "sum": "arenite.tensor",
    "swapaxes": "arenite.tensor",
    "take": "arenite.tensor",
    "take_along_axis": "arenite.tensor",
    "tan": "arenite.tensor",
    "tanh": "arenite.tensor",
    "tensordot": "arenite.tensor",
    "tile": "arenite.tensor",
    "transpose": "arenite.tensor",
    "tril": "arenite.tensor",
    "triu": "arenite.tensor",
    "trunc": "arenite.tensor",
    "tune": "arenite.tensor.tune",
    "var": "arenite.tensor",
    "vdot": "arenite.tensor",
    "vstack": "arenite.tensor",
    "where": "arenite.tensor",
    "while_loop": "arenite.tensor",
    "zeros": "arenite.tensor",
    "zeros_like": "arenite.tensor",
}

logging.getLogger("arenite").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"arenite.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'arenite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_ROOMS, *_NAMES, "__version__"])
