"""Products of bytes, against whole numbers summed by NumPy: exact everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.bytes_kernels import (
    ENDS,
    EXTREMES,
    Made,
    Shape,
    check_product,
    exact,
    made_product,
    operands,
    pack,
    product_arrays,
    wrapped,
)
from tests.codegen.run_kernels import RUNNABLE


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=25, deadline=None)
@given(
    shape=st.builds(
        Shape,
        st.lists(st.integers(1, 12), min_size=2, max_size=3).map(tuple)
        | st.tuples(st.integers(1, 300)),
        st.integers(1, 300),
        st.integers(1, 300),
        ENDS,
        is_signed=st.booleans(),
    )
)
def test_products_of_any_shape(target: str, shape: Shape) -> None:
    check_product(shape, target, [*EXTREMES])


@pytest.mark.parametrize(
    "shape",
    [
        Shape((128,), 768, 3072, "bias"),
        Shape((1,), 4096, 100),
        Shape((3, 50), 1024, 64, "requantised"),
        Shape((7,), 3, 5),
        Shape((1,), 1, 1),
        Shape((300,), 2049, 17, "activated"),
        Shape((40,), 66, 16, "requantised", is_signed=True),
    ],
    ids=str,
)
def test_products_of_networks(shape: Shape) -> None:
    check_product(shape, "host", ["any", "high", "low"])


def test_sums_wrap() -> None:
    depth = 70_000  # times 255 * 127 is beyond 2**31
    check_product(Shape((3,), depth, 18), "host", ["high", "low"])


@pytest.mark.parametrize("target", RUNNABLE)
def test_rows_whose_number_is_known_later(target: str) -> None:
    n = Var("n", 0, 500)
    shape = Shape((1,), 37, 50, "requantised")
    made = made_product(shape, target, [n])
    for rows in (1, 2, 13, 100, 167, 169, 500, 0):
        arrays, expected = product_arrays(replace(shape, rows=(rows,)))
        [got] = made.run(arrays, {"n": rows})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", RUNNABLE)
def test_sums_begin_with_what_is_added_to_every_row(target: str) -> None:
    """And not with what differs from row to row, nor with what is used otherwise too."""
    a, w = operands(Shape((30,), 37, 50))
    rng = np.random.default_rng(5)
    column, other = (rng.integers(-(2**31), 2**31, 50).astype(np.int32) for _ in range(2))
    every = rng.integers(-(2**31), 2**31, (30, 50)).astype(np.int32)

    def ended_by(y: Any, one: Any, two: Any, each: Any) -> list[tuple[Any, str]]:
        return [
            (y + one, "in2[_s1]"),
            (one + (y - two), "(int32)0 - in3[_s1] + in2[_s1]"),
            (y - two + each - one, "(int32)0 - in3[_s1]"),
            (each + y, "zero"),
            (one - y, "zero"),
            ((y + one) * y, "zero"),
            ((y + one) * one, "in2[_s1]"),
        ]

    sums = wrapped(exact(a) @ exact(w))
    arrays = [a, pack(w), column, other, every]
    for k, (expected, start) in enumerate(ended_by(sums, column, other, every)):

        def function(x: Tensor, panels: Tensor, *more: Tensor, k: int = k) -> Tensor:
            made = ir.make("matmul_bytes", x.node, panels.node, columns=50)
            result: Tensor = ended_by(Tensor.of_node(made), *more)[k][0]
            return result

        made = Made(function, [(x.shape, x.dtype) for x in arrays], target)
        assert f"sums begin with {start}\n" in kernel_text(made.loops)
        [got] = made.run(arrays)
        np.testing.assert_array_equal(got, expected)


def test_bytes_that_are_made_up_are_left_to_plain_loops() -> None:
    a = ir.full((3, 8), 5, BY_NAME["uint8"])
    panels = ir.graph_input("w", 0, (1, 2, 16, 4), BY_NAME["int8"])
    [kernel] = fuse(Graph.of([ir.make("matmul_bytes", a, panels, columns=9)])).kernels
    assert not isinstance(build(kernel, targets.named("host")).loops, MicroKernel)
