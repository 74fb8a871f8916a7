"""What convolutions and pools have in common: kernels, strides, dilations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.frontends.onnx.call import Call
from arenite.ir import Dim, Node, ceildiv, maximum
from arenite.ir.compose.basic import slice_all


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
    if len(given) != n or any(one < least for one in given):
        call.fail(f"{name} {list(given)} are not {n} numbers of at least {least}")
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
