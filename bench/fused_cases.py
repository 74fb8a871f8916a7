"""The work of `bench.fused`: gelu(x @ W.T + b), as between the two products of a transformer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: name -> rows, depth, columns
CASES = {
    "gelu(x@W.T + b) 128x768x3072": (128, 768, 3072),
    "gelu(x@W.T + b) 512x768x3072": (512, 768, 3072),
}


def inputs(case: str) -> tuple[Array, Array, Array]:
    """x, W and b."""
    m, k, n = CASES[case]
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (n, k), (n,)))
    return x, w, b


def operations(case: str) -> int:
    m, k, n = CASES[case]
    return 2 * m * n * k
