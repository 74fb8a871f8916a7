"""The IR: immutable dataflow over symbolic sizes, with the meaning of every op in NumPy.

`make` builds nodes, `Graph` holds them, `verify` checks them, `text` prints them, `evaluate` is
the oracle all devices are judged by.
"""

from arenite.ir.dim import (
    Dim,
    Expr,
    Var,
    bounds,
    ceildiv,
    known_le,
    maximum,
    minimum,
    product,
    variables,
)
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node, Origin, Origins, nbytes_of, typed
from arenite.ir.ops import (
    OPS,
    BufferSource,
    ConstantData,
    OpDef,
    Region,
    buffer,
    constant,
    full,
    graph_input,
    make,
    parameter,
    size,
)
from arenite.ir.reference import evaluate
from arenite.ir.text import text
from arenite.ir.verify import verify

__all__ = [
    "OPS",
    "BufferSource",
    "ConstantData",
    "Dim",
    "Expr",
    "Graph",
    "Node",
    "OpDef",
    "Origin",
    "Origins",
    "Region",
    "Var",
    "bounds",
    "buffer",
    "ceildiv",
    "constant",
    "evaluate",
    "full",
    "graph_input",
    "known_le",
    "make",
    "maximum",
    "minimum",
    "nbytes_of",
    "parameter",
    "product",
    "size",
    "text",
    "topological",
    "typed",
    "variables",
    "verify",
]
