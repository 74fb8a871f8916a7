"""C as a back end: source that any C11 compiler takes, exported or run in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from arenite.errors import NotSupported

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built
    from arenite.device import Buffer
    from arenite.ir.dim import Var
    from arenite.ir.interface import GraphInterface
    from arenite.passes import Pass
    from arenite.program.backend import Code, OnCompiled, Trial
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.compiled import Compiled
    from arenite.program.limits import Limits
    from arenite.program.loaded import Loaded
    from arenite.program.options import Options
    from arenite.schedule import Kernel

#: Points of a kernel's space that a core does in a nanosecond, about.
_POINTS_A_NS = 1


class CBackend:
    """Kernels are functions of C in the image; a program is compiled when it is loaded."""

    name = "c"
    memory = "cpu"

    def identity(self) -> tuple[str, ...]:
        """Source is the same for every compiler; what is compiled of it is kept by its content."""
        return ("c11",)

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        from arenite.backends.c.passes import PASSES

        return (PASSES,)

    def build(self, kernel: Kernel, choice: str = "") -> Built:
        from arenite.backends.c.build import build

        return build(kernel)

    def estimated_ns(self, kernel: Kernel) -> int:
        from arenite.ir.dim import bounds, product

        return bounds(product(kernel.space))[1] // _POINTS_A_NS

    def compile(self, built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
        from arenite.backends.c.compile import compiled

        return compiled(built, on_progress)

    def load(self, interface: GraphInterface, compiled: Compiled, threads: int) -> Loaded:
        from arenite.backends.c.load import CProgram

        return CProgram(interface, compiled)

    def limits(self, n_workers: int = 1) -> Limits:
        raise NotSupported("what a core does in C depends on the compiler, and is not measured")

    def launch(
        self, kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]
    ) -> None:
        from arenite.backends.c.launch import launch

        launch(kernel, buffers, sizes)

    def trial(
        self,
        kernel: Kernel,
        variables: Mapping[str, Var],
        bindings: Sequence[Mapping[str, int]],
        program_nbytes: int,
    ) -> Trial:
        raise NotSupported("kernels of device 'c' are cut in one way: there is nothing to tune")

    def assembly(self, kernel: CachedKernel) -> str:
        from arenite.backends.c.compile import assembly

        return assembly(kernel)


BACKEND = CBackend()
