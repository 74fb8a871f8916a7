"""The lazy Tensor: NumPy's names and semantics, building graphs that the pipeline compiles."""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

from arenite.lazy import lister, public_names
from arenite.tensor.control import (
    cond as cond,
    fori_loop as fori_loop,
    scan as scan,
    while_loop as while_loop,
)
from arenite.tensor.creation import (
    arange as arange,
    asarray as asarray,
    broadcast_arrays as broadcast_arrays,
    cat as cat,
    concat as concat,
    concatenate as concatenate,
    einsum as einsum,
    eye as eye,
    from_dlpack as from_dlpack,
    from_numpy as from_numpy,
    full as full,
    full_like as full_like,
    hstack as hstack,
    linspace as linspace,
    meshgrid as meshgrid,
    ones as ones,
    ones_like as ones_like,
    stack as stack,
    vstack as vstack,
    where as where,
    zeros as zeros,
    zeros_like as zeros_like,
)
from arenite.tensor.functions import (
    abs as abs,  # noqa: A004
    add as add,
    all as all,  # noqa: A004
    any as any,  # noqa: A004
    arccos as arccos,
    arcsin as arcsin,
    arctan as arctan,
    argmax as argmax,
    argmin as argmin,
    argsort as argsort,
    broadcast_to as broadcast_to,
    ceil as ceil,
    clip as clip,
    cos as cos,
    cosh as cosh,
    cumprod as cumprod,
    cumsum as cumsum,
    diagonal as diagonal,
    divide as divide,
    dot as dot,
    equal as equal,
    exp as exp,
    exp2 as exp2,
    expand_dims as expand_dims,
    expm1 as expm1,
    flip as flip,
    floor as floor,
    floor_divide as floor_divide,
    greater as greater,
    greater_equal as greater_equal,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    less as less,
    less_equal as less_equal,
    log as log,
    log10 as log10,
    log1p as log1p,
    log2 as log2,
    logical_not as logical_not,
    matmul as matmul,
    max as max,  # noqa: A004
    maximum as maximum,
    mean as mean,
    min as min,  # noqa: A004
    minimum as minimum,
    moveaxis as moveaxis,
    multiply as multiply,
    nonzero as nonzero,
    not_equal as not_equal,
    outer as outer,
    pad as pad,
    power as power,
    prod as prod,
    ravel as ravel,
    remainder as remainder,
    repeat as repeat,
    reshape as reshape,
    roll as roll,
    round as round,  # noqa: A004
    sign as sign,
    sin as sin,
    sinh as sinh,
    sort as sort,
    split as split,
    sqrt as sqrt,
    square as square,
    squeeze as squeeze,
    std as std,
    subtract as subtract,
    sum as sum,  # noqa: A004
    swapaxes as swapaxes,
    take as take,
    take_along_axis as take_along_axis,
    tan as tan,
    tanh as tanh,
    tensordot as tensordot,
    tile as tile,
    transpose as transpose,
    tril as tril,
    triu as triu,
    trunc as trunc,
    var as var,
)
from arenite.tensor.host import host_call as host_call
from arenite.tensor.numpy_functions import (
    allclose as allclose,
    array_equal as array_equal,
    diff as diff,
    inner as inner,
    isclose as isclose,
    median as median,
    nan_to_num as nan_to_num,
    vdot as vdot,
)
from arenite.tensor.random import Generator as Generator
from arenite.tensor.recurrent import gru as gru, lstm as lstm
from arenite.tensor.specialization import any_size as any_size, specialize as specialize
from arenite.tensor.specs import TensorSpec as TensorSpec, spec as spec, static as static
from arenite.tensor.state import State as State
from arenite.tensor.tensor import Tensor as Tensor, realize_all as realize_all

if not TYPE_CHECKING:  # checkers read the imports: what is imported under its own name is public
    __all__ = public_names(vars())

__dir__ = lister("arenite.tensor")
