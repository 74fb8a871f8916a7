"""WebGPU as a back end: WGSL, groups of threads, one command buffer a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from arenite.errors import NotSupported

if TYPE_CHECKING:
    from arenite.backends.webgpu.load import WebGpuProgram
    from arenite.codegen.kernels.built import Built
    from arenite.device import Buffer
    from arenite.ir.dim import Var
    from arenite.ir.interface import GraphInterface
    from arenite.passes import Pass
    from arenite.program.backend import Code, OnCompiled, Trial
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.compiled import Compiled
    from arenite.program.limits import Limits
    from arenite.program.options import Options
    from arenite.schedule import Kernel


class WebGpuBackend:
    """Imports where it is used what only compiling, or only the device, needs."""

    name = memory = "webgpu"

    def identity(self) -> tuple[str, ...]:
        # WGSL is the same for all adapters; their drivers keep what they make of it themselves.
        return ("wgsl",)

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        from arenite.backends.webgpu.passes import PASSES

        return (PASSES,)

    def build(self, kernel: Kernel, choice: str = "") -> Built:
        from arenite.backends.webgpu.build import build

        return build(kernel)

    def estimated_ns(self, kernel: Kernel) -> int:
        # Launches run in the order of the queue: there are no workers to share one.
        return 0

    def compile(self, built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
        from arenite.backends.webgpu.compile import compiled

        return compiled(built, on_progress)

    def load(self, interface: GraphInterface, compiled: Compiled, threads: int) -> WebGpuProgram:
        from arenite.backends.webgpu.load import WebGpuProgram

        return WebGpuProgram(interface, compiled)

    def limits(self, n_workers: int = 1) -> Limits:
        from arenite.backends.webgpu.limits import limits

        return limits()

    def launch(
        self, kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]
    ) -> None:
        from arenite.backends.webgpu.launch import launch

        launch(kernel, buffers, sizes)

    def trial(
        self,
        kernel: Kernel,
        variables: Mapping[str, Var],
        bindings: Sequence[Mapping[str, int]],
        program_nbytes: int,
    ) -> Trial:
        raise NotSupported("kernels are cut in one way on WebGPU, so there is nothing to tune")

    def assembly(self, kernel: CachedKernel) -> str:
        raise NotSupported(
            "a driver does not show what it makes of a shader; `llvm` has the WGSL it is given"
        )


BACKEND = WebGpuBackend()
