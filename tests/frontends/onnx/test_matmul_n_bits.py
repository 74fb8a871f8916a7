"""MatMulNBits that may round what it multiplies to 8 bits: its weights stay packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from arenite.dtype import float32
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, translate
from arenite.ir import evaluate
from arenite.model import Model
from arenite.passes import apply
from arenite.passes.plain_blocks import plain_blocks

Array = NDArray[Any]
FLOAT = TensorProto.FLOAT


def unpacked(packed: Array, bits: int) -> Array:
    """Numbers of some bits, low bits first, of bytes along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


class Product:
    """A model of one product, and the weights that it stands for."""

    def __init__(
        self, depth: int, width: int, block: int, bits: int, zeros: str = "", level: int = 4
    ) -> None:
        rng = np.random.default_rng(depth + width + block + bits)
        n_blocks = -(-depth // block)
        packed = rng.integers(0, 256, (width, n_blocks, block * bits // 8), np.uint8)
        scales = rng.uniform(0.5, 1.5, (width, n_blocks)).astype(np.float32)
        inits = {"w": packed, "s": scales.reshape(-1)}
        zero: Array = np.full((width, n_blocks), 1 << bits - 1, np.float32)
        if zeros == "bytes":
            raw = rng.integers(0, 256, (width, -(-n_blocks * bits // 8)), np.uint8)
            zero = unpacked(raw, bits)[:, :n_blocks].astype(np.float32)
            inits["z"] = raw.reshape(-1)
        elif zeros == "floats":
            zero = rng.uniform(0, 9, (width, n_blocks)).astype(np.float32)
            inits["z"] = zero.reshape(-1)
        whole = unpacked(packed, bits).astype(np.float64) - zero[..., None]
        self.weights = (whole * scales[..., None]).reshape(width, -1)[:, :depth]
        node = helper.make_node(
            "MatMulNBits", ["x", *inits], ["y"], domain="com.microsoft", K=depth, N=width,
            block_size=block, bits=bits, accuracy_level=level,
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", FLOAT, ["rows", depth])],
            [helper.make_tensor_value_info("y", FLOAT, ["rows", width])],
            [numpy_helper.from_array(value, name) for name, value in inits.items()],
        )
        sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        self.model: onnx.ModelProto = helper.make_model(graph, opset_imports=sets, ir_version=10)

    def open(self) -> Model:
        return Model.of_bytes(self.model.SerializeToString())


def rows_of_bytes(n_rows: int, depth: int) -> Array:
    """Rows that lose nothing when each 32 elements are rounded to 8 bits."""
    rows = np.random.default_rng(1).integers(-127, 128, (n_rows, depth)).astype(np.float32)
    rows[:, ::32] = 127
    return rows


@pytest.mark.parametrize(
    ("depth", "block", "bits", "zeros"),
    [
        (64, 32, 4, ""),
        (96, 32, 4, "bytes"),
        (64, 32, 4, "floats"),
        (128, 64, 4, "bytes"),
        (160, 64, 4, ""),  # the last block is a half
        (256, 128, 4, ""),
        (256, 128, 4, "bytes"),
        (160, 128, 4, "bytes"),
        (512, 256, 4, "floats"),
        (64, 32, 8, ""),
        (128, 64, 8, "bytes"),
    ],
)
def test_weights_of_blocks_are_what_numpy_says(
    depth: int, block: int, bits: int, zeros: str
) -> None:
    product = Product(depth, 40, block, bits, zeros)
    with product.open().compile(threads=1) as exe:
        for n_rows in (1, 5):
            x = rows_of_bytes(n_rows, depth)
            wanted = x.astype(np.float64) @ product.weights.T
            np.testing.assert_allclose(exe(x)["y"], wanted, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("block", "bits"), [(32, 4), (128, 4), (32, 8)])
def test_any_rows_are_rounded_to_8_bits_at_the_most(block: int, bits: int) -> None:
    product = Product(256, 40, block, bits, "bytes")
    x = np.random.default_rng(2).standard_normal((3, 256)).astype(np.float32)
    with product.open().compile(threads=1) as exe:
        made = exe(x)["y"]
    wanted = x.astype(np.float64) @ product.weights.T
    step = np.abs(x).reshape(3, -1, 32).max(axis=2).repeat(32, axis=1) / 127
    bound = (step / 2) @ np.abs(product.weights).T
    assert (np.abs(made - wanted) <= bound * 1.001).all()


@pytest.mark.parametrize("level", [0, 1])
def test_rows_are_not_rounded_unless_the_model_allows_it(level: int) -> None:
    product = Product(256, 40, 32, 4, level=level)
    x = np.random.default_rng(2).standard_normal((3, 256)).astype(np.float32)
    with product.open().compile(threads=1) as exe:
        wanted = x.astype(np.float64) @ product.weights.T
        np.testing.assert_allclose(exe(x)["y"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [0, 4])
def test_packed_weights_take_a_fraction_of_those_in_float32(level: int) -> None:
    product = Product(512, 256, 128, 4, "bytes", level)
    in_file = 512 * 256 // 2
    with product.open().compile(threads=1) as exe:
        exe(rows_of_bytes(1, 512))
        # Panels, with scales and zeros beside the numbers; and the floats that they are made of.
        by_region = {name: region.nbytes for name, region in exe.plan.regions.items()}
        assert by_region["packed"] < 1.4 * in_file
        assert exe.plan.total_nbytes < 1.6 * in_file


@pytest.mark.parametrize(("bits", "zeros"), [(4, ""), (4, "bytes"), (8, "bytes")])
@pytest.mark.parametrize("level", [0, 4])
def test_devices_without_block_types_take_plain_arithmetic(
    bits: int, zeros: str, level: int
) -> None:
    product = Product(64, 40, 32, bits, zeros, level)
    file = OnnxFile.of_bytes(product.model.SerializeToString())
    x = rows_of_bytes(3, 64)
    graph = translate(file, {"x": Argument(x.shape, float32)}).graph
    plain = apply(graph, plain_blocks)
    assert not any(node.dtype.is_block for node in plain.nodes)
    wanted = x.astype(np.float64) @ product.weights.T
    np.testing.assert_allclose(evaluate(plain, [x])[0], wanted, rtol=1e-5, atol=1e-2)
