"""Block-quantised numbers, judged bit for bit by the gguf package."""

from __future__ import annotations

from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import dtype
from arenite.dtype.blocks import LAYOUTS, byteswapped, dequantised
from arenite.errors import InvalidArgument, SizeMismatch, TypeMismatch
from tests.codegen.block_weights import numbers_by_onnx

BLOCKS = [t for t in dtype.BY_NAME.values() if t.is_block]
QUANTISED_BY_GGUF = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"]


def with_usual_scales(raw: NDArray[np.uint8], block: dtype.DType) -> NDArray[np.uint8]:
    """Bytes without those scales of 8 bits that ggml reads in its own way: where E8M0 and E4M3 have
    no number it has 2^128 and 0, and it takes no notice of a sign."""
    if block.name not in ("mxfp4", "nvfp4"):
        return raw
    blocks = raw.reshape(-1).view(LAYOUTS[block.name]).copy()
    most = 254 if block.name == "mxfp4" else 0x7E
    blocks["d"] = np.minimum(blocks["d"] & (0xFF if block.name == "mxfp4" else 0x7F), most)
    return blocks.view(np.uint8).reshape(raw.shape)


def judged(raw: NDArray[np.uint8], block: dtype.DType) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        if block.name.startswith("u"):
            return numbers_by_onnx(block.name, raw)
        return quants.dequantize(raw, gguf.GGMLQuantizationType[block.name.upper()])


def assert_same(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal in every bit, where a NaN equals any other."""
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.shape == theirs.shape
    missing = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), missing)
    same = ours.view(np.uint32) == theirs.view(np.uint32)
    assert (same | missing).all()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_layout_fills_its_block(block: dtype.DType) -> None:
    assert LAYOUTS[block.name].itemsize == block.block_nbytes


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_random_bytes_stand_for_the_same_numbers_as_in_ggml(block: dtype.DType) -> None:
    raw = np.random.default_rng(5).integers(0, 256, (3, 2000 * block.block_nbytes), np.uint8)
    raw = with_usual_scales(raw, block)
    ours = dequantised(raw, block, (3, 2000 * block.block_length))
    has_floats = LAYOUTS[block.name]["d"].base.kind == "f"
    assert np.isnan(ours).any() == has_floats  # scales that are no numbers among them
    assert np.isfinite(ours).mean() > 0.5
    assert_same(ours, judged(raw, block))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@given(content=st.binary(min_size=1, max_size=210))
def test_any_one_block_stands_for_the_same_numbers(block: dtype.DType, content: bytes) -> None:
    raw = np.resize(np.frombuffer(content, np.uint8), block.block_nbytes)
    raw = with_usual_scales(raw, block)
    assert_same(dequantised(raw.tobytes(), block, (block.block_length,)), judged(raw, block))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_more_blocks_than_are_expanded_at_once(block: dtype.DType) -> None:
    shape = (3, 2**17 + 256)
    raw = np.random.default_rng(6).integers(0, 256, block.nbytes(shape), np.uint8)
    raw = with_usual_scales(raw, block)
    theirs = judged(raw.reshape(3, -1), block)
    assert_same(dequantised(raw, block, shape), theirs)


@pytest.mark.parametrize(
    ("name", "scale", "length"),
    [("mxfp4", ml_dtypes.float8_e8m0fnu, 32), ("nvfp4", ml_dtypes.float8_e4m3fn, 16)],
)
def test_small_floats_with_a_small_scale(name: str, scale: Any, length: int) -> None:
    """Every scale by every float4_e2m1fn, as ml_dtypes has them."""
    block = dtype.of(name)
    raw = np.random.default_rng(4).integers(0, 256, (1024, block.block_nbytes), np.uint8)
    n_scales = block.block_length // length
    raw[:, :n_scales] = np.arange(1024 * n_scales).reshape(1024, -1) % 256
    # Of each part the low nibbles are its first half.
    pairs = raw[:, n_scales:].reshape(-1, length // 2)
    codes = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.uint8)
    numbers = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scales = raw[:, :n_scales].reshape(-1, 1).view(scale).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = (scales * numbers).reshape(1024, -1)
    found = dequantised(raw, block, (1024, block.block_length))
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).any()
    assert len({*codes[np.isfinite(scales[:, 0])].reshape(-1)}) == 16


@pytest.mark.parametrize("name", QUANTISED_BY_GGUF)
def test_quantised_numbers_come_back_close(name: str) -> None:
    numbers = np.random.default_rng(7).standard_normal((4, 64)).astype(np.float32)
    raw = quants.quantize(numbers, gguf.GGMLQuantizationType[name.upper()])
    most = 1 if name == "mxfp4" else 0.35  # steps of up to 2 at 4
    np.testing.assert_allclose(dequantised(raw, dtype.of(name), (4, 64)), numbers, atol=most)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_scalar_floats_become_float32(name: str) -> None:
    scalar = dtype.of(name)
    raw = np.random.default_rng(8).integers(0, 256, 2**12, np.uint8)
    qtype = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[name]
    theirs = quants.dequantize(raw, gguf.GGMLQuantizationType[qtype])
    assert_same(dequantised(raw, scalar, theirs.shape), theirs)


@pytest.mark.parametrize("scalar", ["float16", "int64", "float32", "bfloat16", "uint8"])
def test_scalars_are_swapped_whole(scalar: str) -> None:
    raw = np.arange(64, dtype=np.uint8)
    width = dtype.of(scalar).bits // 8
    expected = raw.reshape(-1, width)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(byteswapped(raw, dtype.of(scalar)), expected)


@pytest.mark.parametrize(
    ("name", "fields"),
    [("q4_0", [0]), ("q8_0", [0]), ("q4_k", [0, 2]), ("q6_k", [208]), ("iq4_xs", [0, 2])],
)
def test_only_multi_byte_fields_of_a_block_are_swapped(name: str, fields: list[int]) -> None:
    block = dtype.of(name)
    raw = np.random.default_rng(9).integers(0, 256, 5 * block.block_nbytes, np.uint8)
    expected = raw.reshape(5, -1).copy()
    for start in fields:
        expected[:, [start, start + 1]] = expected[:, [start + 1, start]]
    np.testing.assert_array_equal(byteswapped(raw, block), expected.reshape(-1))


def test_bytes_that_do_not_fit_the_shape_are_refused() -> None:
    q4_0 = dtype.of("q4_0")
    with pytest.raises(SizeMismatch, match=r"17 bytes .* q4_0 of shape \(32,\), which has 18"):
        dequantised(bytes(17), q4_0, (32,))
    with pytest.raises(InvalidArgument, match="multiple of 32"):
        dequantised(bytes(18), q4_0, (31,))
    for scalar in ("int8", "float4_e2m1fn"):
        with pytest.raises(TypeMismatch, match=scalar):
            dequantised(bytes(8), dtype.of(scalar), (8 if scalar == "int8" else 16,))


def test_no_blocks_stand_for_no_numbers() -> None:
    assert dequantised(b"", dtype.of("q6_k"), (0, 256)).shape == (0, 256)
