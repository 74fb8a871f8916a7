"""Block-quantised weights for tests: random bytes with scales of a sensible size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.device import Buffer
from arenite.dtype import BY_NAME
from arenite.dtype.block_types import BLOCK_TYPES
from arenite.dtype.blocks import LAYOUTS
from arenite.ir import Node, buffer

TYPES = sorted(BLOCK_TYPES)


def set_scales(name: str, raw: NDArray[np.uint8], values: NDArray[Any] | float) -> None:
    """Write the floats of all blocks, each to the nearest of its dtype: for each block one value,
    or one for all. E8M0 has no sign, and E4M3 has none in a block."""
    blocks: NDArray[Any] = raw.reshape(-1).view(LAYOUTS[name])
    for field in {scale.field for scale in BLOCK_TYPES[name].scales}:
        own = BLOCK_TYPES[name].fields[field]
        each = np.broadcast_to(np.asarray(values, np.float32), len(blocks))
        if "float8" in own.dtype:
            each = np.abs(each)
        as_stored = each.astype(BY_NAME[own.dtype].to_numpy()).view(blocks.dtype[field].base)
        blocks[field] = as_stored[:, None] if own.length > 1 else as_stored


def random_blocks(name: str, rows: int, depth: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of bytes: all numbers and codes occur, and scales of either sign where there is one."""
    rng = np.random.default_rng(seed)
    nbytes = BY_NAME[name].nbytes((rows, depth))
    raw: NDArray[np.uint8] = rng.integers(0, 256, nbytes, dtype=np.uint8)
    set_scales(name, raw, rng.uniform(-0.02, 0.02, nbytes // BY_NAME[name].block_nbytes))
    return raw.reshape(rows, -1)


def weights_node(name: str, raw: NDArray[np.uint8], depth: int) -> Node:
    held = Buffer.from_array(raw.reshape(-1))
    return buffer(held.view(0, held.nbytes, BY_NAME[name], (len(raw), depth)))


def numbers_by_onnx(name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """By what MatMulNBits says, of types that gguf has not: a scale, what is added, or else half of
    the range taken off, and numbers, low bits first."""
    has_least = name.endswith("_least")
    bits = int(name[1])
    blocks = raw.reshape(*raw.shape[:-1], -1, BY_NAME[name].block_nbytes)
    floats = blocks[..., : 4 + 4 * has_least].copy().view("<f4")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = blocks[..., 4 + 4 * has_least :, None] >> shifts & np.uint8(2**bits - 1)
    whole = numbers.reshape(*blocks.shape[:-1], -1).astype(np.float32)
    made: NDArray[np.float32] = (
        floats[..., :1] * whole + floats[..., 1:]
        if has_least
        else (floats * (whole - np.float32(2 ** (bits - 1))))
    )
    return made.reshape(*raw.shape[:-1], -1)
