"""How near products in plain WGSL come to a device's limits: one row by the weights of a 1B model,
in four formats, and 512 rows by one matrix.

python -m bench.webgpu_products

Every kernel is checked against NumPy in float64 first. Weights are made up; there are as many bytes
of them as in the model, so that they come from memory and not from a cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.webgpu_device import Device, Dispatch, NativeRecorder

#: Llama 3.2 1B: layers, width, width between, tokens.
LARGE, SMALL = (16, 2048, 8192, 128256), (2, 512, 1024, 1024)
#: Weights in 16 bytes, or in two GGUF blocks for the last; bytes a weight, scales with them.
FORMATS = {
    "f16": (8, 2.0),
    "q8_0": (16, 1.0625),
    "q4_0": (32, 0.5625),
    "q4_0 as in GGUF": (64, 0.5625),
}
GROUPS_ACROSS = 32768


class Shape(NamedTuple):
    """How a product of one row is cut: `lanes` share a row, each lane has `rows` rows at once, a
    workgroup has `teams` teams of lanes."""

    lanes: int
    teams: int
    rows: int


SHAPES = (Shape(32, 1, 1), Shape(32, 2, 1), Shape(32, 1, 2), Shape(32, 2, 2), Shape(64, 1, 2))


def product_code(kind: str, depth: int, shape: Shape, subgroup: int) -> str:
    """WGSL for y = W x. Quantised weights meet x in blocks of 32 bytes with a scale, summed as
    integers; the scale's partner is minus eight times the sum of the block."""
    steps = depth // FORMATS[kind][0] // shape.lanes
    rows = range(shape.rows)
    load, body = _BODIES[kind]
    unroll = next(u for u in (4, 2, 1) if steps % u == 0) if kind == "f16" else 1
    inner = "".join(
        f"{{ let j = (i0 + {u}u) * {shape.lanes}u + lane; {load}"
        + "".join(body.replace("$", str(row)) for row in rows)
        + "}"
        for u in range(unroll)
    )
    sums = "".join(
        f"""
  s{row} = subgroupAdd(s{row});
  if (lane % {subgroup}u == 0u) {{ part[l.x / {subgroup}u] = s{row}; }}
  workgroupBarrier();
  if (lane == 0u) {{
    var t = 0.0;
    for (var k = 0u; k < {max(shape.lanes // subgroup, 1)}u; k++) {{
      t += part[(l.x / {shape.lanes}u) * {max(shape.lanes // subgroup, 1)}u + k];
    }}
    Y[row + {row}u] = t;
  }}
  workgroupBarrier();"""
        for row in rows
    )
    words = depth // FORMATS[kind][0]
    return f"""
@group(0) @binding(0) var<storage, read> W: array<{"u32" if "GGUF" in kind else "vec4<u32>"}>;
@group(0) @binding(1) var<storage, read> X: array<{"vec4f" if kind == "f16" else "vec4<u32>"}>;
@group(0) @binding(2) var<storage, read_write> Y: array<f32>;
@group(0) @binding(3) var<storage, read> DX: array<vec2f>;
@group(0) @binding(4) var<storage, read> D: array<u32>;
var<workgroup> part: array<f32, 64>;
@compute @workgroup_size({shape.lanes * shape.teams})
fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_id) l: vec3u) {{
  let lane = l.x % {shape.lanes}u;
  let team = (g.x + g.y * {GROUPS_ACROSS}u) * {shape.teams}u + l.x / {shape.lanes}u;
  let row = team * {shape.rows}u;
  {"".join(f"let b{row} = (row + {row}u) * {words}u; var s{row} = 0.0;" for row in rows)}
  for (var i0 = 0u; i0 < {steps}u; i0 += {unroll}u) {{ {inner} }}
  {sums}
}}"""


def _dot(weights: str, x: str) -> str:
    return " + ".join(f"dot4I8Packed({weights}.{k}, {x}.{k})" for k in "xyzw")


