"""WebGPU as a back end: WGSL, groups of threads, one command buffer a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.errors import DeviceUnavailable, NotSupported
from arenite.program.backend import Backend

if TYPE_CHECKING:
    from arenite.program.cached_kernel import CachedKernel


class WebGpuBackend(Backend):
    """Launches run in the order of the queue: there are no workers to share one."""

    name = memory = "webgpu"

    def identity(self, device: str) -> tuple[str, ...]:
        """The adapter, its driver, its limits. Where there is none, programs can be planned and
        compiled, and are nobody else's."""
        from arenite.device.webgpu import open_device

        try:
            return ("wgsl", *open_device(device).identity)
        except DeviceUnavailable:
            return ("wgsl", "no adapter")

    def assembly(self, kernel: CachedKernel) -> str:
        raise NotSupported(
            "a driver does not show what it makes of a shader; `source` has the WGSL it is given"
        )


BACKEND = WebGpuBackend()
