"""A WebGPU device for benchmarks: buffers, pipelines, and two ways to time what a queue runs.

Native calls go through wgpu-native's C functions where wgpu-py has none: modules without bounds
checks, waiting for a device, and recording many dispatches from one C loop.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import wgpu
from wgpu.backends.wgpu_native import ffi, lib

FEATURES = (
    "shader-f16",
    "subgroup",
    "timestamp-query",
    "timestamp-query-inside-passes",
    "shader-int64",
)
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)
STORAGE = int(wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST)
#: How long a device works before it is timed: at rest its clocks are a fifth of what they can be.
WARM_SECONDS = 0.4

#: A buffer, or (buffer, offset, nbytes).
Bound: TypeAlias = Any


class Dispatch(NamedTuple):
    """One launch."""

    pipeline: Any
    group: Any
    x: int
    y: int = 1


class Device:
    """The first adapter that is no CPU; else the first."""

    def __init__(self) -> None:
        adapters = [
            one
            for one in wgpu.gpu.enumerate_adapters_sync()
            if one.info["backend_type"] == "Vulkan"
        ]
        self.adapter = next(
            (one for one in adapters if one.info["adapter_type"] != "CPU"), adapters[0]
        )
        self.is_cpu = self.adapter.info["adapter_type"] == "CPU"
        self.device = self.adapter.request_device_sync(
            required_features=[name for name in FEATURES if name in self.adapter.features],
            required_limits={name: self.adapter.limits[name] for name in LIMITS},
        )
        self.queue = self.device.queue
        self._stamps = self.device.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._resolved = self.buffer(16, int(usage))
        self._tick_seconds = float(lib.wgpuQueueGetTimestampPeriod(self.queue._internal)) * 1e-9
        self._warming = self._busy_work()

    @property
    def name(self) -> str:
        info = self.adapter.info
        return f"{info['device']}, {info['description']}, {info['backend_type']}"

    def buffer(self, nbytes: int, usage: int = STORAGE) -> Any:
        return self.device.create_buffer(size=nbytes, usage=usage)

    def filled(self, array: np.ndarray) -> Any:
        """A buffer with the bytes of an array."""
        made = self.buffer(array.nbytes)
        self.queue.write_buffer(made, 0, np.ascontiguousarray(array))
        return made

    def read(self, buffer: Any, dtype: type) -> np.ndarray:
        return np.frombuffer(self.queue.read_buffer(buffer), dtype)

    def pipeline(self, code: str, is_checked: bool = False) -> Any:
        """Of WGSL with an entry `main`; `is_checked`: with naga's bounds checks."""
        module = self.device.create_shader_module(
            code=code if is_checked else "@compute @workgroup_size(1) fn main() {}"
        )
        if not is_checked:
            module._internal = self._trusted(code)
        return self.device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )

    def _trusted(self, code: str) -> Any:
        text = ffi.new("char[]", code.encode())
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text, len(code.encode())
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        return lib.wgpuDeviceCreateShaderModuleTrusted(self.device._internal, descriptor, 0)

    def group(self, pipeline: Any, *bound: Bound) -> Any:
        """Buffers at bindings 0, 1, ...; None leaves one out."""
        entries = []
        for binding, one in enumerate(bound):
            if one is not None:
                buffer, offset, nbytes = one if isinstance(one, tuple) else (one, 0, one.size)
                resource = {"buffer": buffer, "offset": offset, "size": nbytes}
                entries.append({"binding": binding, "resource": resource})
        return self.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0), entries=entries
        )

    # Running.

    def wait(self) -> None:
        lib.wgpuDevicePoll(self.device._internal, 1, ffi.NULL)

    def run(self, sequence: Sequence[Dispatch]) -> None:
        """All in one pass and one submission, waited for."""
        encoder = self.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        record(compute_pass, sequence)
        compute_pass.end()
        self.queue.submit([encoder.finish()])
        self.wait()

    def warm(self) -> None:
        """Keep the device busy until its clocks are up."""
        until = time.perf_counter() + (0.0 if self.is_cpu else WARM_SECONDS)
        while time.perf_counter() < until:
            self.run([self._warming])

    def seconds(self, sequence: Sequence[Dispatch], rounds: int = 15, first: int = 3) -> float:
        """Of one pass by time stamps, the median; the `first` rounds do not count."""
        found = []
        for _ in range(first + rounds):
            encoder = self.device.create_command_encoder()
            compute_pass = encoder.begin_compute_pass(
                timestamp_writes={
                    "query_set": self._stamps,
                    "beginning_of_pass_write_index": 0,
                    "end_of_pass_write_index": 1,
                }
            )
            record(compute_pass, sequence)
            compute_pass.end()
            encoder.resolve_query_set(self._stamps, 0, 2, self._resolved, 0)
            self.queue.submit([encoder.finish()])
            begin, end = (int(tick) for tick in self.read(self._resolved, np.uint64))
            found.append((end - begin) * self._tick_seconds)
        return statistics.median(found[first:])

    def _busy_work(self) -> Dispatch:
        code = """
@group(0) @binding(0) var<storage, read_write> o: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) i: vec3u) {
  var a = f32(i.x);
  for (var k = 0u; k < 200000u; k++) { a = fma(a, 0.999, 0.5); }
  o[i.x & 1023u] = a;
}"""
        pipeline = self.pipeline(code)
        return Dispatch(pipeline, self.group(pipeline, self.buffer(4096)), 1056)


