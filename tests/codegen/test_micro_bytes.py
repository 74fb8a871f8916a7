"""Products and convolutions of bytes, against whole numbers summed by NumPy: exact everywhere.

Whatever is written lies between guards, scratch is full of noise, and operands end where a page
begins that must not be touched (in a child process, which a read there would end).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.codegen import target as targets
from arenite.codegen.kernels.choose import build
from arenite.codegen.llvm import assembly, compile_object
from arenite.codegen.lower import lower
from arenite.codegen.micro import bytes_tile
from arenite.codegen.micro.bytes_kernel import BytesKernel
from arenite.codegen.micro.depthwise import DepthwiseKernel
from arenite.codegen.micro.kernel import MicroKernel
from arenite.codegen.printer import kernel_text
from arenite.codegen.vector import Vec
from arenite.dtype import BY_NAME
from arenite.dtype import of as dtype_of
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.building import Guarded
from tests.codegen.run_kernels import RUNNABLE, Compiled
from tests.codegen.test_micro_bounds import AtTheEdge

Array = NDArray[Any]
EXTREMES = {"any": None, "high": (255, 127), "low": (255, -128), "none": (0, -128)}


class Made:
    """One kernel of a function of tensors, compiled."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        inputs: Sequence[tuple[Sequence[Dim], Any]],
        target: str = "host",
        kind: type[MicroKernel] = BytesKernel,
    ) -> None:
        nodes = [
            ir.graph_input(f"x{k}", k, tuple(shape), dtype_of(np.dtype(dtype)))
            for k, (shape, dtype) in enumerate(inputs)
        ]
        result = function(*(Tensor.of_node(node) for node in nodes))
        self.graph = Graph(tuple(nodes), (result.node,))
        [self.kernel] = fuse(self.graph).kernels
        self.target = targets.named(target)
        self.built = build(self.kernel, self.target)
        assert isinstance(self.built.loops, kind), "fell back to plain loops"
        self.loops: MicroKernel = self.built.loops

    def run(
        self,
        arrays: Sequence[Array],
        sizes: Mapping[str, int] | None = None,
        is_backward: bool = False,
    ) -> Array:
        sizes = sizes or {}
        given = dict(zip(self.graph.inputs, arrays, strict=True))
        names = iter(array.name for array in self.loops.arrays)
        bound = {next(names): given[node] for node in self.kernel.inputs}
        [node] = self.kernel.outputs
        shape = tuple(evaluate(size, sizes) for size in node.shape)
        guards = [Guarded(np.zeros(shape, node.dtype.to_numpy()), offset=4)]
        bound[next(names)] = guards[0].array
        for scratch in self.built.scratch:
            noise = np.random.default_rng(3).integers(0, 256, evaluate(scratch.count, sizes))
            guards.append(Guarded(noise.astype(np.uint8)))
            bound[next(names)] = guards[-1].array
        tiles = range(evaluate(self.built.tiles, sizes))
        order = [*reversed(tiles)] if is_backward else [*tiles]
        given_sizes = {name: sizes[name.removeprefix("size_")] for name in self.loops.sizes}
        Compiled(self.loops, self.target).run(
            bound, given_sizes, splits=[(tile, tile + 1) for tile in order] or [(0, 0)]
        )
        for guard in guards:
            guard.check()
        return guards[0].array.reshape(shape).copy()


def random_bytes(shape: Sequence[int], dtype: Any, seed: int, value: int | None = None) -> Array:
    if value is not None:
        return np.full(tuple(shape), value, dtype)
    made = np.random.default_rng(seed).integers(0, 256, tuple(shape))
    return np.asarray(made.astype(np.uint8).view(dtype))


def wrapped(sums: Array) -> Array:
    """64-bit sums as 32 bits hold them."""
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


# Products.


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
    sums = wrapped(a.astype(np.int64) @ w.astype(np.int64))
    return [as_given(a, shape.is_signed), pack(w), *more], ended(shape.end, sums, *more)


