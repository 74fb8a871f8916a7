"""Kernels of block-quantised weights, each by itself, for every type and target this machine runs.

Judged by the reference rules, by whole numbers where those are exact, and the register tiles by
the plain loops that say what they mean, bit by bit. Whatever is written lies between guards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.backends.cpu.blocks.experts import Experts
from arenite.backends.cpu.blocks.kernel import Blocks
from arenite.backends.cpu.blocks.runs import RunsKernel
from arenite.backends.cpu.build import build
from arenite.backends.cpu.compiling import llvm
from arenite.backends.cpu.gemm.kernel import Details, MicroKernel
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.ops.block_forms import form_of, packed_panels, panel_weights
from arenite.backends.cpu.ops.blocks import RUN_WORDS, quantised
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME, float32
from arenite.dtype import of as dtype_of
from arenite.dtype.blocks import dequantised
from arenite.ir import Node, graph_input, make
from arenite.ir.dim import evaluate as evaluate_dim
from arenite.ir.graph import Graph
from arenite.ir.reference import evaluate
from arenite.schedule import fuse
from tests.codegen import targets
from tests.codegen.block_weights import TYPES, random_blocks, set_scales, weights_node
from tests.codegen.building import Guarded
from tests.codegen.made import plain
from tests.codegen.run_kernels import RUNNABLE, Compiled

Array = NDArray[Any]
INT32, UINT8 = BY_NAME["int32"], BY_NAME["uint8"]
#: 512-bit vectors without dot products of bytes, where this machine has such.
WIDE = ["avx512"] if targets.host().is_x86 and targets.host().vector_bits == 512 else []
TILED = [name for name in RUNNABLE if targets.named(name).has_fma]


class Made:
    """The one kernel of a node over inputs and arrays, for a target."""

    def __init__(self, node: Node, target: str, *, is_plain: bool = False) -> None:
        self.node = node
        [self.kernel] = fuse(Graph.of([node])).kernels
        self.built = build(self.kernel, targets.named(target))
        loops = self.built.loops
        self.compiled = Compiled(plain(loops) if is_plain else loops, targets.named(target))

    @property
    def details(self) -> Details:
        assert isinstance(self.built.loops, MicroKernel)
        return self.built.loops.details

    def run(self, *arrays: Array) -> Array:
        """The result, of tiles run one by one from the last to the first."""
        names = iter(array.name for array in self.built.loops.arrays)
        bound = {next(names): np.ascontiguousarray(array) for array in arrays}
        shape = tuple(evaluate_dim(size, {}) for size in self.node.shape)
        guard = Guarded(np.zeros(shape, self.node.dtype.to_numpy()), offset=4)
        bound[next(names)] = guard.array
        tiles = evaluate_dim(self.built.tiles, {})
        splits = [(tile, tile + 1) for tile in reversed(range(tiles))]
        self.compiled.run(bound, {}, tiles=0, splits=splits)
        guard.check()
        return guard.array.reshape(shape).copy()


def activations(shape: Sequence[int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32)


def packed_product(name: str, rows: int, columns: int, depth: int) -> Node:
    dtype = BY_NAME[name]
    raw = random_blocks(name, columns, depth)
    runs = graph_input("runs", 0, (rows, depth // 32 * RUN_WORDS), INT32)
    panels = graph_input("panels", 1, packed_panels(raw, dtype).shape, UINT8)
    return make("matmul_packed", runs, panels, dtype=dtype, columns=columns)


@pytest.mark.parametrize("name", TYPES)
def test_panels_stand_for_what_the_blocks_do(name: str) -> None:
    dtype = BY_NAME[name]
    for rows, depth in ((1, 256), (32, 256), (45, 768)):
        raw = random_blocks(name, rows, depth, seed=rows)
        panels = packed_panels(raw, dtype)
        # Panels have scales of 16 bits, and bits where a type has digits in base 3.
        most = {"nvfp4": 1.12, "tq1_0": 1.23}.get(name, 1.06)
        assert panels.nbytes <= most * dtype.nbytes((-(-rows // 32) * 32, depth))
        found = panel_weights(panels, dtype, rows, depth)
        np.testing.assert_array_equal(found, dequantised(raw, dtype, (rows, depth)))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("name", TYPES)
def test_blocks_are_packed_and_dequantised_exactly(name: str, target: str) -> None:
    raw = random_blocks(name, 37, 512)
    w = weights_node(name, raw, 512)
    panels = Made(make("pack_blocks", w, dtype=w.dtype), target).run(raw)
    np.testing.assert_array_equal(panels, packed_panels(raw, w.dtype))
    numbers = Made(make("dequantise", w, dtype=w.dtype), target).run(raw)
    np.testing.assert_array_equal(numbers, dequantised(raw, w.dtype, (37, 512)))
    chosen = np.array([[36, 0, 5], [5, 5, 11]])
    indices = graph_input("indices", 0, chosen.shape, ir.INT64)
    made = Made(make("rows_of_blocks", w, indices, dtype=w.dtype), target)
    by_node = dict(zip((w, indices), (raw, chosen), strict=True))
    rows = made.run(*(by_node[node] for node in made.kernel.inputs))
    np.testing.assert_array_equal(rows, numbers[chosen])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("name", TYPES)
def test_rows_of_panels_are_those_of_the_blocks(name: str, target: str) -> None:
    raw = random_blocks(name, 70, 512)
    packed = packed_panels(raw, BY_NAME[name])
    panels = graph_input("panels", 0, packed.shape, BY_NAME["uint8"])
    chosen = np.array([[69, 0, 31], [32, 32, 11]])
    indices = graph_input("indices", 1, chosen.shape, ir.INT64)
    rows_of = make("rows_of_panels", panels, indices, dtype=BY_NAME[name], columns=70, depth=512)
    made = Made(rows_of, target)
    by_node = {panels: packed, indices: chosen}
    rows = made.run(*(by_node[node] for node in made.kernel.inputs))
    np.testing.assert_array_equal(rows, dequantised(raw, BY_NAME[name], (70, 512))[chosen])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("is_plain", [False, True])
def test_runs_are_quantised_as_the_rule_says(target: str, is_plain: bool) -> None:
    x = (
        activations((7, 5, 160))
        * np.float32(10) ** np.arange(-3, 4, dtype=np.float32)[:, None, None]
    )
    x[0, 0, :32] = 0
    x[0, 1, 40] = np.inf
    x[0, 2, 70] = np.nan
    x[0, 3, :32] = 1e-40  # a scale under the least normal number
    x[0, 4, :32] = 2.0**-119
    x[1, 0, :32] = 3e38
    x[1, 1, :32] = np.arange(32) + 0.5  # ties
    x[1, 1, 31] = 127
    x[1, 2, :32] = -0.0
    node = make("quantise_blocks", graph_input("x", 0, x.shape, float32))
    made = Made(node, target, is_plain=is_plain)
    assert isinstance(made.built.loops, RunsKernel)
    found, wanted = made.run(x), quantised(x)
    as_floats = np.isin(np.arange(found.shape[-1]) % RUN_WORDS, (8, 9))
    np.testing.assert_array_equal(found[..., ~as_floats], wanted[..., ~as_floats])
    for k in (8, 9):
        np.testing.assert_array_equal(
            found[..., k::RUN_WORDS].view(np.float32), wanted[..., k::RUN_WORDS].view(np.float32)
        )
    ties = np.rint(x[1, 1, :32]).astype(np.int8)  # the scale is 1
    np.testing.assert_array_equal(found[1, 1, :8].view(np.int8), ties)


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("name", TYPES)
def test_products_of_whole_numbers_are_exact(name: str, target: str) -> None:
    """Scales of 1 and small numbers: every sum is a whole number that float32 holds."""
    dtype, columns, depth = BY_NAME[name], 51, 512
    raw = random_blocks(name, columns, depth)
    set_scales(name, raw, 1)
    x = np.random.default_rng(1).integers(-3, 4, (5, depth)).astype(np.float32)
    x[:, ::32] = 127  # the scale of every run is 1
    runs, panels = quantised(x), packed_panels(raw, dtype)
    node = packed_product(name, 5, columns, depth)
    exact = x.astype(np.float64) @ dequantised(raw, dtype, (columns, depth)).astype(np.float64).T
    found = Made(node, target).run(runs, panels)
    bound = np.abs(x) @ np.abs(dequantised(raw, dtype, (columns, depth))).T
    is_held = bound < 2**24
    np.testing.assert_array_equal(found[is_held], exact[is_held])
    assert np.all(np.abs(found - exact) <= 2.0**-20 * bound)


@pytest.mark.parametrize("target", [*TILED, *WIDE])
@pytest.mark.parametrize("name", TYPES)
def test_the_largest_numbers_do_not_overflow(name: str, target: str) -> None:
    dtype, depth = BY_NAME[name], 256
    raw = np.full_like(random_blocks(name, 3, depth), 0xFF)
    raw[1] = 0
    if name == "q8_0":
        raw[0], raw[2] = 127, 128  # as int8: the largest and the least
    set_scales(name, raw, 1)
    x = np.full((2, depth), 127, np.float32)
    x[1] = -127
    found = Made(packed_product(name, 2, 3, depth), target).run(
        quantised(x), packed_panels(raw, dtype)
    )
    exact = x.astype(np.float64) @ dequantised(raw, dtype, (3, depth)).astype(np.float64).T
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-2)


@pytest.mark.parametrize("target", TILED)
@pytest.mark.parametrize("name", TYPES)
def test_tiles_compute_what_the_loops_mean_bit_by_bit(name: str, target: str) -> None:
    for rows, columns, depth in ((1, 40, 512), (13, 75, 256)):
        node = packed_product(name, rows, columns, depth)
        runs = quantised(activations((rows, depth)))
        panels = packed_panels(random_blocks(name, columns, depth), BY_NAME[name])
        tiled, meant = Made(node, target), Made(node, target, is_plain=True)
        assert isinstance(tiled.details, Blocks)
        np.testing.assert_array_equal(tiled.run(runs, panels), meant.run(runs, panels))


@pytest.mark.parametrize("target", TILED)
@pytest.mark.parametrize("name", TYPES)
def test_chosen_panels_are_what_the_loops_mean_bit_by_bit(name: str, target: str) -> None:
    dtype, n_experts, depth = BY_NAME[name], 5, 256
    for rows, choices, columns in ((1, 2, 40), (40, 1, 75)):
        raw = random_blocks(name, n_experts * columns, depth).reshape(n_experts, columns, -1)
        panels = np.stack([packed_panels(one, dtype) for one in raw])
        chosen = np.random.default_rng(1).integers(0, n_experts, rows * choices)
        order = np.argsort(chosen, kind="stable")
        runs = quantised(activations((rows, depth)))
        arrays: list[Array] = [runs, panels, order, chosen]
        nodes = [
            graph_input(f"x{k}", k, array.shape, dtype_of(array.dtype))
            for k, array in enumerate(arrays)
        ]
        node = make("matmul_packed_experts", *nodes, dtype=dtype, columns=columns, choices=choices)
        tiled, meant = Made(node, target), Made(node, target, is_plain=True)
        assert isinstance(tiled.details, Experts)
        found = tiled.run(*arrays)
        np.testing.assert_array_equal(found, meant.run(*arrays))
    # The same as products by each matrix alone.
    panel = graph_input("panels", 1, panels.shape[1:], UINT8)
    alone = Made(make("matmul_packed", nodes[0], panel, dtype=dtype, columns=columns), target)
    for expert in np.unique(chosen):
        places = np.flatnonzero(chosen == expert)
        wanted = alone.run(runs, panels[expert])[places // choices]
        np.testing.assert_array_equal(found[places], wanted)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_products_of_any_shape(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TYPES))
    target = data.draw(st.sampled_from(RUNNABLE))
    rows, columns = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 100))
    depth = BY_NAME[name].block_length * data.draw(st.integers(1, 5))
    node = packed_product(name, rows, columns, depth)
    runs = quantised(activations((rows, depth), seed=rows))
    panels = packed_panels(random_blocks(name, columns, depth), BY_NAME[name])
    [wanted] = evaluate(Graph.of([node]), [runs, panels])
    found = Made(node, target).run(runs, panels)
    meant = panel_weights(panels, BY_NAME[name], columns, depth)
    numbers = np.ascontiguousarray(runs.reshape(rows, -1, RUN_WORDS)[..., :8]).view(np.int8)
    scales = np.ascontiguousarray(runs.reshape(rows, -1, RUN_WORDS)[..., 8:9]).view(np.float32)
    sizes = np.abs(numbers * scales).reshape(rows, -1) @ np.abs(meant).T
    # Least values and scaled numbers may cancel in a weight; numbers go up to 255.
    assert np.all(np.abs(found - wanted) <= 2.0**-18 * (sizes + np.abs(wanted)) + 1e-4)


@pytest.mark.parametrize(
    ("target", "name", "instruction"),
    [
        ("avx512vnni", "q4_0", "vpdpbusd"),
        ("avx512vnni", "iq4_nl", "vpshufb"),
        ("avx512vnni", "q6_k", "vpdpbusd"),
        ("avx2", "q4_0", "vpmaddubsw"),
        ("avx2", "q6_k", "vpmaddubsw"),
        ("avx2", "q8_0", "vpmaddwd"),  # two products of 8 bits do not fit 16
        ("avx2", "iq4_nl", "vpmaddwd"),
        ("neon", "q4_0", "mla"),
        ("neon", "q8_0", "mla"),
        ("neon", "iq4_xs", "tbl"),
    ],
)
def test_the_expected_instructions_are_there(target: str, name: str, instruction: str) -> None:
    [kernel] = fuse(Graph.of([packed_product(name, 6, 64, 256)])).kernels
    made = build(kernel, targets.named(target)).loops
    text = llvm.assembly(lower(made, targets.named(target)), targets.named(target))
    assert text.count(f"\t{instruction}") >= 8
    assert f"panels of {name}" in kernel_text(made)


def test_a_tile_of_six_rows_stays_in_registers() -> None:
    target = targets.named("avx512vnni")
    [kernel] = fuse(Graph.of([packed_product("q4_0", 6, 64, 256)])).kernels
    text = llvm.assembly(lower(build(kernel, target).loops, target), target)
    tile = text[text.index("tile6x2:") :]
    loop = tile[: tile.index("\tj")]
    assert loop.count("vpdpbusd") == 6 * 2 * 8
    assert loop.count("rsp") <= 2  # one value put aside, of 24 sums


@pytest.mark.parametrize("name", TYPES)
def test_one_row_reads_a_block_in_the_order_of_memory(name: str) -> None:
    target = targets.named("avx512vnni")
    [kernel] = fuse(Graph.of([packed_product(name, 1, 64, 256)])).kernels
    text = llvm.assembly(lower(build(kernel, target).loops, target), target)
    tile = text[text.index("tile1x2:") :]
    loop = tile[: tile.index("\tretq")]
    found = [int(at or 0) for at in re.findall(r"vmovdqu64\t(\d*)\(%r(?:dx|11)\), %zmm", loop)]
    assert len(found) == 2 * sum(form_of(BY_NAME[name]).planes)
    # A compiler may exchange neighbours; columns taken in turns would jump at every second load.
    assert sum(after < before for before, after in pairwise(found)) <= 2
