"""Products and convolutions of bytes for tests, and what they must give: whole numbers summed by
NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.gemm.kernel import Details
from arenite.dtype import of as dtype_of
from arenite.ir.dim import Dim
from arenite.ir.graph import Graph
from arenite.tensor import Tensor
from tests.codegen.convolutions import Convolution
from tests.codegen.made import Array, MadeKernel

EXTREMES = {"any": None, "high": (255, 127), "low": (255, -128), "none": (0, -128)}
ENDS = st.sampled_from(["none", "bias", "requantised", "activated"])


class Made(MadeKernel):
    """One kernel of a function of tensors, as it is."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        inputs: Sequence[tuple[Sequence[Dim], Any]],
        target: str = "host",
        kind: type[Details] = Conv,
    ) -> None:
        nodes = [
            ir.graph_input(f"x{k}", k, tuple(shape), dtype_of(np.dtype(dtype)))
            for k, (shape, dtype) in enumerate(inputs)
        ]
        result = function(*(Tensor.of_node(node) for node in nodes))
        super().__init__(Graph(tuple(nodes), (result.node,)), target)
        assert isinstance(self.loops.details, kind)


def random_bytes(shape: Sequence[int], dtype: Any, seed: int, value: int | None = None) -> Array:
    if value is not None:
        return np.full(tuple(shape), value, dtype)
    made = np.random.default_rng(seed).integers(0, 256, tuple(shape))
    return np.asarray(made.astype(np.uint8).view(dtype))


def exact(array: Array) -> Array:
    """Whole numbers as NumPy multiplies them fast: float64 holds all their sums here exactly."""
    return array.astype(np.float64)


def wrapped(sums: Array) -> Array:
    """Exact sums as 32 bits hold them."""
    return np.asarray(sums.astype(np.int64).astype(np.int32))


def filled(array: Array, axis: int, multiple: int) -> Array:
    """Zeros behind an axis, up to a multiple."""
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, -array.shape[axis] % multiple)
    return np.pad(array, padding)


def ended(end: str, y: Any, scale: Any = 0, bias: Any = 0) -> Any:
    """What follows the sums: the same on tensors and on arrays."""
    if end == "bias":
        return y + bias
    if end == "requantised":
        real = (y + bias).astype(np.float32) * scale
        return (real.round() + 3.0).clip(0.0, 255.0).astype(np.uint8)
    if end == "activated":
        real = (y + bias).astype(np.float32) * scale
        return real * (real > 0).astype(np.float32)
    return y


def end_inputs(end: str, columns: int) -> list[Array]:
    rng = np.random.default_rng(9)
    scale = (rng.random(columns) * 0.01 + 0.001).astype(np.float32)
    bias = rng.integers(-9000, 9000, columns).astype(np.int32)
    return [] if end == "none" else [scale, bias]


@dataclass(frozen=True)
class Shape:
    rows: tuple[int, ...]
    depth: int
    columns: int
    end: str = "none"
    values: str = "any"
    is_signed: bool = False


