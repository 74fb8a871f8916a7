"""How near the kernels of the WebGPU back end come to a device's limits, as programs run them.

python -m bench.webgpu_kernels [word ...]       only cases with one of these words in their name

Each case is a program of several equal products with weights of their own, more than caches hold,
compiled as any other; what it returns is checked against NumPy in float64. Times are those of its
launches by time stamps, the median of 15 rounds: each waits for the one before, as in a model.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.backends.webgpu.dispatch import Dispatch, new_buffer, record
from arenite.backends.webgpu.load import WebGpuProgram
from arenite.device import Buffer
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.dtype.blocks import dequantised
from arenite.ir import buffer, graph_input, make
from arenite.ir.compose import basic, neural
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import as_quantised, matmul_blocks
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from tests.codegen.block_weights import random_blocks

Array = NDArray[Any]

#: Bytes a second that an H200 reads at most, and multiply-adds twice that it does.
MOST_BYTES, MOST_FLOPS = 4.38e12, 60e12
#: Bytes of weights in a program: caches hold less.
WEIGHTS_NBYTES = 256 * 2**20
WARM_SECONDS = 0.3
ROUNDS = 15
#: Results that are checked, of each row.
CHECKED = 64
#: Errors beside the sum of the sizes of all products.
BOUND = 2e-4


#: A device at rest has a fifth of its clocks.
_BUSY = """
@group(0) @binding(0) var<storage, read_write> o: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) i: vec3u) {
  var a = f32(i.x);
  for (var k = 0u; k < 200000u; k++) { a = fma(a, 0.999, 0.5); }
  o[i.x & 1023u] = a;
}"""


class Case(NamedTuple):
    """rows x depth by depth x columns; `kind` is the dtype of weights."""

    kind: str
    rows: int
    depth: int
    columns: int
    turned: bool = False  # weights are [depth, columns]

    @property
    def name(self) -> str:
        how = " turned" if self.turned else ""
        return f"{self.kind}{how} {self.rows} x {self.depth} x {self.columns}"


ROW_SHAPES = ((2048, 3072), (2048, 2048), (2048, 16384), (8192, 2048), (2048, 128256))
KINDS = ("f16", "q8_0", "q4_0", "q4_k", "q4_1", "q5_k", "q6_k")
CASES = (
    *(Case(kind, 1, *shape) for kind in KINDS[:4] for shape in ROW_SHAPES),
    *(Case(kind, 1, *shape) for kind in KINDS[4:] for shape in ROW_SHAPES[2:4]),
    *(Case(kind, 1, 2048, 16384) for kind in ("f32", "q5_0", "q3_k", "iq4_xs")),
    *(Case(kind, 8, 2048, 16384) for kind in ("f16", "q8_0", "q4_k")),
    *(Case(kind, 512, 2048, 8192) for kind in ("f32", "f16", "q8_0", "q4_0", "q4_k", "q6_k")),
    Case("f16", 512, 8192, 2048),
    Case("f16", 512, 2048, 2048),
    Case("f32", 512, 2048, 8192, turned=True),
    Case("f16", 64, 2048, 8192),
)
#: The same on a CPU, where only the results count.
SMALL = (
    *(Case(kind, 1, 512, 300) for kind in ("f32", *KINDS)),
    *(Case(kind, 40, 512, 136) for kind in ("f32", "f16", "q4_0", "q4_k")),
)


class AttentionCase(NamedTuple):
    """Queries of 32 heads over keys of 8, as a state of a model has them: [keys, heads, 64]."""

    queries: int
    keys: int
    kind: str = "float16"
    heads: int = 32
    groups: int = 8
    width: int = 64

    @property
    def name(self) -> str:
        return f"attention {self.kind} {self.queries} over {self.keys}"


ATTENTIONS = (
    *(AttentionCase(1, keys) for keys in (128, 1024, 2048, 8192, 32768)),
    AttentionCase(1, 1024, "float32"),
    AttentionCase(512, 512),
    AttentionCase(512, 4096),
)
SMALL_ATTENTIONS = (
    AttentionCase(1, 100, heads=4, groups=2),
    AttentionCase(9, 40, heads=4, groups=2),
)


def _weights(case: Case, count: int, rng: np.random.Generator) -> Iterator[tuple[Node, Array]]:
    """Weights as nodes, each other bytes than the next, and all of them as stored."""
    rows, depth = case.columns, case.depth
    dtype = {"f16": np.float16, "f32": np.float32}.get(case.kind)
    part = min(rows, 256)
    if dtype is not None:
        some = rng.standard_normal((part, depth)).astype(dtype)
    else:
        some = random_blocks(case.kind, part, depth)
    whole = np.tile(some, (-(-rows // part), 1))[:rows]
    if case.turned:
        whole = np.ascontiguousarray(whole.T)
    for k in range(count):
        own = np.roll(whole, k, 0)
        if dtype is not None:
            yield buffer(own), own
        else:
            held = Buffer.from_array(own.reshape(-1))
            node = buffer(held.view(0, held.nbytes, BY_NAME[case.kind], (rows, depth)))
            yield node, own


def _product(case: Case, x: Node, w: Node) -> Node:
    if w.dtype.is_block:
        return matmul_blocks(x, w)
    wide = make("cast", w, dtype=BY_NAME["float32"]) if case.kind == "f16" else w
    return make("matmul", x, wide, transpose_a=False, transpose_b=not case.turned)


def _check(case: Case, x: Array, stored: Array, found: Array) -> float:
    """The greatest error beside the sum of the sizes of products, of some columns."""
    columns = np.random.default_rng(1).integers(0, case.columns, CHECKED)
    if case.kind in ("f16", "f32"):
        some = stored[:, columns].T if case.turned else stored[columns]
        numbers, given = some.astype(np.float64), x.astype(np.float64)
    else:
        dtype = BY_NAME[case.kind]
        numbers = dequantised(stored[columns], dtype, (CHECKED, case.depth)).astype(np.float64)
        given = as_quantised(x)
    exact = given @ numbers.T
    error = np.abs(found[:, columns] - exact) / (np.abs(given) @ np.abs(numbers).T)
    return float(error.max())


class Timer:
    """Times launches of a device by its own time stamps."""

    def __init__(self, gpu: WebGpuAllocator) -> None:
        from wgpu.backends.wgpu_native import lib

        self.gpu = gpu
        self._stamps = gpu.device.create_query_set(type="timestamp", count=2)
        self._resolved = new_buffer(gpu, 16, "QUERY_RESOLVE COPY_SRC")
        period = lib.wgpuQueueGetTimestampPeriod(gpu.device.queue._internal)
        self._tick = float(period) * 1e-9
        module = gpu.device.create_shader_module(code=_BUSY)
        pipeline = gpu.device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        memory = new_buffer(gpu, 4096, "STORAGE")
        resource = {"buffer": memory, "offset": 0, "size": memory.size}
        group = gpu.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0), entries=[{"binding": 0, "resource": resource}]
        )
        self._busy = Dispatch("busy", pipeline, group, (1056, 1))

    def seconds(self, dispatches: Sequence[Dispatch]) -> float:
        """Of one pass, the median, after the device has worked for a while."""
        until = time.perf_counter() + (0 if self.gpu.is_cpu else WARM_SECONDS)
        while time.perf_counter() < until:
            self._once([self._busy])
        for _ in range(0 if self.gpu.is_cpu else 3):
            self._once(dispatches)
        rounds = 1 if self.gpu.is_cpu else ROUNDS
        return statistics.median(self._once(dispatches) for _ in range(rounds))

    def _once(self, dispatches: Sequence[Dispatch]) -> float:
        encoder = self.gpu.device.create_command_encoder()
        stamps = {
            "query_set": self._stamps,
            "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1,
        }
        record(_Stamped(encoder, stamps), dispatches)
        encoder.resolve_query_set(self._stamps, 0, 2, self._resolved, 0)
        self.gpu.device.queue.submit([encoder.finish()])
        begin, end = np.frombuffer(self.gpu.words(self._resolved, 0, 16), np.uint64)
        return int(end - begin) * self._tick


class _Stamped(NamedTuple):
    """An encoder whose passes note when they begin and end."""

    encoder: Any
    stamps: dict[str, Any]

    def begin_compute_pass(self) -> Any:
        return self.encoder.begin_compute_pass(timestamp_writes=self.stamps)


def dispatches_of(program: Any) -> list[Dispatch]:
    """The launches of a program that has no open sizes, each by itself: as equals that wait for
    nothing they would be joined, several in one dispatch, which those of a model are not."""
    loaded = program._loaded
    assert isinstance(loaded, WebGpuProgram)
    table = loaded.bound_table({})
    table.join(False)
    return table.dispatches


def measure(case: Case, timer: Timer) -> str:
    rng = np.random.default_rng(0)
    is_cpu = timer.gpu.is_cpu
    kind = {"f16": "float16", "f32": "float32"}.get(case.kind, case.kind)
    nbytes = BY_NAME[kind].nbytes((case.columns, case.depth))
    count = 2 if is_cpu or case.rows > 8 else max(2, min(64, WEIGHTS_NBYTES // nbytes))
    x = rng.standard_normal((case.rows, case.depth)).astype(np.float32)
    given = graph_input("x", 0, x.shape, BY_NAME["float32"])
    weights = [*_weights(case, count, rng)]
    graph = Graph.of([_product(case, given, node) for node, _ in weights])
    with compile_graph(graph, Options(device="webgpu")) as program:
        found = program(x)
        error = max(_check(case, x, weights[k][1], found[k]) for k in (0, count - 1))
        again = program(x)
        is_same = all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
        launches = dispatches_of(program)
        assert len(launches) == count, [one.name for one in launches]
        took = timer.seconds(launches) / count
    assert error < BOUND, (case, error)
    assert is_same, case
    flops = 2 * case.rows * case.depth * case.columns / took
    speed = nbytes / took
    limit = f"{100 * flops / MOST_FLOPS:.0f} % of 60" if case.rows > 8 else ""
    return (
        f"{case.name:32} {took * 1e6:9.1f} us  {speed / 1e12:6.3f} TB/s "
        f"{100 * speed / MOST_BYTES:5.1f} %  {flops / 1e12:6.2f} TFLOP/s {limit}  "
        f"error {error:.0e}"
    )


def measure_attention(case: AttentionCase, timer: Timer) -> str:
    """Several layers, each of which has keys of its own."""
    rng = np.random.default_rng(0)
    count = 2 if timer.gpu.is_cpu or case.queries > 1 else 16
    float32 = BY_NAME["float32"]
    q = rng.standard_normal((case.queries, case.heads, case.width)).astype(np.float32)
    shape = (case.keys, case.groups, case.width)
    stored = [rng.standard_normal(shape).astype(case.kind) for _ in range(2 * count)]
    given = graph_input("q", 0, q.shape, float32)
    made = []
    for layer in range(count):
        sides = (given, *(buffer(one) for one in stored[2 * layer : 2 * layer + 2]))
        turned = (basic.permute(side, (1, 0, 2)) for side in sides)
        seen = neural.attention(*turned, causal=True, offset=case.keys - case.queries)
        made.append(basic.permute(seen, (1, 0, 2)))
    with compile_graph(Graph.of(made), Options(device="webgpu")) as program:
        found, again = program(q), program(q)
        names = [one.name for one in dispatches_of(program)]
        launches = [one for one in dispatches_of(program) if "attention" in one.name]
        assert len(launches) == count, names
        took = timer.seconds(launches) / count
    error = _attention_error(case, q, stored[-2], stored[-1], found[-1])
    assert error < BOUND, (case, error)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True)), case
    speed = 2 * stored[0].nbytes / took
    scores = case.queries * case.keys - case.queries * (case.queries - 1) // 2
    flops = 4 * case.heads * case.width * scores / took
    return (
        f"{case.name:32} {took * 1e6:9.1f} us  {speed / 1e12:6.3f} TB/s "
        f"{100 * speed / MOST_BYTES:5.1f} %  {flops / 1e12:6.2f} TFLOP/s  error {error:.0e}"
    )


def _attention_error(case: AttentionCase, q: Array, k: Array, v: Array, found: Array) -> float:
    """Against float64, of the first and the last query."""
    worst = 0.0
    for query in {0, case.queries - 1}:
        n_seen = case.keys - case.queries + query + 1
        for head in range(case.heads):
            group = head // (case.heads // case.groups)
            keys, values = (one[:n_seen, group].astype(np.float64) for one in (k, v))
            scores = keys @ q[query, head].astype(np.float64) * case.width**-0.5
            weights = np.exp(scores - scores.max())
            exact = weights @ values / weights.sum()
            worst = max(worst, float(np.abs(found[query, head] - exact).max()))
    return worst


def _each(cases: Sequence[Any], words: Sequence[str], show: Callable[[Any], str]) -> None:
    for case in cases:
        if not words or any(word in case.name for word in words):
            try:
                print(show(case), flush=True)
            except Exception as failure:
                print(f"{case.name}: FAILED {failure!r}", flush=True)


def main(words: Sequence[str]) -> None:
    gpu = device.get("webgpu")
    assert isinstance(gpu, WebGpuAllocator)
    print(f"{gpu.adapter_name}, {gpu.driver}, subgroups of {gpu.subgroup}", flush=True)
    timer = Timer(gpu)
    _each(SMALL if gpu.is_cpu else CASES, words, lambda case: measure(case, timer))
    attentions = SMALL_ATTENTIONS if gpu.is_cpu else ATTENTIONS
    _each(attentions, words, lambda case: measure_attention(case, timer))


if __name__ == "__main__":
    main(sys.argv[1:])
