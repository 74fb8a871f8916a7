"""What goes wrong while programs run: a device that is lost, memory that runs out, threads, forks;
and programs made and closed, again and again."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import device
from arenite.backends.webgpu import compile as compiling
from arenite.device import webgpu as module
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.errors import AreniteError, CompileFailed, DeviceUnavailable, OutOfMemory, RunFailed
from arenite.generate.model import LanguageModel
from arenite.ir import full, graph_input, make
from arenite.ir.graph import Graph
from arenite.model import Model
from arenite.pipeline import compile_graph
from arenite.pipeline.program import compile_program
from tests.backends.webgpu.runner import ON_WEBGPU, loaded, webgpu
from tests.backends.webgpu.test_mixed import reversed_on_host
from tests.generate.gguf_models import write_tiny
from tests.model.models import made, node, tensor

F32 = BY_NAME["float32"]
ONES = np.ones(100, np.float32)
#: Programs that are made and closed: of all tests, and of the default tier.
MANY, FEW = 10_000, 40


def scaled(by: float) -> Graph:
    x = graph_input("x", 0, (100,), F32)
    return Graph.of([make("mul", make("exp", x), full((100,), by, F32))])


@pytest.fixture
def apart() -> Iterator[WebGpuAllocator]:
    """A device that is opened for a test alone, as "webgpu"."""
    webgpu()
    opened = dict(module._opened)
    module._opened.clear()
    found = device.get("webgpu")
    assert isinstance(found, WebGpuAllocator)
    yield found
    module._opened.clear()
    module._opened.update(opened)


def test_a_device_lost_in_the_middle_of_a_run_is_opened_again_by_reset(
    apart: WebGpuAllocator,
) -> None:
    with compile_graph(scaled(2), ON_WEBGPU) as program:
        [before] = program(ONES)
        run = loaded(program).start([ONES], {})
        apart.device.destroy()
        for _ in range(2):
            with pytest.raises(DeviceUnavailable, match=r"was lost.*opens it anew"):
                run.result()
        with pytest.raises(RunFailed, match=r"before reset\(\).*was lost"):
            program(ONES)
        program.reset()
        assert program(ONES)[0].tobytes() == before.tobytes()
        assert device.get("webgpu") is loaded(program).device is not apart


def test_a_device_lost_between_the_answer_and_its_reading_is_one_error(
    apart: WebGpuAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wgpu ends the process where memory of a device that was lost is read."""
    from wgpu.backends.wgpu_native._api import libf

    poll = libf.wgpuDevicePoll

    def poll_and_lose(*given: object) -> None:
        poll(*given)
        apart.device.destroy()

    with compile_graph(scaled(2), ON_WEBGPU) as program:
        run = loaded(program).start([ONES], {})
        with monkeypatch.context() as patched:
            patched.setattr(libf, "wgpuDevicePoll", poll_and_lose)
            with pytest.raises(DeviceUnavailable, match="was lost"):
                run.result()
        program.reset()
        np.testing.assert_allclose(program(ONES)[0], 2 * np.e, rtol=3e-7)


