"""Products on WebGPU by one row, few and many: floats of two widths, and blocks of every type.

The judge is NumPy in float64, of x as the op says it is quantised.
"""

from __future__ import annotations

import numpy as np
import pytest

from arenite.dtype import BY_NAME, DType
from arenite.dtype.block_types import BLOCK_TYPES
from arenite.dtype.blocks import dequantised
from arenite.ir import Var, buffer, constant, graph_input, make
from arenite.ir.compose.basic import cast, flip, permute, reshape, slice_axis
from arenite.ir.compose.neural import rms_norm, silu
from arenite.ir.dim import evaluate
from arenite.ir.node import Node
from arenite.ir.ops.blocks import as_quantised, matmul_blocks
from tests.backends.webgpu.runner import Array, executable, loaded, webgpu
from tests.codegen.block_weights import random_blocks, weights_node

F32, F16, BF16 = (BY_NAME[name] for name in ("float32", "float16", "bfloat16"))
#: Of sums in float32, beside the sum of the sizes of what is summed.
BOUND = 1e-6


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(x: Node, w: Node, transpose_b: bool = True) -> Node:
    return make("matmul", x, cast(w, F32), transpose_a=False, transpose_b=transpose_b)


def near(found: Array, x: Array, w: Array, more: Array | float = 0.0) -> None:
    """x by the transposed w, and what is added."""
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    size = np.abs(wide) @ np.abs(weights).T + np.abs(more)
    assert (np.abs(found - (wide @ weights.T + more)) <= BOUND * size).all()


def is_fast(program: object) -> bool:
    """Whether all of its kernels but copies are made of text of the device's own."""
    kernels = getattr(program, "kernels")  # noqa: B009
    codes = [one.code for one in kernels if "transfer" not in one.entry_point]
    return all("foreign" in code for code in codes)


@pytest.mark.parametrize("depth", [8, 264, 1048])
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_a_few_rows_by_floats(dtype: DType, depth: int) -> None:
    webgpu()
    w, bias = numbers(21, depth, seed=1).astype(dtype.to_numpy()), numbers(21, seed=2)
    rows = [graph_input(f"x{k}", k, (n, depth), F32) for k, n in enumerate((1, 5))]
    with executable([product(x, buffer(w)) + constant(bias) for x in rows]) as program:
        assert is_fast(program)
        data = [numbers(n, depth, seed=n) for n in (1, 5)]
        for found, x in zip(program(*data), data, strict=True):
            near(found, x, w, bias)


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("depth", [1536, 1608, 4104])
def test_a_long_depth_of_few_rectangles_is_summed_in_parts(
    depth: int, dtype: DType, transpose_b: bool
) -> None:
    n = Var("n", 9, 100)
    w, bias = numbers(72, depth, seed=1).astype(dtype.to_numpy()), numbers(72, seed=2)
    stored = w if transpose_b else np.ascontiguousarray(w.T)
    x = graph_input("x", 0, (n, depth), F32)
    with executable([product(x, buffer(stored), transpose_b) + constant(bias)]) as program:
        shaders = [one for one in loaded(program).shaders if one.following is not None]
        assert len(shaders) == 1
        for rows in (9, 64, 65, 100):
            data = numbers(rows, depth, seed=rows)
            [found] = program(data)
            near(found, data, w, bias)
            assert found.tobytes() == program(data)[0].tobytes()
        program.verify()


def test_beside_each_other_products_of_a_short_depth_stay_one_dispatch() -> None:
    """Query, key and value of a narrow model: in parts they would be six."""
    x = graph_input("x", 0, (64, 768), F32)
    weights = [constant(numbers(192, 768, seed=k)) for k in range(3)]
    with executable([product(x, w) for w in weights]) as program:
        program(numbers(64, 768))
        assert all(one.following is None for one in loaded(program).shaders)


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(130, 40, 136), (9, 16, 8), (70, 8, 72), (40, 24, 264)]
)
def test_many_rows_by_floats(
    rows: int,
    depth: int,
    columns: int,
    dtype: DType,
    transpose_b: bool,
) -> None:
    webgpu()
    w = numbers(columns, depth, seed=1).astype(dtype.to_numpy())
    stored = w if transpose_b else np.ascontiguousarray(w.T)
    with executable(
        [product(graph_input("x", 0, (rows, depth), F32), buffer(stored), transpose_b)]
    ) as program:
        assert is_fast(program)
        x = numbers(rows, depth)
        near(program(x)[0], x, w)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_one_row_and_many_by_blocks_of_every_type(name: str) -> None:
    webgpu()
    length = BLOCK_TYPES[name].length
    depth = 3 * length if length < 256 else 512
    raw = random_blocks(name, 21, depth)
    w = weights_node(name, raw, depth)
    weights = dequantised(raw, w.dtype, (21, depth))
    counts = (1, 20)
    given = [graph_input(f"x{k}", k, (n, depth), F32) for k, n in enumerate(counts)]
    with executable([matmul_blocks(x, w) for x in given]) as program:
        assert is_fast(program)
        data = [numbers(rows, depth, seed=rows) for rows in counts]
        for found, x in zip(program(*data), data, strict=True):
            near(found, as_quantised(x), weights)


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k"])
def test_a_launch_has_kernels_for_one_row_for_few_and_for_many(name: str) -> None:
    webgpu()
    raw = random_blocks(name, 21, 512)
    w = weights_node(name, raw, 512)
    weights = dequantised(raw, w.dtype, (21, 512))
    x = graph_input("x", 0, (Var("n", 1, 20), 512), F32)
    with executable([matmul_blocks(x, w)]) as program:
        assert is_fast(program)
        for rows in (1, 3, 20):
            data = numbers(rows, 512, seed=rows)
            near(program(data)[0], as_quantised(data), weights)


