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
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes import apply
from arenite.passes.row_scales import row_scales
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
