"""Constants of a mapped file: small ones take their own bytes of memory, large ones stay there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from arenite.backends.cpu.execution.binding import TOUCHED_NBYTES
from arenite.device.disk import DiskAllocator
from arenite.dtype import BY_NAME
from arenite.ir import Graph, buffer, graph_input, make
from arenite.pipeline import compile_graph
from tests.pipeline.test_blocks import resident_nbytes

FLOAT32 = BY_NAME["float32"]
#: Bytes from one constant to the next, as there are between scales of layers.
STEP_NBYTES = 2**22
N_LAYERS = 8


@pytest.mark.parametrize("count", [576, TOUCHED_NBYTES // 4])
def test_what_lies_between_small_constants_takes_no_memory(count: int, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc/self")
    rng = np.random.default_rng(0)
    content = rng.standard_normal((N_LAYERS, STEP_NBYTES // 4), dtype=np.float32)
    path = tmp_path / "weights"
    path.write_bytes(content.tobytes())
    disk = DiskAllocator(path)
    file = disk.file()
    sums = x = graph_input("x", 0, (count,), FLOAT32)
    for layer in range(N_LAYERS):
        scale = buffer(file.view(layer * STEP_NBYTES, 4 * count, FLOAT32, (count,)))
        sums = make("add", sums, scale)
    given = rng.standard_normal(count, dtype=np.float32)
    disk.drop_pages(file.raw_ptr, file.nbytes)
    with compile_graph(Graph((x,), (sums,))) as program:
        [found] = program(given)
        resident = resident_nbytes(path)
        assert program.plan.regions["mapped"].nbytes >= N_LAYERS * 4 * count
    wanted = given
    for layer in range(N_LAYERS):
        wanted = wanted + content[layer, :count]
    np.testing.assert_array_equal(found, wanted)
    if 4 * count < TOUCHED_NBYTES:
        assert resident <= N_LAYERS * 4 * count
    else:
        assert resident >= N_LAYERS * 4 * count