def test_rows_longer_than_shared_memory_are_quantised_in_rounds() -> None:
    webgpu()
    depth = 2 * 8192 + 512
    raw = random_blocks("q4_k", 9, depth)
    w = weights_node("q4_k", raw, depth)
    with executable([matmul_blocks(graph_input("x", 0, (3, depth), F32), w)]) as program:
        x = numbers(3, depth)
        near(program(x)[0], as_quantised(x), dequantised(raw, w.dtype, (9, depth)))


def test_a_team_takes_two_of_many_columns() -> None:
    webgpu()
    columns = 8192 + 3
    raw = np.tile(random_blocks("q8_0", 509, 96), (columns // 509 + 1, 1))[:columns]
    w = weights_node("q8_0", raw, 96)
    with executable([matmul_blocks(graph_input("x", 0, (1, 96), F32), w)]) as program:
        x = numbers(1, 96)
        near(program(x)[0], as_quantised(x), dequantised(raw, w.dtype, (columns, 96)))


@pytest.mark.parametrize("rows", [1, 12])
def test_what_follows_a_product_is_part_of_its_launch(rows: int) -> None:
    webgpu()
    w, gate = numbers(24, 64, seed=1), numbers(rows, 24, seed=2)
    raw = random_blocks("q4_0", 24, 64)
    blocks = weights_node("q4_0", raw, 64)
    x, g = graph_input("x", 0, (rows, 64), F32), graph_input("g", 1, (rows, 24), F32)
    followed = [
        silu(product(x, buffer(w))) * g,
        cast(matmul_blocks(x, blocks) + g, F16),
    ]
    with executable(followed) as program:
        launches = [k for k in program.kernels if "transfer" not in k.entry_point]
        assert len(launches) == 2
        data = numbers(rows, 64)
        first, second = program(data, gate)
        again = program(data, gate)
        assert all(map(np.array_equal, (first, second), again))
        program.run_checked(data, gate)
    wide = data.astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose(first, wide / (1 + np.exp(-wide)) * gate, rtol=1e-5, atol=1e-5)
    summed = as_quantised(data) @ dequantised(raw, blocks.dtype, (24, 64)).T + gate
    np.testing.assert_allclose(second, summed, rtol=2e-3, atol=1e-3)


def test_a_run_that_is_not_finite_makes_results_that_are_not() -> None:
    webgpu()
    raw = random_blocks("q8_0", 5, 96)
    x = numbers(4, 96)
    x[1, 40], x[2, 70], x[3] = np.nan, np.inf, 1e-40
    w = weights_node("q8_0", raw, 96)
    [found] = executable([matmul_blocks(graph_input("x", 0, (4, 96), F32), w)])(x)
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1:3]).any()
    np.testing.assert_array_equal(found[3], np.zeros(5))


def test_lanes_are_summed_by_the_device_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = webgpu()
    size = lanes_of_a_subgroup()
    if size not in (4, 8, 16, 32):
        pytest.skip(f"{gpu.adapter_name} has subgroups of {size} lanes")
    monkeypatch.setattr(gpu, "subgroup", size)
    w = numbers(11, 520, seed=1)
    for rows in (1, 3):
        with executable([product(graph_input("x", 0, (rows, 520), F32), buffer(w))]) as program:
            x = numbers(rows, 520)
            near(program(x)[0], x, w)


