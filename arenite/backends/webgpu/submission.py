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


def map_buffer(
    device: WebGpuAllocator, buffer: Any, submission: int, writes: bool = False
) -> memoryview:
    """The bytes of a buffer that can be mapped, to read or to write, once a submission is done
    (0: there was none); until `unmap`."""
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import libf

    outcome: list[int] = []

    @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
    def done(status: int, message: Any, first: Any, second: Any) -> None:
        outcome.append(status)

    info = ffi.new("WGPUBufferMapCallbackInfo *")
    info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, done
    mode = lib.WGPUMapMode_Write if writes else lib.WGPUMapMode_Read
    try:
        libf.wgpuBufferMapAsync(buffer._internal, mode, 0, buffer.size, info[0])
        number = ffi.new("WGPUSubmissionIndex *", submission) if submission else ffi.NULL
        while not outcome:
            libf.wgpuDevicePoll(device.device._internal, bool(submission), number)
            if not outcome:
                # A device that was lost may never call back, and has no buffer to be read.
                device.check_alive()
    finally:
        if not outcome:
            _unanswered.append((done, buffer))
    if outcome[0] != lib.WGPUMapAsyncStatus_Success:
        raise RunFailed(f"{device.name}: memory could not be mapped (status {outcome[0]})")
    range_of = lib.wgpuBufferGetMappedRange if writes else lib.wgpuBufferGetConstMappedRange
    return memoryview(ffi.buffer(range_of(buffer._internal, 0, buffer.size), buffer.size))


def unmap(buffer: Any) -> None:
    """Give a buffer back to the device; its bytes can't be touched any more."""
    from wgpu.backends.wgpu_native._api import libf

    libf.wgpuBufferUnmap(buffer._internal)


def mapped(device: WebGpuAllocator, staging: Any, submission: int) -> NDArray[np.uint8]:
    """A copy of the bytes of a buffer that can be mapped, once a submission is done."""
    data = np.frombuffer(map_buffer(device, staging, submission), np.uint8).copy()
    unmap(staging)
    return data
