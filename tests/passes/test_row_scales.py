"""Root mean squares of rows before a product: which move behind it, and that rounding stays small.

Expected numbers are NumPy's in float64; a product may differ from them by what its roundings allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.passes.row_scales import row_scales
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.define import make
from arenite.passes import apply
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor

Array = NDArray[Any]
DEPTH, COLUMNS = 96, 40
UNIT = 2.0**-24


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


GAIN, WEIGHTS = numbers(DEPTH, seed=1), numbers(COLUMNS, DEPTH, seed=2)


def given(shape: tuple[Any, ...]) -> Tensor:
    return Tensor.of_node(ir.graph_input("x", 0, shape, BY_NAME["float32"]))


def known(array: Array) -> Tensor:
    return Tensor.of_node(ir.constant(array))


def rms(x: Any, eps: float = 1e-6) -> Any:
    """The same on tensors and on arrays."""
    return x / ((x * x).mean(-1, keepdims=True) + eps) ** 0.5


def moved(y: Tensor) -> Graph | None:
    """The graph after the pass, if its product is one of x itself."""
    made = apply(Graph.of([y.node]), row_scales)
    verify(made)
    [product] = [node for node in made.nodes if node.op == "matmul"]
    return made if product.inputs[0].op == "input" else None


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "rms_norm": lambda x: x.rms_norm(known(GAIN)) @ known(WEIGHTS).T,
    "weights as they lie": lambda x: x.rms_norm(known(GAIN)) @ known(WEIGHTS.T.copy()),
    "spelled out": lambda x: (
        known(GAIN) * (x * (1 / ((x * x).mean(-1, keepdims=True) + 1e-6).sqrt())) @ known(WEIGHTS).T
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e12])
@pytest.mark.parametrize("shape", [(7, DEPTH), (3, 5, DEPTH)])
def test_rows_are_scaled_behind_the_product(form: str, size: float, shape: tuple[int, ...]) -> None:
    x = (numbers(*shape, seed=3) * size).astype(np.float32)
    y = FORMS[form](given(shape))
    made = moved(y)
    assert made is not None
    wide = rms(x.astype(np.float64)) * GAIN
    expected = wide @ WEIGHTS.T.astype(np.float64)
    bound = (DEPTH + 12) * UNIT * (np.abs(wide) @ np.abs(WEIGHTS.T).astype(np.float64))
    [interpreted] = reference.evaluate(made, [x])
    assert (np.abs(interpreted - expected) <= bound).all()
    results = []
    for threads in (1, 2):
        with compile_graph(Graph.of([y.node]), threads=threads) as program:
            results.append(program(x)[0])
    assert (np.abs(results[0] - expected) <= bound).all()
    assert results[0].tobytes() == results[1].tobytes()


def test_any_number_of_rows() -> None:
    y = given((Var("tokens", 1, 64), DEPTH)).rms_norm(known(GAIN)) @ known(WEIGHTS).T
    assert moved(y) is not None
    with compile_graph(Graph.of([y.node])) as program:
        for n_rows in (1, 9, 64):
            x = numbers(n_rows, DEPTH)
            expected = (rms(x.astype(np.float64)) * GAIN) @ WEIGHTS.T.astype(np.float64)
            np.testing.assert_allclose(program(x)[0], expected, rtol=1e-4, atol=1e-4)


def test_what_is_left_as_it_is() -> None:
    x, w = given((7, DEPTH)), known(WEIGHTS).T
    other = Tensor.of_node(ir.graph_input("y", 1, (7, DEPTH), BY_NAME["float32"]))
    assert moved(x.layer_norm() @ w) is None, "a mean that is taken away"
    assert moved(x / abs(x).max(-1, keepdims=True) @ w) is None, "sums might be infinite"
    assert moved(x * (other * other).sum(-1, keepdims=True) @ w) is None, "scales of other rows"
    assert moved(x.rms_norm(known(GAIN)) @ other.T) is None, "weights that are given"
    half = known(WEIGHTS.astype(np.float16)).astype(np.float32)
    assert moved(x.rms_norm(known(GAIN)) @ half.T) is None, "weights that are read narrow"
    one = given((1, DEPTH)).rms_norm(known(GAIN)) @ w
    assert moved(one) is None, "one row"


def test_products_of_one_norm_share_its_scales() -> None:
    x = given((7, DEPTH)).rms_norm(known(GAIN))
    results = [x @ known(numbers(DEPTH, n, seed=n)) for n in (32, 48)]
    made = apply(Graph.of([result.node for result in results]), row_scales)
    scales: set[Node] = {node.inputs[1].inputs[0] for node in made.outputs}
    assert len(scales) == 1


def product_of(x: Tensor, w: Array, gain: Array | None = None, **attrs: bool) -> Tensor:
    scale = 1 / ((x * x).mean(-1, keepdims=True) + 1e-6).sqrt()
    if gain is None:
        scaled = x * scale
    elif len(gain) == 1:
        scaled = x * known(gain) * scale
    else:
        scaled = known(gain) * (x * scale)
    both = {"transpose_a": False, "transpose_b": False} | attrs
    return Tensor.of_node(make("matmul", scaled.node, ir.constant(w), **both))


WIDE = WEIGHTS.astype(np.float64)
WIDE_GAIN = GAIN.astype(np.float64)


@pytest.mark.parametrize(
    ("shape", "w", "transpose_b"),
    [
        ((7, DEPTH), WIDE, True),
        ((2, DEPTH), WIDE, True),
        ((1, 7, DEPTH), WIDE, True),
        ((3, 7, DEPTH), WIDE, True),
        ((3, 7, DEPTH), WIDE.T, False),
        ((3, 7, DEPTH), WIDE[None], True),
        ((2, 3, 7, DEPTH), WIDE.T[None], False),
    ],
)
@pytest.mark.parametrize("gain", [None, WIDE_GAIN, WIDE_GAIN[:1]], ids=["none", "each", "one"])
def test_moved_products_have_the_numbers_they_had(
    shape: tuple[int, ...], w: Array, transpose_b: bool, gain: Array | None
) -> None:
    x = numbers(*shape).astype(np.float64)
    tensor = Tensor.of_node(ir.graph_input("x", 0, shape, BY_NAME["float64"]))
    made = moved(product_of(tensor, w, gain, transpose_b=transpose_b))
    assert made is not None
    wide = rms(x) * (1.0 if gain is None else gain)
    expected = wide @ (np.swapaxes(w, -1, -2) if transpose_b else w)
    np.testing.assert_allclose(reference.evaluate(made, [x])[0], expected, rtol=1e-10, atol=1e-10)


def test_products_that_no_number_a_row_can_be_moved_behind() -> None:
    x = given((DEPTH, DEPTH))
    rows = given((3, 7, DEPTH))
    assert moved(product_of(x, numbers(DEPTH, 8), transpose_a=True)) is None, "rows are columns"
    assert moved(product_of(rows, numbers(3, DEPTH, 8))) is None, "weights of each batch"
    assert moved(product_of(x, numbers(1, DEPTH, 8))) is None, "weights have more axes"
    assert moved(product_of(x, WIDE.T)) is None, "weights of another width"
    half = Tensor.of_node(ir.graph_input("x", 0, (7, DEPTH), BY_NAME["float16"]))
    narrow = half * (half * half).sum(-1, keepdims=True)
    assert moved(narrow @ known(WEIGHTS.T.astype(np.float16))) is None, "sums would be infinite"
    whole = Tensor.of_node(ir.graph_input("x", 0, (7, DEPTH), BY_NAME["int64"]))
    exact = whole * (whole * whole).sum(-1, keepdims=True)
    assert moved(exact @ known(WEIGHTS.T.astype(np.int64))) is None, "whole numbers"
    w = known(WEIGHTS).T
    batch = (rows * rows).sum((1, 2), keepdims=True)
    assert moved(rows * batch @ w) is None, "a sum over more than a row"
    assert moved(rows * (rows * rows * rows).sum(-1, keepdims=True) @ w) is None, "no squares"
    assert moved(rows * (rows * rows).max(-1, keepdims=True) @ w) is None, "no sum"
    assert moved(rows * known(numbers(7, 1)) @ w) is None, "numbers that are known"
    squares = (rows * rows).sum(-1, keepdims=True)
    assert moved(rows * squares * (1 / squares) @ w) is None, "two numbers for each row"
    gains = known(GAIN) * (known(GAIN) * rows)
    assert moved(gains * squares @ w) is None, "two for each place"
    assert moved(rows * known(numbers(7, DEPTH)) * squares @ w) is None, "one for each element"
    gain = Tensor.of_node(ir.graph_input("gain", 1, (DEPTH,), BY_NAME["float32"]))
    assert moved(rows * gain * squares @ w) is None, "numbers that are given"
    assert moved(rows * squares.cumsum(1) @ w) is None, "squares of other rows too"
    assert moved(rows * (rows + rows).sum(-1, keepdims=True) @ w) is None, "sums of no squares"
    wider = make("pad", squares.node, padding=((0, 0), (0, 0), (0, DEPTH - 1)), value=0)
    assert moved(rows * Tensor.of_node(wider) @ w) is None, "a number for the first place alone"