def lanes_of_a_subgroup() -> int:
    """As a shader sees it; 0 where there are none."""
    gpu = webgpu()
    if "subgroup" not in gpu.device.features:
        return 0
    code = """@group(0) @binding(0) var<storage, read_write> found: array<u32>;
@compute @workgroup_size(32) fn main(@builtin(subgroup_size) size: u32) { found[0] = size; }"""
    module = gpu.device.create_shader_module(code=code)
    pipeline = gpu.device.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"}
    )
    words = gpu.device.create_buffer(size=16, usage="STORAGE|COPY_SRC")
    resource = {"buffer": words, "offset": 0, "size": 16}
    group = gpu.device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0), entries=[{"binding": 0, "resource": resource}]
    )
    encoder = gpu.device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(1)
    compute.end()
    gpu.device.queue.submit([encoder.finish()])
    return int.from_bytes(gpu.words(words, 0, 4), "little")


def test_the_last_row_of_an_open_number_is_multiplied_alone() -> None:
    """As a language model does it: where the row begins is known when it runs."""
    webgpu()
    n = Var("n", 1, 9)
    w, raw = numbers(13, 64, seed=1), random_blocks("q8_0", 13, 64)
    x = graph_input("x", 0, (n, 64), F32)
    last = slice_axis(x, 0, n - 1, n)
    blocks = weights_node("q8_0", raw, 64)
    with (
        executable([product(last, buffer(w))]) as by_floats,
        executable([matmul_blocks(last, blocks)]) as by_blocks,
    ):
        assert is_fast(by_floats)
        for rows in (1, 9):
            data = numbers(rows, 64, seed=rows)
            near(by_floats(data)[0], data[-1:], w)
            weights = dequantised(raw, blocks.dtype, (13, 64))
            near(by_blocks(data)[0], as_quantised(data[-1:]), weights)


def normed(x: Node, gain: Array, epsilon: float) -> Node:
    return rms_norm(x, 1, constant(gain), epsilon)


def normed_array(x: Array, gain: Array, epsilon: float) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * gain)


#: Of a normed row that is quantised: a number at the edge between two may be either.
EDGE = 1e-3


def judge_normed(found: Array, x: Array, w: Array, is_block: bool) -> None:
    """x is normed in float64; what is quantised may lie on an edge for the device."""
    given = as_quantised(x.astype(np.float32)) if is_block else x
    size = np.abs(given) @ np.abs(w.astype(np.float64)).T
    bound = EDGE if is_block else BOUND
    assert (np.abs(found - given @ w.T.astype(np.float64)) <= bound * size).all()


@pytest.mark.parametrize("name", ["float32", "float16", "q4_0", "q8_0", "q4_k", "q2_k", "q6_k"])
def test_rows_are_normed_by_the_product_that_reads_them(name: str) -> None:
    webgpu()
    depth, columns, dtype = 512, 70, BY_NAME[name]
    gain = np.linspace(0.5, 2, depth, dtype=np.float32)
    x = graph_input("x", 0, (Var("n", 1, 200), depth), F32)
    if dtype.is_block:
        raw = random_blocks(name, columns, depth)
        made = matmul_blocks(normed(x, gain, 1e-5), weights_node(name, raw, depth))
        weights = dequantised(raw, dtype, (columns, depth))
    else:
        weights = numbers(columns, depth, seed=1).astype(dtype.to_numpy())
        made = product(normed(x, gain, 1e-5), buffer(weights))
    with executable([made]) as program:
        for rows in (1, 5, 40, 200):
            table = loaded(program).bound_table({"n": rows})
            assert table.n_dispatches == (1 if rows <= 8 else 2)
            data = numbers(rows, depth, seed=rows) * np.float32(3)
            [found], [again] = program(data), program(data)
            np.testing.assert_array_equal(found, again)
            judge_normed(found, normed_array(data, gain, 1e-5), weights, dtype.is_block)
        program.run_checked(data)


