"""The IR: immutable dataflow over symbolic sizes, with the meaning of every op in NumPy.

`make` builds nodes, `Graph` holds them, `verify` checks them, `text` prints them, `evaluate` is
the oracle all devices are judged by. All of it loads on first use: a program from the cache runs
without ops.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.ir.data import BufferSource, ConstantData
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
    from arenite.ir.printed import text
    from arenite.ir.reference import evaluate
    from arenite.ir.verifier import verify
else:
    from arenite.lazy import names_of

    __getattr__, __dir__ = names_of(
        "arenite.ir",
        {
            "data": "BufferSource ConstantData",
            "dim": "Dim Expr Var bounds ceildiv known_le maximum minimum product variables",
            "graph": "Graph topological",
            "node": "Node Origin Origins nbytes_of typed",
            "ops": "OPS OpDef Region buffer constant full graph_input make parameter size",
            "printed": "text",
            "reference": "evaluate",
            "verifier": "verify",
        },
    )

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
