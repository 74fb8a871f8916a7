"""The work of `bench.int8`: products and layers of bytes by name, with constant weights."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.conv_cases import LAYERS, Layer

Array = NDArray[Any]

SHAPES = ((128, 768, 3072), (128, 3072, 768), (1024, 1024, 1024), (8, 1024, 4096), (1, 1024, 4096))
PRODUCTS = [f"{kind}8 x s8 {m}x{k}x{n}" for m, k, n in SHAPES for kind in ("u", "s")]
CONVOLUTIONS = [f"{kind}8 x s8 {name}" for name in LAYERS for kind in ("u", "s")]
CASES = [*PRODUCTS, *CONVOLUTIONS]

#: Quantisation of a layer's input and output; weights have zero point 0 and a scale a channel.
X_SCALE, Y_SCALE = np.float32(0.02), np.float32(0.5)


def kind_of(case: str) -> Any:
    """The dtype of the activations."""
    return np.uint8 if case.startswith("u8") else np.int8


def zero_of(case: str) -> int:
    """The zero point of a layer's input and output."""
    return 131 if case.startswith("u8") else 3


def product_of(case: str) -> tuple[int, int, int]:
    """Rows, depth and columns."""
    m, k, n = map(int, re.findall(r"(\d+)x(\d+)x(\d+)", case)[0])
    return m, k, n


def layer_of(case: str) -> Layer:
    return LAYERS[case.removeprefix("u8 x s8 ").removeprefix("s8 x s8 ")]


def operations(case: str) -> int:
    if case in PRODUCTS:
        m, k, n = product_of(case)
        return 2 * m * k * n
    return layer_of(case).operations


def random_bytes(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    made = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    return np.asarray(made.view(dtype))


def product_arrays(case: str) -> tuple[Array, Array]:
    m, k, n = product_of(case)
    return random_bytes((m, k), kind_of(case), 1), random_bytes((k, n), np.int8, 2)


def layer_arrays(case: str) -> tuple[Array, Array, Array, Array]:
    """x with channels last, weights, scales of the weights, bias."""
    layer = layer_of(case)
    x = random_bytes((1, layer.size, layer.size, layer.channels), kind_of(case), 1)
    depth = layer.channels // layer.groups
    w = random_bytes((layer.out, depth, layer.kernel, layer.kernel), np.int8, 2)
    rng = np.random.default_rng(3)
    scales = (rng.random(layer.out) * 0.01 + 0.01).astype(np.float32)
    return x, w, scales, rng.integers(-9000, 9000, layer.out).astype(np.int32)
