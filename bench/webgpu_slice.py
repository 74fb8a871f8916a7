"""What programs for WebGPU come to on this machine's adapter: whether they are right, and how fast.

python -m bench.webgpu_slice

First every op example that the device does, and a network of two layers, against the reference;
then times on the device: launches recorded many times into one pass, waited for once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import device
from arenite.backends.webgpu.dispatch import record
from arenite.backends.webgpu.load import WebGpuProgram
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.errors import NotCompiled
from arenite.ir import Node, constant, graph_input, make, reference
from arenite.ir.compose.basic import binary
from arenite.ir.compose.neural import layer_norm, softmax
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from tests.ir.op_examples import EXAMPLES, numbers

Array = NDArray[Any]

F32, F16 = BY_NAME["float32"], BY_NAME["float16"]
#: Seconds of work before something is measured: a GPU at rest clocks down.
WARM_S = 0.4
#: Of results that are near the reference: relative, of the largest of them, by bytes of a float.
BOUNDS = {8: 1e-4, 4: 1e-4, 2: 1e-2}


def program(node: Node) -> Executable:
    return compile_graph(Graph.of([node]), Options(device="webgpu"))


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def x(*shape: int, index: int = 0) -> Node:
    return graph_input(f"x{index}", index, shape, F32)


def matmul(a: Node, b: Node) -> Node:
    return make("matmul", a, b, transpose_a=False, transpose_b=False)


def network() -> Node:
    w1, w2 = constant(random(300, 500, seed=1) / 16), constant(random(500, 70, seed=2) / 16)
    hidden = binary("maximum", matmul(x(129, 300), w1), 0.0)
    return softmax(matmul(hidden, w2) + constant(random(70, seed=3)), 1)


def is_right(found: Array, wanted: Array) -> bool:
    if wanted.dtype.kind in "biu":
        return bool(np.array_equal(found, wanted))
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    scale = max(1.0, float(np.abs(other).max(initial=0)))
    bound = BOUNDS[wanted.dtype.itemsize]
    return bool(np.allclose(one, other, rtol=bound, atol=bound * scale, equal_nan=True))


def judged() -> dict[str, Any]:
    """Ops and programs by what became of them."""
    programs: dict[str, Callable[[], Node]] = {
        op: example
        for op, example in EXAMPLES.items()
        if op not in ("size", "parameter") and not example().dtype.is_block  # no array holds one
    }
    programs |= {
        "two layers": network,
        "softmax rows": lambda: softmax(x(100, 1000), 1),
        "softmax columns": lambda: softmax(x(100, 1000), 0),
        "layer norm": lambda: layer_norm(x(64, 768), 1, None, None, 1e-5),
        "product 70 x 300 x 129": lambda: matmul(x(70, 300), x(300, 129, index=1)),
        "sum of 1000003": lambda: make("sum", x(1_000_003), axes=(0,)),
        "float16": lambda: make("cast", softmax(x(61, 5), 1), dtype=F16),
    }
    right: list[str] = []
    wrong: list[str] = []
    refused: list[str] = []
    for name, make_node in programs.items():
        node = make_node()
        graph = Graph.of([node])
        arrays = [numbers(one) for one in graph.inputs]
        try:
            with program(node) as one:
                [found] = one(*arrays)
        except NotCompiled:
            refused.append(name)
            continue
        [wanted] = reference.evaluate(graph, arrays)
        (right if is_right(found, wanted) else wrong).append(name)
    return {"right": len(right), "wrong": wrong, "refused": len(refused)}


def seconds(one: Executable, gpu: WebGpuAllocator, repeats: int) -> float:
    """What one run of the launches takes on the device: of many, less what one alone takes."""
    loaded = one._loaded
    assert isinstance(loaded, WebGpuProgram)
    dispatches = loaded.bound_table({}).dispatches

    def took(n: int) -> float:
        encoder = gpu.device.create_command_encoder()
        record(encoder, dispatches * n)  # in one pass, as in a program
        commands = encoder.finish()
        began = time.perf_counter()
        gpu.device.queue.submit([commands])
        gpu.synchronize()
        return time.perf_counter() - began

    end = time.perf_counter() + (0 if gpu.is_cpu else WARM_S)
    while time.perf_counter() < end:
        took(repeats)
    many, alone = (min(took(n) for _ in range(3)) for n in (repeats + 1, 1))
    return (many - alone) / repeats


def timed(gpu: WebGpuAllocator) -> list[dict[str, Any]]:
    few = gpu.is_cpu
    rows: list[dict[str, Any]] = []

    def measure(name: str, node: Node, *arrays: Array, unit: str = "", amount: float = 0) -> None:
        is_long = few and amount > 0
        with program(node) as one:
            one(*arrays)
            took = seconds(one, gpu, 1 if is_long else 100)
        rate = amount / took / 1e9 if amount else None
        rows.append({"what": name, "us": took * 1e6, "rate": rate, "unit": unit})

    measure("a dispatch of 64 elements", make("neg", x(64)), random(64))
    # A CPU that stands in for a GPU takes minutes for what a GPU does in milliseconds.
    n = 1 << (20 if few else 24)
    data = random(n)
    two = make("add", make("mul", x(n), x(n)), full_like(n))
    measure(f"elementwise, {n} elements", two, data, unit="GB/s", amount=8 * n)
    rows_ = 1 << (10 if few else 12)
    wide = data.reshape(rows_, rows_)
    name = f"row softmax, {rows_} x {rows_}"
    measure(name, softmax(x(rows_, rows_), 1), wide, unit="GB/s", amount=8 * n)
    side = 256 if few else 1024
    a, b = random(side, side), random(side, side, seed=1)
    product = matmul(x(side, side), x(side, side, index=1))
    measure(f"product, {side}^3", product, a, b, unit="GFLOP/s", amount=2 * side**3)
    return rows


def full_like(n: int) -> Node:
    return make("expand", make("full", value=1.0, shape=(1,), dtype=F32), shape=(n,))


def round_trip() -> float:
    """Microseconds of a whole call: inputs there, one launch, results back."""
    data = random(64)
    with program(make("neg", x(64))) as one:
        one(data)
        began = time.perf_counter()
        for _ in range(50):
            one(data)
        return (time.perf_counter() - began) / 50 * 1e6


def main() -> None:
    gpu = device.get("webgpu")
    assert isinstance(gpu, WebGpuAllocator)
    print(f"{gpu.adapter_name} ({gpu.driver})")
    judgement = judged()
    print(
        f"{judgement['right']} programs right, {len(judgement['wrong'])} wrong "
        f"{judgement['wrong']}, {judgement['refused']} refused"
    )
    rows = timed(gpu)
    call = round_trip()
    for row in rows:
        rate = "" if row["rate"] is None else f"{row['rate']:10.1f} {row['unit']}"
        print(f"  {row['what']:<28} {row['us']:12.1f} us {rate}")
    print(f"  {'a whole call, 64 elements':<28} {call:12.1f} us")
    result = {"adapter": gpu.adapter_name, "driver": gpu.driver, "judged": judgement}
    print(json.dumps({**result, "times": rows, "call_us": call}))


if __name__ == "__main__":
    main()
