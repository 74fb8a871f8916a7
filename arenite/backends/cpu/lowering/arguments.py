"""What every kernel function begins with: the addresses and sizes of its window."""

from __future__ import annotations

from arenite.backends.cpu.lowering.scope import SCALAR, Binding
from arenite.backends.cpu.lowering.tile import Tiles
from arenite.backends.cpu.lowering.vector import I64
from arenite.codegen import loop_ir as ir


def bind_arguments(loops: Tiles) -> None:
    """Make the arrays and sizes of the kernel known, read from `%window`."""
    b, kernel = loops.builder, loops.kernel
    for at, array in enumerate(kernel.arrays):
        where = b.offset("%window", 8 * at)
        loops.pointers[array.name] = b.emit_pointer(f"load ptr, ptr {where}, align 8")
    for at, size in enumerate(kernel.sizes, len(kernel.arrays)):
        value = b.emit(f"load i64, ptr {b.offset('%window', 8 * at)}, align 8", I64)
        loops.scope.bind(size, Binding(ir.INT64, 0, values={SCALAR: value}))
