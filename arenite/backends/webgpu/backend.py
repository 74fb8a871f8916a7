"""WebGPU as a back end: WGSL, groups of threads, one command buffer a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from arenite.errors import DeviceUnavailable, NotSupported
from arenite.program.backend import Backend

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built
    from arenite.memory import MemoryPlan
    from arenite.passes import Pass
    from arenite.program.backend import DeviceMemory, DeviceNeeds
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.options import Options
    from arenite.schedule import Kernel


class WebGpuBackend(Backend):
    """Launches run in the order of the queue: there are no workers to share one."""

    name = memory = "webgpu"
    joins_launches = True

    def identity(self, device: str) -> tuple[str, ...]:
        """The adapter, its driver, its limits. Where there is none, programs can be planned and
        compiled, and are nobody else's."""
        from arenite.backends.webgpu.declarations import import_wgpu
        from arenite.device.webgpu import open_device

        import_wgpu()
        try:
            return ("wgsl", *open_device(device).identity)
        except DeviceUnavailable:
            return ("wgsl", "no adapter")

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        from arenite.backends.webgpu.passes import PASSES, SAME_SUMS

        return (SAME_SUMS if options.same_sums else PASSES,)

    def builder(self, options: Options) -> Callable[[Kernel, str], Built]:
        from arenite.backends.webgpu.build import build
        from arenite.device.webgpu import open_device

        features: frozenset[str] = frozenset()
        most_turns: int | None = None
        with suppress(DeviceUnavailable):
            device = open_device(options.device)
            features, most_turns = device.features, device.limits.turns

        def built(kernel: Kernel, choice: str = "") -> Built:
            return build(kernel, features, options.same_sums, most_turns)

        return built

    def device_memory(
        self, needs: DeviceNeeds, device: str, plan: MemoryPlan | None = None
    ) -> DeviceMemory:
        from arenite.backends.webgpu.device_memory import device_memory
        from arenite.device.webgpu import open_device

        limits = None
        with suppress(DeviceUnavailable):
            limits = open_device(device).limits
        return device_memory(needs, limits, plan)

    def assembly(self, kernel: CachedKernel) -> str:
        raise NotSupported(
            "a driver does not show what it makes of a shader; `source` has the WGSL it is given"
        )


BACKEND = WebGpuBackend()
