"""Products by block-quantised weights on the edges of what they take.

Judged by the gguf package's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.ir import Var
from arenite.pipeline import compile_graph
from tests.pipeline.test_blocks import activations, rounding_bound
from tests.pipeline.test_experts import (
    choices_of,
    experts_node,
    one_by_one,
    product,
    program,
)

Array = NDArray[Any]


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("rows", [0, 3, Var("rows", 0, 40)], ids=str)
def test_choices_of_no_rows(rows: Any, own_rows: bool) -> None:
    w, weights = experts_node("q4_1", 5, 45, 64)
    with compile_graph(program(w, rows, 3, own_rows=own_rows)) as exe:
        for n in (40, 0, 1) if isinstance(rows, Var) else (rows,):
            x = activations(*((n, 3, 64) if own_rows else (n, 64)), seed=n)
            chosen = choices_of(n, 3, 5, seed=n)
            [found] = exe(x, chosen)
            assert found.shape == (n, 3, 45)
            if n:
                exact, bound = (
                    one_by_one(x, weights, chosen, of) for of in (product, rounding_bound)
                )
                assert np.all(np.abs(found - exact) <= bound)
