"""The IR: immutable dataflow over symbolic sizes, with the meaning of every op in NumPy.

`make` builds nodes, `Graph` holds them, `verify` checks them, `text` prints them, `evaluate` is
the oracle all devices are judged by. All of it loads on first use: a program from the cache runs
without ops.
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.ir.data import BufferSource as BufferSource, ConstantData as ConstantData
    from arenite.ir.dim import (
        Dim as Dim,
        Expr as Expr,
        Var as Var,
        bounds as bounds,
        ceildiv as ceildiv,
        known_le as known_le,
        maximum as maximum,
        minimum as minimum,
        product as product,
        variables as variables,
    )
    from arenite.ir.graph import Graph as Graph, topological as topological
    from arenite.ir.node import (
        Node as Node,
        Origin as Origin,
        Origins as Origins,
        nbytes_of as nbytes_of,
        typed as typed,
    )
    from arenite.ir.ops import (
        OPS as OPS,
        OpDef as OpDef,
        Region as Region,
        buffer as buffer,
        constant as constant,
        full as full,
        graph_input as graph_input,
        make as make,
        parameter as parameter,
        size as size,
    )
    from arenite.ir.printer import text as text
    from arenite.ir.reference import evaluate as evaluate
    from arenite.ir.verifier import verify as verify
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, __all__ = names_of(
        "arenite.ir",
        {
            "data": "BufferSource ConstantData",
            "dim": "Dim Expr Var bounds ceildiv known_le maximum minimum product variables",
            "graph": "Graph topological",
            "node": "Node Origin Origins nbytes_of typed",
            "ops": "OPS OpDef Region buffer constant full graph_input make parameter size",
            "printer": "text",
            "reference": "evaluate",
            "verifier": "verify",
        },
    )
