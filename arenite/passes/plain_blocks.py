"""Blocks that were joined become plain arithmetic, for devices that read no block types.

dequantise(join_blocks(d, m, numbers))         d * number + m
matmul_blocks(x, join_blocks(...))             matmul(x, of these)
"""

from __future__ import annotations

from arenite.dtype import FLOAT32
from arenite.dtype.blocks import block_type
from arenite.ir import Node, make
from arenite.ir.compose.basic import cast, concat, expand_dims, reshape


def plain_blocks(node: Node) -> Node:
    """One step, or the node itself."""
    if node.op == "dequantise" and node.inputs[0].op == "join_blocks":
        return _weights(node.inputs[0])
    if node.op == "matmul_blocks" and node.inputs[1].op == "join_blocks":
        x, w = node.inputs
        return make("matmul", x, _weights(w), transpose_a=False, transpose_b=True)
    return node


def _weights(joined: Node) -> Node:
    """Of the types whose numbers lie beside each other in bytes, low bits first."""
    block = block_type(joined.dtype)
    scale, *least, numbers = joined.inputs
    [bits] = block.number.widths
    low = (1 << bits) - 1
    parts = [(numbers >> shift if shift else numbers) & low for shift in range(0, 8, bits)]
    whole = concat([expand_dims(part, 3) for part in parts], 3) if len(parts) > 1 else numbers
    values = cast(reshape(whole, (*numbers.shape[:2], block.length)), FLOAT32)
    values = values - float(block.number.bias) if block.number.bias else values
    made = values * expand_dims(scale, 2)
    made = made + expand_dims(least[0], 2) if least else made
    return reshape(made, joined.shape)
