"""Models made by others on WebGPU: what ONNX Runtime gives, and nothing runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from arenite.model import Model
from tests.backends.webgpu.runner import devices_of, webgpu
from tests.model.real_models import CASES, REFERENCES, feeds, kept


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_the_catalogue_runs_on_the_device_alone(
    name: str, catalogue_model: Callable[[str], Path]
) -> None:
    webgpu()
    feed = next(feeds(name))
    with Model.open(catalogue_model(name)).compile(device="webgpu") as program:
        found = program(feed)
        assert devices_of(program.executable) == {"webgpu"}
        assert not program.on_cpu
    with np.load(REFERENCES) as wanted:
        for output, array in found.items():
            key = f"{name}/0/{output}"
            assert list(array.shape) == wanted[f"{key}/shape"].tolist()
            np.testing.assert_allclose(kept(array), wanted[key], rtol=1e-3, atol=2e-5)


def test_a_model_with_a_loop_that_counts_while_it_runs_is_mixed(tmp_path: Path) -> None:
    """x is doubled until its sum is more than 100: the host asks, the device computes."""
    webgpu()
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "before"], ["after"]),
            helper.make_node("ReduceSum", ["after"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "most"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [4]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "start", "x"], ["y"], body=body)],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [
            helper.make_tensor("most", TensorProto.FLOAT, [], [100.0]),
            helper.make_tensor("start", TensorProto.BOOL, [], [True]),
        ],
    )
    path = tmp_path / "doubling.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with Model.open(path).compile(device="webgpu") as program:
        for start in (1.0, 3.0):
            x = np.full(4, start, np.float32)
            wanted = x * 2
            while wanted.sum() < 100:
                wanted = wanted * 2
            assert np.array_equal(program(x)["y"], wanted)
        assert "webgpu" in devices_of(program.executable)
