"""DequantizeLinear of matrices of 4 bits: they stay so where a product reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from arenite.model import Model
from tests.frontends.onnx.runtime import run_runtime

Array = NDArray[Any]
KINDS = {"int4": (TensorProto.INT4, -8, 8), "uint4": (TensorProto.UINT4, 0, 16)}


def product(
    depth: int, width: int, block: int, kind: str, *, zeros: bool, turned: bool
) -> ModelProto:
    """x times weights in blocks along the depth, or with one scale a column where `block` is 0;
    the weights are [depth, width], or `turned` and transposed by a node."""
    rng = np.random.default_rng(depth + width + block)
    number, low, high = KINDS[kind]
    shape = (width, depth) if turned else (depth, width)
    few = -(-depth // block) if block else 1
    scaled = (width, few) if turned else (few, width)
    scales = rng.uniform(0.5, 1.5, scaled if block else (width,)).astype(np.float32)

    def narrow(name: str, shape: tuple[int, ...]) -> TensorProto:
        return helper.make_tensor(name, number, shape, rng.integers(low, high, shape).flatten())

    held = [narrow("w", shape), numpy_helper.from_array(scales, "s")]
    if zeros:
        held.append(narrow("z", scales.shape))
    axis = int(turned) if block else int(not turned)
    names = [one.name for one in held]
    nodes = [helper.make_node("DequantizeLinear", names, ["d"], axis=axis, block_size=block)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
        for name, size in (("x", depth), ("y", width))
    )
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    sets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


@pytest.mark.parametrize(
    ("block", "kind", "zeros", "turned"),
    [
        (32, "int4", False, False),
        (32, "uint4", True, True),
        (128, "int4", True, False),
        (64, "uint4", False, False),
        (0, "int4", False, False),
        (0, "uint4", True, True),
    ],
)
def test_weights_stay_narrow_and_nothing_is_rounded(
    block: int, kind: str, zeros: bool, turned: bool
) -> None:
    made = product(512, 768, block, kind, zeros=zeros, turned=turned)
    with Model.of_bytes(made.SerializeToString()).compile(rows="1..4", threads=1) as exe:
        for n_rows in (1, 3):
            x = np.random.default_rng(n_rows).standard_normal((n_rows, 512)).astype(np.float32)
            [wanted] = run_runtime(made, {"x": x})
            np.testing.assert_allclose(exe(x)["y"], wanted, 1e-5, 1e-5 * np.abs(wanted).max())
        packed = exe.plan.regions["packed"].nbytes
    assert packed < 512 * 768 * 2  # with what loading takes; float32 would be 4 each, and that


def test_blocks_that_no_kernel_has_are_widened_when_a_program_is_loaded() -> None:
    made = product(60, 24, 20, "int4", zeros=True, turned=False)
    x = np.random.default_rng(0).standard_normal((2, 60)).astype(np.float32)
    with Model.of_bytes(made.SerializeToString()).compile(rows=2, threads=1) as exe:
        [wanted] = run_runtime(made, {"x": x})
        np.testing.assert_allclose(exe(x)["y"], wanted, 1e-5, 1e-5)
        [executable] = exe.executable.executables
        assert [one.entry_point[:13] for one in executable.kernels] == ["matmul_panels"]
