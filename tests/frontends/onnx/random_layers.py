"""Proposals of nodes for random models: products, convolutions, pools, norms, resizing, recurrent
layers, attention, signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx.random_models import Dropped, ModelBuilder, Value
from tests.frontends.onnx.random_nodes import is_float, is_small


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
    x = b.pick(lambda one: is_small(one) and one.array.ndim in (3, 4, 5) and all(one.least))
    n, channels = x.array.ndim - 2, x.array.shape[1]
    groups = b.rng.choice([g for g in (1, 2, channels) if channels % g == 0])
    out = groups * b.rng.choice([1, 2, 3])
    kernel = [b.rng.randint(1, min(3, size)) for size in x.least[2:]]
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
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs.get("dilations", [1] * n), strict=True)]
    if not transposed and any(r > size for r, size in zip(reach, x.least[2:], strict=True)):
        raise Dropped
    b.add("ConvTranspose" if transposed else "Conv", [x, w, *bias], **attrs)


def pool(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_float(one) and one.array.ndim in (3, 4) and all(one.least))
    n = x.array.ndim - 2
    op = b.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        b.add(op, [x], exact=op == "GlobalMaxPool")
        return
    kernel = [b.rng.randint(1, min(3, size)) for size in x.least[2:]]
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
    if not x.is_fixed(1, -1):
        raise Dropped

    def row(low: float, size: int = channels) -> str:
        return b.const(b.numbers.integers(4, 12, size) / 8 + low, dtype)

    op = b.rng.choice(["BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN",
                       "LpNormalization", "GroupNormalization", "RMSNormalization",
                       "MeanVarianceNormalization"])  # fmt: skip
    if op in ("LRN", "LpNormalization") and dtype == np.float64:
        raise Dropped  # ONNX Runtime has none, and the standard's evaluator another
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
    x = b.pick(lambda one: is_float(one) and one.array.ndim == 4 and all(one.least))
    if not x.is_fixed(0, 1) or x.array.dtype == np.float64:
        raise Dropped  # of float64 the standard's evaluator has coefficients in float32
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


def product(b: ModelBuilder) -> None:
    """Of two values that a run finds: of one with its own transpose."""
    x = b.pick(lambda one: is_small(one) and one.array.ndim > 1)
    order = [*range(x.array.ndim - 2), x.array.ndim - 1, x.array.ndim - 2]
    [turned] = b.add("Transpose", [x], exact=True, perm=order)
    [found] = b.add("MatMul", [x, turned] if b.rng.random() < 0.7 else [turned, x])
    b.add("Mul", [found, b.const(1 / 16, x.array.dtype)])


def recurrent(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 3 and all(one.least))
    op = b.rng.choice(["LSTM", "GRU", "RNN"])
    direction = b.rng.choice(["forward", "reverse", "bidirectional"])
    n_ways, hidden = 1 + (direction == "bidirectional"), b.rng.choice([2, 3, 5])
    rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
    dtype = x.array.dtype

    def weights(*shape: int) -> str:
        return b.const(b.data(shape, dtype) / 8, dtype)

    given: list[Value | str] = [
        x, weights(n_ways, rows, x.array.shape[2]), weights(n_ways, rows, hidden)
    ]  # fmt: skip
    if b.rng.random() < 0.6:
        given.append(weights(n_ways, 2 * rows))
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = b.rng.randint(0, 1)
    # Steps are as many as the first axis is long; their errors do not add up, for gates contract.
    b.add(op, given, b.rng.choice([1, 2, 3 if op == "LSTM" else 2]), steps=4, **attrs)


def attention(b: ModelBuilder) -> None:
    """As exporters write it: heads, scaled scores, a mask, a softmax, and the heads joined."""
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 3 and one.array.shape[2] % 2 == 0)
    dtype, width = x.array.dtype, x.array.shape[2]
    if b.opset < 13 or not width:
        raise Dropped
    sides = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        weights = b.const(b.data((width, width), dtype) / 8, dtype)
        [one] = b.add("MatMul", [x, weights])
        [one] = b.add("Reshape", [one, b.const([0, 0, 2, width // 2])], exact=True)
        sides += b.add("Transpose", [one], exact=True, perm=order)
    if b.opset >= 23 and b.rng.random() < 0.5:
        [keys] = b.add("Transpose", [sides[1]], exact=True, perm=[0, 1, 3, 2])
        b.add("Attention", [sides[0], keys, sides[2]], is_causal=b.rng.randint(0, 1), steps=4)
        return
    [scores] = b.add("MatMul", sides[:2])
    [scaled] = b.add("Mul", [scores, b.const(0.5, dtype)])
    [shares] = b.add("Softmax", [scaled], axis=-1)
    [mixed] = b.add("MatMul", [shares, sides[2]])
    [turned] = b.add("Transpose", [mixed], exact=True, perm=[0, 2, 1, 3])
    b.add("Reshape", [turned, b.const([0, 0, width])], exact=True)


def grid_sample(b: ModelBuilder) -> None:
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 4 and all(one.least))
    if b.opset < 16 or not x.is_fixed(0):
        raise Dropped
    # Places in the middle of pixels jump where they are rounded: odd sixteenths never are.
    places = (2 * b.numbers.integers(-9, 9, (x.array.shape[0], 2, 3, 2)) + 1) / 16
    modes = ["bilinear", "nearest"] if b.opset < 20 else ["linear", "nearest"]
    b.add("GridSample", [x, b.const(places, x.array.dtype)], mode=b.rng.choice(modes),
          padding_mode=b.rng.choice(["zeros", "border", "reflection"]),
          align_corners=b.rng.randint(0, 1), steps=4)  # fmt: skip


def signal(b: ModelBuilder) -> None:
    op = b.rng.choice(["DFT", "HannWindow", "HammingWindow", "BlackmanWindow"])
    if b.opset < 17:
        raise Dropped
    if op != "DFT":
        b.add(op, [b.const(b.rng.randint(2, 9))], periodic=b.rng.randint(0, 1))
        return
    x = b.pick(lambda one: is_small(one) and one.array.ndim == 3 and all(one.least))
    [one] = b.add("Unsqueeze", [x, b.const([-1])], exact=True)
    attrs: dict[str, Any] = {"onesided": b.rng.randint(0, 1)}
    if b.opset < 20:
        b.add(op, [one], axis=1, steps=4, **attrs)
    else:
        b.add(op, [one, "", b.const(1)], steps=4, **attrs)


def pixels(b: ModelBuilder) -> None:
    """Neighbourhoods back to an image; crops."""
    x = b.pick(lambda one: is_small(one) and one.array.ndim in (3, 4) and all(one.least))
    if b.opset < 18:
        raise Dropped
    if x.array.ndim == 3 and x.array.shape[1] % 4 == 0 and x.array.shape[2] == 6:
        b.add("Col2Im", [x, b.const([3, 4]), b.const([2, 2])], steps=2)
    else:
        sizes = [b.rng.randint(1, 7), b.rng.randint(1, 7)]
        axes = [x.array.ndim - 2, x.array.ndim - 1]
        b.add("CenterCropPad", [x, b.const(sizes)], exact=True, axes=axes)
