"""arenite.onnxruntime: programs that were written for ONNX Runtime find what they look for."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import arenite.onnxruntime as ort
from arenite.errors import AreniteError, DeviceUnavailable, NotSupported
from arenite.onnxruntime import environment
from arenite.onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    RuntimeException,
)
from tests.backends.webgpu.runner import webgpu
from tests.model.models import INT64, STRING, judged, made, network, node, tensor, weights


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing was warned of yet."""
    monkeypatch.setattr(environment, "_told", set())


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_run_gives_the_outputs_that_are_named(session: ort.InferenceSession) -> None:
    x = weights(3, 8)
    wanted = judged(network(), {"x": x})["y"]
    for names in (None, [], ["y"]):
        [found] = session.run(names, {"x": x}, ort.RunOptions())
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_path_is_a_model_too(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(network().SerializeToString())
    for given in (path, str(path)):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        found = ort.InferenceSession(given, options)
        assert found._program.threads == 1
        assert found.run(["y"], {"x": weights(1, 8)})[0].shape == (1, 5)


def test_inputs_and_outputs_read_as_onnx_runtime_writes_them() -> None:
    proto = made(
        [node("Add", "x x", "y"), node("Identity", "i", "j"), node("Identity", "s", "t")],
        [tensor("x", ["b", None, 3]), tensor("i", [], INT64), tensor("s", ["n"], STRING)],
        [tensor("y", ["b", None, 3]), tensor("j", [], INT64), tensor("t", ["n"], STRING)],
    )
    found = ort.InferenceSession(proto.SerializeToString())
    told = [(one.name, one.type, one.shape) for one in found.get_inputs()]
    assert told == [
        ("x", "tensor(float)", ["b", None, 3]),
        ("i", "tensor(int64)", []),
        ("s", "tensor(string)", ["n"]),
    ]
    assert str(found.get_outputs()[0]) == (
        "NodeArg(name='y', type='tensor(float)', shape=['b', None, 3])"
    )


def test_metadata_is_the_files(session: ort.InferenceSession) -> None:
    proto = network()
    proto.producer_name, proto.model_version, proto.domain = "me", 7, "here"
    proto.metadata_props.add(key="labels", value="a,b")
    found = ort.InferenceSession(proto.SerializeToString()).get_modelmeta()
    assert (found.producer_name, found.version, found.domain) == ("me", 7, "here")
    assert (found.graph_name, found.custom_metadata_map) == ("graph", {"labels": "a,b"})
    assert session.get_modelmeta().version == 2**63 - 1  # as ONNX Runtime says where there is none


@pytest.mark.usefixtures("untold")
def test_providers_are_the_truth() -> None:
    data = network().SerializeToString()
    cuda: list[Any] = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider"):
        found = ort.InferenceSession(data, providers=cuda)
    assert found.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]
    assert ort.get_device() == "CPU"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(data, providers=cuda)  # told once


def on(found: ort.InferenceSession) -> str:
    return found._program.executable.device


