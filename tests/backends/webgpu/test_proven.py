"""Kernels without checks of their accesses: which, and that one whose index is data keeps them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.proven import is_proven
from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME
from arenite.ir import graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from tests.backends.webgpu.runner import ON_WEBGPU, webgpu

F32, I32, INT64 = (BY_NAME[name] for name in ("float32", "int32", "int64"))


def x(*shape: int) -> Node:
    return graph_input("x", 0, shape, F32)


def of_data() -> Node:
    return make("gather", x(5, 4), graph_input("at", 1, (3,), INT64), axis=0)


GRAPHS: dict[str, tuple[Callable[[], Node], bool]] = {
    "a map": (lambda: make("exp", x(40)), True),
    "a sum": (lambda: make("sum", x(9, 70), axes=(1,)), True),
    "a view": (lambda: make("permute", x(3, 4, 5), axes=(2, 0, 1)), True),
    "rows that data names": (of_data, False),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_indices_of_loop_variables_alone_are_not_checked(name: str) -> None:
    webgpu()
    make_node, proven = GRAPHS[name]
    with compile_graph(Graph.of([make_node()]), ON_WEBGPU) as program:
        launches = [one for one in program.compiled.launches if "transfer" not in one.name]
        shaders = shaders_of(program.compiled.image)
        assert {shaders[one.entry].is_proven for one in launches} == {proven}


def kernel(*body: ir.Stmt) -> ir.GroupKernel:
    arrays = (ir.ArrayArg("in0", I32, "in"), ir.ArrayArg("out0", I32, "out"))
    return ir.GroupKernel("k", arrays, (), ir.index(1), "tile", body, threads=1)


def read(at: ir.Expr) -> ir.Expr:
    return ir.Cast(ir.Load("in0", at, I32), ir.INT64)


@pytest.mark.parametrize(
    ("body", "proven"),
    [
        ([ir.Store("out0", ir.index(0), ir.Load("in0", ir.Name("tile"), I32))], True),
        ([ir.Store("out0", read(ir.index(0)), ir.Const(1, I32))], False),
        (
            [
                ir.Let("k", read(ir.index(0))),
                ir.Let("m", ir.Name("k") + 1),
                ir.Store("out0", ir.index(0), ir.Load("in0", ir.Name("m"), I32)),
            ],
            False,
        ),
        (
            [
                ir.For(
                    "k",
                    ir.index(0),
                    read(ir.index(0)),
                    (ir.Store("out0", ir.Name("k"), ir.Const(1, I32)),),
                )
            ],
            False,
        ),
        (
            [
                ir.Accumulator("at", ir.index(0)),
                ir.Store("out0", ir.Name("at"), ir.Const(1, I32)),
            ],
            False,
        ),
    ],
)
def test_what_comes_from_data_is_followed(body: list[ir.Stmt], proven: bool) -> None:
    assert is_proven(kernel(*body)) == proven


def test_a_row_that_is_not_there_is_told_and_others_are_right() -> None:
    webgpu()
    given = np.arange(20, dtype=np.float32).reshape(5, 4)
    with compile_graph(Graph.of([of_data()]), ON_WEBGPU) as program:
        np.testing.assert_array_equal(program(given, np.array([4, 0, 2]))[0], given[[4, 0, 2]])