@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("name", ["float16", "q4_1", "q5_0"])
def test_two_products_of_the_same_rows_are_one_launch(name: str, is_normed: bool) -> None:
    """As a gated layer has them: silu(x @ a) * (x @ b)."""
    webgpu()
    depth, columns, dtype = 96, 70, BY_NAME[name]
    gain = np.linspace(0.5, 2, depth, dtype=np.float32)
    given = graph_input("x", 0, (Var("n", 1, 200), depth), F32)
    x = normed(given, gain, 1e-6) if is_normed else given
    if dtype.is_block:
        raw = [random_blocks(name, columns, depth, seed) for seed in (1, 2)]
        sides = [matmul_blocks(x, weights_node(name, one, depth)) for one in raw]
        weights = [dequantised(one, dtype, (columns, depth)) for one in raw]
    else:
        weights = [numbers(columns, depth, seed=k).astype(np.float16) for k in (1, 2)]
        sides = [product(x, buffer(one)) for one in weights]
    with executable([silu(sides[0]) * sides[1]]) as program:
        table = loaded(program).bound_table({"n": 1})
        assert table.n_dispatches == (1 if dtype.is_block or is_normed else 2)
        for rows in (1, 5, 40, 200):
            data = numbers(rows, depth, seed=rows)
            rows_of = normed_array(data, gain, 1e-6) if is_normed else data.astype(np.float64)
            if dtype.is_block:
                rows_of = as_quantised(rows_of.astype(np.float32))
            a, b = (rows_of @ one.astype(np.float64).T for one in weights)
            wanted = a / (1 + np.exp(-a)) * b
            bound = EDGE if is_normed and dtype.is_block else 1e-5
            np.testing.assert_allclose(
                program(data)[0], wanted, bound, bound * np.abs(wanted).max()
            )


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_sides_may_be_turned_round(rows: int, axis: int) -> None:
    webgpu()
    x, w = graph_input("x", 0, (rows, 64), F32), graph_input("w", 1, (24, 64), F32)
    a, b = numbers(rows, 64), numbers(24, 64, seed=1)
    with executable([product(flip(x, [axis]), w), product(x, flip(w, [axis]))]) as program:
        first, second = program(a, b)
    near(first, np.flip(a, axis), b)
    near(second, a, np.flip(b, axis))


def test_views_of_x_are_read_where_they_lie_or_written_first() -> None:
    webgpu()
    raw = random_blocks("q4_0", 9, 64)
    blocks = weights_node("q4_0", raw, 64)
    weights = dequantised(raw, blocks.dtype, (9, 64))
    x = graph_input("x", 0, (3, 5, 96), F32)
    views = {
        1: slice_axis(reshape(x, (15, 96)), 1, 32, 96),
        2: slice_axis(x, 2, 3, 67),
        3: slice_axis(permute(x, (1, 0, 2)), 2, 0, 64),
        4: slice_axis(flip(x, [1]), 2, 0, 64),
        5: slice_axis(flip(x, [2]), 2, 0, 64),
    }
    data = numbers(3, 5, 96)
    wanted = [data.reshape(15, 96)[:, 32:], data[..., 3:67], data.swapaxes(0, 1)[..., :64]]
    wanted += [data[:, ::-1, :64], data[..., :31:-1]]
    with executable([matmul_blocks(view, blocks) for view in views.values()]) as program:
        for found, given in zip(program(data), wanted, strict=True):
            rows = np.ascontiguousarray(given).reshape(-1, 64)
            near(found.reshape(-1, 9), as_quantised(rows), weights)


def test_there_may_never_be_a_row() -> None:
    webgpu()
    with executable(
        [product(graph_input("x", 0, (0, 64), F32), buffer(numbers(8, 64)))]
    ) as program:
        assert program(numbers(0, 64))[0].shape == (0, 8)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("depth", "columns"), [(8, 0), (0, 8), (0, 0), (7, 0)])
def test_weights_may_be_nothing(depth: int, columns: int, transpose_b: bool) -> None:
    webgpu()
    w = np.ones((columns, depth) if transpose_b else (depth, columns), np.float32)
    rows = [graph_input(f"x{k}", k, (n, depth), F32) for k, n in enumerate((0, 1, 5, 40))]
    made = [product(x, side, transpose_b) for x in rows for side in (constant(w), buffer(w))]
    given = [np.ones((n, depth), np.float32) for n in (0, 1, 5, 40)]
    with executable(made) as program:
        found = program(*given)
    for one, x in zip(found, [x for x in given for _ in range(2)], strict=True):
        np.testing.assert_array_equal(one, np.zeros((len(x), columns), np.float32))


@pytest.mark.parametrize("name", ["q8_0", "float32"])
def test_no_rows_are_no_launch(name: str) -> None:
    webgpu()
    x = graph_input("x", 0, (Var("rows", 0, 5), 64), F32)
    w = weights_node("q8_0", random_blocks("q8_0", 8, 64), 64)
    made = matmul_blocks(x, w) if name == "q8_0" else product(x, buffer(numbers(8, 64)))
    with executable([made]) as program:
        assert program(numbers(0, 64))[0].shape == (0, 8)
        [launch] = [one for one in loaded(program).compiled.launches if "transfer" not in one.name]
        assert evaluate(launch.tiles, {"rows": 0}) == 0 < evaluate(launch.tiles, {"rows": 1})
