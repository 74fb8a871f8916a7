"""The lazy Tensor: NumPy's names and semantics, building graphs that the pipeline compiles."""

from arenite.lazy import lister
from arenite.tensor.base import ORIGINS
from arenite.tensor.control import cond, fori_loop, scan, while_loop
from arenite.tensor.creation import (
    arange,
    asarray,
    broadcast_arrays,
    cat,
    concat,
    concatenate,
    einsum,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    hstack,
    linspace,
    maximum,
    meshgrid,
    minimum,
    ones,
    ones_like,
    stack,
    vstack,
    where,
    zeros,
    zeros_like,
)
from arenite.tensor.host import host_call
from arenite.tensor.random import Generator
from arenite.tensor.recurrent import gru, lstm
from arenite.tensor.spec import TensorSpec, spec, static
from arenite.tensor.specialize import any_size, specialize
from arenite.tensor.state import State
from arenite.tensor.tensor import Tensor, realize_all

__all__ = [
    "ORIGINS",
    "Generator",
    "State",
    "Tensor",
    "TensorSpec",
    "any_size",
    "arange",
    "asarray",
    "broadcast_arrays",
    "cat",
    "concat",
    "concatenate",
    "cond",
    "einsum",
    "eye",
    "fori_loop",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "gru",
    "host_call",
    "hstack",
    "linspace",
    "lstm",
    "maximum",
    "meshgrid",
    "minimum",
    "ones",
    "ones_like",
    "realize_all",
    "scan",
    "spec",
    "specialize",
    "stack",
    "static",
    "vstack",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]

__dir__ = lister("arenite.tensor")