def check_product(shape: Shape, target: str) -> None:
    made = made_product(shape, target)
    arrays, expected = product_arrays(shape)
    np.testing.assert_array_equal(made.run(arrays), expected)
    np.testing.assert_array_equal(made.run(arrays, is_backward=True), expected)


ENDS = st.sampled_from(["none", "bias", "requantised", "activated"])


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=40, deadline=None)
@given(
    shape=st.builds(
        Shape,
        st.lists(st.integers(1, 40), min_size=2, max_size=3).map(tuple)
        | st.tuples(st.integers(1, 300)),
        st.integers(1, 300),
        st.integers(1, 300),
        ENDS,
        st.sampled_from([*EXTREMES]),
        st.booleans(),
    )
)
def test_products_of_any_shape(target: str, shape: Shape) -> None:
    check_product(shape, target)


@pytest.mark.parametrize(
    "shape",
    [
        Shape((128,), 768, 3072, "bias"),
        Shape((1,), 4096, 100),
        Shape((3, 50), 1024, 64, "requantised"),
        Shape((7,), 3, 5),
        Shape((1,), 1, 1),
        Shape((300,), 2049, 17, "activated", "high"),
        Shape((40,), 66, 16, "requantised", "low", is_signed=True),
    ],
    ids=str,
)
def test_products_of_networks(shape: Shape) -> None:
    check_product(shape, "host")


@pytest.mark.parametrize("values", ["high", "low"])
def test_sums_wrap(values: str) -> None:
    depth = 70_000  # times 255 * 127 is beyond 2**31
    check_product(Shape((3,), depth, 18, values=values), "host")


@pytest.mark.parametrize("target", RUNNABLE)
def test_rows_whose_number_is_known_later(target: str) -> None:
    n = Var("n", 0, 500)
    shape = Shape((1,), 37, 50, "requantised")
    made = made_product(shape, target, [n])
    for rows in (1, 2, 13, 100, 167, 169, 500, 0):
        arrays, expected = product_arrays(replace(shape, rows=(rows,)))
        np.testing.assert_array_equal(made.run(arrays, {"n": rows}), expected)


# Convolutions.


@dataclass(frozen=True)
class Case:
    """A convolution with channels last; channels are those of a group."""

    image: tuple[int, ...]
    channels: int
    out: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int = 1
    images: int = 1
    pad_value: int = 0
    end: str = "none"
    values: str = "any"
    is_signed: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "padding": self.padding,
            "pad_value": self.pad_value,
            "channels": self.out * self.groups,
        }

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(
            (size + sum(pair) - d * (k - 1) - 1) // s + 1
            for size, k, s, d, pair in zip(
                self.image, self.kernel, self.strides, self.dilations, self.padding, strict=True
            )
        )


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
    x, w = (array.astype(np.int64) for array in conv_operands(case))
    x = np.pad(x, ((0, 0), *case.padding, (0, 0)), constant_values=case.pad_value)
    total = np.zeros((case.images, *case.places, case.groups * case.out), np.int64)
    for taps in product(*map(range, case.kernel)):
        cut: list[Any] = [
            slice(tap * d, tap * d + (n - 1) * s + 1, s)
            for tap, d, n, s in zip(taps, case.dilations, case.places, case.strides, strict=True)
        ]
        seen = x[(slice(None), *cut)]
        for g in range(case.groups):
            own = seen[..., g * case.channels : (g + 1) * case.channels]
            total[..., g * case.out : (g + 1) * case.out] += own @ w[(g, *taps)]
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


