"""Machine code in memory: copied, protected, never writable and executable at once.

In: a flat image that runs at any page (`runtime.link`). Out: its address. The image is copied into
fresh anonymous memory and then made read + execute; where a system forbids that, it goes through
an anonymous file. A model's code is unmapped by `close()`; code that threads may still be inside
of is loaded as permanent and stays for the life of the process. Imports ctypes and mmap only.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from arenite.errors import InvalidArgument, OutOfMemory

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_MAP_FIXED = 0x10  # the mmap module does not have it
_MAP_FAILED = ctypes.c_void_p(-1).value
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC


class LoadedCode:
    """An image at its place."""

    def __init__(self, base: int, nbytes: int, permanent: bool) -> None:
        self.base = base
        self.nbytes = nbytes
        self.permanent = permanent
        self._is_open = True

    def address(self, offset: int) -> int:
        """Where byte `offset` of the image lies."""
        if not self._is_open:
            raise InvalidArgument("this code was closed; its address is no longer ours")
        if not 0 <= offset < self.nbytes:
            raise InvalidArgument(f"offset {offset} is not within the {self.nbytes} bytes of code")
        return self.base + offset

    def close(self) -> None:
        """Unmap the code; nothing may be running in it. Closing twice is closing once."""
        if self.permanent:
            raise InvalidArgument("this code stays for the life of the process; threads use it")
        if self._is_open:
            self._is_open = False
            _libc.munmap(self.base, _whole_pages(self.nbytes))

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"LoadedCode({self.nbytes} bytes at {self.base:#x}{state})"


def load_code(image: bytes | memoryview, permanent: bool = False) -> LoadedCode:
    """The image in executable memory."""
    view = memoryview(image).cast("B")
    if not view.nbytes:
        raise InvalidArgument("an image of no bytes has no code")
    try:
        base = _map_and_protect(view)
    except PermissionError:
        base = _map_anonymous_file(view)
    return LoadedCode(base, view.nbytes, permanent)


def map_memory(nbytes: int) -> int:
    """The address of zeroed memory that is never unmapped: what threads wait on."""
    return _map(_whole_pages(nbytes), _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)


def map_at(address: int, nbytes: int, descriptor: int) -> None:
    """Map a file, read-only, over what is mapped at an address."""
    flags = mmap.MAP_SHARED | _MAP_FIXED
    _libc.mmap(address, nbytes, mmap.PROT_READ, flags, descriptor, 0)


def _map_and_protect(view: memoryview) -> int:
    nbytes = _whole_pages(view.nbytes)
    base = map_memory(nbytes)
    ctypes.memmove(base, view.tobytes(), view.nbytes)
    if _libc.mprotect(base, nbytes, _READ_EXECUTE):
        number = ctypes.get_errno()
        _libc.munmap(base, nbytes)
        raise PermissionError(number, f"memory can't be made executable: {os.strerror(number)}")
    return base


def _map_anonymous_file(view: memoryview) -> int:
    descriptor = os.memfd_create("arenite", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(view)
        return _map(_whole_pages(view.nbytes), _READ_EXECUTE, mmap.MAP_PRIVATE, descriptor)
    finally:
        os.close(descriptor)


def _map(nbytes: int, protection: int, flags: int, descriptor: int) -> int:
    address: int | None = _libc.mmap(None, nbytes, protection, flags, descriptor, 0)
    if address is None or address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OutOfMemory(f"the system did not map {nbytes} bytes: {os.strerror(number)}")
    return address


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
