"""Compiling tells how many kernels are done; those of equal layers are made once."""

from __future__ import annotations

import pytest

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.pipeline import compile_anew
from arenite.tensor import Tensor


@pytest.mark.parametrize("n_layers", [1, 5])
def test_every_kernel_is_counted_as_it_is_compiled(n_layers: int) -> None:
    x = ir.graph_input("x", 0, (3, 24), BY_NAME["float32"])
    w = ir.graph_input("w", 1, (24, 24), BY_NAME["float32"])
    y = Tensor.of_node(x)
    for _ in range(n_layers):
        y = (y @ Tensor.of_node(w)).softmax()
    heard: list[tuple[int, int]] = []
    made = compile_anew(
        Graph((x, w), (y.node, y.sum().node)), on_progress=lambda *told: heard.append(told)
    )
    n_kernels = len({one.llvm for one in made.kernels})
    assert len(made.kernels) >= 2 * n_layers + 1
    assert (heard[0], heard[-1]) == ((0, n_kernels), (n_kernels, n_kernels))
    # One by one, but for those that were compiled before.
    done = [told[0] for told in heard]
    assert done == sorted(set(done))
    assert {told[1] for told in heard} == {n_kernels}
    assert n_kernels <= 5  # however many layers there are
