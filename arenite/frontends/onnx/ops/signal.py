"""Signals: DFT, STFT, windows, MelWeightMatrix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node, bounds, make, maximum
from arenite.ir.compose import fourier
from arenite.ir.compose.basic import (
    cast,
    computing,
    concat,
    expand_dims,
    iota,
    reshape,
    size_like,
    slice_axis,
    swap_axes,
)
from arenite.ir.element import numpy_dtype


@operator("DFT", since=20)
def dft(call: Call) -> Result:
    axis = call.integer(2) if call.has(2) else -2
    return _dft(call, axis)


@operator("DFT", since=17)
def dft_17(call: Call) -> Result:
    return _dft(call, call.attr("axis", 1))


def _dft(call: Call, given: int) -> Node:
    x = call.node(0)
    inverse, onesided = bool(call.attr("inverse", 0)), bool(call.attr("onesided", 0))
    axis = call.axis(given, x.ndim)
    if axis == x.ndim - 1 or x.shape[-1] not in (1, 2):
        call.fail(f"a transform over axis {given} of shape {x.shape}, whose last axis has the "
                  "real and the imaginary part")  # fmt: skip
    re, im = _parts(x)
    if call.has(1):
        n = call.size(1)
    else:
        n = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if bounds(n)[0] < 1:
        call.fail(f"a transform of length {n}")
    last = x.ndim - 2
    re = swap_axes(re, axis, last)
    im = None if im is None else swap_axes(im, axis, last)
    if inverse and onesided:
        if im is None:
            call.fail("the inverse of a one-sided transform is of complex numbers")
        parts: list[Node] = [fourier.real_inverse(re, im, n)]
    else:
        re = fourier.fitted(re, last, n)
        im = None if im is None else fourier.fitted(im, last, n)
        parts = list(_transformed(call, re, im, inverse, onesided))
        if inverse:
            parts = [part / size_like(n, part) for part in parts]
    made = [swap_axes(part, axis, last) for part in parts]
    return cast(concat([expand_dims(part, x.ndim - 1) for part in made], x.ndim - 1), x.dtype)


def _parts(x: Node) -> tuple[Node, Node | None]:
    wide = computing(x)
    last = x.ndim - 1
    parts = [
        reshape(slice_axis(wide, last, k, k + 1), x.shape[:-1])
        for k in range(2)
        if k == 0 or x.shape[-1] == 2
    ]
    return parts[0], parts[1] if len(parts) == 2 else None


def _transformed(
    call: Call, re: Node, im: Node | None, inverse: bool, onesided: bool
) -> tuple[Node, Node]:
    if not onesided:
        return fourier.transform((re, im), inverse)
    if im is not None:
        call.fail("a one-sided transform is of real numbers")
    return fourier.half_transform(re)


@operator("STFT", since=17)
def stft(call: Call) -> Result:
    x = call.node(0)
    if x.ndim == 2:
        x = expand_dims(x, 2)
    if x.ndim != 3 or x.shape[2] not in (1, 2):
        call.fail(f"a signal of shape {x.shape}, not [batch, length, 1 or 2]")
    step = call.integer(1)
    window = call.optional(2)
    length: Dim = x.shape[1]
    if call.has(3):
        length = call.integer(3)
    elif window is not None:
        if window.ndim != 1:
            call.fail(f"a window of shape {window.shape} is no vector")
        [length] = window.shape
    if not isinstance(length, int) or length < 1 or step < 1:
        call.fail(f"frames of length {length}, {step} apart")
    if window is not None and window.shape != (length,):
        call.fail(f"a window of shape {window.shape} for frames of length {length}")

    def framed(part: Node) -> Node:
        seen = make("window", part, axes=(1,), sizes=(length,), strides=(step,), dilations=(1,))
        return seen if window is None else seen * cast(window, seen.dtype)

    re, im = _parts(x)
    re, im = framed(re), None if im is None else framed(im)
    made = _transformed(call, re, im, False, bool(call.attr("onesided", 1)))
    return cast(concat([expand_dims(part, 3) for part in made], 3), x.dtype)


def _window(formula: Callable[[Node], Node]) -> Callable[[Call], Result]:
    """A window as a function of an angle that goes once around."""

    def handler(call: Call) -> Result:
        size = call.size(0)
        if bounds(size)[0] < 0:
            call.fail(f"a window of size {size}")
        n = iota(size, FLOAT64)
        around = size if call.attr("periodic", 1) else maximum(size - 1, 1)
        angle = n * (2 * math.pi) / size_like(maximum(around, 1), n)
        return cast(formula(angle), call.dtype_attr("output_datatype", FLOAT32))

    return handler


def _cosines(*factors: float) -> Callable[[Node], Node]:
    """a0 + a1 cos t + a2 cos 2t ..."""

    def formula(angle: Node) -> Node:
        terms = [make("cos", angle * float(k)) * a for k, a in enumerate(factors) if k]
        made = terms[0]
        for term in terms[1:]:
            made = made + term
        return made + factors[0]

    return formula


operator("HannWindow", since=17)(_window(_cosines(0.5, -0.5)))
operator("HammingWindow", since=17)(_window(_cosines(25 / 46, -21 / 46)))
operator("BlackmanWindow", since=17)(_window(_cosines(0.42, -0.5, 0.08)))

#: Elements of a mel matrix, which is made while a model is read.
MAX_MEL = 1 << 24
MAX_BINS = 1 << 14


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(call: Call) -> Result:
    bins, length, rate = (call.integer(k) for k in range(3))
    low, high = (float(call.number(k)) for k in (3, 4))
    rows = length // 2 + 1
    if bins < 1 or length < 1 or rate < 1 or rows * bins > MAX_MEL or bins > MAX_BINS:
        call.fail(f"{bins} mel bins of a transform of length {length} at {rate} samples a second")
    if not (0 <= low < math.inf and 0 <= high < math.inf):
        call.fail(f"mel bins from {low} to {high} Hz")
    # By the standard the last edge is a step short of the upper one.
    edges = _mel(low) + np.arange(bins + 2) * ((_mel(high) - _mel(low)) / (bins + 2))
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = np.floor((length + 1) * hertz / rate).astype(np.int64)
    made = np.zeros((rows, bins))
    for k in range(bins):
        left, peak, right = (int(places[k + one]) for one in range(3))
        if left == peak and 0 <= peak < rows:
            made[peak, k] = 1
        if left < peak:
            rising = np.arange(max(left, 0), min(peak + 1, rows))
            made[rising, k] = (rising - left) / (peak - left)
        if peak < right:
            falling = np.arange(max(peak, 0), min(right, rows))
            made[falling, k] = (right - falling) / (right - peak)
    dtype = call.dtype_attr("output_datatype", FLOAT32)
    return Value.of_known(made.astype(numpy_dtype(dtype)), dtype)


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)
