"""Host memory by address: where bytes lie, copying them, and bytes out of what a caller gives.

In: raw buffers the host can reach; bytes-like objects and arrays. Out: addresses, flat memoryviews,
copies that may overlap. What must hold: no copy leaves the raw buffer it is given.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite.device.raw import Mapping, RawBuffer
from arenite.errors import InvalidArgument, InvalidView, NotCpuAccessible, TypeMismatch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer as SpeaksBufferProtocol

BytesLike: TypeAlias = "SpeaksBufferProtocol | NDArray[Any]"


def mapping_of(memory: mmap.mmap) -> Mapping:
    return Mapping(memory, address_of(memoryview(memory)), len(memory))


def address_of(view: memoryview) -> int:
    """Where the bytes of a non-empty contiguous view lie."""
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def host_address(raw: RawBuffer, offset: int, nbytes: int) -> int:
    """The address of `nbytes` bytes at `offset`, or the reason why the host has none."""
    if not raw.cpu_accessible or raw.address is None:
        raise NotCpuAccessible(
            f"the host cannot reach this {type(raw).__name__} of {raw.nbytes} bytes; "
            "copy it out instead"
        )
    if offset < 0 or nbytes < 0 or offset + nbytes > raw.nbytes:
        raise InvalidView(
            f"bytes {offset}..{offset + nbytes} are not within the {raw.nbytes} bytes allocated"
        )
    return raw.address + offset


def write_host(raw: RawBuffer, offset: int, source: memoryview) -> None:
    """Copy all of `source` to `offset`; the two may overlap."""
    target = host_address(raw, offset, source.nbytes)
    if source.nbytes:
        ctypes.memmove(target, address_of(source), source.nbytes)


def read_host(raw: RawBuffer, offset: int, target: memoryview) -> None:
    """Fill all of `target` from `offset`; the two may overlap."""
    source = host_address(raw, offset, target.nbytes)
    if target.nbytes:
        ctypes.memmove(address_of(target), source, target.nbytes)


def bytes_of(source: BytesLike) -> memoryview:
    """The bytes of a bytes-like object or an array, flat; copied only where they are not in C
    order. Writable where the source is and nothing was copied."""
    if isinstance(source, np.ndarray):
        if source.dtype.hasobject:
            raise TypeMismatch(f"an array of {source.dtype} holds references, not bytes")
        # As uint8, because arrays of bfloat16 and the like do not speak the buffer protocol.
        return np.ascontiguousarray(source).reshape(-1).view(np.uint8).data
    try:
        view = memoryview(source)
    except TypeError:
        raise TypeMismatch(
            f"bytes or an array are needed, not {type(source).__name__}; "
            "copy_from takes another Buffer"
        ) from None
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    return np.frombuffer(view, np.uint8).data


def target_bytes_of(target: BytesLike) -> memoryview:
    """The bytes of an object that is to be filled in place; read-only where it is."""
    try:
        in_c_order = (
            target.flags.c_contiguous
            if isinstance(target, np.ndarray)
            else memoryview(target).c_contiguous
        )
    except TypeError:
        raise TypeMismatch(
            f"a target is a writable bytes-like object or an array, not {type(target).__name__}"
        ) from None
    if not in_c_order:
        raise InvalidArgument("a target must be C-contiguous to be filled in place")
    return bytes_of(target)
