"""The CPU as a back end: LLVM, one native driver, a team of threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from arenite.backends.cpu.identity import compiler_identity, host_identity
from arenite.program.backend import Backend

if TYPE_CHECKING:
    from arenite.backends.cpu.load import CpuProgram
    from arenite.backends.cpu.target import Target
    from arenite.backends.cpu.trial import Trial
    from arenite.codegen.kernels.built import Built
    from arenite.ir.dim import Var
    from arenite.ir.interface import GraphInterface
    from arenite.passes import Pass
    from arenite.program.backend import BuiltKernels, Code, OnCompiled
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.compiled import Compiled
    from arenite.program.limits import Limits
    from arenite.program.options import Options
    from arenite.schedule import Kernel


class CpuBackend(Backend):
    """Imports where it is used what only compiling needs: a warm start comes without."""

    name = memory = "cpu"
    runs_in_order = arena_grows = uses_llvm = True

    @cached_property
    def target(self) -> Target:
        """The machine this process runs on."""
        from arenite.backends.cpu.compiling.pool import host_target

        return host_target()

    def identity(self, device: str) -> tuple[str, ...]:
        return compiler_identity(), host_identity()

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        from arenite.backends.cpu.passes import IN_PLACE, PASSES, SAME_SUMS, WITHOUT_WINOGRAD

        if options.same_sums:
            return (SAME_SUMS,)
        # Winograd needs register tiles, and larger weights; panels memory beside that of a file.
        ways = (PASSES, WITHOUT_WINOGRAD, IN_PLACE)
        return ways if options.winograd and self.target.has_fma else ways[1:]

    def prepare(self) -> None:
        from arenite.backends.cpu.compiling.pool import start_children
        from arenite.backends.cpu.driver.native import begin_runtime

        start_children()
        begin_runtime()  # before there is other work for children

    def build(self, kernel: Kernel, choice: str = "") -> Built:
        from arenite.backends.cpu.build import build

        return build(kernel, self.target, choice)

    def shared(self, built: dict[int, Built], at_load: Collection[int]) -> dict[int, Built]:
        from arenite.codegen.numbers import with_shared_loops

        return with_shared_loops(built, at_load)

    def estimated_ns(self, kernel: Kernel) -> int:
        from arenite.backends.cpu.cost import estimated_ns
        from arenite.ir.dim import bounds

        return estimated_ns(kernel, lambda dim: bounds(dim)[1])

    def compile(self, kernels: BuiltKernels, on_progress: OnCompiled | None = None) -> Code:
        from arenite.backends.cpu.compile import compiled

        return compiled(kernels, self.target, on_progress)

    def load(self, interface: GraphInterface, compiled: Compiled, threads: int) -> CpuProgram:
        from arenite.backends.cpu.load import CpuProgram

        return CpuProgram(interface, compiled, threads)

    def limits(self, device: str, n_workers: int = 1) -> Limits:
        from arenite.backends.cpu.driver.limits import limits

        return limits(n_workers)

    def trial(
        self,
        kernel: Kernel,
        variables: Mapping[str, Var],
        bindings: Sequence[Mapping[str, int]],
        program_nbytes: int,
    ) -> Trial:
        from arenite.backends.cpu.trial import Trial

        return Trial(kernel, self.target, variables, bindings, program_nbytes)

    def assembly(self, kernel: CachedKernel) -> str:
        from arenite.backends.cpu.compiling import llvm
        from arenite.backends.cpu.target import host

        return llvm.assembly(kernel.source, host())


BACKEND = CpuBackend()
