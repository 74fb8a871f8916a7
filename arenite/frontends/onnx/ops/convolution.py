"""What windows over axes are by their attributes; and convolutions: Conv, ConvTranspose,
DeformConv, Col2Im, CausalConvWithState.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as places

from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.ir import Dim, Node, ceildiv, full, known_le, make, maximum, product
from arenite.ir.compose import convolution, neural
from arenite.ir.compose.basic import (
    along,
    broadcast_to,
    cast,
    concat,
    iota,
    pad,
    reshape,
    size_like,
    slice_all,
    slice_axis,
)
from arenite.ir.compose.sampling import linear_sample

#: Elements from one place of a window to the next, and from tap to tap.
MAX_STEP = 1 << 31


@dataclass(frozen=True, slots=True)
class Windows:
    """One number for each spatial axis; padding is (before, after)."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]

    @property
    def reach(self) -> tuple[Dim, ...]:
        """Elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def windows_of(call: Call, x: Node, kernel: Sequence[Dim]) -> Windows:
    """Attributes of a node that slides a kernel over x[N, C, ...]."""
    n = len(kernel)
    if x.ndim != n + 2:
        call.fail(f"a kernel of shape {tuple(kernel)} for an input of shape {x.shape}")
    strides = per_axis(call, "strides", n, 1)
    dilations = per_axis(call, "dilations", n, 1)
    bare = Windows(tuple(kernel), strides, dilations, ((0, 0),) * n)
    auto = auto_pad(call)
    if auto == "NOTSET":
        return Windows(bare.kernel, strides, dilations, pads_of(call, n))
    if auto == "VALID":
        return bare
    padding: list[tuple[Dim, Dim]] = []
    for size, stride, reach in zip(x.shape[2:], strides, bare.reach, strict=True):
        total = maximum((ceildiv(size, stride) - 1) * stride + reach - size, 0)
        padding.append(halves(total, auto == "SAME_LOWER"))
    return Windows(bare.kernel, strides, dilations, tuple(padding))


def auto_pad(call: Call) -> str:
    """How padding is chosen."""
    given: str = call.attr("auto_pad", "NOTSET") or "NOTSET"
    if given not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        call.fail(f"auto_pad is {given!r}, not NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return given


def halves(total: Dim, more_before: bool) -> tuple[Dim, Dim]:
    """Padding on both sides; an odd element goes to one of them."""
    less = total // 2
    return (total - less, less) if more_before else (less, total - less)


def per_axis(call: Call, name: str, n: int, default: int) -> tuple[int, ...]:
    """An attribute with a number for each spatial axis."""
    given = call.attr(name) or [default] * n
    least = 0 if name == "output_padding" else 1
    if len(given) != n or any(not least <= one <= MAX_STEP for one in given):
        call.fail(f"{name} {list(given)} are not {n} numbers within {least}..{MAX_STEP}")
    return tuple(given)


def pads_of(call: Call, n: int) -> tuple[tuple[int, int], ...]:
    """The attribute `pads`: all befores, then all afters."""
    pads = call.attr("pads") or [0] * (2 * n)
    if len(pads) != 2 * n:
        call.fail(f"pads {list(pads)} are not a before and an after for each of {n} axes")
    return tuple(zip(pads[:n], pads[n:], strict=True))


def cropped(call: Call, x: Node, windows: Windows) -> tuple[Node, Windows]:
    """Negative padding takes elements away."""
    if all(not isinstance(s, int) or s >= 0 for pair in windows.padding for s in pair):
        return x, windows
    starts: list[Dim] = [0, 0]
    stops: list[Dim] = list(x.shape[:2])
    kept: list[tuple[Dim, Dim]] = []
    for size, pair in zip(x.shape[2:], windows.padding, strict=True):
        before, after = (min(s, 0) if isinstance(s, int) else 0 for s in pair)
        starts.append(-before)
        stops.append(size + after)
        kept.append((pair[0] - before, pair[1] - after))
    x = slice_all(x, starts, stops, [1] * x.ndim)
    return x, Windows(windows.kernel, windows.strides, windows.dilations, tuple(kept))


#: Elements of a block of Col2Im, each of which is a piece of the graph.
MAX_TAPS = 1024


def _kernel(call: Call, w: Node) -> tuple[Dim, ...]:
    given = call.attr("kernel_shape")
    if given and tuple(given) != w.shape[2:]:
        call.fail(f"kernel_shape {list(given)} for weights of shape {w.shape}")
    return w.shape[2:]


@operator("Conv")
def conv(call: Call) -> Result:
    x, w = call.node(0), call.node(1)
    x, windows = cropped(call, x, windows_of(call, x, _kernel(call, w)))
    bias, groups = call.optional(2), call.attr("group", 1)
    taps = windows.strides, list(windows.padding), windows.dilations
    return convolution.convolved("conv", x, w, bias, *taps, groups)


@operator("ConvTranspose")
def conv_transpose(call: Call) -> Result:
    x, w, bias = call.node(0), call.node(1), call.optional(2)
    n = x.ndim - 2
    if n < 1 or w.ndim != x.ndim:
        call.fail(f"an input of shape {x.shape} for weights of shape {w.shape}")
    kernel = _kernel(call, w)
    strides, dilations = per_axis(call, "strides", n, 1), per_axis(call, "dilations", n, 1)
    more = per_axis(call, "output_padding", n, 0)
    reach = Windows(kernel, strides, dilations, ()).reach
    wanted = _wanted(call, x, strides)
    padding: list[tuple[Dim, Dim]] = list(pads_of(call, n))
    if wanted is not None:
        # Odd elements go to the end for SAME_UPPER alone, as the standard's equations have it.
        more_before = auto_pad(call) != "SAME_UPPER"
        padding = [
            halves(s * (size - 1) + extra + r - out, more_before)
            for s, size, extra, r, out in zip(strides, x.shape[2:], more, reach, wanted,
                                              strict=True)
        ]  # fmt: skip
    elif auto_pad(call) == "VALID":
        padding = [(0, 0)] * n
    # Negative padding is zeros around the result: at its end more of it, at its start a pad.
    befores, afters = ([pair[k] for pair in padding] for k in (0, 1))
    missing = [max(0, -b) if isinstance(b, int) else 0 for b in befores]
    longer = [max(0, -a) if isinstance(a, int) else 0 for a in afters]
    kept = [(b + m, a + e) for b, m, a, e in zip(befores, missing, afters, longer, strict=True)]
    if not all(known_le(0, side) for pair in kept for side in pair):
        call.refuse(f"padding {tuple(padding)} may be negative, as sizes are open")
    result = make(
        "conv_transpose",
        x,
        w,
        strides=strides,
        padding=tuple(kept),
        output_padding=tuple(m + e for m, e in zip(more, longer, strict=True)),
        dilations=dilations,
        groups=call.attr("group", 1),
    )
    result = pad(result, [(0, 0), (0, 0), *((m, 0) for m in missing)], 0.0)
    return convolution.with_bias(result, bias)


def _wanted(call: Call, x: Node, strides: tuple[int, ...]) -> list[Dim] | None:
    """Sizes of the result, where they decide the padding."""
    shape = call.attr("output_shape")
    if shape:
        if len(shape) < len(strides):
            call.fail(f"output_shape {list(shape)} for {len(strides)} spatial axes")
        return list(shape[len(shape) - len(strides) :])
    if auto_pad(call) in ("SAME_UPPER", "SAME_LOWER"):
        return [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
    return None


@operator("CausalConvWithState")
def causal_conv(call: Call) -> Result:
    x, w, bias, past = call.node(0), call.node(1), call.optional(2), call.optional(3)
    if x.ndim != 3 or w.ndim != 3:
        call.fail(f"weights of shape {w.shape} for an input of shape {x.shape}")
    channels, taps = x.shape[1], w.shape[-1]
    if not isinstance(channels, int) or not isinstance(taps, int):
        call.refuse(f"weights of shape {w.shape} whose sizes are open")
    before = (x.shape[0], channels, taps - 1)
    past = full(before, 0.0, x.dtype) if past is None else past
    if past.shape != before:
        call.fail(f"the past state has shape {past.shape}, not {before}")
    whole = concat([past, x], 2) if taps > 1 else x
    result = convolution.convolved("conv", whole, w, bias, 1, 0, 1, channels)
    activation = call.attr("activation", "none")
    if activation in ("silu", "swish"):
        result = neural.silu(result)
    elif activation != "none":
        call.fail(f"activation is {activation!r}, not silu, swish or none")
    return result, slice_axis(whole, 2, whole.shape[2] - (taps - 1), whole.shape[2])


@operator("Col2Im")
def col2im(call: Call) -> Result:
    x = call.node(0)
    image, block = call.sizes(1), call.integers(2)
    n = len(block)
    strides, dilations = per_axis(call, "strides", n, 1), per_axis(call, "dilations", n, 1)
    pads = pads_of(call, n)
    if any(one < 1 for one in block) or math.prod(block) > MAX_TAPS:
        call.refuse(f"blocks of {block}; at most {MAX_TAPS} elements in one are put together")
    if x.ndim != 3 or len(image) != n or x.shape[1] % product(block) != 0:
        call.fail(f"blocks of {block} for an image of {image} do not fit shape {x.shape}")
    reach = Windows(tuple(block), strides, dilations, ()).reach
    padded = [size + sum(pair) for size, pair in zip(image, pads, strict=True)]
    counts = [(size - r) // s + 1 for size, r, s in zip(padded, reach, strides, strict=True)]
    if x.shape[2] != product(counts):
        call.fail(f"{product(counts)} blocks fit the image, and there are {x.shape[2]}")
    channels = x.shape[1] // product(block)
    columns = reshape(x, (x.shape[0], channels, *block, *counts))
    # Each tap of a block is an image with zeros between its elements; the sum of these is it.
    total: Node | None = None
    for place in places(*(range(size) for size in block)):
        starts = [0, 0, *place, *([0] * n)]
        stops = [*columns.shape[:2], *(at + 1 for at in place), *counts]
        tap = slice_all(columns, starts, stops, [1] * columns.ndim)
        tap = reshape(tap, (x.shape[0], channels, *counts))
        for k, (at, d, s, size) in enumerate(zip(place, dilations, strides, padded, strict=True)):
            tap = _spread(tap, 2 + k, s, at * d, size)
        total = tap if total is None else total + tap
    assert total is not None
    starts = [0, 0, *(before for before, _ in pads)]
    stops = [*total.shape[:2], *(p[0] + size for p, size in zip(pads, image, strict=True))]
    return slice_all(total, starts, stops, [1] * total.ndim)


def _spread(x: Node, axis: int, stride: int, first: Dim, size: Dim) -> Node:
    """Elements at first, first + stride, ... of an axis of a size; zeros elsewhere."""
    count = x.shape[axis]
    if stride > 1:
        shape = x.shape
        x = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        x = pad(x, [(0, stride - 1) if k == axis + 1 else (0, 0) for k in range(x.ndim)])
        x = reshape(x, (*shape[:axis], count * stride, *shape[axis + 1 :]))
        x = slice_axis(x, axis, 0, (count - 1) * stride + 1)
    after = size - first - x.shape[axis]
    return pad(x, [(first, after) if k == axis else (0, 0) for k in range(x.ndim)])


@operator("DeformConv")
def deform_conv(call: Call) -> Result:
    x, w, offset = call.node(0), call.node(1), call.node(2)
    bias, mask = call.optional(3), call.optional(4)
    windows = windows_of(call, x, _kernel(call, w))
    n, groups, sets = x.ndim - 2, call.attr("group", 1), call.attr("offset_group", 1)
    batch, channels = x.shape[:2]
    kernel, counts = windows.kernel, offset.shape[2:]
    taps = product(kernel)
    if offset.shape[1] != sets * taps * n or channels % sets != 0:
        call.fail(f"offsets of shape {offset.shape} in {sets} groups for {taps} taps")
    rank = 3 + 2 * n
    # Offsets are [batch, group, tap, axis, place]; where a tap of a place lies without them is
    # known along one axis of the kernel and one of the places.
    offsets = reshape(offset, (batch, sets, *kernel, n, *counts))
    positions = []
    for k in range(n):
        at = slice_axis(offsets, 2 + n, k, k + 1)
        at = reshape(at, (batch, sets, *kernel, 1, *counts))
        start = iota(counts[k], x.dtype) * float(windows.strides[k])
        start = start - size_like(windows.padding[k][0], start)
        tap = iota(kernel[k], x.dtype) * float(windows.dilations[k])
        fixed = along(tap, 2 + k, rank) + along(start, 3 + n + k, rank)
        positions.append(reshape(at + fixed, (batch * sets, product((*kernel, *counts)))))
    image = reshape(x, (batch * sets, channels // sets, *x.shape[2:]))
    seen = linear_sample(image, positions, "zeros")
    seen = reshape(seen, (batch, sets, channels // sets, *kernel, *counts))
    if mask is not None:
        seen = seen * reshape(mask, (batch, sets, 1, *kernel, *counts))
    # A product for each group: [out, channel * tap] by [channel * tap, place].
    depth = w.shape[1] * taps
    columns = reshape(seen, (batch, groups, depth, product(counts)))
    rows = reshape(w, (1, groups, w.shape[0] // groups, depth))
    result = make("matmul", rows, columns, transpose_a=False, transpose_b=False)
    result = reshape(cast(result, x.dtype), (batch, w.shape[0], *counts))
    return result if bias is None else result + broadcast_to(along(bias, 1, 2 + n), result.shape)
