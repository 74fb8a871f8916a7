"""Block-quantised numbers, judged bit for bit by the gguf package."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import dtype
from arenite.dtype.blocks import LAYOUTS, byteswapped, dequantised
from arenite.errors import InvalidArgument, SizeMismatch, TypeMismatch

BLOCKS = [t for t in dtype.BY_NAME.values() if t.is_block]
QUANTISED_BY_GGUF = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]


def judged(raw: NDArray[np.uint8], block: dtype.DType) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
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
    ours = dequantised(raw, block, (3, 2000 * block.block_length))
    assert np.isnan(ours).any()  # scales that are no numbers among them
    assert np.isfinite(ours).mean() > 0.5
    assert_same(ours, judged(raw, block))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@given(content=st.binary(min_size=1, max_size=210))
def test_any_one_block_stands_for_the_same_numbers(block: dtype.DType, content: bytes) -> None:
    raw = np.resize(np.frombuffer(content, np.uint8), block.block_nbytes)
    assert_same(dequantised(raw.tobytes(), block, (block.block_length,)), judged(raw, block))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_more_blocks_than_are_expanded_at_once(block: dtype.DType) -> None:
    shape = (3, 2**17 + 256)
    raw = np.random.default_rng(6).integers(0, 256, block.nbytes(shape), np.uint8)
    theirs = judged(raw.reshape(3, -1), block)
    assert_same(dequantised(raw, block, shape), theirs)


@pytest.mark.parametrize("name", QUANTISED_BY_GGUF)
def test_quantised_numbers_come_back_close(name: str) -> None:
    numbers = np.random.default_rng(7).standard_normal((4, 64)).astype(np.float32)
    raw = quants.quantize(numbers, gguf.GGMLQuantizationType[name.upper()])
    np.testing.assert_allclose(dequantised(raw, dtype.of(name), (4, 64)), numbers, atol=0.35)


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
