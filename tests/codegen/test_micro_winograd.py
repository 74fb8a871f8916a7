"""Winograd convolutions, against integers summed by NumPy and against float64.

Weights are multiples of four and inputs small whole numbers: then points, products and sums are
whole numbers that a float32 holds exactly, so results are held to the last bit. Whatever is written
lies between guards, scratch is full of NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.conv.winograd_cut import WinogradSizes, winograd_ways
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.dtype import BY_NAME
from arenite.ir.dim import Var
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.made import TARGETS, plain
from tests.codegen.products import Made
from tests.codegen.run_kernels import RUNNABLE, Compiled

Array = NDArray[Any]

# Along one side, from Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks".
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
BT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
AT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


@dataclass(frozen=True)
class Case:
    image: tuple[int, int]
    channels: int
    out: int
    padding: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1))
    images: int = 1
    end: str = "none"

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(n + sum(pair) - 2 for n, pair in zip(self.image, self.padding, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.images, *self.places, self.out)


def packed(w: Array) -> Array:
    """Weights [3, 3, C, O] as panels of points."""
    points = np.einsum("ui,vj,ijco->uvco", G, G, w)
    *_, depth, out = points.shape
    n_panels = -(-out // 16)
    room = np.zeros((4, 4, depth, n_panels * 16))
    room[..., :out] = points
    return np.moveaxis(room.reshape(4, 4, depth, n_panels, 16), 3, 0).astype(np.float32)


def brute(case: Case, x: Array, w: Array) -> Array:
    """Tap by tap, with zeros around the image."""
    x = np.pad(x, ((0, 0), *case.padding, (0, 0)))
    height, width = case.places
    total = np.zeros(case.shape, np.result_type(x, w))
    for i, j in np.ndindex(3, 3):
        total += x[:, i : i + height, j : j + width] @ w[i, j]
    return total


def ended(case: Case, y: Any, bias: Any = 0, other: Any = 0) -> Any:
    """What follows the sums: the same on tensors and on arrays."""
    if case.end == "bias":
        return abs(y + bias)
    if case.end == "residual":
        return abs(y + bias + other) + other
    return y


def whole(shape: Sequence[int], seed: int, unit: int = 1) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, tuple(shape)).astype(np.float64) * unit


def arrays_of(case: Case) -> tuple[list[Array], Array]:
    """What a kernel is given, and what it must make of it."""
    x = whole((case.images, *case.image, case.channels), 1)
    w = whole((3, 3, case.channels, case.out), 2, unit=4)
    more = [whole((case.out,), 3), whole(case.shape, 4)]
    more = more[: {"none": 0, "bias": 1, "residual": 2}[case.end]]
    arrays = [x, packed(w), *more]
    return [a.astype(np.float32) for a in arrays], ended(case, brute(case, x, w), *more)


def made_of(case: Case, target: str, images: Any = None) -> Made:
    arrays, _ = arrays_of(case)

    def function(x: Tensor, w: Tensor, *more: Tensor) -> Tensor:
        made = ir.make("conv_winograd", x.node, w.node, channels=case.out, padding=case.padding)
        result: Tensor = ended(case, Tensor.of_node(made), *more)
        return result

    shapes: list[Any] = [a.shape for a in arrays]
    if images is not None:
        shapes = [(images, *shape[1:]) if k in (0, 3) else shape for k, shape in enumerate(shapes)]
    return Made(function, shapes, np.float32, target)


def check(case: Case, target: str = "host") -> None:
    arrays, want = arrays_of(case)
    made = made_of(case, target)
    loops = made.built.loops
    assert isinstance(loops, MicroKernel) == (target in TARGETS)
    assert not isinstance(loops, MicroKernel) or isinstance(loops.details, Conv)
    [forward] = made.run(arrays)
    np.testing.assert_array_equal(forward.astype(np.float64), want)
    [backward] = made.run_backwards(arrays)
    assert backward.tobytes() == forward.tobytes()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pairs = [(draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(2)]
    image = [draw(st.integers(max(1, 3 - sum(pair)), 20)) for pair in pairs]
    return Case(
        (image[0], image[1]),
        draw(st.integers(1, 70)),
        draw(st.integers(1, 70)),
        (pairs[0], pairs[1]),
        draw(st.integers(1, 2)),
        draw(st.sampled_from(["none", "bias", "residual"])),
    )


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=20, deadline=None)
@given(case=cases())
def test_any_shape(target: str, case: Case) -> None:
    check(case, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case",
    [
        Case((28, 28), 64, 64, end="residual"),
        Case((14, 14), 130, 96, end="bias"),
        Case((40, 7), 16, 200),
        Case((3, 90), 24, 40, padding=((0, 0), (0, 0))),
    ],
)
def test_blocks_and_chunks(case: Case, target: str) -> None:
    check(case, target)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_number_of_images_that_is_known_later(count: int) -> None:
    case = Case((9, 8), 17, 33, images=count, end="residual")
    arrays, want = arrays_of(case)
    made = made_of(case, "host", Var("images", 1, 64))
    [got] = made.run(arrays, {"images": count})
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("target", TARGETS)
def test_part_of_an_image_is_read_in_place(target: str) -> None:
    case = Case((13, 10), 21, 34, padding=((1, 0), (0, 2)), images=2)
    large, w = whole((3, 15, 12, 30), 5), whole((3, 3, 21, 34), 6, unit=4)

    def function(x: Tensor, w: Tensor) -> Tensor:
        part = x[1:, 2:, 1:11, 4:25]
        made = ir.make("conv_winograd", part.node, w.node, channels=34, padding=case.padding)
        return Tensor.of_node(made)

    arrays = [large.astype(np.float32), packed(w)]
    made = Made(function, [a.shape for a in arrays], np.float32, target)
    [got] = made.run(arrays)
    np.testing.assert_array_equal(got, brute(case, large[1:, 2:, 1:11, 4:25], w))


@pytest.mark.parametrize("name", TARGETS)
def test_the_loops_say_what_is_computed(name: str) -> None:
    case = Case((11, 12), 20, 37, end="bias")
    arrays, _ = arrays_of(case)
    arrays = [
        np.random.default_rng(k).standard_normal(a.shape, np.float32) for k, a in enumerate(arrays)
    ]
    made = made_of(case, name)
    [got] = made.run(arrays)
    made.compiled = Compiled(plain(made.loops), targets.named(name))
    [meant] = made.run(arrays)
    assert got.tobytes() == meant.tobytes()


def error_bound(case: Case, x: Array, w: Array) -> Array:
    """How far sums may lie from the true ones: each number is rounded as often as it takes part in
    a transform or a sum, and cancels what it cancels."""
    height, width = (-(-n // 2) * 2 for n in case.places)
    more = (height - case.places[0], width - case.places[1])
    sides = [(a, b + rest) for (a, b), rest in zip(case.padding, more, strict=True)]
    x = np.pad(np.abs(x), ((0, 0), *sides, (0, 0)))
    points = np.einsum("ui,vj,ijco->uvco", abs(G), abs(G), np.abs(w))
    size = np.zeros((case.images, height, width, case.out))
    for i, j in np.ndindex(height // 2, width // 2):
        patch = x[:, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
        inside = np.einsum("ui,vj,nijc->nuvc", abs(BT), abs(BT), patch)
        sums = np.einsum("nuvc,uvco->nuvo", inside, points)
        tile = np.einsum("yu,xv,nuvo->nyxo", abs(AT), abs(AT), sums)
        size[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = tile
    n_roundings = 1 + 2 + case.channels + 4 + 1
    bound = n_roundings * 2.0**-24 / (1 - n_roundings * 2.0**-24)
    return np.asarray(bound * size[:, : case.places[0], : case.places[1]])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("depth", [16, 64, 256])
def test_rounding_stays_in_its_bound(name: str, depth: int) -> None:
    case = Case((14, 13), depth, 32)
    rng = np.random.default_rng(depth)
    x = rng.standard_normal((1, *case.image, depth)).astype(np.float32)
    w = rng.standard_normal((3, 3, depth, case.out)).astype(np.float32)
    [got] = made_of(case, name).run([x, packed(w.astype(np.float64))])
    true = brute(case, x.astype(np.float64), w.astype(np.float64))
    assert (np.abs(got - true) <= error_bound(case, x.astype(np.float64), w)).all()
    rms = np.sqrt(np.mean((got - true) ** 2) / np.mean(true**2))
    assert rms < 1e-6


@pytest.mark.parametrize("lines", [1, 7, 28, 500])
def test_ways_are_few_and_so_are_tiles(lines: int) -> None:
    sizes = WinogradSizes(lines, lines, 64, 64)
    for name in TARGETS:
        ways = winograd_ways(sizes, BY_NAME["float32"], targets.named(name))
        assert 1 <= len(ways) < 200
        usual = next(iter(ways.values()))
        n_pixels = -(-lines // usual.block_pixels)
        n_blocks = -(-lines // usual.block_lines) * n_pixels * -(-64 // usual.block_channels)
        assert -(-n_blocks // usual.blocks_a_tile) <= 32
        assert len({len(way.split(", ")) for way in ways}) == 1


def test_ways_give_the_same_bits() -> None:
    """A number of them: the usual one, and others chosen anyhow."""
    case = Case((15, 22), 40, 70, end="residual")
    arrays, want = arrays_of(case)
    made = made_of(case, "host")
    host = targets.named("host")
    usual, *others = made.built.choices
    for way in [usual, *Random(1).sample(others, min(12, len(others)))]:
        made.built = build(made.kernel, host, way)
        made.compiled = Compiled(made.built.loops, host)
        [got] = made.run(arrays)
        np.testing.assert_array_equal(got.astype(np.float64), want)
