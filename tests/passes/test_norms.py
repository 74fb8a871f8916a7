"""Norms that become part of a convolution: when they do, when not, and what the results are.

Scales are powers of two and everything else is small whole numbers, so that both ways are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Origin, Origins
from arenite.passes.norms import fold_norms
from arenite.tensor import Tensor

FLOAT32 = BY_NAME["float32"]


def whole(shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def constant(*shape: int, seed: int = 0) -> Tensor:
    return Tensor.of_node(ir.constant(whole(shape, seed), FLOAT32))


def powers(*shape: int) -> Tensor:
    exponents = np.abs(whole(shape, 9))
    return Tensor.of_node(ir.constant(np.exp2(exponents).astype(np.float32), FLOAT32))


def image(*shape: int, index: int = 0) -> Tensor:
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, FLOAT32))


def conv(x: Tensor, w: Tensor | None = None) -> Tensor:
    return x.conv(constant(5, 3, 3, 3) if w is None else w, padding=1)


def check(*results: Tensor) -> Graph:
    graph = Graph.of([result.node for result in results])
    made = fold_norms(graph)
    verify(made)
    shapes = [tuple(int(str(size)) for size in node.shape) for node in graph.inputs]
    arrays = [whole(shape, 20 + k) for k, shape in enumerate(shapes)]
    for one, other in zip(
        reference.evaluate(graph, arrays), reference.evaluate(made, arrays), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return made


def on_images(graph: Graph) -> list[str]:
    """Arithmetic on values as large as the result of the convolution."""
    fed = {*graph.inputs}
    for node in graph.nodes:
        if any(value in fed for value in node.inputs):
            fed.add(node)
    return [node.op for node in graph.nodes if node in fed and node.op != "input"]


def test_a_norm_leaves_a_convolution_and_one_bias() -> None:
    y = (conv(image(2, 3, 6, 7)) - constant(5, 1, 1, seed=1)) * powers(5, 1, 1)
    assert on_images(check(y + constant(1, 5, 1, 1, seed=2))) == ["conv", "add"]


def test_numbers_count_for_all_channels() -> None:
    assert on_images(check((conv(image(1, 3, 6, 7)) + 3.0) * 0.5 / 4.0)) == ["conv", "add"]


def test_the_order_of_the_factors_does_not_matter() -> None:
    y = powers(5, 1, 1) * (constant(5, 1, 1, seed=1) + conv(image(1, 3, 6, 7)))
    assert on_images(check(y)) == ["conv", "add"]


def test_two_norms_in_a_row_of_convolutions() -> None:
    y = conv(image(1, 3, 6, 7)) * powers(5, 1, 1)
    z = y.relu().conv(constant(2, 5, 1, 1, seed=4)) * powers(2, 1, 1) + constant(2, 1, 1)
    assert on_images(check(z)) == ["conv", "maximum", "conv", "add"]


def test_a_result_that_is_used_twice_is_not_computed_twice() -> None:
    y = conv(image(1, 3, 6, 7))
    assert on_images(check(y * powers(5, 1, 1) + y)) == ["conv", "mul", "add"]
    assert on_images(check(y * powers(5, 1, 1), y)) == ["conv", "mul"]


def test_a_bias_alone_stays_where_it_is() -> None:
    graph = Graph.of([(conv(image(1, 3, 6, 7)) + constant(5, 1, 1)).node])
    assert fold_norms(graph) is graph


@pytest.mark.parametrize("shape", [(1, 1, 6, 7), (1, 5, 6, 1), (1, 5, 6, 7)])
def test_what_differs_from_place_to_place_stays(shape: tuple[int, ...]) -> None:
    graph = Graph.of([(conv(image(1, 3, 6, 7)) * powers(*shape)).node])
    assert fold_norms(graph) is graph


def test_weights_that_are_not_constant_stay() -> None:
    y = conv(image(1, 3, 6, 7), image(5, 3, 3, 3, index=1)) * powers(5, 1, 1)
    graph = Graph.of([y.node])
    assert fold_norms(graph) is graph


def test_scales_that_are_not_constant_stay() -> None:
    y = conv(image(1, 3, 6, 7)) * image(1, 5, 1, 1, index=1)
    graph = Graph.of([y.node])
    assert fold_norms(graph) is graph


def test_where_it_came_from_is_not_forgotten() -> None:
    y = conv(image(1, 3, 6, 7)) * powers(5, 1, 1)
    line = Origin("model.py", 7)
    graph = Graph((y.node.inputs[0].inputs[0],), (y.node,), (), Origins({y.node: [line]}))
    made = fold_norms(graph)
    assert made.origins.of(made.outputs[0]) == (line,)


def test_a_convolution_keeps_where_it_came_from() -> None:
    y = conv(image(1, 3, 6, 7))
    z = (y * powers(5, 1, 1) + 1.0).relu() / 2.0
    line = Origin("model.py", 7)
    graph = Graph.of([z.node], Origins({y.node: [line]}))
    made = fold_norms(graph)
    [found] = [node for node in made.nodes if node.op == "conv"]
    assert found is not y.node
    assert made.origins.of(found) == (line,)


def test_large_weights_are_constants_too() -> None:
    w = Tensor(whole((5, 3, 3, 3), 1))
    assert w.node.op == "buffer"
    assert on_images(check(conv(image(1, 3, 6, 7), w) * powers(5, 1, 1) + 1.0)) == ["conv", "add"]


def test_factors_behind_an_activation_become_one() -> None:
    y = conv(image(1, 3, 6, 7)).relu()
    z = powers(5, 1, 1) * (y * y / 4.0) + 1.0
    assert on_images(check(z)) == ["conv", "maximum", "mul", "mul", "add"]
    assert on_images(check(z / 2.0 / powers(1, 5, 1, 1) * 8.0)).count("mul") == 3


def test_a_quotient_that_is_used_twice_is_a_product_of_its_own() -> None:
    half = conv(image(1, 3, 6, 7)).relu() / 2.0
    assert on_images(check(half * 4.0 + half)) == ["conv", "maximum", "mul", "mul", "add"]


def test_quotients_of_anything_else_are_left() -> None:
    graph = Graph.of([(image(1, 3, 6, 7) / 6.0 * 2.0).node])
    assert fold_norms(graph) is graph


def test_scales_round_a_few_times_at_the_most() -> None:
    """Each factor that is moved costs a rounding of the factor, and saves one of the product."""
    y = conv(image(1, 3, 6, 7)).relu()
    graph = Graph.of([(y / 6.0 * Tensor(np.float32(0.3))).node])
    x = np.random.default_rng(3).standard_normal((1, 3, 6, 7)).astype(np.float32)
    [one], [other] = (reference.evaluate(g, [x]) for g in (graph, fold_norms(graph)))
    assert np.abs(one - other).max() <= 3 * np.finfo(np.float32).eps * np.abs(one).max()
    assert not np.array_equal(one, np.zeros_like(one))


def test_quotients_and_differences_of_every_order_keep_their_numbers() -> None:
    y = conv(image(1, 3, 6, 7))
    shift, other, scale = constant(5, 1, 1, seed=1), constant(5, 1, 1, seed=2), powers(5, 1, 1)
    assert on_images(check(y / scale)) == ["conv"]
    assert on_images(check((y + shift - other) / scale)) == ["conv", "add"]
    assert on_images(check((y - shift) / scale * scale - other)) == ["conv", "add"]
    assert on_images(check(y * powers(1, 1, 1, 1) + 1.0)) == ["conv", "add"]
    assert on_images(check((shift - y) * scale)) == ["conv", "sub", "mul"]
    graph = Graph.of([(scale / y).node])
    assert fold_norms(graph) is graph


def test_what_differs_from_place_to_place_is_not_lost_on_the_way() -> None:
    assert on_images(check(conv(image(1, 3, 6, 7)) * powers(1, 5, 6, 7) * powers(5, 1, 1))) == [
        "conv",
        "mul",
    ]


def test_narrow_numbers_stay_as_they_are() -> None:
    half = BY_NAME["float16"]
    x = Tensor.of_node(ir.graph_input("x", 0, (1, 3, 6, 7), half))
    w, scale = (Tensor.of_node(ir.constant(one.astype(np.float16), half))
                for one in (whole((5, 3, 3, 3), 0), whole((5, 1, 1), 1)))  # fmt: skip
    for y in (conv(x, w) * scale, conv(x, w).relu() / 4.0 * 2.0):
        graph = Graph.of([y.node])
        assert fold_norms(graph) is graph


def test_quotients_beside_a_convolution_are_left() -> None:
    y = conv(image(1, 3, 6, 7))
    made = check(image(1, 3, 6, 7, index=1) / 4.0 * 2.0, y.relu() / 4.0 * 2.0, y)
    assert sorted(on_images(made)) == ["conv", "div", "maximum", "mul", "mul"]
