"""Our side of `bench.conv`: from channels last to channels last, weights packed before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import arenite.backends.cpu.ops  # noqa: F401
from arenite.dtype import BY_NAME
from arenite.ir import full, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from bench import gemm_ours
from bench.conv_cases import LAYERS, Array

FLOAT32 = BY_NAME["float32"]


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return gemm_ours.prepare(case, threads)
    layer = LAYERS[case]
    x, w, bias = layer.arrays()
    is_depthwise = layer.groups > 1
    held = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0)) if is_depthwise else panels(w)
    arrays = [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), held, bias]
    nodes = [graph_input(f"x{k}", k, a.shape, FLOAT32) for k, a in enumerate(arrays)]
    side = layer.kernel // 2
    attrs = {
        "strides": (layer.stride,) * 2,
        "padding": ((side, side),) * 2,
        "dilations": (1, 1),
    }
    y: Node = (
        make("depthwise_last", *nodes[:2], **attrs)
        if is_depthwise
        else make("conv_last", *nodes[:2], channels=layer.out, **attrs)
    )
    row = make("reshape", nodes[2], shape=(1, 1, 1, layer.out))
    y = make("add", y, make("expand", row, shape=y.shape))
    y = make("maximum", y, full(y.shape, 0.0, FLOAT32))
    program = compile_graph(Graph(tuple(nodes), (y,)), threads=threads)

    def work() -> None:
        program(*arrays)

    return work


def panels(w: Array) -> Array:
    """[O, C, h, w] as [1, P, h, w, C, 16]."""
    n_panels = -(-w.shape[0] // 16)
    room = np.zeros((n_panels * 16, *w.shape[1:]), np.float32)
    room[: w.shape[0]] = w
    split = room.reshape(1, n_panels, 16, *w.shape[1:])
    return np.ascontiguousarray(split.transpose(0, 1, 4, 5, 3, 2))