def check_conv(case: Case, target: str) -> None:
    made = made_conv(case, target)
    arrays, expected = conv_arrays(case)
    np.testing.assert_array_equal(made.run(arrays), expected)
    np.testing.assert_array_equal(made.run(arrays, is_backward=True), expected)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 3))
    limit = {1: 40, 2: 20, 3: 7}[n]
    sides: list[tuple[Any, ...]] = []
    for _ in range(n):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        reach = d * (k - 1)
        pair = (draw(st.integers(0, reach + 2)), draw(st.integers(0, reach + 2)))
        size = draw(st.integers(max(1, reach + 1 - sum(pair)), max(limit, reach + d)))
        sides.append((k, s, d, pair, size))
    kernel, strides, dilations, padding, image = zip(*sides, strict=True)
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
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
        draw(st.sampled_from([0, 0, 1, 128, 255])),
        draw(ENDS),
        draw(st.sampled_from([*EXTREMES])),
        draw(st.booleans()),
    )


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_convolutions_of_any_shape(target: str, case: Case) -> None:
    check_conv(case, target)


PLAIN = Case((14, 15), 20, 40, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), end="requantised")
POINT = replace(PLAIN, kernel=(1, 1), padding=((0, 0), (0, 0)))


@pytest.mark.parametrize("pad_value", [0, 128])
@pytest.mark.parametrize(
    "case",
    [
        replace(PLAIN, image=(56, 56), channels=64, out=64),
        replace(PLAIN, image=(7, 7), channels=512, out=200),
        replace(PLAIN, image=(30, 31), channels=3, kernel=(7, 7), padding=((3, 3), (3, 3))),
        replace(PLAIN, strides=(2, 2), channels=512, image=(9, 30)),
        replace(PLAIN, image=(1, 1), channels=100, out=300),
        replace(PLAIN, image=(40, 40), channels=24, out=24),
        replace(PLAIN, channels=7, out=9, groups=3, images=2),
        replace(POINT, channels=1024, out=33),
        replace(POINT, channels=511, strides=(2, 2)),
        replace(POINT, channels=5, groups=2),
    ],
    ids=str,
)
def test_convolutions_of_networks(case: Case, pad_value: int) -> None:
    for is_signed in (False, True):
        check_conv(replace(case, pad_value=pad_value, is_signed=is_signed), "host")


