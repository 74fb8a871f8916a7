"""Rows of a dispatch table put into a pass, by native code.

wgpu-py takes 5 µs to record a dispatch, of which a token has a hundred: so a function of machine
code, made once and kept in the cache, walks the rows and calls wgpu-native's C functions. Where
there is no native code of ours the same calls are made one by one.

    wgpuComputePassEncoderSetPipeline       where it is another than the row's before
    wgpuComputePassEncoderSetBindGroup
    wgpuComputePassEncoderDispatchWorkgroups
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache as once
from typing import Any

from numpy.typing import NDArray

from arenite.backends.webgpu.table import handle
from arenite.program import cache

_FUNCTIONS = ("SetPipeline", "SetBindGroup", "DispatchWorkgroups")
_PREFIX = "wgpuComputePassEncoder"
_ROW_NBYTES = 32

#: The handle of a pass, and rows.
Walk = Callable[[int, NDArray[Any]], None]


def record_rows(encoder: Any, rows: NDArray[Any], times: dict[str, Any] | None = None) -> None:
    """One pass with these rows, in order; those without groups are left out. `times` says where
    the clock is kept."""
    compute = encoder.begin_compute_pass(timestamp_writes=times)
    _walk()(handle(compute), rows)
    compute.end()


@once
def _walk() -> Walk:
    """That of this process."""
    return _native_walk() if sys.platform == "linux" else _called_walk()


def _called_walk() -> Walk:
    from wgpu.backends.wgpu_native import ffi, lib

    set_pipeline, set_group, dispatch = (getattr(lib, _PREFIX + name) for name in _FUNCTIONS)

    def walk(compute: int, rows: NDArray[Any]) -> None:
        encoder = ffi.cast("WGPUComputePassEncoder", compute)
        last = 0
        for pipeline, group, x, y in rows.tolist():
            if x:
                if pipeline != last:
                    last = pipeline
                    set_pipeline(encoder, ffi.cast("WGPUComputePipeline", pipeline))
                set_group(encoder, 0, ffi.cast("WGPUBindGroup", group), 0, ffi.NULL)
                dispatch(encoder, x, y, 1)

    return walk


def _native_walk() -> Walk:
    from wgpu.backends.wgpu_native import ffi, lib

    from arenite.backends.cpu.compiling.loader import load_code
    from arenite.backends.cpu.identity import compiler_identity, machine, sources
    from arenite.errors import DamagedCache
    from arenite.program.model_file import parse_code

    key = cache.key_of("webgpu recorder", sources(__file__), compiler_identity(), machine())
    store = cache.default()
    try:
        code, entries = parse_code(store.obtain(key, _compiled))
    except DamagedCache:
        store.drop(key)
        code, entries = parse_code(store.obtain(key, _compiled))
    loaded = load_code(code, permanent=True)
    pointers = [ffi.addressof(lib, _PREFIX + name) for name in _FUNCTIONS]
    addresses = [int(ffi.cast("uintptr_t", pointer)) for pointer in pointers]
    functions = (ctypes.c_uint64 * len(addresses))(*addresses)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    walk = ctypes.CFUNCTYPE(None, *kinds)(loaded.address(entries["record_rows"]))
    table = ctypes.addressof(functions)

    def walked(compute: int, rows: NDArray[Any]) -> None:
        assert functions is not None  # which the table is of
        walk(table, compute, rows.ctypes.data, len(rows))

    return walked


def _compiled() -> dict[str, bytes]:
    from arenite.backends.cpu.compiling.link import link_objects
    from arenite.backends.cpu.compiling.pool import compile_modules
    from arenite.backends.cpu.driver.ir_text import Module, Value
    from arenite.backends.cpu.identity import machine
    from arenite.backends.cpu.target import NEON, X86_64
    from arenite.program.model_file import code_sections

    module = Module()
    f = module.function(
        "record_rows", "void", exported=True, functions="ptr", encoder="ptr", rows="ptr", n="i64"
    )
    set_pipeline, set_group, dispatch = (f.load("ptr", f["functions"], 8 * k) for k in range(3))
    zero, null = Value("i64", "0"), Value("ptr", "null")
    narrow_zero, narrow_one = Value("i32", "0"), Value("i32", "1")
    last = f.variable("i64", zero)
    with f.count(0, f["n"]) as k:
        row = f.at(f["rows"], f.mul(k, _ROW_NBYTES))
        x = f.load("i64", row, 16)
        with f.if_(f.ne(x, 0)):
            pipeline = f.load("i64", row)
            with f.if_(f.ne(pipeline, last.get())):
                last.set(pipeline)
                f.call("void", set_pipeline, f["encoder"], f.load("ptr", row))
            f.call("void", set_group, f["encoder"], narrow_zero, f.load("ptr", row, 8), zero, null)
            groups = [f.convert("trunc", f.load("i64", row, at), "i32") for at in (16, 24)]
            f.call("void", dispatch, f["encoder"], *groups, narrow_one)
    target = X86_64 if machine() == "x86_64" else NEON
    image = link_objects(compile_modules([module.text()], target))
    return code_sections(image.image, image.entries)
