"""Devices by name.

In: a name such as "cpu" or "disk:weights.bin". Out: the device's allocator, which is what a device
is, seen from memory. What must hold: a name that cannot be served raises and says why.
"""

from __future__ import annotations

from arenite.device.allocator import Allocator
from arenite.device.cpu import CPU
from arenite.device.disk import DiskAllocator
from arenite.errors import DeviceUnavailable, InvalidArgument

_KNOWN = '"cpu", "disk:PATH", "webgpu"'
_NOT_IN_THIS_VERSION = {"cuda": "CUDA"}


def get(name: str) -> Allocator:
    """The device of that name: "cpu" is one for the process, "disk:PATH" opens PATH anew, "webgpu"
    is the most capable adapter, "webgpu:1" the next, "webgpu:nvidia" one by a part of its name.
    Kinds are known in capitals too, "CPU" or "WEBGPU:0"."""
    if not isinstance(name, str):
        raise InvalidArgument(f"a device name is a string, not {name!r}; known: {_KNOWN}")
    kind, colon, rest = name.partition(":")
    kind = kind.lower()
    if kind == "cpu" and not colon:
        return CPU
    if kind == "disk":
        if not rest:
            raise InvalidArgument(f"{name!r} names no file; write disk:PATH")
        return DiskAllocator(rest)
    if kind == "webgpu":
        from arenite.device.webgpu import open_device

        return open_device(name)
    if kind in _NOT_IN_THIS_VERSION:
        raise DeviceUnavailable(
            f"{name!r}: this version of Arenite has no {_NOT_IN_THIS_VERSION[kind]} device; "
            'use "cpu"'
        )
    raise DeviceUnavailable(f"no device is called {name!r}; known: {_KNOWN}")
