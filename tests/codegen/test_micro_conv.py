"""Convolutions made of register tiles and strips, against whole numbers summed by NumPy.

Elements are small whole numbers, whose products and sums a float32 holds exactly in any order: so
results are held to the last bit. Whatever is written lies between guards, scratch is full of NaN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.conv.depthwise import Depthwise
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME
from arenite.ir.dim import Dim, Var, bounds, evaluate
from arenite.ir.graph import Graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.convolutions import Convolution
from tests.codegen.made import TARGETS
from tests.codegen.products import Made
from tests.codegen.targets import named

Array = NDArray[Any]
FLOAT32 = BY_NAME["float32"]


@dataclass(frozen=True)
class Case(Convolution):
    """`groups` 0 is depthwise."""

    end: str = "none"

    @property
    def n_in(self) -> int:
        return self.channels * max(1, self.groups)

    @property
    def n_out(self) -> int:
        return self.out * self.groups if self.groups else self.channels


def whole(shape: Sequence[int], seed: int) -> Array:
    """Whole numbers, in floats that hold all their sums exactly and that NumPy multiplies fast."""
    return np.random.default_rng(seed).integers(-3, 4, tuple(shape)).astype(np.float64)


def weights(case: Case) -> Array:
    """[groups, *K, C, O], or [*K, C] for depthwise."""
    if not case.groups:
        return whole((*case.kernel, case.channels), 2)
    return whole((case.groups, *case.kernel, case.channels, case.out), 2)


def packed(case: Case, w: Array) -> Array:
    """Sixteen output channels side by side, the last ones filled up with zeros."""
    if not case.groups:
        return w
    n_panels = -(-case.out // 16)
    room = np.zeros((*w.shape[:-1], n_panels * 16), w.dtype)
    room[..., : case.out] = w
    return np.moveaxis(room.reshape(*w.shape[:-1], n_panels, 16), -2, 1)


def brute(case: Case, x: Array, w: Array) -> Array:
    """Tap by tap, with zeros around the image."""
    x = np.pad(x, ((0, 0), *case.padding, (0, 0)))
    total = np.zeros((x.shape[0], *case.places, case.n_out))
    for taps, seen in case.seen(x):
        if case.groups:
            case.add_tap(total, taps, seen, w)
        else:
            total += seen * w[taps]
    return total


def convolved(case: Case, x: Tensor, w: Tensor) -> Tensor:
    if not case.groups:
        return Tensor.of_node(ir.make("depthwise_last", x.node, w.node, **case.attrs))
    made = ir.make("conv_last", x.node, w.node, channels=case.n_out, **case.attrs)
    return Tensor.of_node(made)


def ended(case: Case, y: Any, bias: Any = 0, other: Any = 0) -> Any:
    """What follows the sums: the same on tensors and on arrays."""
    if case.end == "bias":
        return abs(y + bias)
    if case.end == "residual":
        return abs(y + bias + other) + other
    return y


def inputs(case: Case) -> tuple[list[tuple[int, ...]], list[Array]]:
    """Shapes and arrays: x, weights, and what the end needs."""
    x, w = whole((case.images, *case.image, case.n_in), 1), weights(case)
    bias, other = whole((case.n_out,), 3), whole((case.images, *case.places, case.n_out), 4)
    more = {"none": [], "bias": [bias], "residual": [bias, other]}[case.end]
    arrays = [x, packed(case, w), *more]
    return [array.shape for array in arrays], arrays


def expected(case: Case) -> Array:
    x, w = whole((case.images, *case.image, case.n_in), 1), weights(case)
    bias, other = whole((case.n_out,), 3), whole((case.images, *case.places, case.n_out), 4)
    return np.asarray(ended(case, brute(case, x, w), bias, other))


def made_of(case: Case, target: str = "host", dtype: Any = np.float32) -> Made:
    def function(x: Tensor, w: Tensor, *more: Tensor) -> Tensor:
        result: Tensor = ended(case, convolved(case, x, w), *more)
        return result

    return Made(function, inputs(case)[0], dtype, target)


def check(case: Case, target: str = "host", dtype: Any = np.float32) -> None:
    made = made_of(case, target, dtype)
    kind = Conv if case.groups else Depthwise
    assert isinstance(made.loops.details, kind)
    arrays = [array.astype(dtype) for array in inputs(case)[1]]
    [forward] = made.run(arrays)
    np.testing.assert_array_equal(forward.astype(np.float64), expected(case))
    [backward] = made.run_backwards(arrays)
    assert backward.tobytes() == forward.tobytes()


@st.composite
def cases(draw: st.DrawFn, *, depthwise: bool) -> Case:
    n = draw(st.integers(1, 3))
    limit = {1: 40, 2: 24, 3: 8}[n]
    sides: list[tuple[Any, ...]] = []
    for axis in range(n):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        reach = d * (k - 1)
        # Beyond its reach only the last axis may be padded.
        most = reach + (2 if axis == n - 1 else 0)
        pair = (draw(st.integers(0, most)), draw(st.integers(0, most)))
        size = draw(st.integers(max(d, reach + 1 - sum(pair)), max(limit, reach + d)))
        sides.append((k, s, d, pair, size))
    kernel, strides, dilations, padding, image = zip(*sides, strict=True)
    groups = 0 if depthwise else draw(st.sampled_from([1, 1, 1, 2, 3]))
    most = 70 if groups < 2 else 20
    return Case(
        image,
        draw(st.integers(1, most)),
        draw(st.integers(1, most)),
        kernel,
        strides,
        dilations,
        padding,
        groups,
        draw(st.integers(1, 2)),
        draw(st.sampled_from(["none", "bias", "residual"])),
    )


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=40, deadline=None)
@given(case=cases(depthwise=False))
def test_convolutions_of_any_shape(target: str, case: Case) -> None:
    check(case, target)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=25, deadline=None)
@given(case=cases(depthwise=True))
def test_depthwise_convolutions_of_any_shape(target: str, case: Case) -> None:
    check(case, target)


PLAIN = Case((14, 15), 20, 40, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), end="bias")
DEEP = replace(PLAIN, groups=0, channels=37)


@pytest.mark.parametrize(
    "case",
    [
        replace(PLAIN, image=(56, 56), channels=64, out=64),
        replace(PLAIN, image=(7, 7), channels=130, out=200),
        replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)), channels=1024, out=33),
        replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)), strides=(2, 2), channels=512),
        replace(PLAIN, strides=(2, 2), channels=512, image=(9, 30)),
        replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)), out=72),
        replace(PLAIN, strides=(2, 2), out=117),
        replace(PLAIN, image=(1, 1), channels=100, out=300),
        replace(PLAIN, image=(40, 40), channels=24, out=24),
        replace(PLAIN, image=(9, 90), kernel=(1, 9), dilations=(1, 8), padding=((0, 0), (32, 32))),
        replace(DEEP, image=(9, 90), kernel=(1, 9), dilations=(1, 8), padding=((0, 0), (32, 32))),
        Case((3000,), 40, 130, (3,), (2,), (1,), ((1, 1),), end="bias"),
        replace(DEEP, image=(60, 60), channels=144),
        replace(DEEP, image=(120, 121), channels=40, strides=(2, 2)),
        replace(DEEP, image=(1, 5000), kernel=(1, 7), padding=((0, 0), (3, 3))),
    ],
    ids=str,
)
def test_shapes_of_networks(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", [PLAIN, DEEP], ids=["dense", "depthwise"])
def test_other_floats(dtype: Any, case: Case) -> None:
    made = made_of(case, dtype=dtype)
    assert isinstance(made.built.loops, MicroKernel)
    [result] = made.run([array.astype(dtype) for array in inputs(case)[1]])
    np.testing.assert_array_equal(result, expected(case).astype(np.float32).astype(dtype))


@pytest.mark.parametrize("channels", [3, 40])
def test_an_input_with_channels_first_is_read_through_its_view(channels: int) -> None:
    case = replace(PLAIN, channels=channels, images=2)

    def function(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return abs(convolved(case, x.permute(0, 2, 3, 1), w) + bias)

    shapes, arrays = inputs(case)
    first = np.moveaxis(arrays[0], -1, 1)
    made = Made(function, [first.shape, *shapes[1:]])
    assert isinstance(made.loops.details, Conv)
    [result] = made.run([first.astype(np.float32), *(a.astype(np.float32) for a in arrays[1:])])
    np.testing.assert_array_equal(result, expected(case))


@pytest.mark.parametrize("channels", [3, 40])
@pytest.mark.parametrize("side", [0, 1])
def test_an_input_with_channels_first_of_any_size(channels: int, side: int) -> None:
    case = replace(PLAIN, channels=channels, padding=((1, 1), (side, side)), end="none")
    w = inputs(case)[0][1]
    sizes = {"n": 2, "h": 9, "w": 21}
    shape = (Var("n", 0, 4), channels, Var("h", 3, 64), Var("w", 3, 400))
    made = Made(lambda x, w: convolved(case, x.permute(0, 2, 3, 1), w), [shape, w])
    assert isinstance(made.loops.details, Conv)
    here = replace(case, images=2, image=(9, 21))
    x, panels = (array.astype(np.float32) for array in inputs(here)[1])
    [result] = made.run([np.moveaxis(x, -1, 1), panels], sizes)
    np.testing.assert_array_equal(result, expected(here))


def test_some_channels_of_an_input_are_read_in_place() -> None:
    case = replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)), channels=8, end="none")

    def function(x: Tensor, w: Tensor) -> Tensor:
        return convolved(case, x[..., 5:13], w)

    _, [x, w] = inputs(case)
    wide = whole((*x.shape[:-1], 30), 9)
    wide[..., 5:13] = x
    made = Made(function, [wide.shape, w.shape])
    assert not made.built.scratch
    [result] = made.run([wide.astype(np.float32), w.astype(np.float32)])
    np.testing.assert_array_equal(result, expected(case))


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("is_wide_later", [False, True])
@pytest.mark.parametrize("groups", [0, 1], ids=["depthwise", "dense"])
def test_sizes_that_are_known_later(
    kernel: int, stride: int, is_wide_later: bool, groups: int
) -> None:
    n, h = Var("n", 0, 4), Var("h", 3, 64)
    w: Dim = Var("w", 3, 400) if is_wide_later else 15
    side = kernel // 2
    case = replace(
        PLAIN,
        kernel=(kernel, kernel),
        strides=(stride, stride),
        padding=((side, side), (side + 1, side)),
        groups=groups,
    )

    def function(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        return abs(convolved(case, x, weights) + bias)

    _, [_, panels, bias] = inputs(case)
    made = Made(function, [(n, h, w, case.n_in), panels.shape, bias.shape])
    assert isinstance(made.built.loops, MicroKernel)
    for images, high, wide in ((1, 3, 3), (3, 14, 15), (2, 40, 37), (1, 5, 400), (0, 4, 4)):
        wide = wide if is_wide_later else 15
        here = replace(case, images=images, image=(high, wide))
        arrays = [array.astype(np.float32) for array in inputs(here)[1]]
        sizes = {"n": images, "h": high} | ({"w": wide} if is_wide_later else {})
        [result] = made.run(arrays, sizes)
        np.testing.assert_array_equal(result, expected(here))


@pytest.mark.parametrize(("factor", "n_heights"), [(2, 3), (4, 2), (12, 3)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_sizes_with_a_divisor_need_few_heights(kernel: int, factor: int, n_heights: int) -> None:
    side = kernel // 2
    case = replace(
        PLAIN, kernel=(kernel, kernel), padding=((side, side), (side, side)), groups=1, end="none"
    )
    h, w = (factor * Var(name, 1, 40) for name in "hw")
    weights = inputs(case)[1][1].astype(np.float32)
    made = Made(lambda x, w: convolved(case, x, w), [(1, h, w, case.n_in), weights.shape])
    details = made.loops.product
    assert len(details.heights) <= n_heights + (kernel > 1)
    for high, wide in ((1, 1), (1, 7), (2, 3), (5, 5), (9, 4)):
        here = replace(case, images=1, image=(factor * high, factor * wide))
        x = inputs(here)[1][0].astype(np.float32)
        [result] = made.run([x, weights], {"h": high, "w": wide})
        np.testing.assert_array_equal(result, expected(here))


@pytest.mark.parametrize("n_out", [6, 24, 96, 200])
def test_images_of_one_pixel_that_are_counted_later_need_two_heights(n_out: int) -> None:
    case = replace(PLAIN, image=(1, 1), kernel=(1, 1), padding=((0, 0), (0, 0)), groups=1)
    case = replace(case, strides=(1, 1), dilations=(1, 1), out=n_out, end="none")
    weights = inputs(case)[1][1].astype(np.float32)
    first: tuple[Dim, ...] = (Var("n", 1, 64), 1, 1, case.n_in)
    made = Made(lambda x, w: convolved(case, x, w), [first, weights.shape])
    assert len(made.loops.product.heights) <= 2
    for images in (1, 2, 3, 4, 7, 64):
        here = replace(case, images=images)
        x = inputs(here)[1][0].astype(np.float32)
        [result] = made.run([x, weights], {"n": images})
        np.testing.assert_array_equal(result, expected(here))


def test_scratch_does_not_grow_with_the_images() -> None:
    case = replace(PLAIN, image=(30, 31), end="none")
    first: tuple[Dim, ...] = (Var("n", 1, 256), case.n_in, *case.image)
    panels = inputs(case)[0][1]
    made = Made(lambda x, w: convolved(case, x.permute(0, 2, 3, 1), w), [first, panels])
    [scratch] = made.built.scratch
    assert bounds(scratch.count)[1] <= 2 * evaluate(scratch.count, {"n": 16})
    x, w = (array.astype(np.float32) for array in inputs(replace(case, images=40))[1])
    [result] = made.run([np.moveaxis(x, -1, 1), w], {"n": 40})
    np.testing.assert_array_equal(result, expected(replace(case, images=40)))


@pytest.mark.parametrize("width", [1, 2, 7, 14, 15, 56])
def test_zeros_around_a_known_image_take_no_memory(width: int) -> None:
    case = replace(PLAIN, image=(5, width), kernel=(3, 5), padding=((1, 1), (2, 3)))
    assert not made_of(case).built.scratch
    check(case)


@pytest.mark.parametrize("case", [PLAIN, DEEP], ids=["dense", "depthwise"])
def test_what_is_not_finite_reaches_what_it_is_part_of_and_nothing_else(case: Case) -> None:
    case = replace(case, end="none")
    made = made_of(case)
    _, [x, w] = inputs(case)
    w = np.abs(w) + 1  # no product with zero
    if case.groups:
        w[..., case.out % 16 or 16 :][:, -1:] = 0
    x = x.astype(np.float32)
    for value in (np.nan, np.inf, -np.inf):
        spoilt = x.copy()
        spoilt[0, 4, 0, 3] = value
        [plain] = made.run([x, w.astype(np.float32)])
        [result] = made.run([spoilt, w.astype(np.float32)])
        touched = np.zeros(result.shape, bool)
        channels = slice(None) if case.groups else slice(3, 4)
        touched[0, 3:6, 0:2, channels] = True
        assert (np.isnan(result) if np.isnan(value) else result == value)[touched].all()
        np.testing.assert_array_equal(result[~touched], plain[~touched])


#: Five of seven pixels see nothing of the image: their sums are zeros, side by side.
SPARSE = Case((1,), 17, 17, (3,), (1,), (3,), ((6, 6),), groups=0, end="bias")


def check_places(text: str) -> None:
    """No vector is said to lie better than by its own length, for it may lie behind another."""
    found = re.findall(r"(?:load|store) <(\d+) x float>.*, align (\d+)", text)
    assert found
    assert all(int(align) <= int(lanes) * 4 for lanes, align in found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case",
    [PLAIN, replace(PLAIN, out=72), replace(PLAIN, out=8), DEEP, replace(DEEP, channels=7), SPARSE],
    ids=["dense", "half a vector", "narrow", "depthwise", "narrow depthwise", "zeros"],
)
def test_a_long_epilogue(case: Case, target: str) -> None:
    def function(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return (convolved(case, x, w) * 0.01 + bias).silu()

    made = Made(function, inputs(case)[0], target=target)
    assert not made.loops.product.is_short
    check_places(made.compiled.ir)
    arrays = inputs(case)[1]
    [result] = made.run([array.astype(np.float32) for array in arrays])
    sums = brute(case, arrays[0], weights(case)) * 0.01 + arrays[2]
    np.testing.assert_allclose(result, sums / (1 + np.exp(-sums)), rtol=1e-5, atol=1e-5)


def test_places_that_see_nothing_of_the_image_are_left_to_plain_loops() -> None:
    x = ir.graph_input("x", 0, (1, 4, 4, 3), FLOAT32)
    panels = ir.graph_input("w", 1, (1, 1, 1, 1, 3, 16), x.dtype)
    attrs: Any = {"strides": (1, 1), "dilations": (1, 1), "padding": ((2, 2), (0, 0))}
    [kernel] = fuse(Graph.of([ir.make("conv_last", x, panels, channels=5, **attrs)])).kernels
    assert not isinstance(build(kernel, named("host")).loops, MicroKernel)


def test_the_listing_tells_apart_what_is_compiled_differently() -> None:
    listings = {
        kernel_text(replace(made_of(case).built.loops, name="kernel"))
        for case in (
            PLAIN,
            replace(PLAIN, padding=((1, 1), (0, 2))),
            replace(PLAIN, padding=((0, 2), (1, 1))),
            replace(PLAIN, strides=(2, 1)),
            replace(PLAIN, dilations=(1, 2), image=(14, 17)),
            replace(PLAIN, channels=21),
            DEEP,
            replace(DEEP, padding=((1, 1), (0, 2))),
        )
    }
    assert len(listings) == 8