_NIBBLES = "let m$ = vec4u(0x0f0f0f0fu); let lo$ = w$ & m$; let hi$ = (w$ >> vec4u(4u)) & m$;"
#: What a lane reads of x at step j, and what it does with each row, $.
_BODIES = {
    "f16": (
        "let x = X[2u * j]; let y = X[2u * j + 1u];",
        "{ let w = W[b$ + j]; s$ += dot(vec4f(unpack2x16float(w.x), unpack2x16float(w.y)), x)"
        " + dot(vec4f(unpack2x16float(w.z), unpack2x16float(w.w)), y); }",
    ),
    "q8_0": (
        "let x = X[j]; let dx = DX[j >> 1u].x;",
        "{ let i = b$ + j; let w = W[i]; let d = unpack2x16float(D[i >> 2u])[(i >> 1u) & 1u];"
        f" s$ += d * dx * f32({_dot('w', 'x')}); }}",
    ),
    "q4_0": (
        "let x = X[2u * j]; let y = X[2u * j + 1u]; let dx = DX[j];",
        "{ let i = b$ + j; let w$ = W[i]; let d = unpack2x16float(D[i >> 1u])[i & 1u];"
        f"{_NIBBLES} s$ += d * (dx.x * f32({_dot('lo$', 'x')} + {_dot('hi$', 'y')}) + dx.y); }}",
    ),
    # A block has 18 bytes: two of them are nine words, and the first begins in the middle of one.
    "q4_0 as in GGUF": (
        "let x = X[4u * j]; let y = X[4u * j + 1u]; let z = X[4u * j + 2u];"
        "let u = X[4u * j + 3u]; let d0 = DX[2u * j]; let d1 = DX[2u * j + 1u];",
        "{ let i = (b$ + j) * 9u; let a = vec4u(W[i], W[i + 1u], W[i + 2u], W[i + 3u]);"
        "let e = W[i + 4u]; let v = vec4u(W[i + 5u], W[i + 6u], W[i + 7u], W[i + 8u]);"
        "let w$ = (a >> vec4u(16u)) | (vec4u(a.yzw, e) << vec4u(16u));"
        f"{_NIBBLES} let lv = v & m$; let hv = (v >> vec4u(4u)) & m$;"
        f"let p = d0.x * f32({_dot('lo$', 'x')} + {_dot('hi$', 'y')}) + d0.y;"
        f"let q = d1.x * f32({_dot('lv', 'z')} + {_dot('hv', 'u')}) + d1.y;"
        "s$ += unpack2x16float(a.x).x * p + unpack2x16float(e).y * q; }",
    ),
}


class Weights(NamedTuple):
    """Bytes as a kernel reads them, scales apart where it does, and the numbers they stand for."""

    words: np.ndarray
    scales: np.ndarray | None
    numbers: np.ndarray