def record(compute_pass: Any, sequence: Sequence[Dispatch]) -> None:
    for one in sequence:
        compute_pass.set_pipeline(one.pipeline)
        compute_pass.set_bind_group(0, one.group)
        compute_pass.dispatch_workgroups(one.x, one.y)


def wall_seconds(work: Callable[[], Any], rounds: int = 15) -> float:
    """The median of a few calls."""
    found = []
    for _ in range(rounds + 3):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found[3:])


_NATIVE = r"""
#include <stddef.h>
#include <stdint.h>
#include <time.h>
typedef void *handle;
struct functions {
  handle (*encoder)(handle, handle); handle (*begin)(handle, handle);
  void (*set_pipeline)(handle, handle);
  void (*set_group)(handle, uint32_t, handle, size_t, const uint32_t *);
  void (*dispatch)(handle, uint32_t, uint32_t, uint32_t);
  void (*end)(handle); void (*release_pass)(handle);
  handle (*finish)(handle, handle); void (*submit)(handle, size_t, handle *);
  void (*release_encoder)(handle); void (*release_buffer)(handle);
  uint32_t (*poll)(handle, uint32_t, handle);
};
static double now(void) {
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}
/* seconds: record, finish, submit, wait; all `count` steps together */
void steps(struct functions *f, handle device, handle queue, int count, int ahead, int n,
           handle *pipelines, handle *groups, uint32_t *x, uint32_t *y, double *seconds) {
  for (int step = 0; step < count; step++) {
    double a = now();
    handle encoder = f->encoder(device, 0), pass = f->begin(encoder, 0), last = 0;
    for (int i = 0; i < n; i++) {
      if (pipelines[i] != last) f->set_pipeline(pass, last = pipelines[i]);
      f->set_group(pass, 0, groups[i], 0, 0);
      f->dispatch(pass, x[i], y[i], 1);
    }
    f->end(pass);
    double b = now(); handle buffer = f->finish(encoder, 0);
    double c = now(); f->submit(queue, 1, &buffer);
    double d = now();
    f->release_pass(pass); f->release_encoder(encoder); f->release_buffer(buffer);
    if ((step + 1) % ahead == 0 || step + 1 == count) f->poll(device, 1, 0);
    seconds[0] += b - a; seconds[1] += c - b; seconds[2] += d - c; seconds[3] += now() - d;
  }
}
"""
_FUNCTIONS = (
    "DeviceCreateCommandEncoder",
    "CommandEncoderBeginComputePass",
    "ComputePassEncoderSetPipeline",
    "ComputePassEncoderSetBindGroup",
    "ComputePassEncoderDispatchWorkgroups",
    "ComputePassEncoderEnd",
    "ComputePassEncoderRelease",
    "CommandEncoderFinish",
    "QueueSubmit",
    "CommandEncoderRelease",
    "CommandBufferRelease",
    "DevicePoll",
)


class NativeRecorder:
    """Records and submits a sequence from C, as a native driver would."""

    def __init__(self, device: Device) -> None:
        folder = Path(tempfile.mkdtemp())
        (folder / "steps.c").write_text(_NATIVE)
        library = folder / "steps.so"
        command = ["cc", "-O2", "-shared", "-fPIC", str(folder / "steps.c"), "-o", str(library)]
        subprocess.run(command, check=True)
        self._steps = ctypes.CDLL(str(library)).steps
        self._device = device
        addresses = [_address(ffi.addressof(lib, f"wgpu{name}")) for name in _FUNCTIONS]
        self._functions = (ctypes.c_void_p * len(addresses))(*addresses)

    def run(self, sequence: Sequence[Dispatch], count: int = 64, ahead: int = 1) -> list[float]:
        """Seconds a step for record, finish, submit and wait; waited for every `ahead` steps."""
        n = len(sequence)
        pipelines = (ctypes.c_void_p * n)(*[_address(d.pipeline._internal) for d in sequence])
        groups = (ctypes.c_void_p * n)(*[_address(d.group._internal) for d in sequence])
        x = (ctypes.c_uint32 * n)(*[d.x for d in sequence])
        y = (ctypes.c_uint32 * n)(*[d.y for d in sequence])
        device = ctypes.c_void_p(_address(self._device.device._internal))
        queue = ctypes.c_void_p(_address(self._device.queue._internal))
        for times in (3, count):
            seconds = (ctypes.c_double * 4)()
            self._steps(
                self._functions, device, queue, times, ahead, n, pipelines, groups, x, y, seconds
            )
        return [one / count for one in seconds]


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))
