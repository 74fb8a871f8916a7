"""A first look at CUDA: a kernel of each kind, printed as CUDA C by the emitter of WebGPU.

    python -m bench.cuda_kernels [--rounds 15] [word ...]

Each kernel is the one that a program has on WebGPU, with its cut and its text; `nvcc` compiles it,
and its results are held to NumPy's in float64. Times are the medians of launches by CUDA's events,
beside the same kernel on WebGPU by its own timestamps, and the limit that the kernel is nearer to.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from arenite import passes
from arenite.backends.webgpu.backend import BACKEND
from arenite.backends.webgpu.channels_last import CONV
from arenite.backends.webgpu.lower import lower
from arenite.backends.webgpu.shader import Shader
from arenite.device import Buffer
from arenite.dtype import BY_NAME
from arenite.dtype.blocks import dequantised
from arenite.ir import buffer, graph_input, make
from arenite.ir.compose import basic, neural
from arenite.ir.dim import evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import as_quantised, matmul_blocks
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from arenite.schedule import fuse
from bench.cuda_text import cuda_text
from tests.codegen.block_weights import random_blocks

Array = NDArray[Any]

F32 = BY_NAME["float32"]
ON_WEBGPU = Options(device="webgpu")
#: Of the device, as WebGPU and data sheets give them: bytes and multiply-adds in float32.
MOST_BYTES, MOST_FLOPS = 4.38e12, 67e12
#: Beside the largest result, or the sum of the sizes of products.
BOUND = 2e-5
#: Rows of a product, or columns, that are checked.
CHECKED = 64


class Case(NamedTuple):
    """A result; what its inputs and buffers hold; bytes that it moves, and operations; `error` is
    of what was found, beside its bound."""

    node: Node
    arrays: dict[Node, Array]
    nbytes: int
    flops: float
    error: Callable[[Array], float]


def given(index: int, array: Array) -> Node:
    return graph_input(f"x{index}", index, array.shape, F32)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def beside(exact: Array) -> Callable[[Array], float]:
    return lambda found: float(np.abs(found - exact).max() / np.abs(exact).max())


def elementwise() -> Case:
    a, b = random(1 << 25), random(1 << 25, seed=1)
    x, y = given(0, a), given(1, b)
    node = make("mul", make("exp", x), y)
    return Case(node, {x: a, y: b}, 3 * a.nbytes, 0, beside(np.exp(a.astype(float)) * b))


def reduction() -> Case:
    a = random(16384, 4096)
    x = given(0, a)
    node = make("sum", x, axes=(1,))
    return Case(node, {x: a}, a.nbytes, a.size, beside(a.astype(float).sum(1)))


def softmax() -> Case:
    a = random(16384, 4096)
    x = given(0, a)
    raised = np.exp(a.astype(float))
    exact = raised / raised.sum(1, keepdims=True)
    return Case(neural.softmax(x, 1), {x: a}, 2 * a.nbytes, 0, beside(exact))


def _products(rows: int, depth: int, columns: int, dtype: str) -> Case:
    a, w = random(rows, depth), random(columns, depth, seed=1).astype(dtype)
    x, held = given(0, a), buffer(w)
    wide = make("cast", held, dtype=F32) if dtype == "float16" else held
    node = make("matmul", x, wide, transpose_a=False, transpose_b=True)
    exact = a[:CHECKED].astype(float) @ w[:CHECKED].astype(float).T

    def error(found: Array) -> float:
        return float(np.abs(found[:CHECKED, :CHECKED] - exact).max() / depth**0.5)

    flops = 2.0 * rows * depth * columns
    return Case(node, {x: a, held: w}, a.nbytes + w.nbytes + rows * columns * 4, flops, error)


def blocks() -> Case:
    rows, depth, kind = 16384, 2048, "q4_0"
    dtype, a = BY_NAME[kind], random(1, depth)
    stored = random_blocks(kind, rows, depth)
    storage = Buffer.from_array(stored.reshape(-1))
    w = buffer(storage.view(0, storage.nbytes, dtype, (rows, depth)))
    x = given(0, a)
    numbers = dequantised(stored[:CHECKED], dtype, (CHECKED, depth)).astype(float)
    sides = as_quantised(a).astype(float)

    def error(found: Array) -> float:
        sizes = np.abs(sides) @ np.abs(numbers).T
        return float((np.abs(found[:, :CHECKED] - sides @ numbers.T) / sizes).max())

    return Case(matmul_blocks(x, w), {x: a, w: stored}, stored.nbytes, 2.0 * rows * depth, error)


def _attention(queries: int, keys: int) -> Case:
    heads, groups, width = 32, 8, 64
    q = random(queries, heads, width)
    k, v = (random(keys, groups, width, seed=s).astype(np.float16) for s in (1, 2))
    sides = (given(0, q), buffer(k), buffer(v))
    turned = (basic.permute(side, (1, 0, 2)) for side in sides)
    seen = neural.attention(*turned, causal=True, offset=keys - queries)
    node = basic.permute(seen, (1, 0, 2))
    one = slice(queries - 1, queries)
    each = heads // groups
    wide_k, wide_v = (np.repeat(side.astype(float), each, axis=1) for side in (k, v))
    scores = np.einsum("qhw,khw->hqk", q[one].astype(float), wide_k) * width**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("hqk,khw->qhw", weights, wide_v)

    def error(found: Array) -> float:
        return float(np.abs(found[one] - exact).max() / np.abs(exact).max())

    flops = 4.0 * heads * width * (queries * keys - queries * (queries - 1) / 2)
    arrays: dict[Node, Array] = dict(zip(sides, (q, k, v), strict=True))
    return Case(node, arrays, k.nbytes + v.nbytes + 2 * q.nbytes, flops, error)


def convolution() -> Case:
    batch, size, channels = 32, 28, 128
    a, w = random(batch, size, size, channels), random(3, 3, channels, channels, seed=1)
    x, held = given(0, a), buffer(w)
    node = make(
        CONV,
        x,
        held,
        strides=(1, 1),
        padding=((1, 1), (1, 1)),
        dilations=(1, 1),
        groups=1,
        channels=channels,
    )
    padded = np.pad(a[0], ((1, 1), (1, 1), (0, 0))).astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))
    exact = np.einsum("yxcij,ijco->yxo", windows, w.astype(float))
    flops = 2.0 * batch * size**2 * channels**2 * 9
    nbytes = 2 * a.nbytes + w.nbytes
    return Case(node, {x: a, held: w}, nbytes, flops, lambda found: beside(exact)(found[0]))


CASES: dict[str, Callable[[], Case]] = {
    "elementwise": elementwise,
    "reduction": reduction,
    "softmax": softmax,
    "product 2048^3": lambda: _products(2048, 2048, 2048, "float32"),
    "product of one row, f16": lambda: _products(1, 2048, 16384, "float16"),
    "product of one row, q4_0": blocks,
    "attention 1 over 1024": lambda: _attention(1, 1024),
    "attention 512 over 512": lambda: _attention(512, 512),
    "convolution 3x3": convolution,
}


class Made(NamedTuple):
    """A kernel: its shader, its inputs in order, the groups it takes and its translation unit."""

    shader: Shader
    inputs: tuple[Node, ...]
    tiles: int
    text: str


def made(case: Case) -> Made:
    """The kernel of a case; what else there may be shows its result in another shape."""
    neutral, _ = passes.run(Graph.of([case.node]), passes.NEUTRAL)
    way = tuple(one for one in BACKEND.ways(ON_WEBGPU)[0] if one.name != "transfers")
    kernel, *_ = fuse(passes.run(neutral, way)[0]).kernels
    built = BACKEND.builder(Options(device="webgpu"))(kernel, "")
    shader = lower(built.loops)  # type: ignore[arg-type]
    n, roles = len(shader.arrays), [role for _, _, role in shader.arrays]
    text = shader.module(tuple((k,) for k in range(n)), tuple(role == "in" for role in roles), 32)
    unit = cuda_text(text, shader.threads)
    return Made(shader, kernel.inputs, evaluate(built.tiles, {}), unit)


def compiled(text: str, path: Path) -> ctypes.CDLL:
    path.with_suffix(".cu").write_text(text)
    command = ["nvcc", "-O3", "-std=c++17", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC"]
    command += ["-w", "-o", str(path), str(path.with_suffix(".cu"))]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def on_cuda(case: Case, one: Made, library: ctypes.CDLL, rounds: int) -> tuple[float, Array]:
    """Seconds of a launch, and what it gives."""
    sides = [torch.from_numpy(_bytes(case.arrays[node])).cuda() for node in one.inputs]
    result = torch.zeros(int(np.prod([evaluate(d, {}) for d in case.node.shape])), device="cuda")
    arrays = [*sides, result]
    pointers = (ctypes.c_void_p * len(arrays))(*(a.data_ptr() for a in arrays))
    words = np.array([0] * len(arrays) + [one.tiles, 0, 0], np.int32)
    times = np.zeros(rounds + 3, np.float32)
    x = min(one.tiles, 65535)
    error = library.run(
        pointers,
        words.ctypes.data_as(ctypes.c_void_p),
        x,
        -(-one.tiles // x),
        len(times),
        times.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
    )
    assert not error, f"CUDA's error {error}"
    found = result.cpu().numpy().reshape([evaluate(d, {}) for d in case.node.shape])
    return statistics.median(times[3:].tolist()) * 1e-3, found


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def on_webgpu(case: Case, rounds: int) -> float:
    """Seconds of the same kernel there."""
    inputs = [node for node in case.arrays if node.op == "input"]
    arrays = [case.arrays[node] for node in inputs]
    with compile_graph(Graph.of([case.node]), ON_WEBGPU) as program:
        times = []
        for _ in range(rounds):
            _warm()
            kernels = program.profile(*arrays).kernels
            times.append(sum(k.seconds for k in kernels if not k.name.startswith("transfer")))
    return statistics.median(times)


def _warm() -> None:
    """At rest a GPU's clocks are a fifth of what they can be."""
    a = torch.ones(4096, 4096, device="cuda")
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()


