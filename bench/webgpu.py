"""What WebGPU gives on this machine, for those who launch from it: dispatches, barriers, recording,
transfers, pipelines.

python -m bench.webgpu
"""

from __future__ import annotations

import time

import numpy as np
import wgpu

from bench.webgpu_device import Device, Dispatch, NativeRecorder, record, wall_seconds

INCREMENT = """
@group(0) @binding(0) var<storage, read_write> o: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) i: vec3u) { o[i.x] += 1u; }"""
COPY = """
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> o: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) i: vec3u) {
  o[i.x] = a[i.x] + 1u;
}"""
RING = """
@group(0) @binding(0) var<storage, read_write> c: array<atomic<u32>>;
@compute @workgroup_size(256) fn main(@builtin(local_invocation_id) l: vec3u) {
  for (var r = 1u; r <= ROUNDSu; r++) {
    storageBarrier(); workgroupBarrier();
    if (l.x == 0u) {
      atomicAdd(&c[0], 1u);
      var spin = 0u;
      while (atomicLoad(&c[0]) < r * GROUPSu && spin < 200000u) { spin++; }
    }
    workgroupBarrier();
  }
}"""


def dispatches(device: Device) -> None:
    """What a dispatch costs on the device, where it waits for the one before and where not."""
    n = 20 if device.is_cpu else 1000
    inc, copy = device.pipeline(INCREMENT), device.pipeline(COPY)
    one = Dispatch(inc, device.group(inc, device.buffer(1 << 16)), 16)
    own = [Dispatch(inc, device.group(inc, device.buffer(1 << 16)), 16) for _ in range(n)]
    for name, sequence in (("one buffer", [one] * n), ("a buffer each", own)):
        device.warm()
        print(f"  {name}: {device.seconds(sequence) / n * 1e6:.2f} us")
    for width in (2, 8):
        x, ys = device.buffer(1 << 16), [device.buffer(1 << 16) for _ in range(width)]
        wave = [Dispatch(copy, device.group(copy, x, y), 16) for y in ys]
        wave.append(Dispatch(copy, device.group(copy, ys[0], x), 16))
        sequence = wave * (n // len(wave))
        device.warm()
        took = device.seconds(sequence) / len(sequence)
        print(f"  {width} side by side, then one that reads them: {took * 1e6:.2f} us each")
    if not device.is_cpu:  # groups must run at the same time
        code = RING.replace("ROUNDS", "1000").replace("GROUPS", "132")
        ring = device.pipeline(code)
        counter = device.buffer(1024)  # begins at zero, so that the first run alone counts
        alone = Dispatch(ring, device.group(ring, counter), 132)
        device.warm()
        took = device.seconds([alone], rounds=1, first=0) / 1000
        assert device.read(counter, np.uint32)[0] == 132 * 1000, "a group gave up"
        print(f"  132 groups wait for each other inside one dispatch: {took * 1e6:.2f} us")


def recording(device: Device) -> None:
    """What the host does for a dispatch: from Python, and from C."""
    n, copy = 160, device.pipeline(COPY)
    x = [device.buffer(1 << 16) for _ in range(2)]
    weights = [device.buffer(1 << 16) for _ in range(n)]
    sequence = [
        Dispatch(copy, device.group(copy, weights[k], x[k % 2]), 16) for k in range(n)
    ]  # each its own read-only buffer, as weights are

    def from_python() -> None:
        encoder = device.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        record(compute_pass, sequence)
        compute_pass.end()
        device.queue.submit([encoder.finish()])
        device.wait()

    device.warm()
    took = wall_seconds(from_python)
    print(f"  {n} dispatches from Python: {took * 1e6:.0f} us with waiting")
    native = NativeRecorder(device)
    for ahead in (1, 8):
        device.warm()
        parts = native.run(sequence, ahead=ahead)
        told = ", ".join(
            f"{name} {part * 1e6:.0f}"
            for name, part in zip(("record", "finish", "submit", "wait"), parts, strict=True)
        )
        print(f"  from C, waited for every {ahead}: {sum(parts) * 1e6:.0f} us ({told})")


def transfers(device: Device) -> None:
    """Results to the host, weights to the device."""
    inc = device.pipeline(INCREMENT)
    buffer = device.buffer(1 << 16)
    group = device.group(inc, buffer)
    usage = int(wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
    mapped = device.buffer(256, usage)

    def round_trip() -> None:
        encoder = device.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        record(compute_pass, [Dispatch(inc, group, 1)])
        compute_pass.end()
        encoder.copy_buffer_to_buffer(buffer, 0, mapped, 0, 256)
        device.queue.submit([encoder.finish()])
        mapped.map_sync("READ")
        mapped.read_mapped(copy=True)
        mapped.unmap()

    print(f"  a dispatch and 256 bytes back: {wall_seconds(round_trip, 50) * 1e6:.0f} us")
    nbytes = 1 << (24 if device.is_cpu else 30)
    part = np.random.default_rng(0).integers(0, 255, min(nbytes, 1 << 26), np.uint8)
    target = device.buffer(nbytes)
    usage = int(wgpu.BufferUsage.MAP_WRITE | wgpu.BufferUsage.COPY_SRC)
    staging = [device.buffer(part.nbytes, usage) for _ in range(2)]

    def written() -> None:
        for offset in range(0, nbytes, part.nbytes):
            device.queue.write_buffer(target, offset, part)
            device.queue.submit([])
        device.wait()

    def staged() -> None:
        for k, offset in enumerate(range(0, nbytes, part.nbytes)):
            source = staging[k % 2]
            source.map_sync("WRITE")
            source.write_mapped(part)
            source.unmap()
            encoder = device.device.create_command_encoder()
            encoder.copy_buffer_to_buffer(source, 0, target, offset, part.nbytes)
            device.queue.submit([encoder.finish()])
        device.wait()

    for name, work in (("write_buffer", written), ("two staging buffers", staged)):
        print(f"  to the device by {name}: {nbytes / wall_seconds(work, 3) / 1e9:.1f} GB/s")


def pipelines(device: Device) -> None:
    """How long it takes to make a pipeline of code that nobody compiled yet."""
    began, n = time.perf_counter(), 16
    for k in range(n):
        device.pipeline(COPY.replace("+ 1u", f"+ {time.time_ns() % 10**9 + k}u"))
    print(f"  a new pipeline: {(time.perf_counter() - began) / n * 1e3:.1f} ms")


def main() -> None:
    device = Device()
    print(device.name)
    for section in (dispatches, recording, transfers, pipelines):
        print(section.__name__)
        section(device)


if __name__ == "__main__":
    main()
