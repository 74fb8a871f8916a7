"""Our side of `bench.int8`, and the peak of one core. Layers go from channels last to channels
last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arenite.backends.cpu.bytes.tile import word_dot
from arenite.backends.cpu.lowering.vector import Vec, VType
from arenite.backends.cpu.target import host
from arenite.dtype import of as dtype_of
from arenite.ir import constant, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor
from bench.gemm_ours import CHAINS, TURNS, chains
from bench.int8_cases import (
    PRODUCTS,
    X_SCALE,
    Y_SCALE,
    Array,
    kind_of,
    layer_arrays,
    layer_of,
    product_arrays,
    zero_of,
)


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return _peak()
    array, result = _product(case) if case in PRODUCTS else _layer(case)
    program = compile_graph(Graph.of([result]), threads=threads)

    def work() -> None:
        program(array)

    return work


def _input(array: Array) -> Node:
    return graph_input("x", 0, array.shape, dtype_of(array.dtype))


def _product(case: str) -> tuple[Array, Node]:
    a, w = product_arrays(case)
    return a, make("matmul", _input(a), constant(w), transpose_a=False, transpose_b=False)


def _layer(case: str) -> tuple[Array, Node]:
    """QLinearConv, spelled out."""
    layer, zero, kind = layer_of(case), zero_of(case), kind_of(case)
    x, w, scales, bias = layer_arrays(case)
    side = layer.kernel // 2
    image = Tensor.of_node(_input(x)).permute(0, 3, 1, 2).astype(np.int32) - zero
    sums = Tensor.of_node(
        make(
            "conv",
            image.node,
            Tensor(w).astype(np.int32).node,
            strides=(layer.stride,) * 2,
            padding=((side, side),) * 2,
            dilations=(1, 1),
            groups=layer.groups,
        )
    ).permute(0, 2, 3, 1)
    scale = Tensor.of_node(constant(X_SCALE * scales / Y_SCALE))
    real = (sums + Tensor(bias)).astype(np.float32) * scale
    info = np.iinfo(kind)
    y = (real.round() + float(zero)).clip(float(info.min), float(info.max)).astype(kind)
    return x, y.node


def peak_operations() -> int:
    return 2 * 4 * CHAINS * TURNS * (host().vector_bits // 32)


def _peak() -> Callable[[], None]:
    """A loop of dot products in registers."""
    dot = word_dot(host())

    def step(total: Vec, number: Vec) -> Vec:
        return dot.add(total, dot.a(number), dot.b(number))

    return chains(VType("i", 32, host().vector_bits // 32), step)
