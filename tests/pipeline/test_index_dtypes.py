"""Indices of 32 bits choose the same elements as those of 64, on every device of the host."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.errors import IndexOutOfRange, TypeMismatch
from arenite.ir import graph_input, make
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.program.options import Options

F32 = BY_NAME["float32"]


@pytest.mark.parametrize("device", ["cpu", "c"])
@pytest.mark.parametrize("name", ["int32", "int64"])
def test_indices_may_have_32_bits(name: str, device: str) -> None:
    data = np.arange(60, dtype=np.float32).reshape(12, 5)
    x, indices = graph_input("x", 0, (12, 5), F32), graph_input("i", 1, (4,), BY_NAME[name])
    rows, start = graph_input("rows", 2, (3, 5), F32), graph_input("start", 3, (), BY_NAME[name])
    gathered = make("gather", x, indices, axis=0)
    updated = make("update_slice", x, rows, start, axis=0)
    at, new = np.array([11, 0, 3, 3], name), -data[:3]
    with compile_graph(Graph.of([gathered, updated]), Options(device=device)) as program:
        found = program(data, at, new, np.array(7, name))
        np.testing.assert_array_equal(found[0], data[at])
        wanted = data.copy()
        wanted[7:10] = new
        np.testing.assert_array_equal(found[1], wanted)
        with pytest.raises(IndexOutOfRange):
            program(data, at + 1, new, np.array(7, name))


def test_other_indices_are_refused() -> None:
    x, indices = graph_input("x", 0, (12, 5), F32), graph_input("i", 1, (4,), BY_NAME["uint8"])
    with pytest.raises(TypeMismatch, match="int64 or int32"):
        make("gather", x, indices, axis=0)
