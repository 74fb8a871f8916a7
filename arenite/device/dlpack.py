"""DLPack, the exchange of arrays without copying: https://github.com/dmlc/dlpack, version 1.1.

Out: a capsule over the bytes of a storage. NumPy makes it, because its capsules are freed in C,
without the interpreter lock and after the interpreter too; where NumPy has no word for the element
type (bfloat16, float8) the array travels as unsigned integers and the type is written over here.
In: the capsule of any producer on the CPU. What must hold: an exported array keeps its storage;
the deleter of an imported one is called exactly once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.device.allocator import MAX_AXES
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import InvalidArgument, TypeMismatch

CPU_DEVICE = (1, 0)  # kDLCPU, the first of them
VERSION = (1, 1)  # the first that has the float8 kinds
FLAG_READ_ONLY = 1
MAX_ADDRESS = 2**63  # as large as NumPy counts


@dataclass(frozen=True, slots=True)
class Borrowed:
    """An imported array: contiguous memory, and what gives it back (at most once)."""

    dtype: DType
    shape: tuple[int, ...]
    address: int
    nbytes: int
    read_only: bool
    release: Callable[[], object] | None


class _DataType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),  # in elements; NULL means C-contiguous
        ("byte_offset", c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
_VERSIONED_NAME, _USED_VERSIONED_NAME = b"dltensor_versioned", b"used_dltensor_versioned"

# Own prototypes: the functions of `ctypes.pythonapi` itself are shared with every other library.
_is_valid = ctypes.PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_keep_for_ever = ctypes.PYFUNCTYPE(None, py_object)(("Py_IncRef", ctypes.pythonapi))
_Deleter = ctypes.PYFUNCTYPE(None, c_void_p)

# A capsule does not copy its name, and may outlive this module.
_keep_for_ever(_USED_NAME)
_keep_for_ever(_USED_VERSIONED_NAME)

_CODE_BY_KIND = {
    Kind.SIGNED: 0,
    Kind.UNSIGNED: 1,
    Kind.FLOAT: 2,
    Kind.COMPLEX: 5,
    Kind.BOOL: 6,
}
_CODE_BY_NAME = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_DTYPE_BY_CODE_AND_BITS = {
    (_CODE_BY_NAME.get(dtype.name, _CODE_BY_KIND.get(dtype.kind)), dtype.bits): dtype
    for dtype in BY_NAME.values()
    if dtype.has_numpy
}


def export(
    data: NDArray[np.uint8],
    dtype: DType,
    shape: tuple[int, ...],
    *,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule over `data`, the bytes of a tensor; it keeps them until its consumer is done."""
    if not dtype.has_numpy:
        raise BufferError(f"DLPack has no form of packed {dtype.name}; view the bytes as uint8")
    if dl_device is not None and tuple(dl_device) != CPU_DEVICE:
        raise BufferError(f"host memory cannot go to DLPack device {tuple(dl_device)} from here")
    is_versioned = max_version is not None and max_version[0] >= 1
    if not (data.flags.writeable or is_versioned or copy):
        raise BufferError(
            "this memory is read-only, which a DLPack capsule before version 1.0 cannot say; "
            "ask with max_version=(1, 0) or later, or for a copy"
        )
    code = _CODE_BY_NAME.get(dtype.name)
    carrier = dtype.to_numpy() if code is None else np.dtype(f"uint{dtype.bits}")
    array: NDArray[Any] = np.ndarray(shape, carrier, buffer=data)
    if copy and not is_versioned:
        # NumPy refuses a read-only array before it thinks of copying it.
        array, copy = array.copy(), None
    capsule = array.__dlpack__(copy=copy, max_version=max_version)
    if code is not None:
        if is_versioned:
            versioned = _ManagedVersioned.from_address(_pointer_of(capsule, _VERSIONED_NAME))
            versioned.minor = max(versioned.minor, VERSION[1])
            versioned.tensor.dtype.code = code
        else:
            _Managed.from_address(_pointer_of(capsule, _NAME)).tensor.dtype.code = code
    return capsule


def take(producer: Any) -> Borrowed:
    """Take over the array of any object that speaks DLPack. What cannot be taken is left whole:
    the capsule is then still its own, and its destructor gives the memory back."""
    if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
        raise TypeMismatch(f"{type(producer).__name__} does not speak DLPack (no __dlpack__)")
    device_type, device_index = producer.__dlpack_device__()
    if device_type != CPU_DEVICE[0]:
        raise InvalidArgument(
            f"the array is on DLPack device ({int(device_type)}, {int(device_index)}), not on the "
            "CPU; copy it there first"
        )
    try:
        capsule = producer.__dlpack__(max_version=VERSION)
    except TypeError:  # a producer from before DLPack 1.0
        capsule = producer.__dlpack__()
    if _is_valid(capsule, _VERSIONED_NAME):
        pointer = _pointer_of(capsule, _VERSIONED_NAME)
        versioned = _ManagedVersioned.from_address(pointer)
        if versioned.major != VERSION[0]:
            raise InvalidArgument(
                f"the array speaks DLPack {versioned.major}.{versioned.minor}; known is "
                f"{VERSION[0]}.x"
            )
        read_only = bool(versioned.flags & FLAG_READ_ONLY)
        return _borrow(versioned, read_only, capsule, pointer, _USED_VERSIONED_NAME)
    if _is_valid(capsule, _NAME):
        pointer = _pointer_of(capsule, _NAME)
        return _borrow(_Managed.from_address(pointer), False, capsule, pointer, _USED_NAME)
    raise InvalidArgument(f"{capsule!r} is no DLPack capsule, or one that was taken already")


def _borrow(
    managed: _Managed | _ManagedVersioned,
    read_only: bool,
    capsule: Any,
    pointer: int,
    used_name: bytes,
) -> Borrowed:
    tensor: _Tensor = managed.tensor
    if tensor.device_type != CPU_DEVICE[0]:
        raise InvalidArgument(f"the capsule is of DLPack device {tensor.device_type}, not the CPU")
    element = tensor.dtype
    dtype = _DTYPE_BY_CODE_AND_BITS.get((element.code, element.bits))
    if dtype is None or element.lanes != 1:
        raise InvalidArgument(
            f"DLPack type code {element.code} with {element.bits} bits in {element.lanes} lanes "
            "has no Arenite counterpart"
        )
    if not 0 <= tensor.ndim <= MAX_AXES or (tensor.ndim and not tensor.shape):
        raise InvalidArgument(f"the array has {tensor.ndim} axes, or none that are listed")
    shape = tuple(tensor.shape[: tensor.ndim])
    nbytes = dtype.nbytes(shape)  # negative sizes are refused
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    if strides is not None and not _is_contiguous(shape, strides):
        raise InvalidArgument(
            f"the array of shape {shape} has strides {strides} (in elements) and is not "
            "C-contiguous; copy it first"
        )
    if not tensor.data and nbytes:
        raise InvalidArgument(f"the array of shape {shape} has no memory (its data is NULL)")
    address = (tensor.data or 0) + tensor.byte_offset
    if address + nbytes > MAX_ADDRESS:
        raise InvalidArgument(
            f"the array of shape {shape} says it has {nbytes} bytes at address {address:#x}, which "
            "no memory has"
        )
    release = partial(_Deleter(managed.deleter), pointer) if managed.deleter else None
    _rename(capsule, used_name)  # from here on the deleter is ours to call
    return Borrowed(dtype, shape, address, nbytes, read_only, release)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
