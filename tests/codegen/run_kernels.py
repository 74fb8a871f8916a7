"""Runs loop kernels in this process, linked and loaded as compiled models are."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from arenite.backends.cpu.compiling import llvm as compiler
from arenite.backends.cpu.compiling.link import CodeImage, link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from tests.codegen import targets

Array = np.ndarray[Any, Any]

#: Targets whose code this machine can run.
RUNNABLE = [
    name
    for name, bits in (("host", 0), ("avx2", 256), ("x86-64", 128))
    if targets.host().is_x86 and targets.host().vector_bits >= bits
]


class Compiled:
    """A kernel in memory, to be called with arrays and sizes by name."""

    def __init__(self, kernel: ir.LoopKernel, target: Target) -> None:
        self.kernel = kernel
        self.ir = lower(kernel, target)
        self.error = ctypes.c_int64(0)
        image = _image(self.ir, target)
        self.code = load_code(image.image)
        address = self.code.address(image.entries[kernel.name])
        word = ctypes.c_int64
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, word, word, ctypes.c_void_p)
        self.call = call(address)

    def __del__(self) -> None:
        if hasattr(self, "code"):
            self.code.close()

    def window(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        addresses = [arrays[array.name].ctypes.data for array in self.kernel.arrays]
        return np.array([*addresses, *(sizes[name] for name in self.kernel.sizes)], np.int64)

    def run(
        self,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        tiles: int = 1,
        splits: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        window = self.window(arrays, sizes)
        worker = np.array([0, ctypes.addressof(self.error)], np.int64)
        for begin, end in splits or [(0, tiles)]:
            self.call(window.ctypes.data, begin, end, worker.ctypes.data)


@lru_cache(maxsize=8)
def _image(text: str, target: Target) -> CodeImage:
    """Kept for a while: tests run one kernel over several sizes."""
    return link_objects([compiler.compile_object(text, target)])


def compiled(kernel: ir.LoopKernel, target: str = "host") -> Compiled:
    return Compiled(kernel, targets.named(target))
