"""An op that nobody has heard of: what must be said of it for a kernel to compute it."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels import values
from arenite.dtype import BY_NAME, Array, DType
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops import OPS, OpDef, graph_input, make
from arenite.ir.ops.access import Index, Reduction, Source, summed
from arenite.ir.ops.define import Attrs, Inferred
from arenite.pipeline import compile_graph

FLOAT32 = BY_NAME["float32"]


def _softsign(arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType) -> Array:
    [x] = arrays
    return np.asarray(x / (1 + np.abs(x)))


def test_an_elementwise_op_is_its_definition_and_its_expression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        return inputs[0].shape, inputs[0].dtype

    def expression(x: ir.Expr) -> ir.Expr:
        return ir.Binary("div", x, ir.Binary("add", ir.Const(1.0, x.dtype), ir.Unary("abs", x)))

    monkeypatch.setitem(OPS, "softsign", OpDef("softsign", "elementwise", (1, 1), infer, _softsign))
    monkeypatch.setitem(values.EXPRESSIONS, "softsign", expression)
    x = graph_input("x", 0, (7, 33), FLOAT32)
    # It is inlined into what reads it, and reads what is inlined into it.
    graph = Graph.of([make("sum", make("softsign", make("neg", x)), axes=(1,))])
    given = np.random.default_rng(0).standard_normal((7, 33), np.float32)
    with compile_graph(graph) as program:
        assert len(program.kernels) == 1
        [result] = program(given)
    np.testing.assert_allclose(result, (-given / (1 + np.abs(given))).sum(axis=1), rtol=1e-5)


def test_a_contraction_is_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    def infer(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
        return inputs[0].shape[:2], inputs[0].dtype

    def reference(arrays: list[Array], attrs: Attrs, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.asarray(np.einsum("mnk,nk->mn", *arrays), np.float32)

    def reduction(node: Node) -> Reduction:
        a, b = node.inputs

        def factors(index: Index) -> tuple[Source, ...]:
            m, n, k = index
            return Source(a, (m, n, k)), Source(b, (n, k))

        return summed(node, a.shape[-1:], factors)

    definition = OpDef("row_dots", "contraction", (2, 2), infer, reference, reduction=reduction)
    monkeypatch.setitem(OPS, "row_dots", definition)
    a, b = graph_input("a", 0, (5, 6, 70), FLOAT32), graph_input("b", 1, (6, 70), FLOAT32)
    # What follows is its epilogue.
    graph = Graph.of([make("exp", make("row_dots", a, b))])
    rng = np.random.default_rng(1)
    given = [rng.uniform(-0.1, 0.1, shape).astype(np.float32) for shape in ((5, 6, 70), (6, 70))]
    with compile_graph(graph) as program:
        assert len(program.kernels) == 1
        [result] = program(*given)
    np.testing.assert_allclose(result, np.exp(np.einsum("mnk,nk->mn", *given)), rtol=1e-5)