def weights(kind: str, rows: int, depth: int, rng: np.random.Generator) -> Weights:
    if kind == "f16":
        half = rng.standard_normal((rows, depth)).astype(np.float16)
        return Weights(half, None, half.astype(np.float64))
    scales = (rng.random((rows, depth // 32)) + 0.1).astype(np.float16)
    if kind == "q8_0":
        words = rng.integers(-127, 128, (rows, depth // 32, 32)).astype(np.int8)
        codes = words.astype(np.float64)
    else:
        words = rng.integers(0, 256, (rows, depth // 32, 16)).astype(np.uint8)
        codes = np.concatenate([words & 15, words >> 4], -1).astype(np.float64) - 8
    numbers = (codes * scales[..., None].astype(np.float64)).reshape(rows, depth)
    if "GGUF" in kind:
        blocks = np.concatenate([scales[..., None].view(np.uint8), words], -1)
        return Weights(blocks, None, numbers)
    return Weights(words, scales, numbers)


def check(device: Device, kind: str, depth: int, shape: Shape, subgroup: int) -> None:
    """Against float64."""
    rng, rows = np.random.default_rng(1), 64
    made = weights(kind, rows, depth, rng)
    result = device.buffer(4 * rows)
    exact: np.ndarray
    if kind == "f16":
        row = rng.standard_normal(depth).astype(np.float32)
        exact, bound = made.numbers @ row, [device.filled(row), result, None, None]
    else:
        quants = rng.integers(-127, 128, (depth // 32, 32)).astype(np.int8)
        scale = rng.random(depth // 32).astype(np.float32) + np.float32(0.1)
        pairs = np.stack([scale, quants.sum(1) * scale * -8], 1).astype(np.float32)
        x = (quants * scale[:, None].astype(np.float64)).reshape(-1)
        scales = None if made.scales is None else device.filled(made.scales)
        exact = made.numbers @ x
        bound = [device.filled(quants), result, device.filled(pairs), scales]
    pipeline = device.pipeline(product_code(kind, depth, shape, subgroup))
    group = device.group(pipeline, device.filled(made.words), *bound)
    device.run([Dispatch(pipeline, group, rows // shape.teams // shape.rows)])
    error = np.abs(device.read(result, np.float32) - exact).max() / np.abs(exact).max()
    assert error < 2e-5, (kind, shape, error)


def one_row(device: Device) -> None:
    """All products of one token, each of which waits for the one before, and the same with two
    small launches more a layer."""
    layers, width, between, tokens = SMALL if device.is_cpu else LARGE
    shapes = [(width * 3 // 2, width), (width, width), (2 * between, width), (width, between)]
    all_shapes = shapes * layers + [(tokens, width)]
    subgroup = 8 if device.is_cpu else 32
    native = NativeRecorder(device)
    small = device.pipeline(
        "@group(0) @binding(0) var<storage, read> a: array<u32>;"
        "@group(0) @binding(1) var<storage, read_write> o: array<u32>;"
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) i: vec3u) {"
        " o[i.x] = a[i.x] & 0x3fffffffu; }"
    )
    for kind, (_, nbytes_each) in FORMATS.items():
        is_apart = kind in ("q8_0", "q4_0")
        content = np.random.default_rng(0).integers(0, 2**14, 1 << 20, np.uint16)
        stored = []
        for rows, depth in all_shapes:
            n_scales = rows * depth // 16 if is_apart else 0
            buffer = device.buffer(int(rows * depth * nbytes_each) - n_scales)
            for at in range(0, buffer.size, content.nbytes):
                part = content.view(np.uint8)[: min(content.nbytes, buffer.size - at)]
                device.queue.write_buffer(buffer, at, part)
            device.queue.submit([])
            stored.append((buffer, device.buffer(n_scales) if is_apart else None))
        total = sum(rows * depth * nbytes_each for rows, depth in all_shapes)
        x = [device.buffer(4 * max(2 * between, tokens)) for _ in range(2)]
        x_scales = None if kind == "f16" else device.buffer(between // 4)
        for shape in SHAPES:
            if width // FORMATS[kind][0] % shape.lanes:
                continue
            check(device, kind, width, shape, subgroup)
            pipelines = {
                depth: device.pipeline(product_code(kind, depth, shape, subgroup))
                for depth in (width, between)
            }
            products: list[Dispatch] = []
            step: list[Dispatch] = []
            for number, (rows, depth) in enumerate(all_shapes):
                bound = [stored[number][0], x[0], x[1], x_scales, stored[number][1]]
                pipeline = pipelines[depth]
                n_groups = rows // shape.teams // shape.rows
                across = min(n_groups, GROUPS_ACROSS)
                group = device.group(pipeline, *bound)
                products.append(Dispatch(pipeline, group, across, -(-n_groups // across)))
                step.append(products[-1])
                x.reverse()
                if number % 4 in (0, 2) and number < len(all_shapes) - 1:
                    step.append(Dispatch(small, device.group(small, x[0], x[1]), 16))
                    x.reverse()
            device.warm()
            alone, together = device.seconds(products), device.seconds(step)
            head = device.seconds(products[-1:])
            in_flight = sum(native.run(step, 32, ahead=4))
            rows, depth = all_shapes[-1]
            print(
                f"  {kind}, {shape.lanes} lanes, {shape.teams} teams, {shape.rows} rows: "
                f"{alone * 1e6:.0f} us, {total / alone / 1e12:.2f} TB/s (last product "
                f"{rows * depth * nbytes_each / head / 1e12:.2f}); {len(step)} launches "
                f"{together * 1e6:.0f} us, from C with four in flight {in_flight * 1e6:.0f} us"
            )


def tiled_code(element: str, sum_type: str, depth: int, columns: int, slice_depth: int) -> str:
    """128 x 128 results a group of 256 lanes, 8 x 8 a lane, from slices in shared memory. With
    sums in f16 those of one slice are added to f32."""
    lines = "".join
    cells = [(i, j) for i in range(8) for j in range(2)]
    name = "h" if sum_type == "f16" else "c"
    return f"""{"enable f16;" if "f16" in (element, sum_type) else ""}
@group(0) @binding(0) var<storage, read> A: array<vec4<{element}>>;
@group(0) @binding(1) var<storage, read> B: array<vec4<{element}>>;
@group(0) @binding(2) var<storage, read_write> Y: array<vec4f>;
var<workgroup> sa: array<{sum_type}, {slice_depth * 132}>;
var<workgroup> sb: array<vec4<{sum_type}>, {slice_depth * 32}>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) g: vec3u, @builtin(local_invocation_id) l: vec3u) {{
  let tx = l.x % 16u; let ty = l.x / 16u; let m0 = g.y * 128u; let n0 = g.x * 128u;
  {lines(f"var c{i}_{j} = vec4f();" for i, j in cells)}
  for (var k = 0u; k < {depth}u; k += {slice_depth}u) {{
    for (var e = l.x; e < {slice_depth * 32}u; e += 256u) {{
      let r = e / {slice_depth // 4}u; let c = (e % {slice_depth // 4}u) * 4u;
      let v = vec4<{sum_type}>(A[((m0 + r) * {depth}u + k + c) / 4u]);
      for (var q = 0u; q < 4u; q++) {{ sa[(c + q) * 132u + r] = v[q]; }}
      sb[e] = vec4<{sum_type}>(B[((k + e / 32u) * {columns}u + n0) / 4u + e % 32u]);
    }}
    workgroupBarrier();
    {lines(f"var h{i}_{j} = vec4<f16>();" for i, j in cells) if name == "h" else ""}
    for (var kk = 0u; kk < {slice_depth}u; kk++) {{
      {lines(f"let b{j} = sb[kk * 32u + {16 * j}u + tx];" for j in range(2))}
      {lines(f"let a{i} = vec4<{sum_type}>(sa[kk * 132u + ty * 8u + {i}u]);" for i in range(8))}
      {lines(f"{name}{i}_{j} = fma(a{i}, b{j}, {name}{i}_{j});" for i, j in cells)}
    }}
    {lines(f"c{i}_{j} += vec4f(h{i}_{j});" for i, j in cells) if name == "h" else ""}
    workgroupBarrier();
  }}
  let first = ((m0 + ty * 8u) * {columns}u + n0) / 4u + tx;
  {lines(f"Y[first + {i * columns // 4 + 16 * j}u] = c{i}_{j};" for i, j in cells)}
}}"""


def many_rows(device: Device) -> None:
    """512 rows by one matrix."""
    rows, depth, columns = (512, 64, 256) if device.is_cpu else (512, 2048, 8192)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, depth)).astype(np.float16)
    b = rng.standard_normal((depth, columns)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    result = device.buffer(rows * columns * 4)
    for element, sum_type in (("f32", "f32"), ("f16", "f32"), ("f16", "f16")):
        dtype = np.float16 if element == "f16" else np.float32
        given = [device.filled(one.astype(dtype)) for one in (a, b)]
        for slice_depth in (16, 32):
            pipeline = device.pipeline(tiled_code(element, sum_type, depth, columns, slice_depth))
            group = device.group(pipeline, *given, result)
            launch = Dispatch(pipeline, group, columns // 128, rows // 128)
            device.run([launch])
            found = device.read(result, np.float32).reshape(rows, columns)
            error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
            device.warm()
            took = device.seconds([launch] * 4) / 4
            print(
                f"  {element}, sums in {sum_type}, slices of {slice_depth}: "
                f"{2 * rows * depth * columns / took / 1e12:.1f} TFLOP/s, rms error {error:.0e}"
            )


def main() -> None:
    device = Device()
    print(device.name)
    for section in (many_rows, one_row):
        print(section.__name__.replace("_", " "))
        section(device)


if __name__ == "__main__":
    main()
