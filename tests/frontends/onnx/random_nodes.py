"""Proposals of nodes for random models, by family: each adds a node or a few to a ModelBuilder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.frontends.onnx.random_models import Dropped, ModelBuilder, Value

Proposal = Callable[[ModelBuilder], None]


def is_float(one: Value) -> bool:
    return one.is_float


def is_small(one: Value) -> bool:
    return one.is_float and (not one.array.size or float(np.abs(one.array).max()) < 8)


def is_exact(one: Value) -> bool:
    return one.is_exact


def has_axes(least: int) -> Callable[[Value], bool]:
    return lambda one: one.array.ndim >= least


def _other(b: ModelBuilder, x: Value) -> Value | str:
    """Something of the same type that may broadcast with it: a value, or a constant."""
    shape = x.array.shape
    same = [
        one
        for one in b.values
        if one.name not in b.closed and one.array.dtype == x.array.dtype and _broadcasts(one, x)
    ]
    if same and b.rng.random() < 0.5:
        return b.rng.choice(same)
    cut = shape[b.rng.randint(0, len(shape)) :]
    sizes = [1 if b.rng.random() < 0.4 else size for size in cut]
    return b.const(b.data(sizes, x.array.dtype), x.array.dtype)


def _broadcasts(one: Value, other: Value) -> bool:
    try:
        np.broadcast_shapes(one.array.shape, other.array.shape)
    except ValueError:
        return False
    return True


# Elementwise.


def unary(b: ModelBuilder) -> None:
    op = b.rng.choice(["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Softplus", "Softsign",
                       "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Sin", "Cos", "Atan", "Erf",
                       "Gelu", "HardSwish", "Mish", "Celu", "ThresholdedRelu", "Sinh",
                       "Asinh", "Swish"])  # fmt: skip
    b.add(op, [b.pick(is_small)], exact=op in ("Relu", "Neg", "Abs"))


def root(b: ModelBuilder) -> None:
    [x] = b.add("Abs", [b.pick(is_small)], exact=True)
    [y] = b.add("Add", [x, b.const(0.5, x.array.dtype)])
    b.add(b.rng.choice(["Sqrt", "Log", "Reciprocal"]), [y])


def jumping(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.is_exact)
    b.add(b.rng.choice(["Floor", "Ceil", "Round", "Sign", "IsNaN"]), [x], exact=True)


def binary(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_float or one.array.dtype in (np.int32, np.int64))
    op = b.rng.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"])
    pair = [x, _other(b, x)]
    if op == "Div":
        pair[1] = b.const(b.rng.choice([1, 2, 3, 4]), x.array.dtype)
        if not x.is_float and x.array.size and int(x.array.min()) < 0:
            raise Dropped  # how integers below zero round is another question
    elif op != "PRelu" and b.rng.random() < 0.5:
        pair.reverse()
    b.add(op, pair, exact=op in ("Max", "Min") or not x.is_float)


def variadic(b: ModelBuilder) -> None:
    x = b.pick(is_float)
    op = b.rng.choice(["Sum", "Mean", "Max", "Min"])
    rest = [_other(b, x) for _ in range(b.rng.randint(0, 2))]
    b.add(op, [x, *rest], exact=op in ("Max", "Min"))


def comparison(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.array.dtype.kind != "b")
    ops = ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]
    b.add(b.rng.choice(ops if b.opset >= 12 else ops[:3]), [x, _other(b, x)], exact=True)


def logical(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype.kind == "b")
    if b.rng.random() < 0.3:
        b.add("Not", [x], exact=True)
    else:
        b.add(b.rng.choice(["And", "Or", "Xor"]), [x, _other(b, x)], exact=True)


def choice(b: ModelBuilder) -> None:
    condition = b.pick(lambda one: one.array.dtype.kind == "b")
    x = b.pick(lambda one: _broadcasts(one, condition))
    b.add("Where", [condition, x, _other(b, x)], exact=True)


def clip(b: ModelBuilder) -> None:
    x = b.pick(is_float)
    low, high = sorted(b.rng.choices([-2.0, -1.0, 0.0, 0.5, 1.0, 6.0], k=2))
    if b.opset < 11:
        b.add("Clip", [x], exact=True, min=low, max=high)
    else:
        ends = [b.const(one, x.array.dtype) for one in (low, high)]
        b.add("Clip", [x, *(ends if b.rng.random() < 0.7 else ["", ends[1]])], exact=True)


def integers(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype.kind in "iu")
    op = b.rng.choice(["Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Abs"])
    if op in ("BitwiseNot", "Abs"):
        b.add(op, [x], exact=True)
    elif op == "Mod":
        b.add(op, [x, b.const(b.rng.choice([2, 3, 7]), x.array.dtype)], exact=True)
    else:
        b.add(op, [x, _other(b, x)], exact=True)


def power(b: ModelBuilder) -> None:
    x = b.pick(is_small)
    b.add("Pow", [x, b.const(b.rng.choice([1.0, 2.0, 3.0]), x.array.dtype)])


def cast(b: ModelBuilder) -> None:
    x = b.pick()
    kinds = [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32,
             TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.INT8]  # fmt: skip
    to = b.rng.choice(kinds)
    if (
        to in (TensorProto.UINT8, TensorProto.INT8)
        and x.array.size
        and not (float(x.array.min()) >= 0 and float(x.array.max()) < 100)
    ):
        raise Dropped
    narrows = x.is_float and to == TensorProto.FLOAT16
    b.add("Cast", [x], exact=not narrows or x.is_exact, to=to)


# Reductions.


def reduction(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_float and one.array.ndim > 0 and one.array.size > 0)
    op = b.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
                       "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"])  # fmt: skip
    ndim = x.array.ndim
    axes = b.rng.sample(range(ndim), b.rng.randint(1, ndim))
    axes = [axis - ndim if b.rng.random() < 0.3 and b.opset >= 11 else axis for axis in axes]
    keep = b.rng.randint(0, 1)
    exact = op in ("ReduceMax", "ReduceMin")
    if b.rng.random() < 0.15:
        b.add(op, [x], exact=exact, keepdims=keep)
    elif b.opset >= (13 if op == "ReduceSum" else 18):
        b.add(op, [x, b.const(axes)], exact=exact, keepdims=keep)
    else:
        b.add(op, [x], exact=exact, axes=axes, keepdims=keep)


def arg_reduction(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.is_float and one.array.ndim > 0)
    attrs: dict[str, Any] = {"select_last_index": b.rng.randint(0, 1)} if b.opset >= 12 else {}
    axis = b.rng.randrange(x.array.ndim)
    op = b.rng.choice(["ArgMax", "ArgMin"])
    b.add(op, [x], exact=True, axis=axis, keepdims=b.rng.randint(0, 1), **attrs)


def running(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_float and one.array.ndim > 0)
    axis = b.const(b.rng.randrange(x.array.ndim))
    b.add("CumSum", [x, axis], exclusive=b.rng.randint(0, 1), reverse=b.rng.randint(0, 1))


def top_k(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.is_float and one.array.ndim > 0)
    axis = b.rng.randrange(x.array.ndim)
    size = x.array.shape[axis]
    if b.opset < 11 or size == 0 or len(set(x.array.reshape(-1).tolist())) < x.array.size:
        raise Dropped  # which of equal ones comes first is left open
    k = b.rng.randint(1, size)
    b.add("TopK", [x, b.const([k])], 2, exact=True, axis=axis, largest=b.rng.randint(0, 1))


def softmax(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim > 0)
    axis = -1 if b.opset >= 11 else x.array.ndim - 1
    if b.opset >= 13:
        axis = b.rng.randrange(-x.array.ndim, x.array.ndim)
    b.add(b.rng.choice(["Softmax", "LogSoftmax"]), [x], axis=axis)


# Movement.


def reshape(b: ModelBuilder) -> None:
    """The first axis is kept by 0, so that any batch does."""
    x = b.pick(has_axes(2))
    rest = list(x.array.shape[1:])
    if len(rest) > 1 and b.rng.random() < 0.6:
        k = b.rng.randrange(len(rest) - 1)
        rest[k : k + 2] = [rest[k] * rest[k + 1]]
    else:
        k = b.rng.randrange(len(rest))
        factor = next((f for f in (2, 3, 5) if rest[k] % f == 0 and rest[k]), 1)
        rest[k : k + 1] = [factor, rest[k] // factor]
    if b.rng.random() < 0.5:
        rest[b.rng.randrange(len(rest))] = -1
    b.add("Reshape", [x, b.const([0, *rest])], exact=True)


def reshape_by_shape(b: ModelBuilder) -> None:
    """Arithmetic on the shape: the first two axes become one."""
    x = b.pick(has_axes(3))
    [shape] = b.add("Shape", [x], exact=True)
    parts = []
    for k in (0, 1):
        parts += b.add("Gather", [shape, b.const([k])], exact=True, axis=0)
    [joined] = b.add("Mul", parts, exact=True)
    ends: list[Value | str] = [joined, b.const([-1])]
    if x.array.ndim == 3 and b.rng.random() < 0.5:
        ends = [joined, *b.add("Gather", [shape, b.const([2])], exact=True, axis=0)]
    [wanted] = b.add("Concat", ends, exact=True, axis=0)
    b.add("Reshape", [x, wanted], exact=True)


def expand_by_shape(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    if b.opset < 8:
        raise Dropped
    [shape] = b.add("Shape", [x], exact=True)
    [more] = b.add("Concat", [b.const([2]), shape], exact=True, axis=0)
    b.add("Expand", [x, more], exact=True)


def slice_by_shape(b: ModelBuilder) -> None:
    """All but the last element of an axis, whose size is asked for."""
    x = b.pick(has_axes(1))
    axis = b.rng.randrange(x.array.ndim)
    if b.opset < 10:
        raise Dropped
    [shape] = b.add("Shape", [x], exact=True)
    [size] = b.add("Gather", [shape, b.const([axis])], exact=True, axis=0)
    [end] = b.add("Sub", [size, b.const([1])], exact=True)
    b.add("Slice", [x, b.const([0]), end, b.const([axis])], exact=True)


def constant_of_shape(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    if b.opset < 9:
        raise Dropped
    [shape] = b.add("Shape", [x], exact=True)
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.5])
    b.add("ConstantOfShape", [shape], exact=True, value=value)


def flatten(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    b.add("Flatten", [x], exact=True, axis=b.rng.randint(0, x.array.ndim))


def transpose(b: ModelBuilder) -> None:
    x = b.pick(has_axes(2))
    order = b.rng.sample(range(x.array.ndim), x.array.ndim)
    attrs: dict[str, Any] = {} if b.rng.random() < 0.2 else {"perm": order}
    b.add("Transpose", [x], exact=True, **attrs)


def squeeze(b: ModelBuilder) -> None:
    x = b.pick()
    ones = [k for k, size in enumerate(x.array.shape) if size == 1]
    if ones and b.rng.random() < 0.5:
        op, axes = "Squeeze", [b.rng.choice(ones)]
    else:
        op, axes = "Unsqueeze", [b.rng.randint(0, x.array.ndim)]
    if b.opset < 13:
        b.add(op, [x], exact=True, axes=axes)
    else:
        b.add(op, [x, b.const(axes)], exact=True)


def concat(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    axis = b.rng.randrange(-x.array.ndim if b.opset >= 11 else 0, x.array.ndim)
    shape = list(x.array.shape)
    shape[axis] = b.rng.randint(0, 3)
    parts: list[Value | str] = [x, b.const(b.data(shape, x.array.dtype), x.array.dtype)]
    if b.rng.random() < 0.3:
        parts.append(x)
    b.rng.shuffle(parts)
    b.add("Concat", parts, exact=True, axis=axis)


def split(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    axis = b.rng.randrange(x.array.ndim)
    size = x.array.shape[axis]
    if size < 2:
        raise Dropped
    cut = b.rng.randint(1, size - 1)
    if b.opset < 13:
        b.add("Split", [x], 2, exact=True, axis=axis, split=[cut, size - cut])
    elif b.opset >= 18 and b.rng.random() < 0.5:
        b.add("Split", [x], 2, exact=True, axis=axis, num_outputs=2)
    else:
        b.add("Split", [x, b.const([cut, size - cut])], 2, exact=True, axis=axis)


def slices(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    axis = b.rng.randrange(x.array.ndim)
    size = x.array.shape[axis]
    start, end = b.rng.randint(-size - 1, size), b.rng.choice([b.rng.randint(-size, size), 10**9])
    if b.opset < 10:
        b.add("Slice", [x], exact=True, starts=[start], ends=[end], axes=[axis])
        return
    step = b.rng.choice([1, 1, 2, 3, -1, -2])
    if step < 0:
        start, end = end, b.rng.choice([start, -(10**9)])
    given = [b.const([one]) for one in (start, end, axis, step)]
    b.add("Slice", [x, *given], exact=True)


def pad(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim > 0)
    ndim = x.array.ndim
    mode = b.rng.choice(["constant", "constant", "edge", "reflect"])
    least = -1 if mode == "constant" else 0
    pads = [b.rng.randint(least, 2) if b.rng.random() < 0.5 else 0 for _ in range(2 * ndim)]
    for k in range(ndim):
        size = x.array.shape[k]
        room = size - 1 if mode == "reflect" else size
        if size + min(pads[k], 0) + min(pads[ndim + k], 0) < 1 or max(pads[k], pads[ndim + k]) > (
            99 if mode == "constant" else max(room, 0)
        ):
            raise Dropped
    if b.opset < 11:
        b.add("Pad", [x], exact=True, mode=mode, pads=pads, value=0.5)
    else:
        value = [b.const(0.5, x.array.dtype)] if mode == "constant" else []
        b.add("Pad", [x, b.const(pads), *value], exact=True, mode=mode)


def tile(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    b.add("Tile", [x, b.const([b.rng.choice([1, 1, 2, 3]) for _ in x.array.shape])], exact=True)


def blocks(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim == 4)
    op = b.rng.choice(["DepthToSpace", "SpaceToDepth"])
    if op == "DepthToSpace" and x.array.shape[1] % 4:
        raise Dropped
    mode: dict[str, Any] = (
        {"mode": b.rng.choice(["DCR", "CRD"])} if op == "DepthToSpace" and b.opset >= 11 else {}
    )
    b.add(op, [x], exact=True, blocksize=2, **mode)


# Indexing.


def gather(b: ModelBuilder) -> None:
    x = b.pick(has_axes(1))
    axis = b.rng.randrange(x.array.ndim)
    size = x.array.shape[axis]
    if size == 0:
        raise Dropped
    least = -size if b.opset >= 11 else 0
    shape = b.rng.choice([(), (1,), (3,), (2, 2)])
    indices = b.numbers.integers(least, size, shape)
    b.add(
        "Gather", [x, b.const(indices, b.rng.choice([np.int64, np.int32]))], exact=True, axis=axis
    )


def gather_elements(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 0 and one.array.size > 0)
    axis = b.rng.randrange(x.array.ndim)
    shape = list(x.array.shape)
    shape[axis] = b.rng.randint(1, 4)
    size = x.array.shape[axis]
    indices = b.const(b.numbers.integers(-size, size, shape))
    b.add("GatherElements", [x, indices], exact=True, axis=axis)


def gather_nd(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 1 and one.array.size > 0)
    depth = b.rng.randint(1, 2)
    columns = [b.numbers.integers(0, size, (3,)) for size in x.array.shape[:depth]]
    b.add("GatherND", [x, b.const(np.stack(columns, -1))], exact=True)


def scatter(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 0 and one.array.size > 0 and one.is_float)
    axis = b.rng.randrange(x.array.ndim)
    size = x.array.shape[axis]
    shape = list(x.array.shape)
    shape[axis] = 1
    updates = b.const(b.data(shape, x.array.dtype), x.array.dtype)
    indices = b.const(b.numbers.integers(0, size, shape))
    op = "ScatterElements" if b.opset >= 11 else "Scatter"
    b.add(op, [x, indices, updates], exact=True, axis=axis)


def scatter_nd(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 1 and one.array.size > 0 and one.is_float)
    place = b.numbers.integers(0, x.array.shape[0], (1, 1))
    updates = b.const(b.data((1, *x.array.shape[1:]), x.array.dtype), x.array.dtype)
    b.add("ScatterND", [x, b.const(place), updates], exact=True)


def one_hot(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype == np.int64)
    if b.opset < 9 or (x.array.size and (x.array.min() < -5 or x.array.max() >= 5)):
        raise Dropped
    values = b.const([0.0, 1.0], np.float32)
    b.add("OneHot", [x, b.const(5), values], exact=True, axis=b.rng.choice([-1, 0]))


def non_zero(b: ModelBuilder) -> None:
    """Where it is not zero; and what stands there, or as many ones as there are such places."""
    x = b.pick(lambda one: one.is_exact and one.array.ndim > 0)
    found = b.add("NonZero", [x], exact=True)
    kind = b.rng.randrange(5)
    if kind == 0 and b.opset >= 11:
        found += b.add("Transpose", found, exact=True, perm=[1, 0])
        found += b.add("GatherND", [x, found[-1]], exact=True)
    elif kind == 1 and b.opset >= 9:
        found += b.add("Shape", [found[0]], exact=True)
        found += b.add("ConstantOfShape", [found[-1]], exact=True)
    elif kind == 2:
        found += b.add("Shape", [found[0]], exact=True)
    elif kind == 3:
        found += b.add("Cast", [found[0]], exact=True, to=TensorProto.FLOAT)
        b.closed |= {one.name for one in found}
        b.add("ReduceSum", [found[-1]], keepdims=0)
    b.closed |= {one.name for one in found}


def trilu(b: ModelBuilder) -> None:
    x = b.pick(has_axes(2))
    b.add("Trilu", [x, b.const(b.rng.randint(-2, 2))], exact=True, upper=b.rng.randint(0, 1))


# Layers.


def matmul(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim > 1)
    n, k = b.rng.choice([1, 3, 8]), x.array.shape[-1]
    lead = () if b.rng.random() < 0.7 else x.array.shape[:-2]
    weights = b.const(b.data((*lead, k, n), x.array.dtype) / 4, x.array.dtype)
    b.add("MatMul", [x, weights])


def gemm(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 2)
    transposed, n = b.rng.randint(0, 1), b.rng.choice([1, 4, 7])
    k = x.array.shape[1]
    w = b.const(b.data((n, k) if transposed else (k, n), x.array.dtype) / 4, x.array.dtype)
    bias = b.const(b.data(b.rng.choice([(n,), (1, n), ()]), x.array.dtype), x.array.dtype)
    given: list[Value | str] = [x, w, bias] if b.opset < 11 or b.rng.random() < 0.7 else [x, w]
    b.add("Gemm", given, transB=transposed, alpha=b.rng.choice([1.0, 0.5]),
          beta=b.rng.choice([1.0, 2.0]))  # fmt: skip


def conv(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim in (3, 4) and one.array.size > 0)
    n, channels = x.array.ndim - 2, x.array.shape[1]
    groups = b.rng.choice([g for g in (1, 2, channels) if channels % g == 0])
    out = groups * b.rng.choice([1, 2, 3])
    kernel = [b.rng.randint(1, min(3, size)) for size in x.array.shape[2:]]
    transposed = b.rng.random() < 0.25
    shape = (channels, out // groups, *kernel) if transposed else (out, channels // groups, *kernel)
    w = b.const(b.data(shape, x.array.dtype) / 8, x.array.dtype)
    bias = [b.const(b.data((out,), x.array.dtype), x.array.dtype)] if b.rng.random() < 0.6 else []
    attrs: dict[str, Any] = {"group": groups, "strides": [b.rng.choice([1, 2]) for _ in range(n)]}
    if b.rng.random() < 0.3 and not transposed:
        attrs["auto_pad"] = b.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attrs["pads"] = [b.rng.randint(0, 1) for _ in range(2 * n)]
        attrs["dilations"] = [b.rng.choice([1, 1, 2]) for _ in range(n)]
    b.add("ConvTranspose" if transposed else "Conv", [x, w, *bias], **attrs)


def pool(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim in (3, 4) and one.array.size > 0)
    n = x.array.ndim - 2
    op = b.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        b.add(op, [x], exact=op == "GlobalMaxPool")
        return
    kernel = [b.rng.randint(1, min(3, size)) for size in x.array.shape[2:]]
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [b.rng.choice([1, 2]) for _ in range(n)],
    }
    if b.rng.random() < 0.6:
        attrs["pads"] = [b.rng.randint(0, k - 1) for k in kernel] * 2
    if op == "AveragePool":
        attrs["count_include_pad"] = b.rng.randint(0, 1)
    if op != "LpPool" and b.opset >= 10 and b.rng.random() < 0.3:
        attrs["ceil_mode"] = 1
    b.add(op, [x], exact=op == "MaxPool", **attrs)


def norm(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim >= 3 and one.array.size > 1)
    channels = x.array.shape[1]
    dtype = x.array.dtype

    def row(low: float, size: int = channels) -> str:
        return b.const(b.numbers.integers(4, 12, size) / 8 + low, dtype)

    op = b.rng.choice(["BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN",
                       "LpNormalization", "GroupNormalization", "RMSNormalization",
                       "MeanVarianceNormalization"])  # fmt: skip
    if op == "BatchNormalization":
        b.add(op, [x, row(0), row(-1), row(-1), row(0)])
    elif op == "InstanceNormalization":
        b.add(op, [x, row(0), row(-1)], epsilon=1e-2)
    elif op == "LayerNormalization":
        size = x.array.shape[-1]
        b.add(op, [x, row(0, size), row(-1, size)], axis=-1, epsilon=1e-2)
    elif op == "RMSNormalization":
        b.add(op, [x, row(0, x.array.shape[-1])], axis=-1, epsilon=1e-2)
    elif op == "GroupNormalization":
        if b.opset < 21 or channels % 2:
            raise Dropped
        b.add(op, [x, row(0), row(-1)], num_groups=2, epsilon=1e-2)
    elif op == "LRN":
        b.add(op, [x], size=b.rng.choice([1, 3]))
    elif op == "LpNormalization":
        b.add(op, [x], axis=b.rng.randrange(x.array.ndim), p=b.rng.choice([1, 2]))
    else:
        b.add(op, [x])


def resize(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim == 4 and one.array.size > 0)
    scales = [1.0, 1.0, *(b.rng.choice([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in range(2))]
    if b.opset < 9:
        if min(scales) < 1:
            raise Dropped
        b.add("Upsample", [x], exact=True, scales=scales, mode="nearest")
        return
    given = b.const(scales, np.float32)
    if b.opset < 11:
        op = "Resize" if b.opset == 10 else "Upsample"
        if op == "Upsample" and min(scales) < 1:
            raise Dropped
        b.add(op, [x, given], mode=b.rng.choice(["nearest", "linear"]))
        return
    mode = b.rng.choice(["nearest", "linear", "cubic"])
    coordinates = b.rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = b.rng.choice(["floor", "ceil", "round_prefer_floor"])
    if b.rng.random() < 0.5:
        sizes = [int(size * scale) for size, scale in zip(x.array.shape, scales, strict=True)]
        b.add("Resize", [x, "", "", b.const(sizes)], exact=mode == "nearest", **attrs)
    else:
        whole = [size * scale for size, scale in zip(x.array.shape, scales, strict=True)]
        if coordinates == "align_corners" and any(one != int(one) for one in whole):
            raise Dropped  # the standard takes the size before rounding, ONNX Runtime after it
        b.add("Resize", [x, "", given], exact=mode == "nearest", **attrs)


def einsum(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 3)
    k = x.array.shape[2]
    w = b.const(b.data((4, k), x.array.dtype) / 4, x.array.dtype)
    b.add("Einsum", [x, w], equation=b.rng.choice(["abk,jk->abj", "abk,jk->jab", "...k,jk->...j"]))


# Quantisation.


def quantise(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.array.dtype == np.float32)
    if b.opset < 10:
        raise Dropped
    dtype = b.rng.choice([np.uint8, np.int8])
    scale = b.const(b.rng.choice([0.25, 0.5, 1.0]), np.float32)
    zero = b.const(b.rng.choice([0, 3, 10]), dtype)
    [q] = b.add("QuantizeLinear", [x, scale, zero], exact=True)
    if b.rng.random() < 0.8:
        b.add("DequantizeLinear", [q, scale, zero], exact=True)


def integer_product(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype in (np.uint8, np.int8) and one.array.ndim > 1)
    if not x.array.size:
        raise Dropped  # ONNX Runtime leaves sums of nothing as they were in memory
    w = b.const(b.data((x.array.shape[-1], 3), np.int8), np.int8)
    given: list[Value | str] = [x, w, b.const(2, x.array.dtype)] if b.rng.random() < 0.5 else [x, w]
    b.add("MatMulInteger", given, exact=True)


# Control.


def branch(b: ModelBuilder) -> None:
    """Either of two functions of a value, by a truth that a run finds."""
    x = b.pick(is_small)
    flag = b.pick(
        lambda one: one.is_exact and one.array.dtype.kind in "biuf" and one.array.size > 0
    )
    [shape] = b.add("Reshape", [flag, b.const([-1])], exact=True)
    [first] = b.add("Gather", [shape, b.const(0)], exact=True, axis=0)
    [condition] = b.add("Cast", [first], exact=True, to=TensorProto.BOOL)
    kind = helper.np_dtype_to_tensor_dtype(x.array.dtype)
    graphs = []
    for op in b.rng.sample(["Relu", "Neg", "Tanh", "Abs", "Sigmoid"], 2):
        name, inner = b.fresh("out"), b.fresh("in")
        nodes = [
            helper.make_node(op, [x.name], [inner]),
            helper.make_node("Add", [inner, inner], [name]),
        ]
        end = helper.make_tensor_value_info(name, kind, [None] * x.array.ndim)
        graphs.append(helper.make_graph(nodes, b.fresh("branch"), [], [end]))
    b.add("If", [condition], then_branch=graphs[0], else_branch=graphs[1])
    b.values[-1].is_exact = False
    b.values[-1].scale = max(b.values[-1].scale, x.scale)
    b.values[-1].depth += x.depth + 1
    b.values[-1].unit = max(b.values[-1].unit, x.unit)


def loop(b: ModelBuilder) -> None:
    """x becomes x / 2 + c a few times; each step is let out too."""
    x = b.pick(is_small)
    if b.opset < 11:
        raise Dropped
    kind = helper.np_dtype_to_tensor_dtype(x.array.dtype)
    names = {one: b.fresh(one) for one in ("i", "go", "acc", "on", "half", "sum", "row")}
    half, more = b.const(0.5, x.array.dtype), b.const(0.25, x.array.dtype)
    nodes = [
        helper.make_node("Identity", [names["go"]], [names["on"]]),
        helper.make_node("Mul", [names["acc"], half], [names["half"]]),
        helper.make_node("Add", [names["half"], more], [names["sum"]]),
        helper.make_node("Tanh", [names["sum"]], [names["row"]]),
    ]
    info = helper.make_tensor_value_info
    open_ = [None] * x.array.ndim
    body = helper.make_graph(
        nodes,
        b.fresh("body"),
        [info(names["i"], TensorProto.INT64, []), info(names["go"], TensorProto.BOOL, []),
         info(names["acc"], kind, open_)],
        [info(names["on"], TensorProto.BOOL, []), info(names["sum"], kind, open_),
         info(names["row"], kind, open_)],
    )  # fmt: skip
    b.add("Loop", [b.const(b.rng.randint(1, 4)), b.const(True, bool), x], 2, body=body)


def scan(b: ModelBuilder) -> None:
    """Sums of rows so far."""
    x = b.pick(lambda one: is_small(one) and one.array.ndim >= 2 and one.array.size > 0)
    if b.opset < 11:
        raise Dropped
    kind = helper.np_dtype_to_tensor_dtype(x.array.dtype)
    names = {one: b.fresh(one) for one in ("acc", "row", "sum", "out")}
    nodes = [
        helper.make_node("Add", [names["acc"], names["row"]], [names["sum"]]),
        helper.make_node("Identity", [names["sum"]], [names["out"]]),
    ]
    row = x.array.shape[1:]
    open_ = [None] * len(row)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        b.fresh("body"),
        [info(names["acc"], kind, open_), info(names["row"], kind, open_)],
        [info(names["sum"], kind, open_), info(names["out"], kind, open_)],
    )
    start = b.const(b.data(row, x.array.dtype), x.array.dtype)
    b.add("Scan", [start, x], 2, body=body, num_scan_inputs=1,
          scan_input_directions=[b.rng.randint(0, 1)])  # fmt: skip


FAMILIES: list[list[Proposal]] = [
    [unary, unary, root, jumping, power, clip],
    [binary, binary, variadic, comparison, logical, choice, integers],
    [cast],
    [reduction, reduction, arg_reduction, running, top_k, softmax],
    [reshape, flatten, transpose, squeeze, concat, split, slices, pad, tile, blocks],
    [reshape_by_shape, expand_by_shape, slice_by_shape, constant_of_shape],
    [gather, gather_elements, gather_nd, scatter, scatter_nd, one_hot, non_zero, trilu],
    [matmul, gemm, conv, conv, pool, norm, einsum],
    [resize],
    [quantise, integer_product],
    [branch, loop, scan],
]
