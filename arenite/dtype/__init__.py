"""Element types, measured in bits.

A `DType` is a scalar type (4-bit and 2-bit integers, float8 and float4 among them) or a
block-quantised type: a fixed number of elements stored in a fixed number of bytes. Names are
those of NumPy and ml_dtypes; block types carry GGUF's names in lower case. Elements narrower than
a byte are packed, low bits first, without gaps between rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from arenite.errors import InvalidArgument, TypeMismatch


class Kind(Enum):
    """What elements are."""

    BOOL = "bool"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "float"
    COMPLEX = "complex"
    BLOCK = "block-quantised"


class DType:
    """`block_length` elements take `block_nbytes` bytes; for scalars `bits` is exact. Known by its
    name, and never changed."""

    __slots__ = ("bits", "block_length", "kind", "name")

    def __init__(self, name: str, kind: Kind, bits: int, block_length: int = 1) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits  # of one element; for block types of one whole block
        self.block_length = block_length

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DType) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_block(self) -> bool:
        """Whether elements are stored in blocks."""
        return self.kind is Kind.BLOCK

    @property
    def block_nbytes(self) -> int:
        """Bytes of one block; only block-quantised types have blocks."""
        if not self.is_block:
            raise TypeMismatch(f"{self.name} is a scalar type and has no blocks")
        return self.bits // 8

    @property
    def bits_per_element(self) -> float:
        """Bits of one element; a fraction for most block types."""
        return self.bits / self.block_length

    @property
    def has_numpy(self) -> bool:
        """Whether NumPy can hold these elements in place: whole bytes each, no blocks."""
        return not self.is_block and self.bits % 8 == 0

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes a tensor of `shape` takes; the last axis of a block type holds whole blocks."""
        if any(size < 0 for size in shape):
            raise InvalidArgument(f"shape {tuple(shape)} has a negative size")
        count = prod(shape)
        if self.block_length > 1:
            if not shape or shape[-1] % self.block_length:
                raise InvalidArgument(
                    f"shape {tuple(shape)} does not divide into {self.name} blocks: the last axis "
                    f"must be a multiple of {self.block_length}"
                )
            count //= self.block_length
        return -(-count * self.bits // 8)

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that reads these elements in place."""
        if not self.has_numpy:
            raise TypeMismatch(
                f"{self.name} is packed ({self.bits_per_element:g} bits an element) and NumPy has "
                "no in-place form of it; view the bytes as uint8"
            )
        if self.name in _ML_DTYPES:
            import ml_dtypes

            return cast("np.dtype[Any]", np.dtype(getattr(ml_dtypes, self.name)))
        return np.dtype(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"arenite.dtype.{self.name}"


def _scalars(kind: Kind, **bits: int) -> list[DType]:
    return [DType(name.rstrip("_"), kind, n) for name, n in bits.items()]


_ML_DTYPES = frozenset(
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu".split()
)

_ALL_SCALARS = [
    *_scalars(Kind.BOOL, bool_=8),
    *_scalars(Kind.SIGNED, int2=2, int4=4, int8=8, int16=16, int32=32, int64=64),
    *_scalars(Kind.UNSIGNED, uint2=2, uint4=4, uint8=8, uint16=16, uint32=32, uint64=64),
    *_scalars(Kind.FLOAT, float4_e2m1fn=4, float6_e2m3fn=6, float6_e3m2fn=6),
    *_scalars(Kind.FLOAT, float16=16, float32=32, float64=64),
    *[DType(name, Kind.FLOAT, 16 if name == "bfloat16" else 8) for name in sorted(_ML_DTYPES)],
    *_scalars(Kind.COMPLEX, complex64=64, complex128=128),
]

#: Types of single elements, by name.
SCALARS = {dtype.name: dtype for dtype in _ALL_SCALARS}

BOOL, INT8, INT16, INT32, INT64 = map(SCALARS.__getitem__, "bool int8 int16 int32 int64".split())
UINT8, UINT16, UINT32, UINT64 = map(SCALARS.__getitem__, "uint8 uint16 uint32 uint64".split())
FLOAT16, FLOAT32, FLOAT64 = map(SCALARS.__getitem__, "float16 float32 float64".split())
uint8, float32 = UINT8, FLOAT32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: An array of NumPy's, whatever its elements.
    Array: TypeAlias = NDArray[Any]
    #: All types; made when first asked for, since the descriptions of blocks take a start 1 ms.
    BY_NAME: dict[str, DType]
else:
    Array = np.ndarray  # numpy.typing takes a start some milliseconds


def __getattr__(name: str) -> Any:
    if name != "BY_NAME":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _by_name()


@cache
def _by_name() -> dict[str, DType]:
    from arenite.dtype.block_types import BLOCK_TYPES

    blocks = [DType(b.name, Kind.BLOCK, b.nbytes * 8, b.length) for b in BLOCK_TYPES.values()]
    return SCALARS | {dtype.name: dtype for dtype in blocks}


@cache
def _of_numpy(numpy_dtype: np.dtype[Any]) -> DType:
    if numpy_dtype.byteorder == ">" or numpy_dtype.name not in SCALARS:
        raise InvalidArgument(f"NumPy dtype {numpy_dtype!r} has no Arenite counterpart")
    dtype = SCALARS[numpy_dtype.name]
    if not dtype.has_numpy:
        raise InvalidArgument(
            f"NumPy holds {dtype.name} one element a byte while Arenite packs it; convert first"
        )
    return dtype


def of(spec: DType | str | np.dtype[Any] | type) -> DType:
    """The DType for a DType, a name, a NumPy dtype or a NumPy/Python scalar type."""
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        found = SCALARS.get(spec) or _by_name().get(spec)
        if found is None:
            raise InvalidArgument(f"no dtype is called {spec!r}; known: {', '.join(_by_name())}")
        return found
    try:
        numpy_dtype = np.dtype(spec)
    except TypeError:
        raise InvalidArgument(f"{spec!r} is no dtype") from None
    return _of_numpy(numpy_dtype)
