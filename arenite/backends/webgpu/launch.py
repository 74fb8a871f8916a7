"""One kernel launched by itself, on buffers of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arenite import device
from arenite.backends.webgpu.compile import shaders_of
from arenite.backends.webgpu.dispatch import Bound, dispatches_of, new_buffer, submit
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.memory import Region
from arenite.device import Buffer
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import InvalidArgument
from arenite.ir.dim import evaluate
from arenite.program.cached_kernel import CachedKernel


def launch(kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> None:
    """Run all groups of a kernel and wait; raises what it reports. Buffers of other devices are
    copied there and back."""
    gpu = device.get(kernel.device)
    assert isinstance(gpu, WebGpuAllocator)
    shader = shaders_of(kernel.program.image)[kernel.program.offset]
    there = [_on(gpu, buffer) for buffer in buffers]
    regions: dict[int, Region] = {}
    places = []
    for k, buffer in enumerate(there):
        if buffer.offset % WORD_NBYTES:
            raise InvalidArgument(
                f"argument {k} of kernel {kernel.entry_point} begins at byte {buffer.offset} of "
                "its storage; on WebGPU arrays begin at whole words of 4 bytes"
            )
        region = regions.get(buffer.storage_id)
        if region is None:
            region = regions[buffer.storage_id] = Region.of(f"argument{k}", buffer)
        places.append((region, buffer.offset // WORD_NBYTES))
    errors = new_buffer(gpu, WORD_NBYTES, "STORAGE COPY_SRC COPY_DST")
    one = Bound(
        kernel.entry_point,
        shader,
        places,
        [evaluate(size, sizes) for size in kernel.launch.sizes],
        evaluate(kernel.launch.tiles, sizes),
        0,
    )
    with gpu.failures(f"run {kernel.entry_point}"):
        submit(gpu, dispatches_of(gpu, [one], errors))
    check_errors(gpu.words(errors, 0, WORD_NBYTES), [kernel.with_origins])
    for given, used, array in zip(buffers, there, kernel.arrays, strict=True):
        if used is not given and array.role != "in":
            given.copy_from(used)


def _on(gpu: WebGpuAllocator, buffer: Buffer) -> Buffer:
    """The buffer, or a copy of it on the device."""
    if buffer.allocator is gpu:
        return buffer
    copied = Buffer.allocate(gpu, buffer.dtype, buffer.shape)
    copied.copy_from(buffer)
    return copied
