"""DType: bits, blocks and bytes, judged by NumPy, ml_dtypes and the gguf package."""

from __future__ import annotations

import gguf
import ml_dtypes
import numpy as np
import pytest

from arenite import dtype
from arenite.errors import InvalidArgument, TypeMismatch

BLOCKS = [t for t in dtype.BY_NAME.values() if t.is_block]
HELD_BY_NUMPY = [t for t in dtype.BY_NAME.values() if t.has_numpy]
PACKED = [t for t in dtype.BY_NAME.values() if not t.is_block and not t.has_numpy]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_types_have_the_sizes_of_their_formats(block: dtype.DType) -> None:
    if block.name.startswith("u"):  # of ONNX: bits, elements, and floats beside them
        bits, length = map(int, block.name.removesuffix("_least")[1:].split("x"))
        nbytes = bits * length // 8 + (8 if block.name.endswith("_least") else 4)
    else:
        length, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[block.name.upper()]]
    assert (block.block_length, block.block_nbytes) == (length, nbytes)
    assert block.nbytes((3, 2 * length)) == 6 * nbytes
    assert block.bits_per_element == 8 * nbytes / length


@pytest.mark.parametrize("held", HELD_BY_NUMPY, ids=str)
def test_types_numpy_holds_have_its_names_and_sizes(held: dtype.DType) -> None:
    numpy_dtype = held.to_numpy()
    assert (numpy_dtype.name, 8 * numpy_dtype.itemsize) == (held.name, held.bits)
    assert dtype.of(numpy_dtype) is held
    assert held.nbytes((2, 5)) == 10 * numpy_dtype.itemsize == held.nbytes((10,))


@pytest.mark.parametrize("packed", PACKED, ids=str)
def test_types_under_a_byte_are_named_by_ml_dtypes_and_packed(packed: dtype.DType) -> None:
    info = ml_dtypes.iinfo if "int" in packed.name else ml_dtypes.finfo
    assert info(getattr(ml_dtypes, packed.name)).bits == packed.bits
    assert packed.nbytes((3, 3)) == -(-9 * packed.bits // 8)
    with pytest.raises(TypeMismatch, match="view the bytes as uint8"):
        packed.to_numpy()
    with pytest.raises(InvalidArgument, match="Arenite packs it"):
        dtype.of(np.dtype(getattr(ml_dtypes, packed.name)))


def test_every_scalar_type_of_ml_dtypes_is_known() -> None:
    theirs = {
        name
        for name in dir(ml_dtypes)
        if isinstance(getattr(ml_dtypes, name), type) and hasattr(getattr(ml_dtypes, name), "dtype")
    }
    assert theirs - set(dtype.BY_NAME) <= {"int1", "uint1", "complex32", "bcomplex32"}


def test_empty_shapes_take_no_bytes_and_scalars_one_element() -> None:
    assert dtype.of("float32").nbytes((0, 7)) == 0
    assert dtype.of("float32").nbytes(()) == 4
    assert dtype.of("int4").nbytes(()) == 1


def test_a_dtype_is_found_by_name_python_type_and_numpy_type() -> None:
    assert dtype.of("bfloat16").bits == 16
    assert dtype.of(float).name == "float64"
    assert dtype.of(np.int8).name == "int8"
    assert dtype.of(dtype.uint8) is dtype.uint8
    assert (str(dtype.uint8), repr(dtype.uint8)) == ("uint8", "arenite.dtype.uint8")


@pytest.mark.parametrize("wrong", ["float31", np.dtype(">f4"), np.dtype("U3"), object(), "Q4_0"])
def test_what_is_no_dtype_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument):
        dtype.of(wrong)  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="multiple of 32"):
        dtype.of("q4_0").nbytes((64, 33))
    with pytest.raises(InvalidArgument, match="multiple of 256"):
        dtype.of("q4_k").nbytes(())
    with pytest.raises(InvalidArgument, match="negative"):
        dtype.of("int8").nbytes((2, -1))
    with pytest.raises(TypeMismatch, match="no blocks"):
        _ = dtype.of("int8").block_nbytes