@pytest.mark.parametrize(
    ("case", "is_copied"),
    [
        (PLAIN, False),
        (replace(PLAIN, dilations=(1, 2), strides=(1, 2)), False),
        (replace(PLAIN, groups=2, channels=8, images=2), False),
        (replace(PLAIN, pad_value=5), True),
        (replace(PLAIN, channels=21), True),
        (replace(POINT, channels=21), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", RUNNABLE)
def test_images_are_copied_only_where_they_must(case: Case, is_copied: bool, target: str) -> None:
    assert bool(made_conv(case, target).built.scratch) == is_copied
    check_conv(case, target)


@pytest.mark.parametrize("pad_value", [0, 77])
def test_images_whose_size_is_known_later(pad_value: int) -> None:
    n, h, w = Var("n", 0, 4), Var("h", 3, 64), Var("w", 3, 400)
    case = replace(PLAIN, pad_value=pad_value)
    made = made_conv(case, "host", (n, h, w, case.channels))
    for images, high, wide in ((1, 3, 3), (3, 14, 15), (2, 40, 37), (1, 5, 400), (0, 4, 4)):
        here = replace(case, images=images, image=(high, wide))
        arrays, expected = conv_arrays(here)
        got = made.run(arrays, {"n": images, "h": high, "w": wide})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", [name for name in RUNNABLE if targets.named(name).has_fma])
@pytest.mark.parametrize("kinds", [*product([np.uint8, np.int8], repeat=2)])
@pytest.mark.parametrize("case", [replace(PLAIN, channels=1, groups=g) for g in (5, 16, 77)])
def test_every_channel_by_itself(target: str, kinds: tuple[Any, Any], case: Case) -> None:
    x = random_bytes((1, *case.image, case.groups), kinds[0], 1)
    w = random_bytes((*case.kernel, case.groups), kinds[1], 2)
    attrs = {name: case.attrs[name] for name in ("strides", "padding", "dilations")}

    def function(image: Tensor, taps: Tensor) -> Tensor:
        return Tensor.of_node(ir.make("depthwise_last", image.node, taps.node, **attrs))

    made = Made(function, [(x.shape, x.dtype), (w.shape, w.dtype)], target, DepthwiseKernel)
    padded = np.pad(x.astype(np.int64), ((0, 0), *case.padding, (0, 0)))
    expected = np.zeros((1, *case.places, case.groups), np.int64)
    for i, j in product(range(3), range(3)):
        high, wide = case.places
        expected += padded[:, i : i + high, j : j + wide] * w[i, j].astype(np.int64)
    np.testing.assert_array_equal(made.run([x, w]), wrapped(expected))


# Targets and listings.


@pytest.mark.parametrize("name", ["_SINGLE", "_SIGNED_DOTS"])
def test_other_ways_to_multiply_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of targets that are not this machine, with its instructions."""

    def signed_dot(total: Vec, a: Vec, b: Vec) -> Vec:
        for k in range(4):
            of_word = [range(k, x.type.lanes, 4) for x in (a, b)]
            one, other = (
                x.builder.shuffle(x, None, lanes).convert("sext", total.type)
                for x, lanes in zip((a, b), of_word, strict=True)
            )
            total = total + one * other
        return total

    monkeypatch.setattr(bytes_tile, "_signed_dot", signed_dot)
    monkeypatch.setattr(bytes_tile, "word_dot", lambda target: getattr(bytes_tile, name))
    for values, is_signed in product(EXTREMES, (False, True)):
        check_product(Shape((9,), 38, 50, values=values, is_signed=is_signed), "host")
        case = replace(PLAIN, values=values, pad_value=129, is_signed=is_signed)
        check_conv(case, "host")


@pytest.mark.parametrize("name", ["neon", "avx512", "avx512vnni"])
@pytest.mark.parametrize("has_dots", [False, True])
def test_other_targets_compile(name: str, has_dots: bool) -> None:
    target = targets.named(name)
    if has_dots and name == "neon":
        features = f"+dotprod,{target.features}"
        target = replace(target, has_vnni=True, features=features)
    for node in (_product_node(False), _product_node(True), _conv_node()):
        [kernel] = fuse(Graph.of([node])).kernels
        built = build(kernel, target)
        assert isinstance(built.loops, BytesKernel)
        assert compile_object(lower(built.loops, target), target)


def _product_node(is_signed: bool) -> Node:
    arrays, _ = product_arrays(Shape((20,), 30, 40, is_signed=is_signed))
    return ir.make("matmul_bytes", *_inputs(arrays), columns=40)


def _conv_node() -> Node:
    arrays, _ = conv_arrays(replace(PLAIN, end="none"))
    return ir.make("conv_bytes", *_inputs(arrays), **PLAIN.attrs)


def _inputs(arrays: Sequence[Array]) -> list[Node]:
    return [
        ir.graph_input(f"x{k}", k, array.shape, dtype_of(array.dtype))
        for k, array in enumerate(arrays)
    ]


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.skipif(not targets.host().has_vnni, reason="this machine has no such instruction")
def test_words_are_multiplied_by_one_instruction(is_signed: bool) -> None:
    """A signed one is read, turned and spread by one more."""
    made = made_product(Shape((64,), 64, 64, is_signed=is_signed), "host")
    text = lower(made.loops, made.target)
    assert "vpdpbusd" in text
    assert "pmadd" not in text
    code = assembly(text, made.target)
    assert bool(re.search(r"vpxord\t.*\(%.*\{1to16\}", code)) == is_signed


def test_the_listing_tells_apart_what_is_compiled_differently() -> None:
    listings = {
        kernel_text(replace(made_conv(case, "host").loops, name="kernel"))
        for case in (
            PLAIN,
            replace(PLAIN, pad_value=1),
            replace(PLAIN, pad_value=2),
            replace(PLAIN, is_signed=True),
            replace(PLAIN, end="bias"),
            replace(PLAIN, end="none"),
            replace(PLAIN, padding=((1, 1), (0, 2))),
            replace(PLAIN, channels=21),
            POINT,
            replace(POINT, channels=21),
            replace(POINT, channels=22),
        )
    }
    assert len(listings) == 11


@pytest.mark.parametrize("target", RUNNABLE)
def test_sums_begin_with_what_is_added_to_every_row(target: str) -> None:
    """And not with what differs from row to row, nor with what is used otherwise too."""
    a, w = operands(Shape((30,), 37, 50))
    rng = np.random.default_rng(5)
    column, other = (rng.integers(-(2**31), 2**31, 50).astype(np.int32) for _ in range(2))
    every = rng.integers(-(2**31), 2**31, (30, 50)).astype(np.int32)

    def ended_by(y: Any, one: Any, two: Any, each: Any) -> list[tuple[Any, str]]:
        return [
            (y + one, "in2[_s1]"),
            (one + (y - two), "(int32)0 - in3[_s1] + in2[_s1]"),
            (y - two + each - one, "(int32)0 - in3[_s1]"),
            (each + y, "zero"),
            (one - y, "zero"),
            ((y + one) * y, "zero"),
            ((y + one) * one, "in2[_s1]"),
        ]

    sums = wrapped(a.astype(np.int64) @ w.astype(np.int64))
    arrays = [a, pack(w), column, other, every]
    for k, (expected, start) in enumerate(ended_by(sums, column, other, every)):

        def function(x: Tensor, panels: Tensor, *more: Tensor, k: int = k) -> Tensor:
            made = ir.make("matmul_bytes", x.node, panels.node, columns=50)
            result: Tensor = ended_by(Tensor.of_node(made), *more)[k][0]
            return result

        made = Made(function, [(x.shape, x.dtype) for x in arrays], target)
        assert f"sums begin with {start}\n" in kernel_text(made.loops)
        np.testing.assert_array_equal(made.run(arrays), expected)


def test_bytes_that_are_made_up_are_left_to_plain_loops() -> None:
    a = ir.full((3, 8), 5, BY_NAME["uint8"])
    panels = ir.graph_input("w", 0, (1, 2, 16, 4), BY_NAME["int8"])
    [kernel] = fuse(Graph.of([ir.make("matmul_bytes", a, panels, columns=9)])).kernels
    assert not isinstance(build(kernel, targets.named("host")).loops, BytesKernel)


# What lies behind the operands.

EDGES: list[Shape | Case] = [
    Shape((13,), 37, 19),
    Shape((1,), 1027, 33),
    Shape((5, 3), 6, 20),
    Shape((40,), 64, 16),
    Shape((9,), 3, 100),
    Shape((13,), 37, 19, is_signed=True),
    replace(PLAIN, end="none"),
    replace(PLAIN, end="none", is_signed=True),
    replace(PLAIN, channels=3, end="none"),
    replace(POINT, channels=7, strides=(2, 2), end="none"),
    replace(POINT, channels=5, groups=3, end="none"),
    replace(PLAIN, padding=((0, 0), (0, 0)), channels=16, end="none"),
]


@pytest.mark.parametrize("target", RUNNABLE)
def test_nothing_behind_the_end_is_read(target: str) -> None:
    command = [sys.executable, "-m", "tests.codegen.test_micro_bytes", target]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, f"{child.stdout.splitlines()[-1:]} {child.stderr[-500:]}"
    assert len(child.stdout.splitlines()) == len(EDGES)


def main(target: str) -> None:
    for one in EDGES:
        print(one, flush=True)
        if isinstance(one, Shape):
            made, (arrays, expected) = made_product(one, target), product_arrays(one)
        else:
            made, (arrays, expected) = made_conv(one, target), conv_arrays(one)
        edges = [AtTheEdge(array) for array in arrays]
        np.testing.assert_array_equal(made.run([edge.array for edge in edges]), expected)


if __name__ == "__main__":
    main(sys.argv[1])
