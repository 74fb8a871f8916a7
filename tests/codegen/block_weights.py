"""Block-quantised weights for tests: random bytes with scales of a sensible size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.ops.block_forms import FORMS
from arenite.device import Buffer
from arenite.dtype import BY_NAME
from arenite.dtype.blocks import LAYOUTS
from arenite.ir import Node, buffer

TYPES = sorted(FORMS)


def random_blocks(name: str, rows: int, depth: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of bytes: all numbers and codes occur, and float16 scales of either sign."""
    rng = np.random.default_rng(seed)
    nbytes = BY_NAME[name].nbytes((rows, depth))
    raw: NDArray[np.uint8] = rng.integers(0, 256, nbytes, dtype=np.uint8)
    blocks: NDArray[Any] = raw.view(LAYOUTS[name])
    for field in {"d", "m"} & {*(blocks.dtype.names or ())}:
        blocks[field] = rng.uniform(-0.02, 0.02, len(blocks)).astype(np.float16)
    return raw.reshape(rows, -1)


def weights_node(name: str, raw: NDArray[np.uint8], depth: int) -> Node:
    held = Buffer.from_array(raw.reshape(-1))
    return buffer(held.view(0, held.nbytes, BY_NAME[name], (len(raw), depth)))
