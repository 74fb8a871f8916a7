"""WebGPU as a back end: WGSL, groups of threads, one command buffer a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arenite.errors import DeviceUnavailable, NoSuchAdapter, NotSupported
from arenite.program.backend import Backend

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built
    from arenite.device.webgpu import WebGpuAllocator
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
        found = _opened(device)
        return ("wgsl", "no adapter") if found is None else ("wgsl", *found.identity)

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        from arenite.backends.webgpu.passes import PASSES, SAME_SUMS

        return (SAME_SUMS if options.same_sums else PASSES,)

    def builder(self, options: Options) -> Callable[[Kernel, str], Built]:
        from arenite.backends.webgpu.build import build

        device = _opened(options.device)
        features = frozenset[str]() if device is None else device.features
        most_turns = None if device is None else device.limits.turns

        def built(kernel: Kernel, choice: str = "") -> Built:
            return build(kernel, features, options.same_sums, most_turns)

        return built

    def device_memory(
        self, needs: DeviceNeeds, device: str, plan: MemoryPlan | None = None
    ) -> DeviceMemory:
        from arenite.backends.webgpu.device_memory import device_memory

        found = _opened(device)
        return device_memory(needs, None if found is None else found.limits, plan)

    def assembly(self, kernel: CachedKernel) -> str:
        raise NotSupported(
            "a driver does not show what it makes of a shader; `source` has the WGSL it is given"
        )


def _opened(name: str) -> WebGpuAllocator | None:
    """A device; None where there is none at all. A wrong name for those that are there is told."""
    from arenite.backends.webgpu.declarations import import_wgpu
    from arenite.device.webgpu import open_device

    import_wgpu()
    try:
        return open_device(name)
    except NoSuchAdapter:
        raise
    except DeviceUnavailable:
        return None


BACKEND = WebGpuBackend()
