"""Kernels on WebGPU: reductions over a group, products through shared memory, whole networks.

The judge is NumPy in float64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from arenite.device import Buffer
from arenite.dtype import BY_NAME, DType
from arenite.ir import Var, buffer, constant, graph_input, make
from arenite.ir.compose.basic import binary
from arenite.ir.compose.neural import layer_norm, softmax
from arenite.ir.dim import Dim
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from tests.backends.webgpu.runner import ON_WEBGPU, Array, executable, loaded, run, webgpu

F32, F64, F16, I32, BOOL = (
    BY_NAME[name] for name in ("float32", "float64", "float16", "int32", "bool")
)


def x(*shape: Dim, index: int = 0, dtype: DType = F32) -> Node:
    return graph_input(f"x{index}", index, shape, dtype)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found: Array, wanted: Array, bound: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    scale = np.maximum(1, np.abs(wanted))
    assert (np.abs(found.astype(np.float64) - wanted) <= bound * scale).all()


def matmul(a: Node, b: Node, transpose_a: bool = False, transpose_b: bool = False) -> Node:
    return make("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((7, 1000), (1,)),
        ((300, 3), (1,)),
        ((300, 3), (0,)),
        ((6, 5, 70), (0, 2)),
        ((400_003,), (0,)),
    ],
)
def test_sums_over_rows_columns_and_everything(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    webgpu()
    data = numbers(*shape)
    [total, most] = run([make(op, x(*shape), axes=axes) for op in ("sum", "max")], data)
    near(total, data.astype(np.float64).sum(axes), 1e-4)
    np.testing.assert_array_equal(most, data.max(axes))


def test_reductions_keep_nan_and_begin_with_what_changes_nothing() -> None:
    webgpu()
    data = numbers(3, 130)
    data[1, 77] = np.nan
    [most] = run([make("max", x(3, 130), axes=(1,))], data)
    np.testing.assert_array_equal(most, data.max(1))
    [nothing] = run([make("max", x(3, 0), axes=(1,))], np.zeros((3, 0), np.float32))
    assert (nothing == -np.inf).all()


def test_the_place_of_the_greatest_is_the_first_of_equals_and_nan_beats_all() -> None:
    webgpu()
    data = np.random.default_rng(1).integers(0, 5, (9, 300)).astype(np.float32)
    data[4, [250, 120]] = np.nan
    place = make("cast", make("argmax", x(9, 300), axis=1), dtype=I32)
    [found] = run([place], data)
    np.testing.assert_array_equal(found, data.argmax(1))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_place_of_the_greatest_truth(op: str) -> None:
    webgpu()
    data = np.random.default_rng(2).integers(0, 2, (5, 300)).astype(bool)
    data[3] = True
    [found] = run([make(op, x(5, 300, dtype=BOOL), axis=1)], data)
    np.testing.assert_array_equal(found, getattr(np, op)(data, 1))


def test_zeros_of_both_signs_are_sorted_as_equals() -> None:
    webgpu()
    data = np.random.default_rng(3).choice(np.array([0.0, -0.0, 1, -1], np.float32), (4, 70))
    nodes = [make(op, x(4, 70), axis=1, descending=False) for op in ("argsort", "sort")]
    places, values = run(nodes, data)
    np.testing.assert_array_equal(places, data.argsort(1, kind="stable"))
    np.testing.assert_array_equal(np.signbit(values), np.signbit(np.sort(data, 1, "stable")))


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_rows_and_columns(axis: int) -> None:
    webgpu()
    data = numbers(33, 500)
    wide = np.exp(data.astype(np.float64) - data.max(axis, keepdims=True))
    [found] = run([softmax(x(33, 500), axis)], data)
    near(found, wide / wide.sum(axis, keepdims=True), 1e-6)


def test_layer_norm() -> None:
    webgpu()
    data, weight, bias = numbers(20, 300), numbers(300, seed=1), numbers(300, seed=2)
    node = layer_norm(x(20, 300), 1, x(300, index=1), x(300, index=2), 1e-5)
    wide = data.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    [found] = run([node], data, weight, bias)
    near(found, wanted * weight + bias)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(64, 64, 64), (65, 17, 129), (9, 33, 8), (1, 300, 70), (9, 0, 9)]
)
def test_products_of_odd_sizes(rows: int, depth: int, columns: int) -> None:
    webgpu()
    a, b = numbers(rows, depth), numbers(columns, depth, seed=1)
    [found] = run([matmul(x(rows, depth), x(columns, depth, index=1), transpose_b=True)], a, b)
    near(found, a.astype(np.float64) @ b.astype(np.float64).T)


@pytest.mark.parametrize("rows", [3, 20])
def test_products_of_float64_are_summed_in_it(rows: int) -> None:
    if not {"shader-f64", "shader-int64"} <= webgpu().features:
        pytest.skip("this device has no float64: the CPU computes with it")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, 33)), rng.standard_normal((33, 18))
    [found] = run([matmul(x(rows, 33, dtype=F64), x(33, 18, index=1, dtype=F64))], a, b)
    near(found, a @ b, 1e-14)


def test_products_of_batches_and_of_columns() -> None:
    webgpu()
    a, b = numbers(3, 2, 20, 33), numbers(2, 20, 18, seed=1)
    node = matmul(x(3, 2, 20, 33), x(2, 20, 18, index=1), transpose_a=True)
    [found] = run([node], a, b)
    near(found, np.swapaxes(a, -1, -2).astype(np.float64) @ b)


def test_products_of_whole_numbers_are_exact() -> None:
    webgpu()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**20), 2**20, (16, 16)).astype(np.int32) for _ in range(2))
    [found] = run([matmul(x(16, 16, dtype=I32), x(16, 16, index=1, dtype=I32))], a, b)
    np.testing.assert_array_equal(found, a @ b)


def test_a_product_in_float16_is_summed_in_float32() -> None:
    webgpu()
    a, b = numbers(17, 200).astype(np.float16), numbers(200, 19, seed=1).astype(np.float16)
    [found] = run([matmul(x(17, 200, dtype=F16), x(200, 19, index=1, dtype=F16))], a, b)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert found.dtype == np.float16
    near(found, wanted, 1e-3)


def network(rows: Dim) -> tuple[Node, Callable[[Array], Array]]:
    """Two layers with constants as weights, and what they come to."""
    w1, b1 = numbers(70, 90, seed=3) / 8, numbers(90, seed=4)
    w2, b2 = numbers(90, 30, seed=5) / 8, numbers(30, seed=6)
    hidden = binary("maximum", matmul(x(rows, 70), constant(w1)) + constant(b1), 0.0)
    node = softmax(matmul(hidden, constant(w2)) + constant(b2), 1)

    def wanted(data: Array) -> Array:
        inner = np.maximum(data.astype(np.float64) @ w1 + b1, 0) @ w2 + b2
        power = np.exp(inner - inner.max(1, keepdims=True))
        return np.asarray(power / power.sum(1, keepdims=True))

    return node, wanted


def test_a_network_of_two_layers_runs_again_and_again() -> None:
    webgpu()
    node, wanted = network(50)
    with executable([node]) as program:
        for seed in range(3):
            data = numbers(50, 70, seed=seed)
            near(program(data)[0], wanted(data))
        assert len(loaded(program).regions.weights) == 1
        program.verify()
        np.testing.assert_array_equal(program(data)[0], program.run_checked(data)[0])


def test_sizes_may_differ_from_call_to_call() -> None:
    webgpu()
    node, wanted = network(Var("n", 1, 200))
    with executable([node]) as program:
        for rows in (3, 200, 1, 65, 3):
            data = numbers(rows, 70, seed=rows)
            near(program(data)[0], wanted(data))
        assert program.n_binds == 1  # sizes are parameters


def test_results_are_waited_for_later_and_keep_their_own_memory() -> None:
    webgpu()
    node, wanted = network(40)
    with executable([node]) as program:
        given = [numbers(40, 70, seed=seed) for seed in range(4)]
        pending = [loaded(program).start([data], {}) for data in given]
        for data, one in reversed([*zip(given, pending, strict=True)]):
            near(one.result()[0], wanted(data))
            assert one.result() is one.result()


def test_bytes_and_halves_are_written_beside_what_others_write() -> None:
    """Threads of several groups write elements of one word; rows of 5 begin inside words."""
    webgpu()
    data = numbers(61, 5)
    is_large = make("gt", x(61, 5), x(61, 5, index=1))
    in_rows = make("any", is_large, axes=(1,))
    half = make("cast", softmax(x(61, 5), 1), dtype=F16)
    [large, rows, halves] = run([is_large, in_rows, half], data, np.full_like(data, 0.5))
    np.testing.assert_array_equal(large, data > 0.5)
    np.testing.assert_array_equal(rows, (data > 0.5).any(1))
    power = np.exp(data.astype(np.float64))
    near(halves, power / power.sum(1, keepdims=True), 1e-3)


def test_more_groups_than_one_axis_has() -> None:
    gpu = webgpu()
    rows = gpu.limits.groups + 10
    data = numbers(rows, 2)
    [found] = run([make("max", make("mul", x(rows, 2), x(rows, 2)), axes=(1,))], data)
    np.testing.assert_array_equal(found, (data * data).max(1))


def test_outputs_that_are_inputs_or_constants_are_copies() -> None:
    webgpu()
    data, weights = numbers(3, 4), numbers(2, 2, seed=1)
    [same, held, negative] = run([x(3, 4), constant(weights), make("neg", x(3, 4))], data)
    np.testing.assert_array_equal(same, data)
    np.testing.assert_array_equal(held, weights)
    np.testing.assert_array_equal(negative, -data)
    assert not np.shares_memory(same, data)


def test_a_kernel_is_launched_by_itself_on_buffers_of_the_device() -> None:
    gpu = webgpu()
    program = executable([make("add", x(Var("n", 1, 99)), x(Var("n", 1, 99), index=1))])
    [kernel] = [one for one in program.kernels if "transfer" not in one.entry_point]
    assert kernel.local_size == (256, 1, 1)
    a, b = numbers(30), numbers(30, seed=1)
    out = Buffer.allocate(gpu, F32, (30,))
    there = Buffer.allocate(gpu, F32, (30,))
    there.copyin(a)
    kernel(there, b, out, n=30)
    np.testing.assert_array_equal(np.frombuffer(out.copyout(), np.float32), a + b)
    on_host = np.zeros(30, np.float32)
    kernel(a, b, on_host, n=30)
    np.testing.assert_array_equal(on_host, a + b)


def test_what_depends_on_weights_alone_is_computed_once() -> None:
    weights = numbers(64, 30)
    program = executable([matmul(x(9, 64), softmax(buffer(weights), 1))])
    assert len(program.load_kernels) == 1
    power = np.exp(weights.astype(np.float64))
    data = numbers(9, 64, seed=1)
    for _ in range(2):
        near(program(data)[0], data @ (power / power.sum(1, keepdims=True)))


def test_sizes_may_be_zero() -> None:
    n = Var("n", 0, 100)
    rows, total = make("neg", x(n, 3)), make("sum", x(n, 3), axes=(0,))
    with executable([rows, total]) as program:
        for size in (0, 100, 0):
            data = numbers(size, 3)
            [negative, summed] = program(data)
            np.testing.assert_array_equal(negative, -data)
            near(summed, data.astype(np.float64).sum(0), 1e-4)


def test_threads_run_programs_of_one_device_side_by_side() -> None:
    gpu = webgpu()
    node, wanted = network(40)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with executable([node]) as program:
                for k in range(5):
                    data = numbers(40, 70, seed=100 * seed + k)
                    near(program(data)[0], wanted(data))
                    bytes_ = Buffer.allocate(gpu, "uint8", (1001,))
                    bytes_.copyin(bytes([k]) * 1001)
                    assert bytes_.copyout() == bytes([k]) * 1001
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("shape", "rows", "axis", "by_words"),
    [
        ((9, 2, 4), (3, 2, 4), 0, True),
        ((3, 7, 6), (3, 2, 6), 1, True),
        ((9, 5), (2, 5), 0, False),
        ((4, 8), (4, 3), 1, False),
    ],
)
def test_narrow_rows_that_are_computed_are_written_by_words_where_they_fill_them(
    shape: tuple[int, ...], rows: tuple[int, ...], axis: int, by_words: bool
) -> None:
    webgpu()
    state = make("state", name="s", shape=shape, dtype=F16)
    given, at = x(*rows), graph_input("at", 1, (), I32)
    new = make("cast", make("mul", given, given), dtype=F16)
    after = make("update_slice", state, new, at, axis=axis)
    wanted = np.zeros(shape, np.float16)
    graph = Graph((given, at), (make("neg", after),), updates=((state, after),))
    with compile_graph(graph, ON_WEBGPU) as program:
        own = loaded(program)
        [entry] = [one.entry for one in own.compiled.launches if "update" in one.name]
        assert (not own.shaders[entry].atomic) == by_words
        for seed, start in enumerate((0, shape[axis] - rows[axis], 1)):
            data = numbers(*rows, seed=seed)
            place = [slice(None)] * len(shape)
            place[axis] = slice(start, start + rows[axis])
            wanted[tuple(place)] = data * data
            np.testing.assert_array_equal(program(data, np.int32(start))[0], -wanted)
        np.testing.assert_array_equal(program.state["s"].numpy(), wanted)