def test_the_first_provider_that_is_here_decides() -> None:
    webgpu()
    gpu, cpu = "WebGpuExecutionProvider", "CPUExecutionProvider"
    data, x = network().SerializeToString(), weights(3, 8)
    wanted = judged(network(), {"x": x})["y"]
    options = ort.SessionOptions()
    options.add_provider(gpu)
    given: list[Any] = [(gpu, {"deviceId": 0}), cpu]
    for found in (ort.InferenceSession(data, providers=given), ort.InferenceSession(data, options)):
        np.testing.assert_allclose(found.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
        assert (found.get_providers(), on(found)) == ([gpu, cpu], "webgpu")
    found.set_providers([cpu, gpu])
    np.testing.assert_allclose(found.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    assert (found.get_providers(), on(found)) == ([cpu], "cpu")


@pytest.mark.usefixtures("untold")
def test_without_webgpu_a_session_that_names_it_runs_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> None:
        raise DeviceUnavailable("no adapter here")

    monkeypatch.setattr("arenite.device.get", refuse)
    with pytest.warns(UserWarning, match="WebGpuExecutionProvider is not available: no adapter"):
        found = ort.InferenceSession(
            network().SerializeToString(), providers=["WebGpuExecutionProvider"]
        )
    assert found.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("kind", ["DiscreteGPU", "CPU"])
def test_webgpu_is_among_the_available_where_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Programs that take all that is available would be slowed down by a CPU that stands in."""
    adapter = SimpleNamespace(info={"adapter_type": kind})
    monkeypatch.setattr("arenite.device.webgpu_adapters.adapters_for", lambda _: [adapter])
    monkeypatch.setattr(environment, "_has_gpu", environment._has_gpu.__wrapped__)
    assert ("WebGpuExecutionProvider" in ort.get_available_providers()) == (kind != "CPU")


@pytest.mark.usefixtures("untold")
def test_options_that_are_not_known_warn_once() -> None:
    options = ort.SessionOptions()
    with pytest.warns(UserWarning, match=r"'session\.made_up' is not known"):
        options.add_session_config_entry("session.made_up", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options.add_session_config_entry("session.made_up", "2")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.made_up") == "2"
    with pytest.warns(UserWarning, match="'disabled_optimizers'"):
        ort.InferenceSession(network().SerializeToString(), options, disabled_optimizers=["a"])
    options.enable_profiling = True
    with pytest.warns(UserWarning, match="profile"):
        ort.InferenceSession(network().SerializeToString(), options)
    with pytest.raises(AttributeError):
        options.intra_op_threads = 3  # type: ignore[attr-defined]
    with pytest.raises(NotSupported, match=r"ops\.so"):
        options.register_custom_ops_library("ops.so")


def test_a_size_can_be_fixed() -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    found = ort.InferenceSession(network().SerializeToString(), options)
    assert found.run(None, {"x": weights(2, 8)})[0].shape == (2, 5)
    assert found.get_inputs()[0].shape == [2, 8]
    with pytest.raises(InvalidArgument, match="compiled for 2"):
        found.run(None, {"x": weights(3, 8)})


X = weights(2, 8)


@pytest.mark.parametrize(
    ("names", "feed", "message"),
    [
        (["z"], {"x": X}, "no output 'z'"),
        (None, {}, "'x'.*is missing"),
        (None, {"x": X, "w": X}, "no input 'w'"),
        (None, {"x": X.astype("f8")}, "'x' is float32"),
        (None, {"x": X[0]}, "'x' is float32"),
        (None, [X], "a dict by name"),
    ],
)
def test_wrong_inputs_raise_what_programs_catch(
    session: ort.InferenceSession, names: Any, feed: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        session.run(names, feed)
    assert isinstance(caught.value, AreniteError)
    assert isinstance(caught.value, ValueError)  # what ONNX Runtime raises for a missing input


def test_files_that_are_none_raise_what_programs_catch(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="nothing"):
        ort.InferenceSession(tmp_path / "nothing.onnx")
    with pytest.raises(InvalidProtobuf):
        ort.InferenceSession(b"this is no model")
    unknown = made([node("Foo", "x", "y")], [tensor("x", [1])], [tensor("y", [1])])
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented, match="Foo"):
        ort.InferenceSession(unknown.SerializeToString())
    broken = made([node("Relu", "z", "y")], [tensor("x", [1])], [tensor("y", [1])])
    with pytest.raises(InvalidGraph, match="'z'"):
        ort.InferenceSession(broken.SerializeToString())
    with pytest.raises(TypeError, match="a path or bytes, not int"):
        ort.InferenceSession(3)  # type: ignore[arg-type]
    assert issubclass(Fail, RuntimeError)


def test_a_run_can_be_ended_before_it_begins(session: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(RuntimeException, match="terminate"):
        session.run(None, {"x": X}, options)


def test_values_and_bindings(session: ort.InferenceSession) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.device_name()) == (
        [2, 8],
        "tensor(float)",
        "cpu",
    )
    assert (value.element_type(), value.is_tensor()) == (1, True)
    [found] = session.run_with_ort_values(["y"], {"x": value})
    [wanted] = session.run(None, {"x": X})
    np.testing.assert_array_equal(found.numpy(), wanted)
    binding = session.io_binding()
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 5], np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), wanted)
    binding.clear_binding_outputs()
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], wanted)
    with pytest.raises(NotSupported, match="cuda"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


def test_memory_at_an_address_is_bound(session: ort.InferenceSession) -> None:
    [wanted] = session.run(None, {"x": X})
    target = np.zeros((2, 5), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("y", "cpu", 0, 1, target.shape, target.ctypes.data)  # 1: ONNX's float
    session.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal(target, wanted)
    ended = ort.RunOptions()
    ended.terminate = True
    with pytest.raises(RuntimeException, match="terminate"):
        session.run_with_iobinding(binding, ended)
    with pytest.raises(AreniteError, match=r"no array of float32\[2, 8\]"):
        binding.bind_input("x", "cpu", 0, np.float32, X.shape, 0)
    with pytest.raises(AreniteError, match="needs a type and a shape"):
        binding.bind_output("y", "cpu", 0, buffer_ptr=target.ctypes.data)


def test_names_are_checked_when_they_are_bound(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="no input 'z'; there are x"):
        binding.bind_cpu_input("z", X)
    with pytest.raises(RuntimeError, match="no output 'x'; there are y"):
        binding.bind_output("x")
    binding.bind_cpu_input("x", X)
    with pytest.raises(RuntimeError, match="no output is bound"):
        session.run_with_iobinding(binding)


def test_what_is_none_is_told_by_its_type(session: ort.InferenceSession) -> None:
    options: Any = {"intra_op_num_threads": 1}
    with pytest.raises(
        TypeError, match=r"SessionOptions of arenite.onnxruntime, not builtins.dict"
    ):
        ort.InferenceSession(network().SerializeToString(), options)
    with pytest.raises(TypeError, match="RunOptions, not dict"):
        session.run(None, {"x": X}, options)
    with pytest.raises(TypeError, match=r"in a list: \['y'\]"):
        session.run("y", {"x": X})


@pytest.mark.usefixtures("untold")
def test_a_provider_that_is_no_name_warns(session: ort.InferenceSession) -> None:
    for wrong in (3, (), None):
        with pytest.warns(UserWarning, match="is not in available provider names"):
            session.set_providers([wrong])  # type: ignore[list-item]


#: What is asked of both: arrays and calls as programs make them.
ORDER = made(
    [node("Add", "x x", "y"), node("Neg", "x", "z")],
    [tensor("x", ["n", 3])],
    [tensor("y", ["n", 3]), tensor("z", ["n", 3])],
)
SIX = np.arange(12, dtype=np.float32).reshape(2, 6)


@pytest.mark.parametrize(
    ("names", "x"),
    [
        (None, SIX[:, ::2]),
        (["z", "y"], np.asfortranarray(SIX[:, :3])[::-1]),
        (["z", "z"], SIX[:0, :3]),
        (("z",), SIX[:, :3].tolist()),
        ([], SIX[:1, 3:]),
    ],
)
def test_runs_are_onnx_runtimes(names: Any, x: Any) -> None:
    import onnxruntime

    data = ORDER.SerializeToString()
    found = [
        one.InferenceSession(data, providers=["CPUExecutionProvider"]).run(names, {"x": x})
        for one in (ort, onnxruntime)
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_bytes_in_the_other_order_are_the_same_numbers() -> None:
    """ONNX Runtime takes them for others."""
    x = SIX[:, :3].astype(">f4")
    [z] = ort.InferenceSession(ORDER.SerializeToString()).run(["z"], {"x": x})
    np.testing.assert_array_equal(z, -SIX[:, :3])


def test_a_run_on_another_thread_tells_its_end(session: ort.InferenceSession) -> None:
    heard: list[Any] = []
    done = threading.Event()

    def hear(results: Any, data: Any, error: str) -> None:
        heard.extend([results, data, error])
        done.set()

    session.run_async(None, {"x": X}, hear, "mine")
    assert done.wait(60)
    assert heard[0][0].shape == (2, 5)
    assert heard[1:] == ["mine", ""]


def test_a_run_that_fails_is_not_the_last() -> None:
    nodes, table = [node("Gather", "table places", "y", axis=0)], weights(5, 3)
    model = made(nodes, [tensor("places", ["n"], INT64)], [tensor("y", None)], {"table": table})
    session = ort.InferenceSession(model.SerializeToString())
    for _ in range(2):
        with pytest.raises(Fail, match="an index is outside its axis") as failure:
            session.run(None, {"places": np.array([5])})
        assert "reset" not in str(failure.value)
        [found] = session.run(None, {"places": np.array([4])})
        np.testing.assert_array_equal(found, table[4:])


@pytest.mark.usefixtures("untold")
def test_a_seed_for_all_is_taken_and_told_to_change_nothing() -> None:
    with pytest.warns(UserWarning, match="set_seed changes nothing"):
        ort.set_seed(3)


def test_the_module_answers_what_programs_ask() -> None:
    assert ort.__version__.startswith(ort.get_version_string())
    ort.disable_telemetry_events()
    logger = logging.getLogger("arenite")
    before = logger.level
    ort.set_default_logger_severity(3)
    assert logger.level == logging.ERROR
    logger.setLevel(before)
    with pytest.raises(InvalidArgument.__bases__[0], match="severity"):
        ort.set_default_logger_severity(9)
