"""Runs of tiles whose epilogues come late, held to whole numbers, with and without a rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.codegen.printer import kernel_text
from arenite.dtype import of as dtype_of
from arenite.ir.graph import Graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.bytes_kernels import Made, exact, pack, random_bytes
from tests.codegen.made import TARGETS, Array
from tests.codegen.targets import named

PLAIN = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0), (0, 0))}
#: Input and output channels, lines and pixels of a line.
SHAPES = [
    (16, 32, 5, 40),  # whole runs
    (16, 32, 1, 8000),  # of many blocks
    (24, 48, 7, 11),  # a run and a rest
    (33, 37, 9, 23),  # the last columns are not full
    (64, 20, 3, 67),
    (12, 16, 1, 4),  # no run
]


def whole(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def ended(y: Any, bias: Any, other: Any) -> Any:
    """Much that follows the sums, the same on tensors and on arrays; exact for whole numbers."""
    y = y + bias
    return (y * (y + 3.0).clip(0.0, 6.0)) * 2.0 - other * 4.0 + 1.0


def floats(n_in: int, n_out: int, lines: int, pixels: int) -> tuple[list[Array], Array]:
    """Inputs of a convolution of one tap, and what it gives."""
    x, w = whole((1, lines, pixels, n_in), 1), whole((n_in, n_out), 2)
    bias, other = whole((n_out,), 3), whole((1, lines, pixels, n_out), 4)
    room = np.pad(w, ((0, 0), (0, -n_out % 16)))
    panels = np.moveaxis(room.reshape(1, 1, 1, n_in, -1, 16), -2, 1)
    return [x, np.ascontiguousarray(panels), bias, other], ended(x @ w, bias, other)


def conv(n_out: int, is_copied: bool = False) -> Any:
    """Of an input that lies as it is read, or channel by channel, so that it is copied."""

    def function(x: Tensor, w: Tensor, bias: Tensor, other: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1) if is_copied else x
        made = ir.make("conv_last", last.node, w.node, channels=n_out, **PLAIN)
        result: Tensor = ended(Tensor.of_node(made), bias, other)
        return result

    return function


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats(shape: tuple[int, int, int, int], is_copied: bool, target: str) -> None:
    arrays, expected = floats(*shape)
    if is_copied:
        arrays[0] = np.ascontiguousarray(np.moveaxis(arrays[0], -1, 1))
    function = conv(shape[1], is_copied)
    made = Made(function, [(a.shape, a.dtype) for a in arrays], target)
    [got] = made.run(arrays)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(64, 256, 300), (68, 116, 97), (128, 64, 53), (70, 32, 200)])
def test_bytes(shape: tuple[int, int, int], dtype: Any, target: str) -> None:
    """Sums become bytes, are added to others, and become bytes again."""
    depth, columns, rows = shape
    a, w = random_bytes((rows, depth), dtype, 1), random_bytes((depth, columns), np.int8, 2)
    other = random_bytes((rows, columns), np.uint8, 3)
    # A power of two: no product is rounded, whatever the order.
    scale = np.full(columns, 2.0**-10, np.float32)

    def function(x: Tensor, panels: Tensor, scale: Tensor, other: Tensor) -> Tensor:
        made = Tensor.of_node(ir.make("matmul_bytes", x.node, panels.node, columns=columns))
        first = (made.astype(np.float32) * scale).round().clip(-100.0, 155.0)
        both = first * 0.5 + (other.astype(np.float32) - 117.0) * 0.25
        return both.round().clip(0.0, 255.0).astype(np.uint8)

    bits = a.view(np.uint8) ^ (128 if dtype == np.int8 else 0)  # turned bytes count from 0 on
    first = np.round(exact(bits) @ exact(w) * 2.0**-10).clip(-100, 155)
    expected = np.round(first * 0.5 + (exact(other) - 117) * 0.25).clip(0, 255)
    arrays = [a, pack(w), scale, other]
    made = Made(function, [(x.shape, x.dtype) for x in arrays], target)
    [got] = made.run(arrays)
    np.testing.assert_array_equal(got, expected)


def built(shape: tuple[int, int, int, int], target: str) -> MicroKernel:
    """A kernel that need not run here."""
    arrays, _ = floats(*shape)
    nodes = [ir.graph_input(f"x{k}", k, a.shape, dtype_of(a.dtype)) for k, a in enumerate(arrays)]
    made = conv(shape[1])(*map(Tensor.of_node, nodes))
    [kernel] = fuse(Graph(tuple(nodes), (made.node,))).kernels
    loops = build(kernel, named(target)).loops
    assert isinstance(loops, MicroKernel)
    assert isinstance(loops.details, Conv)
    return loops


def test_which_come_late() -> None:
    """Those of short sums that have room for what an epilogue needs."""
    assert "in runs of 10 rows, then ()" in kernel_text(built(SHAPES[0], "avx512"))
    assert "in runs of 10 rows, then (7,)" in kernel_text(built((24, 32, 7, 11), "avx512"))
    for shape, target in (
        ((8, 32, 5, 40), "avx512"),  # fewer steps than rows
        ((512, 32, 5, 40), "avx512"),
        (SHAPES[-1], "avx512"),
        (SHAPES[0], "avx2"),
    ):
        assert "in runs of" not in kernel_text(built(shape, target))
