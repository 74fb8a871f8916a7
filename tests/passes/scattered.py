"""What a transposed convolution is, by brute force: every element of the input is multiplied by
the taps and added to the places that they reach. What reaches no place is not computed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray


def scattered(
    x: NDArray[Any],
    w: NDArray[Any],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    output_padding: tuple[int, ...],
    groups: int,
) -> NDArray[np.float64]:
    sizes, taps, out = x.shape[2:], w.shape[2:], w.shape[1]
    whole = [
        (size - 1) * stride + tap + more
        for size, stride, tap, more in zip(sizes, strides, taps, output_padding, strict=True)
    ]
    y = np.zeros((x.shape[0], groups, out, *whole))
    for group in range(groups):
        of_x = np.split(x.astype(np.float64), groups, axis=1)[group]
        of_w = np.split(w.astype(np.float64), groups, axis=0)[group]
        for place, tap in product(np.ndindex(*sizes), np.ndindex(*taps)):
            at = tuple(p * s + t for p, s, t in zip(place, strides, tap, strict=True))
            for channel in range(of_x.shape[1]):
                factor = of_x[(slice(None), channel, *place)]
                y[(slice(None), group, slice(None), *at)] += np.multiply.outer(
                    factor, of_w[(channel, slice(None), *tap)]
                )
    kept = (slice(start, size - end) for (start, end), size in zip(padding, whole, strict=True))
    return y.reshape(x.shape[0], groups * out, *whole)[(slice(None), slice(None), *kept)]
