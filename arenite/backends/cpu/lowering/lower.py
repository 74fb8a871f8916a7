"""Loop kernels become the text of one LLVM module for a target.

Each kernel is a hidden function `void name(ptr window, i64 tile_begin, i64 tile_end, ptr worker)`
that runs the kernel's body for its tiles in order. The module needs no symbol from outside and
holds no writable data.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.backends.cpu.attention.driver import AttentionDriver
from arenite.backends.cpu.attention.kernel import AttentionKernel
from arenite.backends.cpu.blocks.experts import ExpertsDriver, ExpertsKernel
from arenite.backends.cpu.blocks.kernel import BlocksDriver, BlocksKernel
from arenite.backends.cpu.blocks.runs import RunsDriver, RunsKernel
from arenite.backends.cpu.bytes.kernel import BytesDriver, BytesKernel
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.conv.depthwise import DepthwiseDriver, DepthwiseKernel
from arenite.backends.cpu.conv.kernel import ConvDriver, ConvKernel
from arenite.backends.cpu.conv.winograd import WinogradDriver, WinogradKernel
from arenite.backends.cpu.gemm.driver import Driver
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.backends.cpu.gemm.slices import SlicedDriver, SlicedKernel
from arenite.backends.cpu.lowering.arguments import bind_arguments
from arenite.backends.cpu.lowering.scope import SCALAR, Binding
from arenite.backends.cpu.lowering.tile import Tiles
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check


def lower(kernels: ir.LoopKernel | Sequence[ir.LoopKernel], target: Target) -> str:
    """One module with these kernels, each checked first."""
    if isinstance(kernels, ir.LoopKernel):
        kernels = (kernels,)
    declarations: set[str] = set()
    shared: dict[str, str] = {}
    functions: list[str] = []
    for kernel in kernels:
        check(kernel)
        builder = Builder(target)
        if isinstance(kernel, MicroKernel):
            driver = _driver(builder, kernel)
            driver.run()
            functions += driver.texts.values()
        elif isinstance(kernel, AttentionKernel):
            attention = AttentionDriver(builder, kernel)
            attention.run()
            functions += attention.texts.values()
        elif isinstance(kernel, RunsKernel):
            RunsDriver(builder, kernel).run()
        else:
            _function(builder, kernel)
        declarations |= builder.declarations
        shared |= builder.globals
        functions.append(
            f"define hidden void @{kernel.name}(ptr %window, i64 %tile_begin, i64 %tile_end, "
            f"ptr %worker) {FUNCTION_ATTRIBUTES} {{\n{builder.body_text()}\n}}\n"
        )
    return "\n".join([*sorted(declarations), *shared.values(), *functions])


def _driver(builder: Builder, kernel: MicroKernel) -> Driver:
    if isinstance(kernel, ExpertsKernel):
        return ExpertsDriver(builder, kernel)
    if isinstance(kernel, BlocksKernel):
        return BlocksDriver(builder, kernel)
    if isinstance(kernel, BytesKernel):
        return BytesDriver(builder, kernel)
    if isinstance(kernel, WinogradKernel):
        return WinogradDriver(builder, kernel)
    if isinstance(kernel, ConvKernel):
        return ConvDriver(builder, kernel)
    if isinstance(kernel, DepthwiseKernel):
        return DepthwiseDriver(builder, kernel)
    if isinstance(kernel, SlicedKernel):
        return SlicedDriver(builder, kernel)
    return Driver(builder, kernel)


def _function(b: Builder, kernel: ir.LoopKernel) -> None:
    loops = Tiles(b, kernel)
    bind_arguments(loops)
    if _names_worker(kernel.body):
        worker = b.emit("load i64, ptr %worker, align 8", I64)
        loops.scope.bind(ir.WORKER.name, Binding(ir.INT64, 0, values={SCALAR: worker}))
    begin, end = Vec(b, "%tile_begin", I64), Vec(b, "%tile_end", I64)
    loops.serial_loop(kernel.tile_var, begin, end, kernel.body, 1)
    b.block.end = "ret void"


def _names_worker(block: ir.Block) -> bool:
    return any(
        ir.WORKER in ir.walk(*ir.expressions(stmt)) or any(map(_names_worker, ir.blocks(stmt)))
        for stmt in block
    )
