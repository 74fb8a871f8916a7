"""Large constants on their way to the device, while the host does something else.

A file is read straight into memory that the device copies from; two such buffers take turns for
each thread, so that one is read into while the other is copied. What `write_buffer` does would be
to copy everything once more, into memory that is new each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from arenite.backends.webgpu.submission import map_buffer, submit, unmap
from arenite.device import Buffer
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator

#: Of a buffer that is read into, and how many there are for a thread.
STAGING_NBYTES = 16 * 2**20
N_STAGING = 2
#: One does not read as fast as a device takes bytes.
N_THREADS = 2


class Upload(NamedTuple):
    """Bytes of the host, or of a file, and where they go: as many, of whole words."""

    source: Buffer
    target: Any  # wgpu's handle
    offset: int

    @classmethod
    def is_for(cls, source: Buffer) -> bool:
        """Whether it is worth it, and can be done."""
        return source.nbytes >= STAGING_NBYTES // 16 and source.nbytes % WORD_NBYTES == 0


@contextmanager
def uploading(device: WebGpuAllocator, uploads: Sequence[Upload]) -> Iterator[bool]:
    """Copy meanwhile, if there is anything to copy; all of it is done, or what went wrong is
    raised, at the end."""
    if not uploads:
        yield False
        return
    parts = iter([*_parts(uploads)])  # each is taken by one thread
    with ThreadPoolExecutor(N_THREADS, "arenite upload") as pool:
        done = [pool.submit(_copy, device, parts) for _ in range(N_THREADS)]
        yield True
    for one in done:
        one.result()


def _parts(uploads: Sequence[Upload]) -> Iterator[Upload]:
    for source, target, offset in uploads:
        for start in range(0, source.nbytes, STAGING_NBYTES):
            nbytes = min(STAGING_NBYTES, source.nbytes - start)
            yield Upload(source.view(start, nbytes), target, offset + start)


def _copy(device: WebGpuAllocator, parts: Iterator[Upload]) -> None:
    """Copy parts until there are none."""
    staging: deque[tuple[Any, int]] = deque()  # and the submission that copies from it
    with device.failures("copy constants to it"):
        while taken := [*islice(parts, 1)]:
            [(source, target, offset)] = taken
            if len(staging) < N_STAGING:
                buffer, number = _new_staging(device), 0
            else:
                buffer, number = staging.popleft()
            source.copyout(map_buffer(device, buffer, number, writes=True)[: source.nbytes])
            unmap(buffer)
            encoder = device.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, 0, target, offset, source.nbytes)
            staging.append((buffer, submit(device, encoder.finish())))


def _new_staging(device: WebGpuAllocator) -> Any:
    import wgpu

    usage = wgpu.BufferUsage.MAP_WRITE | wgpu.BufferUsage.COPY_SRC
    return device.device.create_buffer(size=STAGING_NBYTES, usage=usage)
