"""Discrete Fourier transforms, as products with matrices of roots of unity.

A complex number is two nodes. Long transforms whose length has factors are made of short ones;
those of a long prime length are a convolution, done by transforms of another length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from arenite.dtype import Array, DType
from arenite.errors import NotSupported
from arenite.ir.compose.basic import (
    along,
    binary,
    broadcast_to,
    cast,
    concat,
    flip,
    iota,
    pad,
    reshape,
    size_like,
    slice_axis,
    swap_axes,
)
from arenite.ir.dim import Dim, minimum
from arenite.ir.element import numpy_dtype
from arenite.ir.node import Node
from arenite.ir.ops import constant, full, make

#: Real and imaginary part; None is 0.
Complex: TypeAlias = tuple[Node, Node | None]

#: Lengths up to this are one product.
MAX_DIRECT = 128
#: And up to this, made of shorter ones.
MAX_LENGTH = 1 << 22
#: Of real numbers of which half the result is wanted, which one product does well.
MAX_DIRECT_REAL = 1024


def transform(x: Complex, inverse: bool = False) -> tuple[Node, Node]:
    """Along the last axis; the inverse is not divided by the length."""
    n = x[0].shape[-1]
    sign = 1 if inverse else -1
    if not isinstance(n, int) or n <= MAX_DIRECT:
        return _direct(x, n, n, sign)
    if n > MAX_LENGTH:
        raise NotSupported(f"a Fourier transform of {n} numbers; at most {MAX_LENGTH} are done")
    a = _factor(n)
    if a == 1:
        return _chirped(x, n, sign)
    return _split(x, a, n // a, sign, inverse)


def half_transform(re: Node) -> tuple[Node, Node]:
    """The first n // 2 + 1 of a transform of real numbers, of which the others follow."""
    n = re.shape[-1]
    kept = n // 2 + 1
    if not isinstance(n, int) or n <= MAX_DIRECT_REAL:
        return _direct((re, None), n, kept, -1)
    whole = transform((re, None))
    last = re.ndim - 1
    return slice_axis(whole[0], last, 0, kept), slice_axis(whole[1], last, 0, kept)


def real_inverse(re: Node, im: Node, n: Dim) -> Node:
    """n real numbers of the first n // 2 + 1 of their transform; divided by n."""
    last = re.ndim - 1
    re, im = (fitted(part, last, n // 2 + 1) for part in (re, im))
    rest = n - (n // 2 + 1)
    mirrored = [flip(slice_axis(part, last, 1, 1 + rest), [last]) for part in (re, im)]
    whole = (
        concat([re, mirrored[0]], last),
        concat([im, -mirrored[1]], last),
    )
    # The imaginary parts of the first and, of an even length, the middle one have no meaning.
    places = broadcast_to(iota(n), whole[1].shape)
    is_own = binary("eq", places * 2 % size_like(n, places), 0)
    zero = full(whole[1].shape, 0.0, im.dtype)
    made, _ = transform((whole[0], make("where", is_own, zero, whole[1])), inverse=True)
    return made / size_like(n, made)


def fitted(x: Node, axis: int, n: Dim) -> Node:
    """The first n elements of an axis; zeros where there are fewer."""
    size = x.shape[axis]
    kept = slice_axis(x, axis, 0, minimum(size, n))
    padding: list[tuple[Dim, Dim]] = [(0, 0)] * x.ndim
    padding[axis] = (0, n - minimum(size, n))
    return pad(kept, padding, 0.0)


def _factor(n: int) -> int:
    """The largest factor that is no larger than the root."""
    return next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)


def _roots(exponents: Array, n: int, sign: int, dtype: DType) -> tuple[Node, Node]:
    angles = exponents.astype(np.int64) % n * (2 * np.pi / n)
    parts = np.cos(angles), sign * np.sin(angles)
    re, im = (constant(part.astype(numpy_dtype(dtype)), dtype) for part in parts)
    return re, im


def _direct(x: Complex, n: Dim, kept: Dim, sign: int) -> tuple[Node, Node]:
    re, im = x
    if isinstance(n, int) and isinstance(kept, int):
        cos, sin = _roots(np.outer(np.arange(n), np.arange(kept)), n, sign, re.dtype)
    else:
        cos, sin = _computed_roots(n, kept, sign, re.dtype)

    def product(part: Node, matrix: Node) -> Node:
        row = reshape(part, (1, n)) if part.ndim == 1 else part
        made = make("matmul", row, matrix, transpose_a=False, transpose_b=False)
        return reshape(made, (*part.shape[:-1], kept))

    if im is None:
        return product(re, cos), product(re, sin)
    return (
        product(re, cos) - product(im, sin),
        product(re, sin) + product(im, cos),
    )


def _computed_roots(n: Dim, kept: Dim, sign: int, dtype: DType) -> tuple[Node, Node]:
    """The matrix for a length that is no number yet."""
    exponents = along(iota(n), 0, 2) * along(iota(kept), 1, 2)
    turns = cast(exponents % size_like(n, exponents), dtype)
    angles = turns * (2 * math.pi) / size_like(n, turns)
    return make("cos", angles), make("sin", angles) * float(sign)


def _times(x: Complex, y: tuple[Node, Node]) -> tuple[Node, Node]:
    re, im = x
    if im is None:
        return re * y[0], re * y[1]
    return (
        re * y[0] - im * y[1],
        re * y[1] + im * y[0],
    )


def _mapped(x: Complex, function: Callable[[Node], Node]) -> Complex:
    re, im = x
    return function(re), None if im is None else function(im)


def _split(x: Complex, a: int, b: int, sign: int, inverse: bool) -> tuple[Node, Node]:
    """With j = j1 b + j2 and k = k1 + a k2 : transforms over j1, a turn, transforms over j2."""
    batch = x[0].shape[:-1]
    rank = len(batch)

    def turned(part: Node) -> Node:
        return swap_axes(part, rank, rank + 1)

    columns = _mapped(x, lambda part: turned(reshape(part, (*batch, a, b))))
    inner = transform(columns, inverse)  # [j2, k1]
    twiddles = _roots(np.outer(np.arange(b), np.arange(a)), a * b, sign, x[0].dtype)
    rotated = _times(inner, twiddles)
    outer = transform((turned(rotated[0]), turned(rotated[1])), inverse)  # [k1, k2]
    re, im = (reshape(turned(part), (*batch, a * b)) for part in outer)
    return re, im


def _chirped(x: Complex, n: int, sign: int) -> tuple[Node, Node]:
    """Bluestein: j k = (j² + k² - (k - j)²) / 2, so that it is a convolution with a chirp."""
    last = x[0].ndim - 1
    length = 1 << (2 * n - 1).bit_length()
    squares = np.arange(n) ** 2
    chirp = _roots(squares, 2 * n, sign, x[0].dtype)
    wave = np.exp(-1j * sign * np.pi * (squares % (2 * n)) / n)
    kernel = np.zeros(length, np.complex128)
    kernel[:n] = wave
    kernel[length - n + 1 :] = wave[:0:-1]
    spectrum = np.fft.fft(kernel) / length
    dtype = numpy_dtype(x[0].dtype)
    held = tuple(constant(p.astype(dtype), x[0].dtype) for p in (spectrum.real, spectrum.imag))
    padded = tuple(fitted(part, last, length) for part in _times(x, chirp))
    product = _times(transform((padded[0], padded[1])), (held[0], held[1]))
    folded = transform(product, inverse=True)
    re, im = (slice_axis(part, last, 0, n) for part in folded)
    return _times((re, im), chirp)
