"""ValueSpec: a value in memory, before it is known where it lies; and as JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

from arenite import dtype as dtypes
from arenite.dtype import DType
from arenite.ir.dim import Dim
from arenite.program.dim_json import dim_from_json, dim_to_json


class ValueSpec(NamedTuple):
    """A value in memory: an `input`, an `output`, a `constant`, `work` between kernels, `packed`,
    which is made once, at load, or a `state`, which lives from run to run; or a `pointer`, whose
    bytes are those of its targets in turn.

    `source` is the number of the input, constant or state, or the cell of the pointer. Constants
    of the graph count from 0 on, those of the program (made while compiling) below: -1 is the first
    of these.
    """

    kind: str
    name: str
    shape: tuple[Dim, ...]
    dtype: DType
    nbytes: Dim
    source: int = 0
    targets: tuple[int, ...] = ()


def copy_name(state: str, number: int) -> str:
    """What the copies of a state are called in a plan; the first has the state's own name."""
    return f"{state}#{number}" if number else state


def dims_to_json(dims: tuple[Dim, ...]) -> list[Any]:
    return [dim_to_json(dim) for dim in dims]


def dims_from_json(data: list[Any]) -> tuple[Dim, ...]:
    return tuple(map(dim_from_json, data))


def value_to_json(value: ValueSpec) -> list[Any]:
    shape = dims_to_json(value.shape)
    dtype = value.dtype.name
    nbytes = dim_to_json(value.nbytes)
    return [value.kind, value.name, shape, dtype, nbytes, value.source, value.targets]


def value_from_json(data: list[Any]) -> ValueSpec:
    kind, name, shape, dtype, nbytes, source, targets = data
    return ValueSpec(
        str(kind),
        str(name),
        dims_from_json(shape),
        dtypes.of(str(dtype)),
        dim_from_json(nbytes),
        int(source),
        tuple(map(int, targets)),
    )
