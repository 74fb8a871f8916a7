"""Every op on WebGPU: as the reference has it, or refused with the reason; never something else."""

from __future__ import annotations

import pytest

from arenite.errors import NotCompiled, NotSupported
from arenite.ir import OPS, reference
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from tests.backends.webgpu.runner import Array, run, webgpu
from tests.ir.op_examples import EXAMPLES, numbers
from tests.pipeline.trial import same

#: Functions, as on every device (`tests/codegen/test_maths.py`); and sums, whose order is our own.
FUNCTION_ULPS = 2
SUM_ULPS = 16

EXACT = frozenset(
    "neg abs sign floor ceil round trunc add sub mul maximum minimum floordiv mod fmod where cast "
    "bitcast".split()
)

#: What the device does not do yet, and says so.
REFUSED = frozenset(
    "random_bits pow real imag complex argmax argmin sort argsort gather "
    "gather_elements scatter_elements update_slice attention_parts conv_last "
    "conv_winograd matmul_panels matmul_bytes conv_bytes depthwise_last join_blocks dequantise "
    "pack_blocks pack_joined "
    "quantise_blocks pack matmul_blocks rows_of_blocks rows_of_panels matmul_packed matmul_experts "
    "matmul_packed_experts host if branch cut loop arange growing_loop specialize".split()
)
#: It is what WebGPU does not do, or what no device does in one program.
REASONS = r"WebGPU|this device|the program is cut"
#: These have no meaning by themselves.
PARTS = frozenset({"size", "parameter"})


def judged(node: Node, *arrays: Array, ulps: float) -> None:
    graph = Graph.of([node])
    [wanted] = reference.evaluate(graph, list(arrays))
    [found] = run([node], *arrays)
    assert found.dtype == wanted.dtype
    same(found, wanted, ulps, node)


@pytest.mark.parametrize("op", sorted(EXAMPLES.keys() - REFUSED - PARTS))
def test_an_op_does_what_the_reference_does(op: str) -> None:
    webgpu()
    node = EXAMPLES[op]()
    arrays = [numbers(one) for one in Graph.of([node]).inputs]
    family = OPS[op].family
    ulps = {"movement": 0, "source": 0, "elementwise": 0 if op in EXACT else FUNCTION_ULPS}
    judged(node, *arrays, ulps=ulps.get(family, SUM_ULPS))


@pytest.mark.parametrize("op", sorted(REFUSED))
def test_what_is_not_done_is_refused_with_a_reason(op: str) -> None:
    webgpu()
    node = EXAMPLES[op]()
    arrays = [numbers(one) for one in Graph.of([node]).inputs]
    with pytest.raises((NotCompiled, NotSupported), match=REASONS):
        run([node], *arrays)
