"""The ops, one file a family; importing this package fills `OPS`."""

from arenite.ir.data import BufferSource, ConstantData
from arenite.ir.ops import (  # noqa: F401
    attention,
    blocks,
    complex_parts,
    contraction,
    control,
    elementwise,
    experts,
    host,
    indexing,
    movement,
    narrow,
    reductions,
    sources,
    suppression,
    transfer,
    unbounded,
)
from arenite.ir.ops.control import Region, parameter
from arenite.ir.ops.define import OPS, OpDef, make
from arenite.ir.ops.sources import buffer, constant, full, graph_input, size

__all__ = [
    "OPS",
    "BufferSource",
    "ConstantData",
    "OpDef",
    "Region",
    "buffer",
    "constant",
    "full",
    "graph_input",
    "make",
    "parameter",
    "size",
]
