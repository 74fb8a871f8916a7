"""The adapters that wgpu finds, which is imported here first: the most capable ones first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import MethodType
from typing import Any

from arenite.errors import DeviceUnavailable, NoSuchAdapter

_TO_INSTALL = "pip install 'arenite[webgpu]'"
_DRIVER = (
    "a Vulkan loader and a driver are needed; on Debian without a GPU: "
    "apt install libvulkan1 mesa-vulkan-drivers"
)
#: The best first; OpenGL has no storage buffers worth the name.
_BACKENDS = ("Vulkan", "Metal", "D3D12")
_RUNTIME_DIR = "XDG_RUNTIME_DIR"
_KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "CPU")


@contextmanager
def quiet_wayland() -> Iterator[None]:
    """Mesa's drivers look for a screen when they are opened, and Wayland's library writes to the
    terminal if it does not know where to look. Meanwhile it looks where none can be; what Python
    and its children see of the environment stays as it is."""
    if _RUNTIME_DIR in os.environ:
        yield
        return
    os.putenv(_RUNTIME_DIR, os.devnull)
    try:
        yield
    finally:
        os.unsetenv(_RUNTIME_DIR)


def adapters_for(name: str) -> list[Any]:
    """Those that can be used; DeviceUnavailable says what to install, by the name asked for."""
    try:
        with _few_types():
            import wgpu
            from wgpu.backends.wgpu_native.extras import set_instance_extras

        with suppress(RuntimeError):  # someone else has opened wgpu before us
            set_instance_extras(backends=["Primary"])  # looking for OpenGL takes as long again
        found = wgpu.gpu.enumerate_adapters_sync()
    except ImportError:
        raise DeviceUnavailable(
            f"{name!r} needs wgpu, which is not installed: {_TO_INSTALL}"
        ) from None
    except (OSError, RuntimeError) as error:
        raise DeviceUnavailable(f"{name!r}: wgpu did not start: {error}; {_DRIVER}") from None
    usable = [adapter for adapter in found if adapter.info["backend_type"] in _BACKENDS]
    if not usable:
        raise DeviceUnavailable(f"{name!r}: wgpu finds no adapter here; {_DRIVER}")
    return sorted(usable, key=lambda adapter: _KINDS.index(_kind(adapter)))


@contextmanager
def _few_types() -> Iterator[None]:
    """Have cffi name those types to its parser that a declaration uses, while wgpu is imported and
    for all that wgpu declares later. Else it names all of wgpu's nine hundred whenever a type is
    met for the first time: 15 ms for each of fifty, until the first token."""
    known = sys.modules.get("wgpu.backends.wgpu_native")
    if known is not None and not hasattr(known.ffi, "_parser"):
        yield  # its types are in tables, and nothing is parsed
        return
    from cffi.cparser import Parser  # type: ignore[import-untyped]

    def parse_with_few(self: Any, text: str) -> Any:
        every, words = self._declarations, set(re.findall(r"\w+", text))
        names = [name for name in every if name.removeprefix("typedef ") in words]
        self._declarations = {name: every[name] for name in names}
        try:
            return parse(self, text)
        finally:
            self._declarations = every

    parse = Parser._parse
    Parser._parse = parse_with_few
    try:
        yield
        from wgpu.backends.wgpu_native import ffi

        ffi._parser._parse = MethodType(parse_with_few, ffi._parser)
    finally:
        Parser._parse = parse


def _kind(adapter: Any) -> str:
    kind = str(adapter.info["adapter_type"])
    return kind if kind in _KINDS else _KINDS[-1]


def chosen_adapter(name: str, which: str, adapters: list[Any]) -> int:
    """The number of the one that is meant by its number or by a part of its name; NoSuchAdapter
    names those that are there."""
    names = [str(adapter.info["device"]) for adapter in adapters]
    if which.isdecimal():
        if len(which) < 10 and int(which) < len(names):
            return int(which)
    else:
        for number, one in enumerate(names):
            if which in one.lower():
                return number
    there = ", ".join(f'"webgpu:{number}" ({one})' for number, one in enumerate(names))
    raise NoSuchAdapter(f"no adapter is called {name!r}; there are: {there}")
