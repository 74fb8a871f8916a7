"""Products of com.microsoft: with what stands behind them, and with weights of a few bits.

Weights of a few bits come as bytes, low bits first, with a scale and a zero point for each block
along the axis that is summed over. They stand for (number - zero point) * scale.
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT32, INT64, UINT8
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.contrib import only, standard
from arenite.frontends.onnx.registry import MICROSOFT, Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node, ceildiv, constant, make, product
from arenite.ir.compose import linear, neural
from arenite.ir.compose.basic import (
    cast,
    computing,
    concat,
    expand_dims,
    permute,
    reshape,
    slice_axis,
    swap_axes,
)
from arenite.ir.compose.blocks import blocks_of, has_blocks, product_of_blocks, repeated
from arenite.ir.compose.indexing import counted_from_front

#: Activations behind a product, and the attributes that their numbers are, in order.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}

#: What the 16 codes of 4-bit floats stand for, as bitsandbytes has them.
_HALF_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
FP4 = (*_HALF_FP4, *(-one for one in _HALF_FP4))
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


# With an activation.


def _activated(call: Call, x: Node, numbers: list[float]) -> Node:
    """`numbers` are those of the activation that the node gives; others are as usual."""
    name = call.attr("activation", "")
    if not name:
        return x
    if name == "Clip":
        if len(numbers) != 2:
            call.fail(f"Clip has two bounds, not {numbers}")
        return neural.clip(x, *numbers)
    if name not in ACTIVATIONS:
        call.refuse(f"the activation {name!r}; {', '.join(ACTIVATIONS)} and Clip are supported")
    attrs = dict(zip(ACTIVATIONS[name], numbers, strict=False))
    return only(standard(call, name, 22, inputs=[Value.of(x)], attrs=attrs, outputs=["y"]))


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(call: Call) -> Result:
    """act(conv(x, w) + bias + z)"""
    made = only(standard(call, "Conv", 22, inputs=call.inputs[:3]))
    if call.has(3):
        made = made + call.node(3)
    return _activated(call, made, call.attr("activation_params", []))


@operator("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def conv_with_channels_last(call: Call) -> Result:
    x = call.node(0)
    last = x.ndim - 1
    first = Value.of(permute(x, (0, last, *range(1, last))))
    made = only(standard(call, "Conv", 22, inputs=[first, *call.inputs[1:3]]))
    made = permute(made, (0, *range(2, x.ndim), 1))
    if call.has(3):
        made = made + call.node(3)
    return _activated(call, made, call.attr("activation_params", []))


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(call: Call) -> Result:
    attrs = dict(call.attrs)
    if call.has(2):
        attrs["pads"] = call.integers(2)
    inputs = [*call.inputs[:2], *call.inputs[3:4]]
    return standard(call, "ConvTranspose", 22, inputs=inputs, attrs=attrs)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: Call) -> Result:
    names = ("activation_alpha", "activation_beta")
    numbers = [float(call.attrs[name]) for name in names if name in call.attrs]
    return _activated(call, only(standard(call, "Gemm", 13)), numbers)


@operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(call: Call) -> Result:
    made = computing(linear.matmul(call.node(0), call.node(1)))
    if call.has(2):
        made = made + computing(call.node(2))
    return cast(neural.gelu_tanh(made), call.value(0).dtype)


# With transposed operands.


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call) -> Result:
    a, b = _turned(call, 0, "A"), _turned(call, 1, "B")
    made = linear.matmul(a, b)
    alpha = float(call.attr("alpha", 1.0))
    return made if alpha == 1 else cast(computing(made) * alpha, made.dtype)


def _turned(call: Call, index: int, letter: str) -> Node:
    """An operand; its first axis may stand for rows, and the last two may be the other way."""
    x = call.node(index)
    if x.ndim < 2:
        return x
    if call.attr(f"transBatch{letter}", 0):
        x = permute(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return swap_axes(x, x.ndim - 2, x.ndim - 1) if call.attr(f"trans{letter}", 0) else x


# With weights of a few bits.


def _unpacked(x: Node, bits: int) -> Node:
    """Numbers of some bits, one after the other along the last axis, of bytes."""
    if bits == 8:
        return x
    low = (1 << bits) - 1
    parts = [(x if shift == 0 else x >> shift) & low for shift in range(0, 8, bits)]
    joined = concat([expand_dims(part, x.ndim) for part in parts], x.ndim)
    return reshape(joined, (*x.shape[:-1], x.shape[-1] * len(parts)))


def _bits(call: Call, default: int) -> int:
    bits: int = call.attr("bits", default)
    if bits not in (2, 4, 8):
        call.refuse(f"numbers of {bits} bits; 2, 4 and 8 are supported")
    return bits


#: The `accuracy_level` that lets a product round what it multiplies to 8 bits, block by block.
BYTES_ALLOWED = 4


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(call: Call) -> Result:
    """What is multiplied is rounded to 8 bits where `accuracy_level` allows it, else it is not."""
    x = call.node(0)
    depth, width = call.need_attr("K"), call.need_attr("N")
    block, bits = call.need_attr("block_size"), _bits(call, 4)
    if call.has(4):
        call.refuse("g_idx, an order of rows that newer models do not have")
    if call.attr("weight_prepacked", 0):
        call.refuse("weights that are packed for one device")
    if depth < 1 or width < 1 or block < 8 // bits or x.ndim == 0 or x.shape[-1] != depth:
        call.fail(f"K = {depth}, N = {width}, blocks of {block}, an input of shape {x.shape}")
    n_blocks = ceildiv(depth, block)
    packed = _of_size(call, 1, (width, n_blocks, block * bits // 8))
    scales = cast(_of_size(call, 2, (width, n_blocks)), FLOAT32)
    zeros = _zeros(call, bits, width, n_blocks)
    if has_blocks(bits, block, depth):
        nbytes = depth * bits // 8
        numbers = slice_axis(reshape(packed, (width, n_blocks * block * bits // 8)), 1, 0, nbytes)
        blocks = blocks_of(numbers, scales, zeros if call.has(3) else None, bits, block)
        may_round = call.attr("accuracy_level", 0) == BYTES_ALLOWED
        made = product_of_blocks(x, blocks, may_round)
    else:
        numbers = cast(_unpacked(packed, bits), FLOAT32) - expand_dims(zeros, 2)
        weights = numbers * expand_dims(scales, 2)
        made = _product(x, slice_axis(reshape(weights, (width, n_blocks * block)), 1, 0, depth))
    if call.has(5):
        made = made + computing(call.node(5))
    return cast(made, x.dtype)


def _product(x: Node, rows: Node) -> Node:
    """x times the transposed rows, in float32 at least."""
    wide = computing(x)
    left = reshape(wide, (1, *wide.shape)) if x.ndim == 1 else wide
    made = make("matmul", left, rows, transpose_a=False, transpose_b=True)
    return reshape(made, (*x.shape[:-1], rows.shape[0]))


def _of_size(call: Call, index: int, shape: tuple[Dim, ...]) -> Node:
    """An input of so many elements."""
    node = call.node(index)
    if product(node.shape) != product(shape):
        call.fail(f"input {index} has shape {node.shape}, not {shape}")
    return reshape(node, shape)


def _zeros(call: Call, bits: int, width: int, n_blocks: Dim) -> Node:
    """The zero point of each block, in float32."""
    if not call.has(3):
        middle = np.full((1, 1), 1 << bits - 1, np.float32)
        return constant(middle)
    if call.value(3).dtype != UINT8:
        return cast(_of_size(call, 3, (width, n_blocks)), FLOAT32)
    packed = _of_size(call, 3, (width, ceildiv(n_blocks * bits, 8)))
    return cast(slice_axis(_unpacked(packed, bits), 1, 0, n_blocks), FLOAT32)


@operator("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(call: Call) -> Result:
    """Weights are 4-bit floats, high bits first, times the largest number of their block."""
    x = call.node(0)
    depth, width, block = (call.need_attr(name) for name in ("K", "N", "block_size"))
    kind = call.need_attr("quant_type")
    if kind not in (0, 1) or min(depth, width, block) < 1:
        call.fail(f"quant_type {kind}, K = {depth}, N = {width}, blocks of {block}")
    count = depth * width
    packed = _of_size(call, 1, (ceildiv(count, 2), 1))
    high, low = packed >> 4, packed & 15
    codes = slice_axis(reshape(concat([high, low], 1), (2 * ceildiv(count, 2),)), 0, 0, count)
    table = constant(np.array(NF4 if kind else FP4, np.float32))
    numbers = make("gather", table, cast(codes, INT64), axis=0)
    largest = _of_size(call, 2, (ceildiv(count, block),))
    scaled = numbers * repeated(cast(largest, FLOAT32), 0, block, count)
    rows = reshape(scaled, (width, depth))
    if not call.attr("transB", 1):
        rows = swap_axes(rows, 0, 1)
    return cast(_product(x, rows), x.dtype)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(call: Call) -> Result:
    data, indices, scales = (call.node(k) for k in range(3))
    zeros, block = call.optional(3), call.attr("block_size", 128)
    at = call.axis(call.attr("gather_axis", 0), data.ndim, "gather_axis")
    along = call.axis(call.attr("quantize_axis", 1), data.ndim, "quantize_axis")
    if data.dtype != UINT8 and data.dtype.name not in ("int4", "uint4"):
        call.refuse(f"data of {data.dtype}; int4, uint4 and bytes are supported")
    bits = _bits(call, 4) if data.dtype == UINT8 else 8
    middle = 1 << bits - 1 if data.dtype == UINT8 else 0
    shape = (*data.shape[:-1], data.shape[-1] * (8 // bits))
    others = [axis for axis in range(data.ndim) if axis != along]
    if block < 1 or scales.ndim != data.ndim or any(
        scales.shape[axis] != shape[axis] for axis in others
    ) or scales.shape[along] != ceildiv(shape[along], block):  # fmt: skip
        call.fail(f"scales of shape {scales.shape} for blocks of {block} of shape {shape}")
    if bits < 8 and at == data.ndim - 1:
        call.fail("the axis that is gathered along is packed")
    size, n_blocks = shape[along], scales.shape[-1]
    parts = [part for part in (data, scales, zeros) if part is not None]
    places = counted_from_front(indices, shape[at])
    is_apart = at != along
    if is_apart:  # what is not asked for is not computed
        parts = [make("gather", part, places, axis=at) for part in parts]
        along += indices.ndim - 1 if along > at else 0
    packed, scale, *rest = parts
    numbers = cast(_unpacked(packed, bits), FLOAT32)
    if rest:
        zero = _unpacked(rest[0], bits)
        zero = slice_axis(zero, zero.ndim - 1, 0, n_blocks) if bits < 8 else zero
        numbers = numbers - repeated(cast(zero, FLOAT32), along, block, size)
    elif middle:
        numbers = numbers - float(middle)
    made = numbers * repeated(cast(scale, FLOAT32), along, block, size)
    return cast(made if is_apart else make("gather", made, places, axis=at), scales.dtype)
