"""`arenite.compile(..., device="webgpu")`: what a program is to its caller, whatever the device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Tensor, device
from arenite.backends.webgpu import load
from arenite.backends.webgpu.exchange import Transfer
from arenite.backends.webgpu.recorder import record_rows
from arenite.backends.webgpu.sort import MOST
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import (
    DeviceUnavailable,
    IndexOutOfRange,
    NotSupported,
    RunCancelled,
    RunFailed,
    ShapeMismatch,
    UndeclaredAccess,
)
from arenite.ir import buffer, graph_input, make
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph, saved_program
from tests.backends.webgpu.runner import ON_WEBGPU, Array, executable, loaded, webgpu
from tests.ir.op_examples import F32


def network(x: Any, w: Any, v: Any) -> Any:
    return (arenite.maximum(x @ w, 0.0) @ v).softmax(axis=1)


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_function_is_compiled_for_the_device() -> None:
    webgpu()
    rows = arenite.Var("rows", 1, 64)
    specs = [arenite.spec(shape, "float32") for shape in ((rows, 20), (20, 30), (30, 10))]
    run = arenite.compile(network, *specs, device="webgpu")
    for n in (5, 64):
        x, w, v = data(n, 20), data(20, 30, seed=1), data(30, 10, seed=2)
        inner = np.maximum(x.astype(np.float64) @ w, 0) @ v
        power = np.exp(inner - inner.max(1, keepdims=True))
        np.testing.assert_allclose(run(x, w, v), power / power.sum(1, keepdims=True), atol=1e-5)
    out = np.zeros((64, 10), np.float32)
    assert run(x, w, v, out=out) is out
    np.testing.assert_array_equal(out, run(x, w, v))


def test_rows_of_a_written_out_loop_may_be_complex() -> None:
    """They are joined behind the pass that makes two planes of complex values."""
    webgpu()

    def steps(x: Tensor, step: Tensor) -> Any:
        def body(carried: Tensor, _: Any) -> Any:
            following = carried + step
            return following, following * following

        return arenite.scan(body, x, None, length=4)

    x, step = (data(5, seed=n) + 1j * data(5, seed=n + 2) for n in (0, 1))
    last, rows = arenite.compile(steps, x, step, device="webgpu")(x, step)
    wanted = np.array([x + (k + 1) * step for k in range(4)])
    np.testing.assert_allclose(last, wanted[-1], rtol=1e-5)
    np.testing.assert_allclose(rows, wanted * wanted, rtol=1e-5, atol=1e-5)


def test_a_program_is_kept_and_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    webgpu()
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    graph = Graph.of([make("neg", graph_input("x", 0, (5,), F32))])
    assert saved_program(graph, ON_WEBGPU) is None
    with compile_graph(graph, ON_WEBGPU) as program:
        first = program(data(5))
    again = saved_program(graph, ON_WEBGPU)
    assert again is not None
    with again:
        np.testing.assert_array_equal(again(data(5)), first)


def test_what_is_given_is_checked_as_everywhere() -> None:
    program = executable([make("neg", graph_input("x", 0, (5,), F32))])
    with pytest.raises(ShapeMismatch, match=r"x.*\[5\]"):
        program(data(6))
    np.testing.assert_array_equal(program(data(5))[0], -data(5))


def test_states_stay_on_the_device_from_run_to_run() -> None:
    webgpu()
    total = arenite.State((4,), "float32", name="total")

    def add(x: Tensor) -> Tensor:
        total.set(total.value + x)
        return total.value * 2.0

    x = np.arange(4, dtype=np.float32)
    with arenite.compile(add, arenite.spec((4,), "float32"), device="webgpu") as run:
        np.testing.assert_array_equal(run.run_checked(x), 2 * x)  # which leaves them as they are
        for n in (1, 2, 3):
            np.testing.assert_array_equal(run(x), 2 * n * x)
        np.testing.assert_array_equal(run.state["total"].numpy(), 3 * x)
        run.state["total"].load(np.ones(4, np.float32))
        np.testing.assert_array_equal(run(x), 2 * (1 + x))


def test_a_profile_has_every_kernel() -> None:
    webgpu()
    program = executable([make("sum", graph_input("x", 0, (9, 70), F32), axes=(1,))])
    profile = program.profile(data(9, 70))
    assert [kernel.name for kernel in profile.kernels] == [
        one.entry_point for one in program.kernels
    ]
    assert repr(program).endswith(" bytes of arena, webgpu>")
    there, computed, back = profile.kernels
    assert computed.seconds > 0
    assert computed.gbytes > 0
    for copied in (there, back):  # which the device's clock does not measure
        assert (copied.gbytes == 0) == (copied.seconds == 0)
        assert copied.limit_share <= 1
    [about] = [line for line in str(profile).splitlines() if "GFLOP/s" in line]
    assert re.fullmatch(r"webgpu does \d+ GFLOP/s in float32; it reads .* GB/s from memory", about)


def test_an_index_outside_its_axis_is_told_with_its_lines() -> None:
    webgpu()
    x, at = data(3, 4), np.array([2, 0])
    told = (
        r"in kernel gather_\d+, which comes from .*test_programs\.py:\d+; correct the indices, then"
    )
    with arenite.compile(lambda x, at: x[at], x, at, device="webgpu") as program:
        with pytest.raises(IndexOutOfRange, match=told):
            program(x, at + 1)
        program.reset()
        assert np.array_equal(program(x, at), x[at])


def test_kernels_show_their_loops_and_their_text() -> None:
    program = executable([make("sum", graph_input("x", 0, (9, 70), F32), axes=(1,))])
    _, kernel, _ = program.kernels
    assert kernel.device == "webgpu"
    assert "threads each" in kernel.code
    assert "@compute @workgroup_size(128)" in kernel.source
    with pytest.raises(NotSupported, match="WGSL"):
        _ = kernel.asm
    with pytest.raises(NotSupported, match="'webgpu' is not compiled by LLVM; `source` has"):
        _ = kernel.llvm


def test_a_kernel_that_writes_what_it_does_not_declare_is_named() -> None:
    program = executable([make("neg", graph_input("x", 0, (5,), F32))])
    one = loaded(program)
    _, launch, _ = program.compiled.launches
    number, shader = launch.entry, one.shaders[launch.entry]
    wrong = shader.text.replace("out0_put(u32(", "out0_put(7u + u32(")
    one.shaders[number] = shader.__class__(
        **{**shader.to_json(), "text": wrong, "arrays": shader.arrays}
    )
    with pytest.raises(UndeclaredAccess, match="neg_1 wrote byte"):
        program.run_checked(data(5))


def test_copies_between_host_and_device_are_launches_like_any_other() -> None:
    a, b = (graph_input(name, k, (1000,), F32) for k, name in enumerate("ab"))
    total = make("cumsum", make("add", a, b), axis=0)
    with executable([total, a], memory=13_000) as program:
        launches = program.compiled.launches
        names = [launch.name.rpartition("_")[0] for launch in launches]
        assert sorted(names) == ["add", "cumsum", "transfer", "transfer", "transfer"]
        kinds = [
            {program.compiled.values[int(number)].kind for number in launch.arrays}
            for launch in launches
            if launch.name.startswith("transfer")
        ]
        assert sorted(map(sorted, kinds)) == [
            ["input", "work"],
            ["input", "work"],
            ["output", "work"],
        ]
        # Nothing but the plan's bytes is taken on the device, and bytes are used again.
        regions = loaded(program).regions
        [arena] = regions.arena
        assert arena.buffer.nbytes == program.plan.peak_nbytes < 4 * 4000
        assert not regions.weights
        program.verify()
        x, y = data(1000), data(1000, seed=1)
        for results in (program(x, y), program.run_checked(x, y)):
            np.testing.assert_allclose(results[0], np.cumsum(x + y), rtol=1e-3, atol=1e-4)
            np.testing.assert_array_equal(results[1], x)


def test_an_argument_that_takes_bytes_of_others_is_copied_in_its_turn() -> None:
    a, b, c = (graph_input(name, k, (1000,), F32) for k, name in enumerate("abc"))
    first = make("cumsum", a, axis=0)
    total = make("add", make("cumsum", make("add", make("cumsum", first, axis=0), b), axis=0), c)
    with executable([total], memory=9_000) as program:
        one = loaded(program)
        ahead = [step.is_free for step in one.order.steps if isinstance(step, Transfer)]
        assert True in ahead[:-1]
        assert False in ahead[:-1]  # the last one is of the result
        given = [data(1000, seed=k) for k in range(3)]
        inner = np.cumsum(np.cumsum(given[0].astype(np.float64))) + given[1]
        for results in (program(*given), program(*given), program.run_checked(*given)):
            np.testing.assert_allclose(results[0], np.cumsum(inner) + given[2], rtol=1e-3, atol=1)


def test_a_result_that_nobody_overwrites_does_not_end_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webgpu()
    x = graph_input("x", 0, (40, 40), F32)
    square = make("matmul", x, x, transpose_a=False, transpose_b=False)
    fourth = make("matmul", square, square, transpose_a=False, transpose_b=False)
    passes: list[int] = []

    def counted(encoder: Any, rows: Array, times: Any = None) -> None:
        passes.append(int(np.count_nonzero(rows["x"])))
        record_rows(encoder, rows, times)

    a = data(40, 40)
    with executable([square, fourth]) as program:
        order = [isinstance(step, Transfer) for step in loaded(program).order.steps]
        assert order == [True, False, True, True]
        monkeypatch.setattr(load, "record_rows", counted)
        found = program(a)
        assert passes == [2]
        checked = program.run_checked(a)
    wide = a.astype(np.float64)
    for one, two, wanted in zip(
        found, checked, (wide @ wide, wide @ wide @ wide @ wide), strict=True
    ):
        np.testing.assert_allclose(one, wanted, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(one, two)


def test_runs_begun_one_after_another_have_arguments_of_their_own() -> None:
    with executable([make("neg", graph_input("x", 0, (5,), F32))]) as program:
        one = loaded(program)
        begun = [one.start([data(5, seed=k)], {}) for k in range(3)]
        for k in (2, 0, 1):
            np.testing.assert_array_equal(begun[k].result()[0], -data(5, seed=k))


@pytest.mark.parametrize("count", [0, 1, 3, 5, 1023])
def test_arguments_and_results_of_any_number_of_bytes_are_copied(count: int) -> None:
    x = graph_input("x", 0, (arenite.Var("n", 0, 2000),), arenite.dtype.of("uint8"))
    given = np.random.default_rng(count).integers(0, 255, count).astype(np.uint8)
    with executable([make("add", x, x), make("le", x, make("abs", x))]) as program:
        for results in (program(given), program.run_checked(given)):
            np.testing.assert_array_equal(results[0], given + given)
            np.testing.assert_array_equal(results[1], np.ones(count, np.bool_))


def test_a_cancelled_run_hands_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = executable([make("neg", graph_input("x", 0, (5,), F32))])
    one = loaded(program)
    start = one.start

    def cancelled(*arguments: Any) -> Any:
        program.cancel()
        return start(*arguments)

    monkeypatch.setattr(one, "start", cancelled)
    with pytest.raises(RunCancelled):
        program(data(5))
    monkeypatch.undo()
    np.testing.assert_array_equal(program(data(5))[0], -data(5))


def test_a_lost_device_ends_the_program_until_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    from arenite.device import webgpu as module

    webgpu()
    monkeypatch.setattr(module, "_opened", {})
    w = data(5, 3, seed=1)
    node = make(
        "matmul",
        graph_input("x", 0, (2, 5), F32),
        arenite.ir.constant(w),
        transpose_a=False,
        transpose_b=False,
    )
    program = executable([node])
    wanted = program(data(2, 5))
    gpu = loaded(program).device
    gpu.device.destroy()
    with pytest.raises(DeviceUnavailable, match="was lost"):
        program(data(2, 5))
    with pytest.raises(RunFailed, match=r"before reset\(\).*was lost"):
        program(data(2, 5))
    program.reset()
    np.testing.assert_array_equal(program(data(2, 5)), wanted)
    assert loaded(program).device is not gpu


def test_a_closed_program_gives_its_memory_back() -> None:
    gpu = webgpu()
    before = gpu.stats.live_nbytes
    with executable([make("neg", graph_input("x", 0, (500,), F32))]) as program:
        program(data(500))
        assert gpu.stats.live_nbytes > before
    assert gpu.stats.live_nbytes <= before


def test_what_the_device_does_not_do_is_done_by_the_cpu_and_said_where_it_comes_from() -> None:
    webgpu()
    n = MOST + 1
    run = arenite.compile(
        lambda x: -arenite.sort(x), arenite.spec((n,), "float32"), device="webgpu"
    )
    given = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    np.testing.assert_array_equal(run(given), -np.sort(given))
    assert [one.device for one in run.executables] == ["cpu", "webgpu"]
    assert re.search(r"more than 65536.*WebGPU.*test_programs\.py", run.on_cpu["sort"])
    assert arenite.compile(lambda x: -x, arenite.spec((3,)), device="webgpu").on_cpu == {}


def test_other_names_of_the_device_work_too() -> None:
    webgpu()
    run = arenite.compile(lambda x: -x, arenite.spec((5,), "float32"), device="webgpu:0")
    np.testing.assert_array_equal(run(data(5)), -data(5))
    assert isinstance(device.get("webgpu:0"), WebGpuAllocator)


def test_weights_beyond_one_binding_are_in_several_read_only_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = webgpu()
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(4)]
    x = graph_input("x", 0, (8, 64), F32)
    node = x
    for one in weights:
        node = make("matmul", node, buffer(one), transpose_a=False, transpose_b=False)
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=40_000))
    given = rng.standard_normal((8, 64)).astype(np.float32)
    with executable([node]) as program:
        regions = loaded(program).regions
        assert [one.name for one in regions.weights] == ["weights0", "weights1"]
        assert all(one.read_only and one.gpu.size <= 40_000 for one in regions.weights)
        assert not any(one.read_only for one in regions.arena)
        exact = given.astype(np.float64)
        for one in weights:
            exact = exact @ one
        np.testing.assert_allclose(program(given)[0], exact, rtol=1e-4, atol=1e-3)
