"""Ways to cut products and convolutions: whatever the sizes, each is one that a kernel can take.

What kernels compute is judged by the reference rules, on whole numbers that a float32 holds exactly
in any order; whatever they write lies between guards, and scratch is full of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir, passes
from arenite.backends.cpu.build import build
from arenite.backends.cpu.conv.cut import ConvSizes, cut_conv
from arenite.backends.cpu.gemm.blocking import MOST_TILES, Cut, Layout, cut
from arenite.backends.cpu.gemm.choices import conv_ways, depthwise_ways, product_ways
from arenite.backends.cpu.ops.channels_last import PANEL
from arenite.backends.cpu.target import AVX2, AVX512, NEON, Target
from arenite.codegen.kernels.built import Built
from arenite.dtype import float32
from arenite.ir import reference
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.schedule import Kernel, fuse
from arenite.tensor import Tensor, from_numpy
from tests.codegen.building import Guarded
from tests.codegen.run_kernels import RUNNABLE, Compiled
from tests.codegen.targets import named
from tests.passes.lists import PASSES

Array = NDArray[Any]

TARGETS = [AVX2, AVX512, NEON]
SIZES = st.one_of(st.integers(1, 40), st.integers(1, 3000))


def reachable(heights: tuple[int, ...], rows: int) -> bool:
    """Whether tiles of these heights can make up so many rows exactly."""
    sums = {0}
    for total in range(1, rows + 1):
        if any(total - height in sums for height in heights):
            sums.add(total)
    return rows in sums


def check_tile(columns: int, heights: tuple[int, ...], target: Target) -> None:
    assert columns >= 1
    assert min(heights) >= 1
    # Sums, the columns of B and a number of A are in registers at once.
    assert columns * (max(heights) + 1) + 1 <= target.n_vector_registers


def check_product(shape: Cut, layout: Layout, usual: Cut, target: Target) -> None:
    width = shape.columns * shape.lanes
    rows = layout.n_rows if isinstance(layout.n_rows, int) else 300
    assert isinstance(layout.n_columns, int)
    assert isinstance(layout.batch, int)
    if shape.heights:
        check_tile(shape.columns, shape.heights, target)
        assert shape.block_columns % width == 0
        for block in {min(rows, shape.block_rows), rows % shape.block_rows}:
            assert block == 0 or reachable(shape.heights, block), (shape, rows)
        if layout.b_line != 1:
            assert shape.copies_b
    assert 1 <= shape.copied_groups <= max(1, -(-shape.block_columns // width))
    assert shape.blocks_a_tile == usual.blocks_a_tile

    columns, batch = layout.n_columns, layout.batch
    n_blocks = [
        batch * -(-columns // one.block_columns) * -(-rows // one.block_rows)
        for one in (shape, usual)
    ]
    assert n_blocks[0] <= max(MOST_TILES, n_blocks[1])


@given(
    rows=st.one_of(SIZES, st.just(Var("rows", 1, 300))),
    columns=SIZES,
    depth=SIZES,
    batch=st.integers(1, 40),
    b_lies_along_depth=st.booleans(),
    target=st.sampled_from(TARGETS),
)
@settings(max_examples=300, deadline=None)
def test_products_can_be_cut_in_all_ways(
    rows: Dim, columns: int, depth: int, batch: int, b_lies_along_depth: bool, target: Target
) -> None:
    b_line, b_step = (depth, 1) if b_lies_along_depth else (1, columns)
    layout = Layout(batch, rows, columns, depth, depth, 1, b_line, b_step)
    usual = cut(layout, float32, float32, float32, target)
    ways = product_ways(usual, layout, target)
    assert next(iter(ways.values()), usual) == usual
    assert len(set(ways.values())) == len(ways)
    for shape in ways.values():
        check_product(shape, layout, usual, target)


@given(
    images=st.integers(1, 8),
    lines=st.integers(1, 60),
    pixels=SIZES,
    groups=st.integers(1, 4),
    channels=st.integers(1, 400),
    depth=st.integers(1, 1000),
    is_copied=st.booleans(),
    is_whole=st.booleans(),
    target=st.sampled_from(TARGETS),
)
@settings(max_examples=300, deadline=None)
def test_convolutions_can_be_cut_in_all_ways(
    images: int,
    lines: int,
    pixels: int,
    groups: int,
    channels: int,
    depth: int,
    is_copied: bool,
    is_whole: bool,
    target: Target,
) -> None:
    sizes = ConvSizes(
        images, lines, pixels, groups, channels, depth, 4 * depth, 2, is_copied, 10**6, is_whole
    )
    usual = cut_conv(sizes, float32, target)
    ways = conv_ways(usual, sizes, float32, target)
    assert next(iter(ways.values())) == usual
    for shape in ways.values():
        check_tile(shape.columns, shape.heights, target)
        assert isinstance(shape.block_pixels, int)
        for block in {min(pixels, shape.block_pixels), pixels % shape.block_pixels}:
            assert block == 0 or reachable(shape.heights, block)
        # A chunk begins where a panel of weights does.
        assert shape.block_channels % PANEL == 0 or shape.block_channels >= channels
        assert 1 <= shape.block_lines <= lines
        if is_whole:
            assert shape.block_pixels == pixels
    strip = replace(usual, columns=1, heights=(2,))
    for shape in depthwise_ways(strip, replace(sizes, is_whole=True, groups=1), 12).values():
        assert len(shape.heights) == 1
        assert 1 <= shape.heights[0] <= 12


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("b_lies_along_depth", [True, False])
@pytest.mark.parametrize("columns", [768, 1000, 1024, 3072, 4096, 32_000, 151_936])
@pytest.mark.parametrize("depth", [768, 1024, 2560, 4096])
def test_two_threads_have_as_many_tiles_of_a_row_as_each_other(
    columns: int, depth: int, b_lies_along_depth: bool, target: Target
) -> None:
    b_line, b_step = (depth, 1) if b_lies_along_depth else (1, columns)
    layout = Layout(1, 1, columns, depth, depth, 1, b_line, b_step)
    made = cut(layout, float32, float32, float32, target)
    n_tiles = -(-columns // made.block_columns)
    assert made.blocks_a_tile == 1
    assert n_tiles % 2 == 0
    assert n_tiles <= MOST_TILES


@pytest.mark.parametrize("target", TARGETS)
def test_large_products_have_several_ways(target: Target) -> None:
    layout = Layout(1, 128, 3072, 768, 768, 1, 1, 3072)
    names = list(product_ways(cut(layout, float32, float32, float32, target), layout, target))
    parts = [name.split(", ") for name in names]
    assert all(len({part[k] for part in parts}) > 1 for k in range(3))


# What they compute.


def whole(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def conv(channels: int, out: int, groups: int, stride: int = 1) -> Callable[[Tensor], Tensor]:
    weights = from_numpy(whole(out, channels // groups, 3, 3, seed=1))
    return lambda x: x.conv(weights, None, stride, 1, 1, groups)


CASES: dict[str, tuple[Callable[..., Tensor], list[Array], int | Var]] = {
    "product": (lambda a, b: a @ b, [whole(37, 33), whole(33, 150, seed=1)], 37),
    "wide": (lambda a, b: a @ b, [whole(9, 40), whole(40, 1031, seed=1)], 9),
    "transposed": (lambda a, b: a @ b.T, [whole(101, 24), whole(90, 24, seed=1)], 101),
    "later": (lambda a, b: a @ b, [whole(171, 20), whole(20, 70, seed=1)], Var("rows", 1, 400)),
    "image": (conv(16, 72, 1), [whole(2, 16, 11, 13)], 2),
    "stride": (conv(8, 40, 1, 2), [whole(1, 8, 23, 9)], 1),
    "groups": (conv(32, 48, 2), [whole(1, 32, 12, 7)], 1),
    "depthwise": (conv(40, 40, 40), [whole(1, 40, 9, 17)], 1),
}


@pytest.mark.parametrize("target", [name for name in RUNNABLE if named(name).has_fma])
@pytest.mark.parametrize("case", CASES)
def test_all_ways_compute_what_the_operation_means(case: str, target: str) -> None:
    function, arrays, rows = CASES[case]
    nodes = [
        ir.graph_input(f"x{k}", k, (array.shape if k else (rows, *array.shape[1:])), float32)
        for k, array in enumerate(arrays)
    ]
    graph = Graph(tuple(nodes), (function(*map(Tensor.of_node, nodes)).node,))
    simplified, _ = passes.run(graph, PASSES)
    sizes = reference.bind(graph, arrays)
    n_kernels = 0
    for kernel in fuse(simplified).kernels:
        names = build(kernel, named(target)).choices
        if not names:
            continue
        n_kernels += 1
        around = Graph(simplified.inputs, (*kernel.inputs, *kernel.outputs))
        values = reference.evaluate(around, arrays, sizes)
        n_inputs = len(kernel.inputs)
        for name in names[:: max(1, len(names) // 8)]:
            made = computed(kernel, name, named(target), values[:n_inputs], sizes)
            assert np.array_equal(made, values[n_inputs]), name
    assert n_kernels == 1


def computed(
    kernel: Kernel, choice: str, target: Target, inputs: list[Array], sizes: dict[str, int]
) -> Array:
    """The one output of a kernel, cut in some way, tile by tile from the last on."""
    built: Built = build(kernel, target, choice)
    [output] = kernel.outputs
    shape = tuple(evaluate(size, sizes) for size in output.shape)
    noise = np.random.default_rng(5)
    guards = [Guarded(np.zeros(shape, np.float32), offset=4)]
    for one in built.scratch:
        guards.append(Guarded(noise.standard_normal(evaluate(one.count, sizes)).astype("f4")))
    arrays = [np.ascontiguousarray(one) for one in inputs] + [guard.array for guard in guards]
    loops = built.loops
    given_sizes = {name: sizes[name.removeprefix("size_")] for name in loops.sizes}
    n_tiles = evaluate(built.tiles, sizes)
    Compiled(loops, target).run(
        {array.name: given for array, given in zip(loops.arrays, arrays, strict=True)},
        given_sizes,
        splits=[(tile, tile + 1) for tile in reversed(range(n_tiles))],
    )
    for guard in guards:
        guard.check()
    return guards[0].array.reshape(shape)
