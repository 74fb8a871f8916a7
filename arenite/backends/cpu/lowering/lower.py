"""Loop kernels become the text of one LLVM module for a target.

Each kernel is a hidden function `void name(ptr window, i64 tile_begin, i64 tile_end, ptr worker)`
that runs the kernel's body for its tiles in order. The module needs no symbol from outside and
holds no writable data.
"""

from __future__ import annotations

from collections.abc import Sequence

from arenite.backends.cpu.attention.driver import AttentionDriver
from arenite.backends.cpu.attention.kernel import AttentionKernel
from arenite.backends.cpu.blocks.experts import Experts, ExpertsDriver
from arenite.backends.cpu.blocks.kernel import Blocks, BlocksDriver
from arenite.backends.cpu.blocks.runs import RunsDriver, RunsKernel
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.conv.depthwise import Depthwise, DepthwiseDriver
from arenite.backends.cpu.conv.driver import ConvDriver
from arenite.backends.cpu.conv.kernel import Conv
from arenite.backends.cpu.gemm.driver import Driver
from arenite.backends.cpu.gemm.kernel import Details, MicroKernel
from arenite.backends.cpu.gemm.slices import Sliced, SlicedDriver
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check

#: What writes a micro-kernel, by its details.
_DRIVERS: dict[type[Details], type[Driver]] = {
    Details: Driver,
    Sliced: SlicedDriver,
    Conv: ConvDriver,
    Depthwise: DepthwiseDriver,
    Blocks: BlocksDriver,
    Experts: ExpertsDriver,
}


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
        if isinstance(kernel, MicroKernel | AttentionKernel):
            driver = (
                AttentionDriver(builder, kernel)
                if isinstance(kernel, AttentionKernel)
                else _DRIVERS[type(kernel.details)](builder, kernel)
            )
            driver.run()
            functions += driver.texts.values()
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


def _function(b: Builder, kernel: ir.LoopKernel) -> None:
    lowering = Lowering(b, kernel)
    roots = (expr for stmt in ir.statements(kernel.body) for expr in ir.expressions(stmt))
    if ir.WORKER in ir.walk(*roots):
        lowering.bind(ir.WORKER.name, b.emit("load i64, ptr %worker, align 8", I64))
    begin, end = Vec(b, "%tile_begin", I64), Vec(b, "%tile_end", I64)
    lowering.serial_loop(kernel.tile_var, begin, end, kernel.body, 1)
    b.block.end = "ret void"