def share(case: Case, seconds: float) -> str:
    """Of the limit that is nearer."""
    of_bytes = case.nbytes / MOST_BYTES / seconds
    of_flops = case.flops / MOST_FLOPS / seconds
    what = "memory" if of_bytes > of_flops else "float32"
    return f"{100 * max(of_bytes, of_flops):5.1f} % of {what}"


def main(words: Sequence[str], rounds: int) -> None:
    chosen: Mapping[str, Callable[[], Case]] = {
        name: case for name, case in CASES.items() if not words or any(w in name for w in words)
    }
    cases = {name: make_case() for name, make_case in chosen.items()}
    kernels = {name: made(case) for name, case in cases.items()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        paths = [Path(folder) / f"kernel{k}.so" for k in range(len(kernels))]
        libraries = pool.map(compiled, (one.text for one in kernels.values()), paths)
        for (name, case), library in zip(cases.items(), libraries, strict=True):
            _warm()
            seconds, found = on_cuda(case, kernels[name], library, rounds)
            error = case.error(found)
            verdict = "right" if error < BOUND else "WRONG"
            there = on_webgpu(case, min(rounds, 5))
            print(
                f"{name:28} CUDA {seconds * 1e6:8.1f} us {share(case, seconds):20} "
                f"WebGPU {there * 1e6:8.1f} us {share(case, there):20} error {error:.0e} {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    main(options.words, options.rounds)
