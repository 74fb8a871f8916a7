"""Every op asked for on WebGPU gives what the reference gives: on the device, or on the CPU where
the device refuses it. Which of the two is written down here, and counted apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from arenite.device import Buffer
from arenite.device import webgpu as module
from arenite.device.webgpu import WebGpuAllocator
from arenite.device.webgpu_adapters import adapters_for
from arenite.dtype import BY_NAME
from arenite.ir import OPS, buffer, constant, graph_input, make, reference
from arenite.ir.dim import bounds
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import dequantise
from arenite.pipeline.program import compile_program
from arenite.program.options import Options
from tests.backends.webgpu.runner import ON_WEBGPU, devices_of, webgpu
from tests.ir.op_examples import ALL_EXAMPLES, numbers
from tests.pipeline.trial import same

#: Functions, as on every device (`tests/codegen/test_maths.py`); and sums, whose order is our own.
FUNCTION_ULPS = 2
SUM_ULPS = 16
WINOGRAD_ULPS = 256
#: Of sums whose parts have both signs, beside the sum of the sizes of these. A row that is normed
#: before it is quantised may have another number at the edge between two.
BLOCK_BOUNDS = {"matmul_blocks": 1e-6, "product_of_blocks": 1e-6, "normed_product": 1e-4}

EXACT = frozenset(
    "neg abs sign floor ceil round trunc add sub mul maximum minimum floordiv mod fmod where cast "
    "bitcast real imag complex".split()
)

#: Layouts that are the CPU's own: no program for another device has them.
CPU_LAYOUTS = frozenset(
    "attention_parts conv_last conv_winograd matmul_panels matmul_bytes conv_bytes depthwise_last "
    "pack_blocks pack_joined quantise_blocks rows_of_panels matmul_packed "
    "matmul_packed_experts".split()
)
#: What no array of the host has as it lies: elements of 4 bits.
PACKED = frozenset({"pack"})
#: What the host does: its own functions, sizes that are found, and a choice with nothing to do.
HOST = frozenset("host cut if".split())
#: Elements that are picked one after the other, each for what was picked before it.
PICKED = frozenset("select suppress".split())
ON_CPU = CPU_LAYOUTS | PACKED | HOST | PICKED
#: Those of which some part has 64 bits: pairs of words where the device has no more.
WIDE = ("random_bits", "complex")
INDICES = (
    "argmax argmin argsort gather rows_of_blocks gather_elements scatter_elements update_slice"
).split()
#: These have no meaning by themselves.
PARTS = frozenset({"size", "parameter"})


def judge(op: str, options: Options) -> set[str]:
    """Hold an op to the reference; the devices that it ran on."""
    node = ALL_EXAMPLES[op]()
    if node.dtype.is_block:  # which no array holds: all of its rows, read from memory
        rows = constant(np.arange(bounds(node.shape[0])[1])[None])
        node = make("rows_of_blocks", node, rows, dtype=node.dtype)
    graph = Graph.of([node])
    arrays = [numbers(one) for one in graph.inputs]
    [wanted] = reference.evaluate(graph, list(arrays))
    with compile_program(graph, options) as program:
        [found] = program(*arrays)
        devices = devices_of(program)
    family = OPS[op].family
    sums = WINOGRAD_ULPS if op == "conv_winograd" else SUM_ULPS
    ulps = {"movement": 0, "source": 0, "elementwise": 0 if op in EXACT else FUNCTION_ULPS}
    assert found.dtype == wanted.dtype
    if op == "pack":  # of 4 bits, which nothing but equality is asked of
        found, wanted = found.astype("int8"), wanted.astype("int8")
    if op in BLOCK_BOUNDS:
        x, w = node.inputs[:2]
        sides = make("abs", x), make("abs", dequantise(w))
        sizes = make("matmul", *sides, transpose_a=False, transpose_b=True)
        [size] = reference.evaluate(Graph((*graph.inputs,), (sizes,)), list(arrays))
        assert (np.abs(found.astype(np.float64) - wanted) <= BLOCK_BOUNDS[op] * size).all()
        return devices
    same(found, wanted, ulps.get(family, sums), node)
    return devices


@pytest.mark.parametrize("op", sorted(ALL_EXAMPLES.keys() - ON_CPU - PARTS))
def test_an_op_is_done_on_the_device(op: str) -> None:
    webgpu()
    assert judge(op, ON_WEBGPU) == {"webgpu"}


@pytest.mark.parametrize("op", sorted(ON_CPU))
def test_an_op_that_the_device_refuses_runs_on_the_cpu(op: str) -> None:
    webgpu()
    assert "cpu" in judge(op, ON_WEBGPU)


def test_what_runs_on_the_cpu_is_counted_apart() -> None:
    on_device = ALL_EXAMPLES.keys() - ON_CPU - PARTS
    assert on_device | ON_CPU | PARTS == ALL_EXAMPLES.keys()
    neutral = len(ON_CPU - CPU_LAYOUTS)
    print(f"{len(on_device)} ops on the device, {neutral} on the CPU, {len(CPU_LAYOUTS)} its own")
    assert (len(on_device), neutral) == (115, 6)


@pytest.fixture
def bare() -> Iterator[Options]:
    """A device of WGSL's core alone: nothing has more than 32 bits."""
    gpu = webgpu()
    adapter = adapters_for("webgpu")[0]
    module._opened["bare"] = WebGpuAllocator("webgpu:bare", adapter, features=())
    yield Options(device="webgpu:bare")
    del module._opened["bare"]
    assert gpu.features


def test_without_numbers_of_64_bits_all_run_on_the_device(bare: Options) -> None:
    for op in (*WIDE, *INDICES, "pow", "sort", "cumsum", "matmul", "real"):
        assert judge(op, bare) == {"webgpu:bare"}, op


@pytest.mark.parametrize("count", [48, 45])
def test_weights_of_4_bits_are_taken_apart_on_the_device(count: int) -> None:
    """The first element of a byte is its lower half, with a sign."""
    webgpu()
    data = np.random.default_rng(0).integers(0, 256, 24).astype(np.uint8)
    held = Buffer.from_array(data)
    w = buffer(held.view(0, -(-count // 2), BY_NAME["int4"], (count,)))
    x = graph_input("x", 0, (count,), BY_NAME["int8"])
    halves = np.stack([data & 15, data >> 4], 1).reshape(-1)[:count].astype(np.int8)
    given = np.arange(count, dtype=np.int8)
    with compile_program(Graph.of([make("add", make("unpack", w), x)]), ON_WEBGPU) as program:
        [found] = program(given)
        assert devices_of(program) == {"webgpu"}
    assert np.array_equal(found, given + np.where(halves > 7, halves - 16, halves))
