"""The work of `bench.gemm`: products `a @ b` and `x @ W.T` by name."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

SQUARES = (64, 128, 256, 512, 1024, 2048)
ROWS = (1, 8, 128, 512)
WEIGHTS = ((768, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024), (4096, 4096))

SHAPES = [(side, side, side) for side in SQUARES] + [(m, n, k) for m in ROWS for n, k in WEIGHTS]
CASES = [f"{form} {m}x{n}x{k}" for m, n, k in SHAPES for form in ("a@b", "x@W.T")]


def shape_of(case: str) -> tuple[int, int, int]:
    """Rows, columns and depth."""
    m, n, k = map(int, re.findall(r"\d+", case))
    return m, n, k


def is_transposed(case: str) -> bool:
    return case.startswith("x@W.T")


def inputs(case: str) -> tuple[Array, Array]:
    m, n, k = shape_of(case)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((n, k) if is_transposed(case) else (k, n), dtype=np.float32)
    return a, b


def operations(case: str) -> int:
    m, n, k = shape_of(case)
    return 2 * m * n * k
