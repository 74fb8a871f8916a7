"""The work of `bench.fused`: what lies around a product in a transformer.

gelu(x @ W.T + b)           between the two products of a feed-forward network
rms_norm(x) @ W.T           before the first product of a layer
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: name -> rows, depth, columns
CASES = {
    "gelu(x@W.T + b) 128x768x3072": (128, 768, 3072),
    "gelu(x@W.T + b) 512x768x3072": (512, 768, 3072),
    "rms_norm(x)@W.T 128x768x768": (128, 768, 768),
    "rms_norm(x)@W.T 1024x128x128": (1024, 128, 128),
}


def has_norm(case: str) -> bool:
    return case.startswith("rms_norm")


def inputs(case: str) -> tuple[Array, Array, Array]:
    """x, W and b, or the weight of the norm."""
    m, k, n = CASES[case]
    rng = np.random.default_rng(1)
    shapes = ((m, k), (n, k), (k if has_norm(case) else n,))
    x, w, b = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return x, w, b


def operations(case: str) -> int:
    m, k, n = CASES[case]
    return 2 * m * n * k