def pack(w: Array) -> Array:
    """[K, N] as [P, K/4, 16, 4]."""
    w = filled(filled(w, 0, 4), 1, 16)
    depth, columns = w.shape
    return np.ascontiguousarray(w.reshape(depth // 4, 4, columns // 16, 16).transpose(2, 0, 3, 1))


def operands(shape: Shape) -> tuple[Array, Array]:
    low, high = EXTREMES[shape.values] or (None, None)
    a = random_bytes((*shape.rows, shape.depth), np.uint8, 1, low)
    return a, random_bytes((shape.depth, shape.columns), np.int8, 2, high)


def as_given(numbers: Array, is_signed: bool) -> Array:
    """Unsigned numbers as an operand holds them: signed ones are 128 less."""
    return (numbers.astype(np.int16) - 128).astype(np.int8) if is_signed else numbers


def made_product(shape: Shape, target: str, rows: Sequence[Dim] | None = None) -> Made:
    a, w = operands(shape)
    a = as_given(a, shape.is_signed)

    def function(x: Tensor, panels: Tensor, *more: Tensor) -> Tensor:
        made = ir.make("matmul_bytes", x.node, panels.node, columns=shape.columns)
        result: Tensor = ended(shape.end, Tensor.of_node(made), *more)
        return result

    arrays = [a, pack(w), *end_inputs(shape.end, shape.columns)]
    kinds: list[tuple[Sequence[Dim], Any]] = [(x.shape, x.dtype) for x in arrays]
    if rows is not None:
        kinds[0] = ((*rows, shape.depth), a.dtype)
    return Made(function, kinds, target)


def product_arrays(shape: Shape) -> tuple[list[Array], Array]:
    """What goes in, and what must come out."""
    a, w = operands(shape)
    more = end_inputs(shape.end, shape.columns)
    sums = wrapped(exact(a) @ exact(w))
    return [as_given(a, shape.is_signed), pack(w), *more], ended(shape.end, sums, *more)


def check_product(shape: Shape, target: str, values: Sequence[str] = ("any",)) -> None:
    """One kernel for all these values, its tiles forwards and backwards."""
    made = made_product(shape, target)
    for one in values:
        arrays, expected = product_arrays(replace(shape, values=one))
        for [got] in (made.run(arrays), made.run_backwards(arrays)):
            np.testing.assert_array_equal(got, expected)


@dataclass(frozen=True)
class Case(Convolution):
    pad_value: int = 0
    end: str = "none"
    values: str = "any"
    is_signed: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        own = {"pad_value": self.pad_value, "channels": self.out * self.groups}
        return super().attrs | own


def conv_operands(case: Case) -> tuple[Array, Array]:
    """[N, *S, C] and [groups, *K, C, O]."""
    low, high = EXTREMES[case.values] or (None, None)
    x = random_bytes((case.images, *case.image, case.groups * case.channels), np.uint8, 1, low)
    w = random_bytes((case.groups, *case.kernel, case.channels, case.out), np.int8, 2, high)
    return x, w


def conv_panels(w: Array) -> Array:
    """[groups, *K, C, O] as [groups, P, *K, C/4, 16, 4]."""
    w = filled(filled(w, -2, 4), -1, 16)
    depth, out = w.shape[-2:]
    w = w.reshape(*w.shape[:-2], depth // 4, 4, out // 16, 16)
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(w, -2, 1), -1, -2))


def brute(case: Case) -> Array:
    """Tap by tap, with `pad_value` around the image."""
    x, w = (exact(array) for array in conv_operands(case))
    x = np.pad(x, ((0, 0), *case.padding, (0, 0)), constant_values=case.pad_value)
    total = np.zeros((case.images, *case.places, case.groups * case.out))
    for taps, seen in case.seen(x):
        case.add_tap(total, taps, seen, w)
    return total


def made_conv(case: Case, target: str, shape: Sequence[Dim] | None = None) -> Made:
    def function(x: Tensor, panels: Tensor, *more: Tensor) -> Tensor:
        made = ir.make("conv_bytes", x.node, panels.node, **case.attrs)
        result: Tensor = ended(case.end, Tensor.of_node(made), *more)
        return result

    arrays, _ = conv_arrays(case)
    kinds: list[tuple[Sequence[Dim], Any]] = [(x.shape, x.dtype) for x in arrays]
    if shape is not None:
        kinds[0] = (shape, arrays[0].dtype)
    return Made(function, kinds, target)


def conv_arrays(case: Case) -> tuple[list[Array], Array]:
    x, w = conv_operands(case)
    x = as_given(x, case.is_signed)
    more = end_inputs(case.end, case.groups * case.out)
    return [x, conv_panels(w), *more], ended(case.end, wrapped(brute(case)), *more)


def check_conv(case: Case, target: str, values: Sequence[str] = ("any",)) -> None:
    """One kernel for all these values, its tiles forwards and backwards."""
    made = made_conv(case, target)
    for one in values:
        arrays, expected = conv_arrays(replace(case, values=one))
        for [got] in (made.run(arrays), made.run_backwards(arrays)):
            np.testing.assert_array_equal(got, expected)


PLAIN = Case((14, 15), 20, 40, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), end="requantised")
POINT = replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)))
