"""Command buffers on their way through the queue, and what they leave in memory that is mapped.

wgpu-py waits on a thread of its own, for all that was submitted: a run that was begun behind the
one whose results are asked for would be waited for too, and nothing could be submitted meanwhile.
Here each submission has its number, and who wants a result waits for that alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import RunFailed


def submit(device: WebGpuAllocator, commands: Any) -> int:
    """Begin with a command buffer; its number in the queue."""
    from wgpu.backends.wgpu_native import ffi
    from wgpu.backends.wgpu_native._api import libf

    handles = ffi.new("WGPUCommandBuffer[]", [commands._internal])
    return int(libf.wgpuQueueSubmitForIndex(device.device.queue._internal, 1, handles))


#: Callbacks of those who went away before they were called, by Ctrl-C say: they may be yet.
_unanswered: list[Any] = []


def mapped(device: WebGpuAllocator, staging: Any, submission: int) -> NDArray[np.uint8]:
    """A copy of the bytes of a buffer that can be mapped, once a submission is done."""
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import libf

    outcome: list[int] = []

    @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
    def done(status: int, message: Any, first: Any, second: Any) -> None:
        outcome.append(status)

    info = ffi.new("WGPUBufferMapCallbackInfo *")
    info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, done
    nbytes = staging.size
    try:
        libf.wgpuBufferMapAsync(staging._internal, lib.WGPUMapMode_Read, 0, nbytes, info[0])
        number = ffi.new("WGPUSubmissionIndex *", submission)
        while not outcome:
            libf.wgpuDevicePoll(device.device._internal, True, number)
            # A device that was lost may never call back, and has no buffer that can be read.
            device.check_alive()
    finally:
        if not outcome:
            _unanswered.append((done, staging))
    if outcome[0] != lib.WGPUMapAsyncStatus_Success:
        raise RunFailed(f"{device.name}: results could not be read back (status {outcome[0]})")
    bytes_ = ffi.buffer(lib.wgpuBufferGetConstMappedRange(staging._internal, 0, nbytes), nbytes)
    data = np.frombuffer(bytes_, np.uint8).copy()
    libf.wgpuBufferUnmap(staging._internal)
    return data
