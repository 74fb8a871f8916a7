"""The work of `bench.gemm`: products `a @ b` and `x @ W.T` by name.

Where a product takes no longer than a call, many of them are one piece of work: we do them in a
loop of one program, the peers in a loop of calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SQUARES = (64, 128, 256, 512, 1024, 2048)
ROWS = (1, 8, 128, 512)
WEIGHTS = ((768, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024), (4096, 4096))

SHAPES = [(side, side, side) for side in SQUARES] + [(m, n, k) for m in ROWS for n, k in WEIGHTS]
CASES = [f"{form} {m}x{n}x{k}" for m, n, k in SHAPES for form in ("a@b", "x@W.T")]
#: Weights of half the width, against PyTorch alone: NumPy has no kernels for them.
HALVES = ["f16 x@W.T 1x4096x4096", "f16 a@b 1x4096x4096"]

#: Work up to that of 128 cubed is done so many times in one program.
SMALL_OPERATIONS = 2 * 128**3
REPEATS = 32


def shape_of(case: str) -> tuple[int, int, int]:
    """Rows, columns and depth."""
    m, n, k = map(int, case.split()[-1].split("x"))
    return m, n, k


def is_transposed(case: str) -> bool:
    return "x@W.T" in case


def dtype_of(case: str) -> np.dtype[Any]:
    return np.dtype(np.float16 if case.startswith("f16") else np.float32)


def n_products(case: str) -> int:
    """How many products one piece of work is."""
    return REPEATS if operations(case) <= SMALL_OPERATIONS else 1


def inputs(case: str) -> tuple[list[Array], Array]:
    """The left sides of all products, and the right side they share."""
    m, n, k = shape_of(case)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((n_products(case), m, k), dtype=np.float32)
    b = rng.standard_normal((n, k) if is_transposed(case) else (k, n), dtype=np.float32)
    return list(a.astype(dtype_of(case))), b.astype(dtype_of(case))


def operations(case: str) -> int:
    """Of one product."""
    m, n, k = shape_of(case)
    return 2 * m * n * k


def weight_nbytes(case: str) -> int:
    _, n, k = shape_of(case)
    return n * k * dtype_of(case).itemsize
