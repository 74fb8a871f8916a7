"""One small node of every op, over inputs of random numbers: what each device can be tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import arenite.backends.cpu.ops
import arenite.backends.webgpu.channels_last
import arenite.backends.webgpu.ops  # noqa: F401
from arenite.device import Buffer
from arenite.dtype import BY_NAME, DType
from arenite.dtype.blocks import LAYOUTS
from arenite.ir import (
    OPS,
    Node,
    Region,
    Var,
    buffer,
    constant,
    full,
    graph_input,
    make,
    parameter,
    size,
)
from arenite.ir.dim import Found
from arenite.ir.growing_loop import Body, growing
from arenite.ir.ops.host import HostFunction
from arenite.ir.ops.unbounded import Specialization, any_size, specialize

F32, I32, I64, U64 = (BY_NAME[name] for name in ("float32", "int32", "int64", "uint64"))
BOOL, U8, I8, I4 = (BY_NAME[name] for name in ("bool", "uint8", "int8", "int4"))
C64 = BY_NAME["complex64"]


def x(*shape: Any, index: int = 0, dtype: DType = F32) -> Node:
    return graph_input(f"x{index}", index, shape, dtype)


def _unary(op: str) -> Callable[[], Node]:
    dtype = BOOL if op == "not" else F32
    return lambda: make(op, x(3, 4, dtype=dtype))


def _binary(op: str) -> Callable[[], Node]:
    dtype = I32 if op in ("and", "or", "xor", "shift_left", "shift_right") else F32
    return lambda: make(op, x(3, 4, dtype=dtype), x(3, 4, index=1, dtype=dtype))


_UNARY = (
    "neg abs sign sqrt reciprocal floor ceil round trunc not exp exp2 expm1 log log2 log1p rsqrt "
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf isnan isinf"
).split()
_BINARY = (
    "add sub mul div floordiv mod fmod maximum minimum and or xor shift_left shift_right pow atan2 "
    "eq ne lt le gt ge"
).split()
_CONV: dict[str, Any] = {"strides": (2, 1), "padding": ((1, 0), (0, 2)), "dilations": (1, 2)}


def _branch() -> Node:
    given = parameter((3, 4), F32)
    then = Region((given,), (make("neg", given),))
    otherwise = Region((given,), (make("abs", given),))
    inputs = (x(dtype=BOOL), x(3, 4, index=1))
    return make("branch", *inputs, then=then, otherwise=otherwise, index=0)


def _loop() -> Node:
    number, state, step = parameter((), I64), parameter((3, 4), F32), parameter((3, 4), F32)
    always = full((), True, BOOL)
    body = Region((number, state, step), (always, make("add", state, step)))
    inputs = (full((), 3, I64), always, x(3, 4), x(3, 4, index=1))
    return make("loop", *inputs, body=body, carried=1, index=0)


def _growing_loop() -> Node:
    def build(number: Node, carried: Sequence[Node]) -> Body:
        [rows] = carried
        return Body([make("concat", rows, x(3, 4), axis=0)])

    [made] = growing(full((), 2, I64), [x(3, 4)], build)
    return made


def _specialize() -> Node:
    def turned(values: Sequence[NDArray[Any]], given: Sequence[Node]) -> list[Node]:
        return [make("permute", given[0], axes=tuple(map(int, values[0])))]

    axes = constant(np.array([1, 0]))
    [made] = specialize(Specialization(turned), [axes], [x(3, 4)], [((any_size(), 3), F32)])
    return made


def _weights(*experts: int) -> Node:
    """q4_1, 19 rows of two blocks; or so many matrices of them."""
    dtype = BY_NAME["q4_1"]
    blocks = np.zeros((*experts, 19, 2), LAYOUTS[dtype.name])
    blocks["d"], blocks["m"], blocks["qs"] = 0.5, -2, np.arange(16)
    raw = Buffer.from_array(blocks.view(np.uint8))
    return buffer(raw.view(0, raw.nbytes, dtype, (*experts, 19, 64)))


def _of_weights(op: str, *inputs: Node) -> Node:
    w = _weights()
    return make(op, *inputs[:1], w, *inputs[1:], dtype=w.dtype)


def _byte_panels() -> Node:
    """Weights of 5 channels a group, in fours, zero where there is no channel."""
    panels = np.random.default_rng(3).integers(-128, 128, (2, 2, 3, 2, 2, 16, 4)).astype(np.int8)
    panels[..., 1, :, 1:] = 0
    return constant(panels)


NEUTRAL_EXAMPLES: dict[str, Callable[[], Node]] = {
    "input": lambda: x(3, 4),
    "constant": lambda: constant(np.arange(6.0).reshape(2, 3)),
    "buffer": lambda: buffer(np.arange(6.0).reshape(2, 3)),
    "state": lambda: make("state", name="s", shape=(2, 3), dtype=F32),
    "full": lambda: full((2, 3), 1.5, F32),
    "size": lambda: size(Var("n", 4, 4) * 3 + 1, I64),
    "iota": lambda: make("iota", axis=1, shape=(2, 3), dtype=F32),
    "random_bits": lambda: make("random_bits", full((), 5, U64), counter=2, shape=(3, 7)),
    **{op: _unary(op) for op in _UNARY},
    **{op: _binary(op) for op in _BINARY},
    "where": lambda: make("where", x(3, 4, dtype=BOOL), x(3, 4, index=1), x(3, 4, index=2)),
    "cast": lambda: make("cast", x(3, 4), dtype=I32),
    "real": lambda: make("real", x(3, 4, dtype=C64)),
    "imag": lambda: make("imag", x(3, 4, dtype=C64)),
    "complex": lambda: make("complex", x(3, 4), x(3, 4, index=1)),
    "bitcast": lambda: make("bitcast", x(3, 4), dtype=I32),
    "reshape": lambda: make("reshape", x(3, 4), shape=(2, 6)),
    "permute": lambda: make("permute", x(2, 3, 4), axes=(2, 0, 1)),
    "expand": lambda: make("expand", x(3, 1), shape=(3, 5)),
    "pad": lambda: make("pad", x(3, 4), padding=((1, 0), (2, 3)), value=1.5),
    "slice": lambda: make("slice", x(5, 6), start=(1, 5), stop=(4, 0), step=(2, -3)),
    "transfer": lambda: make("transfer", x(3, 4), device="cpu"),
    "front": lambda: make("front", x(2, 5, 3), x(4, 2, index=1), axis=1),
    "concat": lambda: make("concat", x(3, 4), x(3, 2, index=1), x(3, 4), axis=1),
    "window": lambda: make(
        "window", x(2, 7, 8), axes=(1, 2), sizes=(3, 2), strides=(2, 3), dilations=(1, 2)
    ),
    **{
        op: lambda op=op: make(op, x(3, 4, 5), axes=(0, 2))  # type: ignore[misc]
        for op in ("sum", "prod", "max", "min")
    },
    **{
        op: lambda op=op: make(op, x(3, 4, dtype=BOOL), axes=(1,))  # type: ignore[misc]
        for op in ("any", "all")
    },
    **{
        op: lambda op=op: make(op, x(3, 4), axis=1)  # type: ignore[misc]
        for op in ("argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin")
    },
    **{
        op: lambda op=op: make(op, x(3, 4), axis=0, descending=True)  # type: ignore[misc]
        for op in ("sort", "argsort")
    },
    "select": lambda: make("select", x(3, 4), count=2, descending=True),
    "suppress": lambda: make(
        "suppress",
        x(2, 4, 5),
        x(2, 3, 5, index=1),
        x(2, 3, 5, dtype=BOOL, index=2),
        x(index=3),
        count=2,
    ),
    "gather": lambda: make("gather", x(3, 4), constant(np.array([[2, 0]])), axis=1),
    "gather_elements": lambda: make(
        "gather_elements", x(3, 2), constant(np.array([[2, 0]])), axis=0
    ),
    "scatter_elements": lambda: make(
        "scatter_elements",
        x(3, 2),
        constant(np.array([[2, 0], [2, 1]])),
        x(2, 2, index=1),
        axis=0,
        reduction="add",
    ),
    "update_slice": lambda: make(
        "update_slice", x(3, 5, 2), x(3, 2, 2, index=1), constant(np.array(3)), axis=1
    ),
    "matmul": lambda: make(
        "matmul", x(2, 3, 4), x(5, 4, index=1), transpose_a=False, transpose_b=True
    ),
    "attention": lambda: make(
        "attention",
        x(1, 4, 3, 2),
        x(1, 2, 5, 2, index=1),
        x(1, 2, 5, 3, index=2),
        x(1, 1, 3, 5, index=3),
        scale=0.5,
        causal=True,
        offset=2,
        window=0,
    ),
    "attention_pages": lambda: make(
        "attention_pages",
        x(5, 4, 8),
        x(96, 2, 8, index=1),
        x(96, 2, 3, index=2),
        constant(np.array([[4, 1, 0], [5, 2, 3]])),
        constant(np.array([1, 0, 0, 1, 1])),
        constant(np.array([0, 15, 16, 47, 40])),
        scale=0.5,
        window=20,
        page=16,
    ),
    "conv": lambda: make("conv", x(2, 4, 5, 6), x(6, 2, 3, 2, index=1), groups=2, **_CONV),
    "conv_transpose": lambda: make(
        "conv_transpose",
        x(2, 4, 5, 6),
        x(4, 3, 3, 2, index=1),
        groups=2,
        output_padding=(1, 0),
        **_CONV,
    ),
    "join_blocks": lambda: make(
        "join_blocks",
        x(3, 2),
        x(3, 2, index=1),
        constant(np.arange(96, dtype=np.uint8).reshape(3, 2, 16)),
        dtype=BY_NAME["u4x32_least"],
    ),
    "dequantise": lambda: _of_weights("dequantise"),
    "pack": lambda: make("pack", x(3, 5, dtype=I8), dtype=I4),
    "unpack": lambda: make("unpack", make("pack", x(3, 5, dtype=I8), dtype=I4)),
    "matmul_blocks": lambda: _of_weights("matmul_blocks", x(2, 3, 64)),
    "rows_of_blocks": lambda: make(
        "rows_of_blocks", w := _weights(), constant(np.array([[18, 0]])), dtype=w.dtype
    ),
    "matmul_experts": lambda: make(
        "matmul_experts",
        x(2, 64),
        w := _weights(3),
        constant(np.array([[2, 0], [0, 1]])),
        dtype=w.dtype,
    ),
    "host": lambda: make(
        "host", x(3, 4), function=HostFunction(np.negative), shape=(3, 4), dtype=F32
    ),
    "if": lambda: make("if", x(dtype=BOOL), x(3, 4, index=1), x(3, 4, index=2)),
    "branch": _branch,
    "cut": lambda: make("cut", x(3, 4), full((), 2, I64), size=Found("found", 0, 3)),
    "loop": _loop,
    "arange": lambda: make("arange", full((), 3, I64), size=any_size()),
    "growing_loop": _growing_loop,
    "specialize": _specialize,
    "parameter": lambda: parameter((3, 4), F32),
}

#: In the layouts of the CPU's kernels.
LAYOUT_EXAMPLES: dict[str, Callable[[], Node]] = {
    "attention_parts": lambda: make(
        "attention_parts",
        x(1, 4, 3, 2),
        x(1, 2, 5, 2, index=1),
        x(1, 2, 5, 3, index=2),
        x(1, 1, 3, 5, index=3),
        scale=0.5,
        causal=True,
        offset=2,
        window=2,
        chunk=2,
    ),
    "conv_last": lambda: make(
        "conv_last", x(2, 5, 6, 4), x(2, 2, 3, 2, 2, 16, index=1), channels=38, **_CONV
    ),
    "conv_winograd": lambda: make(
        "conv_winograd",
        x(2, 5, 6, 4),
        x(2, 4, 4, 4, 16, index=1),
        channels=19,
        padding=((1, 0), (2, 1)),
    ),
    "matmul_panels": lambda: make("matmul_panels", x(2, 3, 9), x(2, 9, 16, index=1), columns=20),
    "matmul_bytes": lambda: make(
        "matmul_bytes",
        x(2, 3, 9, dtype=U8),
        x(2, 3, 16, 4, index=1, dtype=I8),
        columns=20,
    ),
    "conv_bytes": lambda: make(
        "conv_bytes",
        x(2, 5, 6, 10, dtype=U8),
        _byte_panels(),
        channels=38,
        pad_value=130,
        **_CONV,
    ),
    "depthwise_last": lambda: make("depthwise_last", x(2, 5, 6, 4), x(3, 2, 4, index=1), **_CONV),
    "pack_blocks": lambda: _of_weights("pack_blocks"),
    "pack_joined": lambda: make(
        "pack_joined", *(joined := NEUTRAL_EXAMPLES["join_blocks"]()).inputs, dtype=joined.dtype
    ),
    "quantise_blocks": lambda: make("quantise_blocks", x(2, 3, 64)),
    "rows_of_panels": lambda: make(
        "rows_of_panels",
        panels := _of_weights("pack_blocks"),
        constant(np.array([[18, 0]])),
        dtype=panels.inputs[0].dtype,
        columns=19,
        depth=64,
    ),
    "matmul_packed": lambda: make(
        "matmul_packed",
        make("quantise_blocks", x(2, 3, 64)),
        panels := _of_weights("pack_blocks"),
        dtype=panels.inputs[0].dtype,
        columns=19,
    ),
    "matmul_packed_experts": lambda: make(
        "matmul_packed_experts",
        make("quantise_blocks", x(2, 64)),
        make("pack_blocks", w := _weights(3), dtype=w.dtype),
        constant(np.array([1, 2, 3, 0])),
        constant(np.array([2, 0, 0, 1])),
        dtype=w.dtype,
        columns=19,
        choices=2,
    ),
}

#: For WebGPU's kernels alone.
WEBGPU_EXAMPLES: dict[str, Callable[[], Node]] = {
    "product_of_blocks": lambda: make(
        "product_of_blocks", x(2, 3, 64), w := _weights(), dtype=w.dtype
    ),
    "computed_update": lambda: make(
        "computed_update", x(6, 4), make("exp", x(2, 4, index=1)), constant(np.array(3)), axis=0
    ),
    "rows_for_many": lambda: make("rows_for_many", x(3, 4)),
    "normed_product": lambda: make(
        "normed_product",
        x(3, 64),
        w := _weights(),
        constant(np.linspace(0.5, 2, 64, dtype=np.float32)),
        dtype=w.dtype,
        epsilon=1e-5,
    ),
    "conv_matrix": lambda: make(
        "conv_matrix", x(2, 5, 6, 4), x(3, 2, 4, 8, index=1), channels=7, groups=1, **_CONV
    ),
}

#: What the CPU has kernels for, and what there is.
EXAMPLES = {**NEUTRAL_EXAMPLES, **LAYOUT_EXAMPLES}
ALL_EXAMPLES = {**EXAMPLES, **WEBGPU_EXAMPLES}
assert ALL_EXAMPLES.keys() == OPS.keys()


def numbers(node: Node, seed: int = 0) -> NDArray[Any]:
    """An array for an input."""
    rng = np.random.default_rng([seed, node.attr("index")])
    shape = tuple(int(size) for size in node.shape if isinstance(size, int))
    if node.dtype == BOOL:
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if node.dtype in (U8, I8):
        return np.asarray(rng.integers(0, 256, shape).astype(np.uint8).view(node.dtype.to_numpy()))
    if node.dtype == I32:
        return np.asarray(rng.integers(0, 9, shape).astype(np.int32))
    if node.dtype == C64:
        pairs = rng.uniform(0.1, 0.9, (*shape, 2)).astype(np.float32)
        return np.asarray(pairs.view(np.complex64)[..., 0])
    return np.asarray(rng.uniform(0.1, 0.9, shape).astype(np.float32))
