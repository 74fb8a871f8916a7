"""Whether reading weights ahead, while a small launch leaves memory idle, makes a token faster.

python -m bench.webgpu_prefetch

A decoder's layer has two launches that read little: what turns queries and keys, and attention.
Here groups beside those of such a launch read the weights of the products behind it, which then
come from the second cache. Products as in `bench.webgpu_products`; attention is stood in for by
groups that compute for as long. One line for each number of bytes read ahead.
"""

from __future__ import annotations

import numpy as np

from bench.webgpu_device import Device, Dispatch
from bench.webgpu_products import FORMATS, GROUPS_ACROSS, LARGE, SMALL, Shape, product_code

#: Cuts that were fastest, for each format.
CUTS = {"f16": Shape(32, 1, 1), "q4_0 as in GGUF": Shape(32, 2, 2)}
#: Groups of attention, turns that take it some 8 us, and groups that read ahead beside them.
BUSY_GROUPS, BUSY_TURNS, READING_GROUPS = 32, 1500, 400
#: Bytes read ahead.
AHEAD = (0, 4 << 20, 8 << 20, 16 << 20, 24 << 20, 32 << 20)


def busy_code(n_words: tuple[int, int]) -> str:
    """Groups that compute, and behind them groups that read so many words of two matrices."""
    reads = "".join(
        f"for (var i = at; i < {n}u; i += {READING_GROUPS * 256}u) {{ sum += {array}[i]; }}"
        for array, n in zip("AB", n_words, strict=True)
    )
    return f"""
@group(0) @binding(0) var<storage, read> A: array<vec4u>;
@group(0) @binding(1) var<storage, read> B: array<vec4u>;
@group(0) @binding(2) var<storage, read> X: array<f32>;
@group(0) @binding(3) var<storage, read_write> Y: array<f32>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_id) l: vec3u) {{
  if (g.x < {BUSY_GROUPS}u) {{
    var x = X[l.x];
    for (var i = 0u; i < {BUSY_TURNS}u; i++) {{ x = fma(x, 0.999, 0.001); }}
    Y[g.x * 256u + l.x] = x;
    return;
  }}
  let at = (g.x - {BUSY_GROUPS}u) * 256u + l.x;
  var sum = vec4u();
  {reads}
  // Never, as far as the compiler knows it may.
  if (all(sum == vec4u(0x9e3779b9u, 1u, 2u, 3u))) {{ Y[0] = 1.0; }}
}}"""


def main() -> None:
    device = Device()
    print(device.name)
    layers, width, between, _ = SMALL if device.is_cpu else LARGE
    shapes = [(width * 3 // 2, width), (width, width), (2 * between, width), (width, between)]
    pattern = np.random.default_rng(0).integers(0, 2**14, 1 << 20, np.uint16).view(np.uint8)
    for kind, cut in CUTS.items():
        nbytes_each = FORMATS[kind][1]
        stored = []
        for rows, depth in shapes * layers:
            buffer = device.buffer(int(rows * depth * nbytes_each))
            for at in range(0, buffer.size, pattern.nbytes):
                part = pattern[: min(pattern.nbytes, buffer.size - at)]
                device.queue.write_buffer(buffer, at, part)
            device.queue.submit([])
            stored.append(buffer)
        x = [device.buffer(8 * max(between, 256 * BUSY_GROUPS)) for _ in range(2)]
        x_scales = None if kind == "f16" else device.buffer(between // 4)
        for ahead in AHEAD:
            step: list[Dispatch] = []
            products: list[Dispatch] = []
            for number, (rows, depth) in enumerate(shapes * layers):
                if number % 4 == 1:  # attention stands before the second product
                    first, second = stored[number], stored[number + 1]
                    n_first = min(ahead, first.size)
                    n_second = min(ahead - n_first, second.size)
                    busy = device.pipeline(busy_code((n_first // 16, n_second // 16)))
                    group = device.group(busy, first, second, x[0], x[1])
                    n_groups = BUSY_GROUPS + (READING_GROUPS if ahead else 0)
                    step.append(Dispatch(busy, group, n_groups))
                    x.reverse()
                subgroup = 8 if device.is_cpu else 32
                pipeline = device.pipeline(product_code(kind, depth, cut, subgroup))
                group = device.group(pipeline, stored[number], x[0], x[1], x_scales, None)
                n_groups = rows // cut.teams // cut.rows
                across = min(n_groups, GROUPS_ACROSS)
                step.append(Dispatch(pipeline, group, across, -(-n_groups // across)))
                products.append(step[-1])
                x.reverse()
            device.warm()
            whole, alone = device.seconds(step), device.seconds(products)
            print(
                f"  {kind}, {ahead / 1e6:.1f} MB ahead of each second product: "
                f"{whole * 1e6:.0f} us a token's layers, products alone {alone * 1e6:.0f} us"
            )


if __name__ == "__main__":
    main()
