"""ValueSpec: a value in memory, before it is known where it lies."""

from __future__ import annotations

from arenite.dtype import DType
from arenite.ir.dim import Dim
from arenite.records import NamedTuple


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
