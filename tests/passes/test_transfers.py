"""Transfers: what lies on the host is brought to a device and back, and nothing else changes."""

from __future__ import annotations

import numpy as np

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, Origins
from arenite.ir.ops import constant, graph_input, make
from arenite.passes.transfers import transfers
from arenite.schedule import fuse

FLOAT32 = BY_NAME["float32"]
X, Y = (graph_input(name, k, (3, 4), FLOAT32) for k, name in enumerate("xy"))
STATE = make("state", name="s", shape=(3, 4), dtype=FLOAT32)
ONES = constant(np.ones((3, 4), np.float32))
ON_DEVICE = transfers("webgpu")


def where(node: Node, given: dict[Node, str]) -> str:
    """The device that a value lies on; a kernel finds all it reads on one."""
    if node in given:
        return given[node]
    if node.op == "transfer":
        assert where(node.inputs[0], given) != node.attr("device")
        return str(node.attr("device"))
    if not node.inputs:
        return "webgpu"
    assert {where(value, given) for value in node.inputs} == {"webgpu"}
    return "webgpu"


def test_kernels_find_all_they_read_on_the_device_and_results_are_on_the_host() -> None:
    total = make("add", make("mul", X, Y), STATE)
    origin = Origin("model.onnx", 7)
    graph = Graph(
        (X, Y), (total, STATE, X, ONES, total), (), Origins({total: [origin]}), ((STATE, Y),)
    )
    moved = ON_DEVICE(graph)
    ir.verify(moved)
    given = {X: "cpu", Y: "cpu"}
    assert [where(one, given) for one in moved.outputs] == ["cpu", "cpu", "cpu", "webgpu", "cpu"]
    assert moved.outputs[2] is X  # what is given is handed back as it is
    assert moved.outputs[3] is ONES
    assert moved.updates == ((STATE, make("transfer", Y, device="webgpu")),)
    assert moved.origins.of(moved.outputs[0]) == (origin,)
    arrays = [np.random.default_rng(k).random((3, 4)).astype(np.float32) for k in range(2)]
    for one, other in zip(ir.evaluate(moved, arrays), ir.evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_argument_that_only_gives_its_size_is_not_copied() -> None:
    front = make("front", X, graph_input("n", 1, (2, 5), FLOAT32), axis=0)
    kernels = fuse(ON_DEVICE(Graph.of([front]))).kernels
    assert sum("transfer" in kernel.name for kernel in kernels) == 2
    assert all(kernel.outputs for kernel in kernels)
