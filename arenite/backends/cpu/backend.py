"""The CPU as a back end: `build`, `compile` and `load` are the modules of these names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.program.cached_kernel import CachedKernel


class CpuBackend:
    """What is imported is what is used: a warm start needs neither passes nor a compiler."""

    name = "cpu"

    def assembly(self, kernel: CachedKernel) -> str:
        from arenite.backends.cpu.compiling import llvm
        from arenite.backends.cpu.target import host

        return llvm.assembly(kernel.llvm, host())


BACKEND = CpuBackend()
