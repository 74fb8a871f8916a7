"""Short ways to write loop kernels in tests, and arrays with guards around them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME, DType

Array = np.ndarray[Any, Any]

F32 = BY_NAME["float32"]
F64 = BY_NAME["float64"]
I32 = BY_NAME["int32"]
I64 = ir.INT64

PAGE = mmap.PAGESIZE
GUARD = 0xA5
GUARD_NBYTES = 160


def name(text: str, dtype: DType = I64) -> ir.Name:
    return ir.Name(text, dtype)


def vector_for(
    var: str, stop: ir.Expr, *body: ir.Stmt, start: ir.Expr | None = None, unroll: int = 0
) -> ir.For:
    return ir.For(var, start or ir.index(0), stop, body, True, unroll)


def serial_for(var: str, stop: ir.Expr, *body: ir.Stmt, unroll: int = 0) -> ir.For:
    return ir.For(var, ir.index(0), stop, body, False, unroll)


def kernel(
    arrays: Sequence[tuple[str, DType, ir.Role]],
    sizes: Sequence[str],
    body: Sequence[ir.Stmt],
    tiles: ir.Expr | None = None,
    tile_var: str = "tile",
    title: str = "kernel",
) -> ir.LoopKernel:
    arguments = tuple(ir.ArrayArg(*array) for array in arrays)
    tiles = ir.index(1) if tiles is None else tiles
    return ir.LoopKernel(title, arguments, tuple(sizes), tiles, tile_var, tuple(body))


def elementwise(
    inputs: Sequence[DType], output: DType, make: Any, unroll: int = 0
) -> ir.LoopKernel:
    """y[i] = make(a[i], b[i], ...) for i in 0..n."""
    i = name("i")
    loads = [ir.Load("abcdef"[at], i, dtype) for at, dtype in enumerate(inputs)]
    arrays: list[tuple[str, DType, ir.Role]] = [
        ("abcdef"[at], dtype, "in") for at, dtype in enumerate(inputs)
    ]
    body = vector_for("i", name("n"), ir.Store("y", i, make(*loads)), unroll=unroll)
    return kernel([*arrays, ("y", output, "out")], ["n"], [body])


class Guarded:
    """An array between guard bytes, at any byte offset."""

    def __init__(self, values: Array, offset: int = 0) -> None:
        before = GUARD_NBYTES + offset
        self.raw = np.full(before + values.nbytes + GUARD_NBYTES, GUARD, np.uint8)
        self.inside = slice(before, before + values.nbytes)
        self.raw[self.inside] = values.reshape(-1).view(np.uint8)
        self.array = self.raw[self.inside].view(values.dtype)

    def check(self) -> None:
        for outside in (self.raw[: self.inside.start], self.raw[self.inside.stop :]):
            assert (outside == GUARD).all(), "bytes around the array were written"


class AtTheEdge:
    """An array whose last byte is the last one before a page that is not there."""

    def __init__(self, values: Array) -> None:
        n_pages = -(-values.nbytes // PAGE)
        self.memory = mmap.mmap(-1, (n_pages + 1) * PAGE)
        self.raw = np.frombuffer(self.memory, np.uint8)
        end = n_pages * PAGE
        place = self.raw[end - values.nbytes : end].view(values.dtype).reshape(values.shape)
        place[...] = values
        self.array = place
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.raw.ctypes.data + end)
        assert libc.mprotect(address, ctypes.c_size_t(PAGE), 0) == 0


def same(got: Array, want: Array) -> bool:
    """Equal bit for bit, but for the bits of a NaN."""
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    equal = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    if got.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            equal |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    return bool(equal.all())
