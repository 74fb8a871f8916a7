"""Proposals of nodes for random models: elementwise, reductions, movement, indexing. Each adds a
node or a few to a ModelBuilder."""

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
    return one.is_float and (not one.numbers.size or float(np.abs(one.numbers).max()) < 8)


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
        if not x.is_float and x.numbers.size and int(x.numbers.min()) < 0:
            raise Dropped  # how integers below zero round is another question
    elif op != "PRelu" and b.rng.random() < 0.5:
        pair.reverse()
    [found] = b.add(op, pair, exact=op in ("Max", "Min") or not x.is_float)
    if op == "PRelu" and any(
        one.shape != other.shape for one, other in zip(found.arrays, x.arrays, strict=True)
    ):
        raise Dropped  # a slope stretches to the value, and not the other way round


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
        and x.numbers.size
        and not (float(x.numbers.min()) >= 0 and float(x.numbers.max()) < 100)
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


def _has_equals(x: Value) -> bool:
    return any(len(set(one.reshape(-1).tolist())) < one.size for one in x.arrays)


def top_k(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.is_float and one.array.ndim > 0)
    axis = b.rng.randrange(x.array.ndim)
    size = x.least[axis]
    if b.opset < 11 or size == 0 or _has_equals(x):
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
    if size < 2 or not x.is_fixed(axis):
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
        size = x.least[k]
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
    size = x.least[axis]
    if size == 0:
        raise Dropped
    least = -size if b.opset >= 11 else 0
    shape = b.rng.choice([(), (1,), (3,), (2, 2)])
    indices = b.numbers.integers(least, size, shape)
    b.add(
        "Gather", [x, b.const(indices, b.rng.choice([np.int64, np.int32]))], exact=True, axis=axis
    )


def gather_elements(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 0 and all(one.least))
    axis = b.rng.randrange(x.array.ndim)
    shape = list(x.least)
    shape[axis] = b.rng.randint(1, 4)
    size = x.least[axis]
    indices = b.const(b.numbers.integers(-size, size, shape))
    b.add("GatherElements", [x, indices], exact=True, axis=axis)


def gather_nd(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 1 and all(one.least))
    depth = b.rng.randint(1, 2)
    columns = [b.numbers.integers(0, size, (3,)) for size in x.least[:depth]]
    b.add("GatherND", [x, b.const(np.stack(columns, -1))], exact=True)


def scatter(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 0 and all(one.least) and one.is_float)
    axis = b.rng.randrange(x.array.ndim)
    shape = list(x.least)
    size, shape[axis] = shape[axis], 1
    updates = b.const(b.data(shape, x.array.dtype), x.array.dtype)
    indices = b.const(b.numbers.integers(0, size, shape))
    op = "ScatterElements" if b.opset >= 11 else "Scatter"
    b.add(op, [x, indices, updates], exact=True, axis=axis)


def scatter_nd(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 1 and all(one.least) and one.is_float)
    if not x.is_fixed(*range(1, x.array.ndim)):
        raise Dropped
    place = b.numbers.integers(0, x.least[0], (1, 1))
    updates = b.const(b.data((1, *x.array.shape[1:]), x.array.dtype), x.array.dtype)
    b.add("ScatterND", [x, b.const(place), updates], exact=True)


def one_hot(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype == np.int64)
    if b.opset < 9 or (x.numbers.size and (x.numbers.min() < -5 or x.numbers.max() >= 5)):
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


def scatter_sums(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 0 and all(one.least) and one.is_float)
    if b.opset < 16:
        raise Dropped
    shape = list(x.least)
    axis = b.rng.randrange(len(shape))
    size, shape[axis] = shape[axis], 2
    ways = ["add", "mul", "max", "min"] if b.opset >= 18 else ["add", "mul"]
    indices = b.const(b.numbers.integers(-size, size, shape))
    updates = b.const(b.data(shape, x.array.dtype), x.array.dtype)
    b.add("ScatterElements", [x, indices, updates], axis=axis, reduction=b.rng.choice(ways))


def shifted(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.dtype.kind == "u")
    amount = b.const(b.rng.randint(0, 3), x.array.dtype)
    if b.opset < 11:
        raise Dropped
    b.add("BitShift", [x, amount], exact=True, direction=b.rng.choice(["LEFT", "RIGHT"]))


def remainder(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.is_exact and one.is_float)
    if b.opset < 10:
        raise Dropped
    b.add("Mod", [x, b.const(b.rng.choice([0.75, 1.5, -1.25]), x.array.dtype)], exact=True, fmod=1)


def sources(b: ModelBuilder) -> None:
    """What is made of sizes and numbers alone."""
    x = b.pick()
    op = b.rng.choice(["Size", "Identity", "EyeLike", "Range", "IsInf", "Shrink", "Hardmax"])
    if op in ("Size", "Identity"):
        b.add(op, [x], exact=True)
    elif op == "EyeLike":
        if x.array.ndim != 2 or b.opset < 9:
            raise Dropped
        b.add(op, [x], exact=True, k=b.rng.randint(-1, 1), dtype=TensorProto.FLOAT)
    elif op == "Range":
        if x.array.ndim < 1 or b.opset < 11:
            raise Dropped
        [shape] = b.add("Shape", [x], exact=True)
        [size] = b.add("Gather", [shape, b.const(x.array.ndim - 1)], exact=True, axis=0)
        b.add(op, [b.const(0), size, b.const(b.rng.choice([1, 2]))], exact=True)
    else:
        if not (x.is_float and x.is_exact) or (
            op == "Hardmax" and (b.opset < 13 or not x.array.ndim)
        ):
            raise Dropped
        b.add(op, [x], exact=True)


def reverse_sequence(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 1 and all(one.least) and one.is_fixed(1))
    if b.opset < 10:
        raise Dropped
    lengths = b.const(b.numbers.integers(1, x.least[0] + 1, x.least[1]))
    b.add("ReverseSequence", [x, lengths], exact=True, time_axis=0, batch_axis=1)


def compressed(b: ModelBuilder) -> None:
    """What a run chooses: a few of an axis, or each number once."""
    x = b.pick(lambda one: one.array.ndim > 0 and all(one.least) and one.is_exact)
    if b.rng.random() < 0.5 and b.opset >= 9:
        size = b.rng.randint(1, x.least[0])
        mask = b.const(b.numbers.integers(0, 2, size), bool)
        found = b.add("Compress", [x, mask], exact=True, axis=0)
    elif b.opset >= 11:
        found = b.add("Unique", [x], 4, exact=True, sorted=1)
    else:
        raise Dropped
    b.closed |= {one.name for one in found}


def products_so_far(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim > 0)
    if b.opset < 26:
        raise Dropped
    b.add("CumProd", [x, b.const(b.rng.randrange(x.array.ndim))], reverse=b.rng.randint(0, 1))


def gather_batched(b: ModelBuilder) -> None:
    x = b.pick(lambda one: one.array.ndim > 2 and all(one.least) and one.is_fixed(0))
    if b.opset < 12:
        raise Dropped
    shape = x.least
    indices = b.numbers.integers(-shape[1], shape[1], (shape[0], 2, 1))
    b.add("GatherND", [x, b.const(indices)], exact=True, batch_dims=1)
