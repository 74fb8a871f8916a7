"""The WebGPU device: memory of a GPU, or of a CPU that stands in for one, through wgpu.

In: requests in bytes. Out: GpuMemory, which the host can't reach: copies go through staging
buffers. WebGPU hands out zeroed memory, in whole words; copies of single bytes read the words
around them first. Memory goes back when the last handle on it goes: wgpu ends the process where
work names a buffer that was destroyed, so none ever is.

wgpu, and with it the driver, is opened by the first `open_device`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from arenite import locks
from arenite.device.allocator import (
    Allocator,
    AllocatorStats,
    BufferOptions,
    Ledger,
    readable_nbytes,
)
from arenite.device.raw import RawBuffer
from arenite.device.webgpu_adapters import adapters_for, chosen_adapter, quiet_wayland
from arenite.errors import (
    CompileFailed,
    DeviceUnavailable,
    InvalidView,
    NotCpuAccessible,
    OutOfMemory,
    RunFailed,
)

WORD_NBYTES = 4
#: What one copy moves at most through staging memory.
STAGING_NBYTES = 16 * 2**20

#: Seconds until a device that does not answer is asked whether it is lost.
_PATIENCE_S = 0.5

#: Multiplies, adds and compares denormals that its compiler can't know.
_DENORMALS = """@group(0) @binding(0) var<storage, read_write> words: array<u32, 4>;
@compute @workgroup_size(1)
fn main() {
  let small = bitcast<f32>(words[0]);
  let half = bitcast<f32>(words[1]);
  words[2] = bitcast<u32>(small * half);
  words[3] = select(0u, bitcast<u32>(small + small), small > 0.0f);
}"""

#: Counts the turns of a loop.
_TURNS = """@group(0) @binding(0) var<storage, read_write> words: array<u32, 4>;
@compute @workgroup_size(1)
fn main() {
  let most = words[0];
  var found = 0u;
  for (var turn = 0u; turn < most; turn++) { found++; }
  words[1] = found;
}"""
#: Of a loop, how many are tried.
_MANY_TURNS = 2**20

#: Those that are asked for, at what the adapter has.
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "min-uniform-buffer-offset-alignment",
)

#: What is asked for where the adapter has it: types beyond the 32 bits of WGSL's core, lanes that
#: see each other, and clocks.
FEATURES = frozenset(
    "shader-f16 shader-int64 shader-f64 subgroup subgroup-barrier timestamp-query "
    "timestamp-query-inside-encoders timestamp-query-inside-passes".split()
)


#: Lanes of a subgroup by the vendor's number, NVIDIA's and Apple's: WebGPU tells them to shaders
#: alone, and elsewhere they differ from one to the next.
_SUBGROUPS = {0x10DE: 32, 0x106B: 32}


class GpuMemory(RawBuffer):
    """A buffer of wgpu; rounded up to whole words."""

    __slots__ = ("buffer",)

    def __init__(self, nbytes: int, buffer: Any) -> None:
        super().__init__(nbytes, None, False, False)
        self.buffer = buffer


class Limits(NamedTuple):
    """What a device can do at most."""

    buffer_nbytes: int
    binding_nbytes: int
    storage_bindings: int
    threads: int  # of a group
    shared_nbytes: int  # of a group
    groups: int  # along one axis of a dispatch
    uniform_alignment: int
    turns: int | None = None  # of all loops of a thread, after which they end; None: no such end


class WebGpuAllocator(Allocator):
    """One device of WebGPU."""

    def __init__(self, name: str, adapter: Any, features: Collection[str] = FEATURES) -> None:
        """Of `features`, those that the adapter has are the device's."""
        import wgpu

        self.name = name
        self.adapter_name = str(adapter.info["device"])
        self.driver = str(adapter.info["description"])
        self.is_cpu = adapter.info["adapter_type"] == "CPU"
        self._about = (
            f"wgpu {wgpu.__version__}",
            *(f"{key} {value}" for key, value in sorted(adapter.info.items())),
        )
        self._process = os.getpid()
        limits = {name: int(adapter.limits[name]) for name in _LIMITS}
        with self.failures("open it"):
            self.features = frozenset(features) & frozenset(map(str, adapter.features))
            self.device = adapter.request_device_sync(
                required_features=sorted(self.features), required_limits=limits
            )
        #: Lanes of a subgroup, where that is known for sure; else 0.
        known = _SUBGROUPS.get(int(adapter.info["vendor_id"]), 0)
        self.subgroup = known if "subgroup" in self.features else 0
        buffer, binding, bindings, threads, width, shared, groups, alignment = limits.values()
        self.is_lost = False
        self._misses = 0
        self.ledger: Ledger[GpuMemory] = Ledger(_let_go)
        self.limits = Limits(
            buffer, binding, bindings, min(threads, width), shared, groups, alignment, self._turns()
        )

    def _turns(self) -> int | None:
        """The turns after which a loop ends, whatever its condition says. Drivers that run shaders
        on the CPU have such an end and don't tell; found out by going beyond it."""
        if not self.is_cpu:
            return None
        _, turns, *_ = self._computed(_TURNS, (_MANY_TURNS, 0, 0, 0), "count turns of a loop")
        return None if turns == _MANY_TURNS else turns

    @property
    def identity(self) -> tuple[str, ...]:
        """Adapter, driver, the library between, and what the device can do at most."""
        return (*self._about, repr(self.limits), *sorted(self.features))

    @property
    def has_float16(self) -> bool:  # type: ignore[override]
        """Whether kernels compute with float16."""
        return "shader-f16" in self.features

    @cached_property
    def keeps_denormals(self) -> bool:
        """Whether arithmetic of float32 has numbers below 2^-126: devices may take them for 0.
        Found out by computing some."""
        small, half = 0x00400000, 0x3F000000  # 2^-127 and 1/2
        doing = "find out whether it keeps denormals"
        _, _, product, total = self._computed(_DENORMALS, (small, half, 0, 0), doing)
        return product == small >> 1 and total == small << 1

    def _computed(self, code: str, given: tuple[int, ...], doing: str) -> tuple[int, ...]:
        """Four words as a shader leaves them."""
        import wgpu

        usage = wgpu.BufferUsage
        with self.failures(doing):
            words = self.device.create_buffer_with_data(
                data=struct.pack("<4I", *given), usage=usage.STORAGE | usage.COPY_SRC
            )
            pipeline = self.device.create_compute_pipeline(
                layout="auto",
                compute={
                    "module": self.device.create_shader_module(code=code),
                    "entry_point": "main",
                },
            )
            resource = {"buffer": words, "offset": 0, "size": words.size}
            group = self.device.create_bind_group(
                layout=pipeline.get_bind_group_layout(0),
                entries=[{"binding": 0, "resource": resource}],
            )
            encoder = self.device.create_command_encoder()
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(1)
            compute.end()
            self.device.queue.submit([encoder.finish()])
        return struct.unpack("<4I", self.words(words, 0, 4 * WORD_NBYTES))

    def allocate(self, nbytes: int, options: BufferOptions) -> GpuMemory:
        self.check_request(nbytes, options)
        rounded = max(1, -(-nbytes // WORD_NBYTES)) * WORD_NBYTES
        if rounded > self.limits.buffer_nbytes:
            largest = self.limits.buffer_nbytes
            raise self._out_of_memory(nbytes, f"its largest buffer has {largest} bytes")
        import wgpu

        usage = wgpu.BufferUsage
        with self.failures(f"allocate {nbytes} bytes", nbytes):
            buffer = self.device.create_buffer(
                size=rounded, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
            )
        raw = GpuMemory(nbytes, buffer)
        with self.ledger.locked():
            self._misses += 1
            self.ledger.add(raw, rounded)
        return raw

    def free(self, raw: RawBuffer) -> None:
        self.ledger.give_back(raw)

    def copyin(self, raw: RawBuffer, offset: int, source: memoryview) -> None:
        buffer = self._buffer(raw, offset, source.nbytes)
        for start in range(0, source.nbytes, STAGING_NBYTES):
            part = source[start : start + STAGING_NBYTES]
            first = (offset + start) // WORD_NBYTES * WORD_NBYTES
            end = -(-(offset + start + part.nbytes) // WORD_NBYTES) * WORD_NBYTES
            skipped = offset + start - first
            if skipped or end - first != part.nbytes:
                words = bytearray(self.words(buffer, first, end - first))
                words[skipped : skipped + part.nbytes] = part
                part = memoryview(words)
            with self.failures(f"copy {part.nbytes} bytes to it"):
                self.device.queue.write_buffer(buffer, first, part)

    def copyout(self, raw: RawBuffer, offset: int, target: memoryview) -> None:
        buffer = self._buffer(raw, offset, target.nbytes)
        for start in range(0, target.nbytes, STAGING_NBYTES):
            part = target[start : start + STAGING_NBYTES]
            first = (offset + start) // WORD_NBYTES * WORD_NBYTES
            end = -(-(offset + start + part.nbytes) // WORD_NBYTES) * WORD_NBYTES
            skipped = offset + start - first
            words = self.words(buffer, first, end - first)
            part[:] = words[skipped : skipped + part.nbytes]

    def copy_within(
        self,
        target: RawBuffer,
        offset: int,
        source: RawBuffer,
        source_offset: int,
        nbytes: int,
    ) -> bool:
        """In the order of the queue, without waiting; of whole words between two buffers."""
        to, from_ = (
            self._buffer(target, offset, nbytes),
            self._buffer(source, source_offset, nbytes),
        )
        if to is from_ or (offset | source_offset | nbytes) % WORD_NBYTES:
            return False
        with self.failures(f"copy {nbytes} bytes"):
            encoder = self.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(from_, source_offset, to, offset, nbytes)
            self.device.queue.submit([encoder.finish()])
        return True

    def synchronize(self) -> None:
        import wgpu

        usage = wgpu.BufferUsage
        with self.failures("wait for it"):
            # The queue is done in order: what is copied last is there when all is done.
            words = self.device.create_buffer(size=WORD_NBYTES, usage=usage.COPY_SRC)
            self.words(words, 0, WORD_NBYTES)

    @property
    def stats(self) -> AllocatorStats:
        with self.ledger.locked():
            return AllocatorStats(
                live_nbytes=self.ledger.live_nbytes,
                n_live=self.ledger.n_live,
                peak_nbytes=self.ledger.peak_nbytes,
                misses=self._misses,
            )

    @contextmanager
    def failures(self, doing: str, nbytes: int = 0) -> Iterator[None]:
        """What wgpu raises becomes one of ours, and says what was being done."""
        import wgpu

        self.check_process()
        try:
            yield
        except wgpu.GPUOutOfMemoryError as error:
            raise self._out_of_memory(nbytes, str(error)) from None
        except wgpu.GPUError as error:
            reason = " ".join(str(error).split())
            # wgpu-native tells of it as of any other error.
            if "not enough memory" in reason.lower() or "out of memory" in reason.lower():
                raise self._out_of_memory(nbytes, reason) from None
            if "device is lost" in reason.lower():
                self.is_lost = True
                raise DeviceUnavailable(
                    f"{self.name} ({self.adapter_name}) was lost, as after a reset of its driver; "
                    f"all memory on it is gone. arenite.device.get({self.name!r}) opens it anew"
                ) from None
            if "shader" in reason.lower() or "pipeline" in reason.lower():
                raise CompileFailed(f"{self.name}: could not {doing}: {error}") from None
            raise RunFailed(f"{self.name}: could not {doing}: {reason}") from None

    def _buffer(self, raw: RawBuffer, offset: int, nbytes: int) -> Any:
        if not isinstance(raw, GpuMemory):
            raise NotCpuAccessible(f"{raw!r} is no memory of {self.name}")
        if offset < 0 or offset + nbytes > raw.nbytes:
            raise InvalidView(
                f"bytes {offset}..{offset + nbytes} are not within the {raw.nbytes} bytes allocated"
            )
        return raw.buffer

    def words(self, buffer: Any, first: int, nbytes: int) -> memoryview:
        """Whole words of a buffer, once everything before them in the queue is done."""
        if not nbytes:
            return memoryview(b"")  # nothing can't be mapped
        import wgpu

        usage = wgpu.BufferUsage
        with self.failures(f"copy {nbytes} bytes from it", nbytes):
            staging = self.device.create_buffer(size=nbytes, usage=usage.COPY_DST | usage.MAP_READ)
            encoder = self.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, first, staging, 0, nbytes)
            self.device.queue.submit([encoder.finish()])
            self.wait_for(staging.map_async("READ"))
            words: memoryview = staging.read_mapped(copy=True)
            staging.unmap()
        return words.cast("B")

    def wait_for(self, promise: Any) -> None:
        """Wait for what wgpu has promised. Of a device that is lost meanwhile it may never tell: so
        the device is asked now and then whether it is still there. Within `failures`."""
        # wgpu has no way to wait for a while; a promise is kept by a thread that sets this.
        while not promise._thread_event.wait(_PATIENCE_S):
            self.check_alive()
        promise.sync_wait()

    def check_process(self) -> None:
        """DeviceUnavailable in a process that was forked since."""
        if os.getpid() != self._process:
            raise DeviceUnavailable(
                f"{self.name} was opened before this process was forked, and drivers do not "
                "survive that; open it in the child alone, or start children with 'spawn'"
            )

    def check_alive(self) -> None:
        """DeviceUnavailable if the device was lost."""
        import wgpu

        with self.failures("use it"):
            self.device.create_buffer(size=WORD_NBYTES, usage=wgpu.BufferUsage.COPY_DST)

    def _out_of_memory(self, nbytes: int, why: str) -> OutOfMemory:
        live, n_live = self.ledger.live_nbytes, self.ledger.n_live
        return OutOfMemory(
            f"{self.name} ({self.adapter_name}) did not give {nbytes} bytes "
            f"({readable_nbytes(nbytes)}) for a request of {nbytes}: {why}. Live here: {live} "
            f"bytes ({readable_nbytes(live)}) in {n_live} allocations. Ask for less, or let go of "
            "buffers first"
        )


def _let_go(raw: GpuMemory) -> None:
    """The handle keeps its memory; what is left is to forget it."""


_lock = locks.reentrant()
_opened: dict[str, WebGpuAllocator] = {}


def open_device(name: str) -> WebGpuAllocator:
    """The device called "webgpu", "webgpu:1" by its number among the adapters, the most capable
    first, or "webgpu:nvidia" by a part of the adapter's name. Each is opened once; none in a
    process that was forked from one that had opened any: its driver would wait for threads that
    are not there."""
    which = name.partition(":")[2].strip().lower() or "0"
    with _lock:
        for one in _opened.values():
            one.check_process()
        known = _usable(which)
        if known is not None:
            return known
        with quiet_wayland():
            adapters = adapters_for(name)
            number = chosen_adapter(name, which, adapters)
            device = _usable(str(number)) or WebGpuAllocator(
                f"webgpu:{number}" if number else "webgpu", adapters[number]
            )
        _opened[which] = _opened[str(number)] = device
        return device


def _usable(which: str) -> WebGpuAllocator | None:
    """What is open under a name, unless it was lost."""
    known = _opened.get(which)
    return None if known is None or known.is_lost else known
