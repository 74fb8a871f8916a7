"""Block-quantised weights in whole programs, judged by the gguf package's own numbers.

What separates a product from x times those numbers is the rounding of x to 8 bits in runs of 32:
at most half a scale for each element.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.device.disk import DiskAllocator
from arenite.dtype import BY_NAME, float32
from arenite.errors import IndexOutOfRange, ShapeMismatch, TypeMismatch
from arenite.frontends.gguf import GgufFile
from arenite.ir import Node, Var, buffer, constant, graph_input, make
from arenite.ir.dim import evaluate
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import dequantise, matmul_blocks, rows_of_blocks
from arenite.pipeline import compile_graph
from arenite.program import frame
from tests.codegen.block_weights import TYPES, numbers_by_onnx, random_blocks, weights_node
from tests.pipeline.loaded import loaded

Array = NDArray[Any]
INT64 = BY_NAME["int64"]
QUANTISED_BY_GGUF = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4")


def numbers_by_gguf(name: str, raw: Array) -> Array:
    if name.startswith("u"):
        return numbers_by_onnx(name, raw).astype(np.float64)
    kind = gguf.GGMLQuantizationType[name.upper()]
    return gguf.quants.dequantize(raw, kind).astype(np.float64)


def activations(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def input_x(*shape: Any) -> Node:
    return graph_input("x", 0, shape, float32)


def product(w: Node, *shape: Any) -> Graph:
    """x[*shape, depth] by the weights."""
    return Graph.of([matmul_blocks(input_x(*shape, w.shape[1]), w)])


def rounding_bound(x: Array, weights: Array) -> Array:
    """How far rounding x to runs of bytes may move x @ weights.T, and a little for float32."""
    runs = np.abs(x.astype(np.float64)).reshape(*x.shape[:-1], -1, 32)
    half_scale = np.repeat(runs.max(axis=-1) / 127 * 0.501, 32, axis=-1)
    return (half_scale + 2.0**-18 * np.abs(x)) @ np.abs(weights).T + 1e-4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TYPES)
def test_products_against_gguf(name: str, threads: int) -> None:
    raw = random_blocks(name, 100, 512, seed=3)
    weights = numbers_by_gguf(name, raw)
    w = weights_node(name, raw, 512)
    for rows in (1, 33):
        x = activations(rows, 512)
        with compile_graph(
            Graph.of([matmul_blocks(input_x(rows, 512), w)]), threads=threads
        ) as exe:
            [found] = exe(x)
            exe.verify()
            np.testing.assert_array_equal(exe.run_checked(x)[0], found)
        exact = x.astype(np.float64) @ weights.T
        assert np.all(np.abs(found - exact) <= rounding_bound(x, weights))
        # The bound is not far from what happens: it would find a wrong scale or a wrong number.
        assert np.abs(found - exact).max() > 0.001 * rounding_bound(x, weights).mean()


@pytest.mark.parametrize("name", QUANTISED_BY_GGUF)
def test_weights_that_gguf_quantised(name: str) -> None:
    raw = gguf.quants.quantize(activations(64, 96, seed=5), gguf.GGMLQuantizationType[name.upper()])
    x = activations(3, 96)
    [found] = compile_graph(Graph.of([matmul_blocks(input_x(3, 96), weights_node(name, raw, 96))]))(
        x
    )
    weights = numbers_by_gguf(name, raw)
    bound = rounding_bound(x, weights)
    assert np.all(np.abs(found - x.astype(np.float64) @ weights.T) <= bound)


@pytest.mark.parametrize("name", TYPES)
def test_rows_and_all_numbers_are_gguf_s(name: str) -> None:
    raw = random_blocks(name, 21, 256)
    w = weights_node(name, raw, 256)
    indices = graph_input("indices", 0, (2, 3), INT64)
    graph = Graph.of([rows_of_blocks(w, indices), make("add", dequantise(w), dequantise(w))])
    chosen = np.array([[0, 20, 7], [7, 7, 1]])
    rows, twice = compile_graph(graph)(chosen)
    numbers = numbers_by_gguf(name, raw).astype(np.float32)
    np.testing.assert_array_equal(rows, numbers[chosen])
    np.testing.assert_array_equal(twice, 2 * numbers)


def test_a_row_that_is_not_there() -> None:
    w = weights_node("q4_0", random_blocks("q4_0", 5, 64), 64)
    exe = compile_graph(Graph.of([rows_of_blocks(w, graph_input("i", 0, (2,), INT64))]))
    for wrong in (5, -1):
        with pytest.raises(IndexOutOfRange):
            exe(np.array([0, wrong]))
        exe.reset()
    assert exe(np.array([0, 4]))[0].shape == (2, 64)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_one_and_two_threads_agree_bit_for_bit(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TYPES))
    rows, columns = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 300))
    depth = BY_NAME[name].block_length * data.draw(st.integers(1, 4))
    w = weights_node(name, random_blocks(name, columns, depth), depth)
    graph, x = product(w, rows), activations(rows, depth)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        [found] = one(x)
        np.testing.assert_array_equal(found, two(x)[0])
    # Rows do not depend on what is computed beside them.
    with compile_graph(product(w, 1)) as exe:
        np.testing.assert_array_equal(exe(x[-1:])[0], found[-1:])


def test_products_of_one_value_share_its_runs_and_end_in_their_epilogues() -> None:
    x, bias = input_x(2, 9, 64), constant(activations(1, 1, 96))
    raws = [random_blocks("q4_1", 96, 64, seed=k) for k in range(2)]
    first, second = (matmul_blocks(x, weights_node("q4_1", raw, 64)) for raw in raws)
    spread = make("expand", bias, shape=first.shape)
    gate = make("mul", make("tanh", make("add", first, spread)), second)
    exe = compile_graph(Graph.of([gate]))
    names = [kernel.entry_point for kernel in exe.kernels]
    assert sum("quantise_blocks" in name for name in names) == 1
    assert len(names) == 3  # runs, and a kernel for each product with all that follows it
    assert len(exe.load_kernels) == 2
    packed = [slot.nbytes for slot in exe.plan.slots.values() if slot.region == "packed"]
    assert packed == [raw.nbytes for raw in raws]
    given = activations(2, 9, 64)
    a, b = (given.astype(np.float64) @ numbers_by_gguf("q4_1", raw).T for raw in raws)
    exact = np.tanh(a + bias.attr("data").array) * b
    assert np.abs(exe(given)[0] - exact).max() < 0.05 * np.abs(exact).max()


def test_rows_known_at_the_call() -> None:
    raw = random_blocks("q8_0", 80, 128)
    graph = Graph.of(
        [matmul_blocks(input_x(Var("n", 1, 200), 128), weights_node("q8_0", raw, 128))]
    )
    with compile_graph(graph) as exe:
        whole = activations(200, 128)
        [found] = exe(whole)
        for rows in (1, 2, 5, 64, 199):
            np.testing.assert_array_equal(exe(whole[:rows])[0], found[:rows])
    weights = numbers_by_gguf("q8_0", raw)
    exact = whole.astype(np.float64) @ weights.T
    assert np.all(np.abs(found - exact) <= rounding_bound(whole, weights))


@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_have_fewer_tiles_and_the_same_results(threads: int) -> None:
    raw = random_blocks("q4_0", 1000, 256)
    w = weights_node("q4_0", raw, 256)
    with compile_graph(product(w, Var("n", 1, 200)), threads=threads) as exe:
        [kernel] = [k for k in exe.kernels if k.entry_point.startswith("matmul_packed")]
        n_tiles = [evaluate(kernel.global_size[0], {"n": n}) for n in (1, 2, 4, 200)]
        assert 2 <= n_tiles[0] < n_tiles[1] < n_tiles[3]
        assert n_tiles == sorted(n_tiles)
        whole = activations(200, 256)
        [found] = exe(whole)
        for rows in (1, 2, 3, 4, 7, 100):
            np.testing.assert_array_equal(exe(whole[:rows])[0], found[:rows])
    weights = numbers_by_gguf("q4_0", raw)
    exact = whole.astype(np.float64) @ weights.T
    assert np.all(np.abs(found - exact) <= rounding_bound(whole, weights))


def test_what_is_not_finite_stays_so() -> None:
    raw = random_blocks("q4_0", 40, 64)
    x = activations(4, 64)
    x[1, 3], x[2, 40] = np.inf, np.nan
    with compile_graph(product(weights_node("q4_0", raw, 64), 4)) as exe:
        found = exe(x)[0]
    assert np.isfinite(found[[0, 3]]).all()
    assert not np.isfinite(found[[1, 2]]).any()


def test_weights_in_a_file_are_read_in_place(tmp_path: Path) -> None:
    raw = random_blocks("q6_k", 48, 256)
    path = tmp_path / "weights"
    path.write_bytes(b"header, 18 bytes.." + raw.tobytes())
    file = DiskAllocator(path).file()
    w = buffer(file.view(18, raw.nbytes, BY_NAME["q6_k"], (48, 256)))
    with compile_graph(product(w, 2)) as exe:
        [mapped] = loaded(exe).binder.constants.values()
        assert mapped.ctypes.data == file.raw_ptr + 18
        x = activations(2, 256)
        [found] = exe(x)
    weights = numbers_by_gguf("q6_k", raw)
    exact = x.astype(np.float64) @ weights.T
    assert np.all(np.abs(found - exact) <= rounding_bound(x, weights))


def test_what_does_not_fit_is_refused() -> None:
    w = weights_node("q4_k", random_blocks("q4_k", 8, 512), 512)
    with pytest.raises(ShapeMismatch, match="the last axes are not equal"):
        matmul_blocks(input_x(2, 256), w)
    with pytest.raises(TypeMismatch, match="x must be float32"):
        matmul_blocks(graph_input("x", 0, (2, 512), BY_NAME["float16"]), w)
    with pytest.raises(TypeMismatch, match="no block-quantised type"):
        matmul_blocks(input_x(2, 512), constant(activations(8, 512)))
    with pytest.raises(TypeMismatch, match="does not take"):
        make("pack_blocks", w, dtype=BY_NAME["q4_0"])
    with pytest.raises(TypeMismatch, match="indices must be int64"):
        rows_of_blocks(w, input_x(3))
    with pytest.raises(ShapeMismatch, match="whole runs of 32"):
        make("quantise_blocks", input_x(2, 40))
    with pytest.raises(ShapeMismatch, match="whole runs of 12"):
        make(
            "matmul_packed",
            graph_input("r", 0, (2, 13), BY_NAME["int32"]),
            make("pack_blocks", w, dtype=w.dtype),
            dtype=w.dtype,
            columns=8,
        )


def test_pages_of_packed_weights_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "PART_NBYTES", 2**20)
    raw = random_blocks("q8_0", 1024, 1024)
    path = tmp_path / "weights"
    path.write_bytes(raw.tobytes() * 4)
    file = DiskAllocator(path).file()
    views = [file.view(k * raw.nbytes, raw.nbytes, BY_NAME["q8_0"], (1024, 1024)) for k in range(4)]
    x, indices = input_x(1, 1024), graph_input("indices", 1, (1,), INT64)
    first, *others = map(buffer, views)
    total = matmul_blocks(x, first)
    for w in others:
        total = make("add", total, matmul_blocks(x, w))
    # One matrix is read by row as well, as embeddings are that are the last layer too: from panels.
    with compile_graph(Graph.of([total, rows_of_blocks(first, indices)])) as exe:
        given = activations(1, 1024)
        found, row = exe(given, np.array([511]))
        resident = resident_nbytes(path)
        assert "mapped" not in exe.plan.regions
    assert resident <= 2**20 < 4 * raw.nbytes
    np.testing.assert_array_equal(row[0], numbers_by_gguf("q8_0", raw)[511])
    exact = 4 * given.astype(np.float64) @ numbers_by_gguf("q8_0", raw).T
    assert np.all(np.abs(found - exact) <= 4 * rounding_bound(given, numbers_by_gguf("q8_0", raw)))


def resident_nbytes(path: Path) -> int:
    """Bytes of a mapped file that this process has in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = 0
    for line in lines:
        if line.endswith(str(path)):
            rss = next(rest for rest in lines if rest.startswith("Rss:"))
            found += int(rss.split()[1]) * 1024
    return found


@pytest.mark.parametrize("name", ["q4_1", "q6_k", "mxfp4", "nvfp4", "tq1_0", "tq2_0"])
def test_weights_of_a_gguf_file(name: str, tmp_path: Path) -> None:
    raw = random_blocks(name, 70, 256)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", raw, raw_dtype=gguf.GGMLQuantizationType[name.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = GgufFile.open(path).tensors["w"]
    assert tensor.dtype == BY_NAME[name]
    assert tensor.shape == (70, 256)
    x = activations(4, 256)
    with compile_graph(product(buffer(tensor.buffer()), 4)) as exe:
        [found] = exe(x)
    weights = numbers_by_gguf(name, raw)
    exact = x.astype(np.float64) @ weights.T
    assert np.all(np.abs(found - exact) <= rounding_bound(x, weights))
