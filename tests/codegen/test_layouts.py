"""Ops in one back end's layouts mean nothing to the plain loops of others, which refuse them."""

from __future__ import annotations

import pytest

from arenite.errors import NotCompiled
from arenite.ir import OPS
from arenite.ir.graph import Graph
from arenite.program.backend import backend_of
from arenite.schedule import fuse
from tests.ir.op_examples import LAYOUT_EXAMPLES, NEUTRAL_EXAMPLES


def test_an_op_says_whose_layout_it_has() -> None:
    assert {OPS[op].backend for op in LAYOUT_EXAMPLES} == {"cpu"}
    assert {OPS[op].backend for op in NEUTRAL_EXAMPLES} == {""}


@pytest.mark.parametrize("device", ["c", "webgpu"])
@pytest.mark.parametrize("op", LAYOUT_EXAMPLES)
def test_layouts_of_another_device_are_refused(op: str, device: str) -> None:
    kernels = fuse(Graph.of([LAYOUT_EXAMPLES[op]()])).kernels
    [kernel] = [one for one in kernels if op in [stage.node.op for stage in one.stages]]
    with pytest.raises(NotCompiled, match=f"{op} reads and writes layouts of device 'cpu'"):
        backend_of(device).build(kernel)