def test_a_lost_device_that_never_answers_is_not_waited_for(
    apart: WebGpuAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wgpu.backends.wgpu_native._api import libf

    with compile_graph(scaled(2), ON_WEBGPU) as program:
        run = loaded(program).start([ONES], {})
        with monkeypatch.context() as patched:
            patched.setattr(libf, "wgpuBufferMapAsync", lambda *_: apart.device.destroy())
            with pytest.raises(DeviceUnavailable, match="was lost"):
                run.result()


def test_a_mixed_program_goes_on_after_its_device_was_lost(apart: WebGpuAllocator) -> None:
    x = graph_input("x", 0, (100,), F32)
    graph = Graph.of([make("exp", reversed_on_host(make("neg", x)))])
    with compile_program(graph, ON_WEBGPU) as program:
        [before] = program(ONES)
        apart.device.destroy()
        with pytest.raises(DeviceUnavailable, match="was lost"):
            program(ONES)
        program.reset()
        assert program(ONES)[0].tobytes() == before.tobytes()


@pytest.mark.parametrize("op", ["Exp", "NonZero"])
def test_a_model_that_keeps_nothing_runs_again_after_its_device_was_lost(
    apart: WebGpuAllocator, op: str
) -> None:
    """So that a server of it, and programs of ONNX Runtime, which know no reset, go on. What
    follows `NonZero` is a segment of its own."""
    nodes = [node("Neg", "x", "n"), node(op, "n", "d"), node("Neg", "d", "y")]
    content = made(nodes, [tensor("x", [2, 2])], [tensor("y", None)]).SerializeToString()
    x = {"x": np.array([[1, 2], [3, 5]], np.float32)}
    with Model.of_bytes(content).compile(device="webgpu") as program:
        before = program(x)["y"]
        apart.device.destroy()
        with pytest.raises(DeviceUnavailable, match="was lost"):
            program(x)
        np.testing.assert_array_equal(program(x)["y"], before)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_text_after_a_device_was_lost_is_as_it_was_before(
    apart: WebGpuAllocator, tmp_path: Path, by_hand: bool
) -> None:
    """Keys and values are gone with the device: what texts have in common is computed again."""
    again: dict[str, Any] = {"seed": 1, "max_tokens": 8}
    with arenite.load(write_tiny("llama-f16", tmp_path), context=48, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        before = "".join(model.generate("ab", **again))
        text = model.generate("ab", **again)
        next(text)
        apart.device.destroy()
        with pytest.raises(DeviceUnavailable, match="was lost"):
            list(text)
        if by_hand:
            model.executable.reset()
        assert "".join(model.generate("ab", **again)) == before


def test_another_program_compiles_after_a_device_was_lost(apart: WebGpuAllocator) -> None:
    apart.device.destroy()
    with pytest.raises(DeviceUnavailable, match="was lost"):
        apart.synchronize()
    with compile_graph(scaled(3), ON_WEBGPU) as program:
        np.testing.assert_allclose(program(ONES)[0], 3 * np.e, rtol=3e-7)


def test_a_program_for_which_there_is_no_memory_is_refused_and_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = webgpu()
    with compile_graph(scaled(2), ON_WEBGPU) as program:
        with monkeypatch.context() as patched:
            patched.setattr(gpu, "limits", gpu.limits._replace(buffer_nbytes=256))
            with pytest.raises((OutOfMemory, MemoryError), match="256"):
                compile_graph(scaled(4), ON_WEBGPU)
        np.testing.assert_allclose(program(ONES)[0], 2 * np.e, rtol=3e-7)


def test_memory_that_runs_out_in_a_run_is_told_and_the_program_goes_on_after_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results are copied to memory that a run takes: here there is none."""
    gpu = webgpu()
    create = gpu.device.create_buffer

    def refuse(**asked: object) -> object:
        from wgpu import GPUOutOfMemoryError

        raise GPUOutOfMemoryError("nothing left")

    with compile_graph(scaled(5), ON_WEBGPU) as program:
        [before] = program(ONES)
        loaded(program).staging._free.clear()
        with monkeypatch.context() as patched:
            patched.setattr(gpu.device, "create_buffer", refuse)
            with pytest.raises(OutOfMemory, match="nothing left"):
                program(ONES)
            with pytest.raises(RunFailed, match=r"before reset\(\)"):
                program(ONES)
        assert gpu.device.create_buffer == create
        program.reset()
        assert program(ONES)[0].tobytes() == before.tobytes()


def test_text_that_is_no_wgsl_is_one_error_and_the_device_goes_on() -> None:
    gpu = webgpu()
    with pytest.raises(CompileFailed, match=r"(?s)could not try: .*expected"), gpu.failures("try"):
        gpu.device.create_shader_module(code="fn main( {")
    with compile_graph(scaled(2), ON_WEBGPU) as program:
        np.testing.assert_allclose(program(ONES)[0], 2 * np.e, rtol=3e-7)


def test_programs_made_and_closed_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Each is another: pipelines are kept for the next, but not all of them."""
    gpu, many = webgpu(), MANY if request.config.getoption("--full") else FEW
    monkeypatch.setattr(compiling, "MAX_PIPELINES", 16)
    gc.collect()
    before, sizes = gpu.stats, []
    for number in range(many):
        with compile_graph(scaled(1.5 + number % 64), ON_WEBGPU) as program:
            [found] = program(ONES)
            assert found[0] == pytest.approx((1.5 + number % 64) * np.e)
        if number in (many // 2, many - 1):
            gc.collect()
            sizes.append(_resident_nbytes())
    assert (gpu.stats.n_live, gpu.stats.live_nbytes) == (before.n_live, before.live_nbytes)
    assert len(compiling._pipelines[gpu]) <= 16
    assert sizes[1] - sizes[0] < 16 * 2**20


def test_modules_of_pipelines_that_are_gone_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import wgpu

    webgpu()
    monkeypatch.setattr(compiling, "MAX_PIPELINES", 1)

    def n_modules() -> int:
        gc.collect()
        counts = wgpu.diagnostics.wgpu_native_counts.get_dict()["ShaderModule"]["hub"]["hub"]
        return int(counts["a"] + counts["k"])

    found = []
    for number in range(12):
        with compile_graph(scaled(70.5 + number), ON_WEBGPU) as program:
            program(ONES)
        found.append(n_modules())
    assert found[-1] <= found[2]


def _resident_nbytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_threads_run_programs_of_their_own_and_share_one() -> None:
    webgpu()
    problems: list[object] = []
    shared = compile_graph(scaled(1), ON_WEBGPU)

    def work(number: int) -> None:
        try:
            with compile_graph(scaled(number + 2.5), ON_WEBGPU) as own:
                for k in range(6):
                    array = np.full(100, k / 6 + number, np.float32)
                    for program, by in ((own, number + 2.5), (shared, 1)):
                        [found] = program(array)
                        if not np.allclose(found, np.exp(array) * by, rtol=1e-5):
                            problems.append((number, k, by))
        except AreniteError as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    assert not problems


@pytest.mark.parametrize("again", [False, True])
def test_a_forked_child_cannot_run_a_program_nor_open_the_device_and_its_parent_can(
    again: bool,
) -> None:
    """A driver's threads are not in the child: what it is asked there has no end."""
    webgpu()
    with compile_graph(scaled(2), ON_WEBGPU) as program:
        program(ONES)
        child = os.fork()
        if not child:
            try:
                if again:
                    device.get("webgpu")
                program(ONES)
            except DeviceUnavailable as refusal:
                os._exit(7 if "was forked" in str(refusal) else 2)
            finally:
                os._exit(1)
        for _ in range(600):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.1)
        else:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        np.testing.assert_allclose(program(ONES)[0], 2 * np.e, rtol=3e-7)
