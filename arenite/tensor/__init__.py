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
    empty as empty,
    empty_like as empty_like,
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
from arenite.tensor.data_types import (
    astype as astype,
    can_cast as can_cast,
    finfo as finfo,
    iinfo as iinfo,
    isdtype as isdtype,
    result_type as result_type,
)
from arenite.tensor.functions import *  # noqa: F403
from arenite.tensor.host import host_call as host_call
from arenite.tensor.numpy_functions import (
    allclose as allclose,
    array_equal as array_equal,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    diff as diff,
    inner as inner,
    isclose as isclose,
    median as median,
    nan_to_num as nan_to_num,
    vdot as vdot,
    vecdot as vecdot,
)
from arenite.tensor.random import Generator as Generator
from arenite.tensor.recurrent import gru as gru, lstm as lstm
from arenite.tensor.sets import (
    isin as isin,
    searchsorted as searchsorted,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from arenite.tensor.control import any_size as any_size, specialize as specialize
from arenite.tensor.signature import TensorSpec as TensorSpec, spec as spec, static as static
from arenite.tensor.state import State as State
from arenite.tensor.tensor import Tensor as Tensor, realize_all as realize_all

if not TYPE_CHECKING:  # checkers read the imports: what is imported under its own name is public
    __all__ = public_names(vars())

__dir__ = lister("arenite.tensor")
