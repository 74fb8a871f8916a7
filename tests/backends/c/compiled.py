"""What tests of C programs are made of: a Compiled for device c, and its constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.ir.graph import Graph
from arenite.ir.interface import GraphInterface
from arenite.pipeline import compile_anew
from arenite.program.compiled import Compiled
from arenite.program.options import Options


def compiled_c(graph: Graph) -> Compiled:
    return compile_anew(graph, Options(device="c"))


def constants_of(compiled: Compiled, interface: GraphInterface) -> dict[int, NDArray[Any]]:
    """Arrays by number of the value."""
    found = {}
    for number, value in enumerate(compiled.values):
        if value.kind == "constant":
            held = (
                compiled.constants[-1 - value.source]
                if value.source < 0
                else interface.constants[value.source].held()
            )
            found[number] = np.ascontiguousarray(held)
    return found
