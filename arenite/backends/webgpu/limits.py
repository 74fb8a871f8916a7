"""What a device does at most, measured once: multiply-adds in float32, and reading memory."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from arenite.backends.webgpu.dispatch import Dispatch, new_buffer, submit
from arenite.device.webgpu import WebGpuAllocator, open_device
from arenite.program.limits import Limits

_SHADER = """@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
BODY
}"""
_MULTIPLY = """
  var x = array<f32, 8>();
  let m = f32(id.x) * 1e-9f;
  for (var k = 0u; k < COUNTu; k++) {
    for (var j = 0u; j < 8u; j++) { x[j] = fma(x[j], m, 1.5f); }
  }
  var sum = 0.0f;
  for (var j = 0u; j < 8u; j++) { sum += x[j]; }
  if (sum == 0.25f) { a[0] = 1u; }"""
_READ = """
  var sum = 0u;
  for (var k = id.x; k < COUNTu; k += groups.x * 256u) { sum += a[k]; }
  if (sum == 77u) { a[0] = 1u; }"""


@cache
def limits(name: str) -> Limits:
    """Of a device as a whole: its groups are not counted apart."""
    device = open_device(name)
    turns, groups = (64, 32) if device.is_cpu else (4096, 4096)
    n_words = 2 ** (20 if device.is_cpu else 26)
    memory = new_buffer(device, n_words * 4, "STORAGE COPY_DST")
    multiplied = _seconds(device, _MULTIPLY, turns, memory, groups)
    read = _seconds(device, _READ, n_words, memory, groups)
    gflops = 2 * 8 * turns * groups * 256 / multiplied / 1e9
    # It has no wide floats, and no sums of bytes: nothing here is bound by them.
    return Limits(gflops, gflops, gflops, n_words * 4 / read / 1e9, what=device.name)


def _seconds(device: WebGpuAllocator, body: str, count: int, memory: Any, groups: int) -> float:
    text = _SHADER.replace("BODY", body.replace("COUNT", str(count)))
    with device.failures("measure what it does at most"):
        module = device.device.create_shader_module(code=text)
        pipeline = device.device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        resource = {"buffer": memory, "offset": 0, "size": memory.size}
        group = device.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0), entries=[{"binding": 0, "resource": resource}]
        )

        def took() -> float:
            began = time.perf_counter()
            submit(device, [Dispatch("limits", pipeline, group, (groups, 1))])
            device.synchronize()
            return time.perf_counter() - began

        return min(took() for _ in range(5))
