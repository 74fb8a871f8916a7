"""Operators on images and boxes in them: Resize, Upsample, GridSample, AffineGrid, RoiAlign,
NonMaxSuppression, ImageDecoder.
"""

from __future__ import annotations

from fractions import Fraction
from io import BytesIO

import numpy as np

from arenite.dtype import FLOAT32, FLOAT64, INT64, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.structure import same_sized
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node, full, make, product
from arenite.ir.compose.basic import (
    broadcast_to,
    cast,
    concat,
    iota,
    reshape,
    size_like,
    slice_axis,
)
from arenite.ir.compose.interpolation import Axis, Method, resize
from arenite.ir.compose.sampling import align, sample
from arenite.ir.compose.suppression import suppressed

#: Denominators of scales that sizes which are no numbers yet are multiplied with.
MAX_DENOMINATOR = 64


@operator("Resize", since=11)
def resize_11(call: Call) -> Result:
    x = call.value(0)
    ndim = x.ndim
    given = call.attr("axes")
    axes = list(range(ndim)) if given is None else call.axes(given, ndim)
    sizes: list[Dim] | None = None
    if call.has(3) and call.value(3).shape != (0,):
        sizes = call.sizes(3)
    scales = None if sizes is not None else [float(s) for s in call.known(2).reshape(-1)]
    for what, one in (("sizes", sizes), ("scales", scales)):
        if one is not None and len(one) != len(axes):
            call.fail(f"{len(one)} {what} for {len(axes)} axes")
    method = Method(
        mode=call.attr("mode", "nearest"),
        coordinates=call.attr("coordinate_transformation_mode", "half_pixel"),
        rounding=call.attr("nearest_mode", "round_prefer_floor"),
        cubic=call.attr("cubic_coeff_a", -0.75),
        antialias=bool(call.attr("antialias", 0)),
        exclude_outside=bool(call.attr("exclude_outside", 0)),
        outside=call.attr("extrapolation_value", 0.0),
    )
    if sizes is not None:
        targets = _kept_aspect(call, x.shape, axes, sizes)
    else:
        assert scales is not None
        targets = [(_scaled(call, x.shape[a], s), s) for a, s in zip(axes, scales, strict=True)]
    made = [Axis(axis, size, scale) for axis, (size, scale) in zip(axes, targets, strict=True)]
    if method.coordinates == "tf_crop_and_resize":
        made = _with_part(call, made)
    return resize(x.node, made, method)


def _with_part(call: Call, axes: list[Axis]) -> list[Axis]:
    """Axes with the part of each that is read."""
    part = cast(call.node(1), FLOAT64)
    if part.shape != (2 * len(axes),):
        call.fail(f"roi has shape {part.shape}: a start and a stop for each of {len(axes)} axes")
    ends = [reshape(slice_axis(part, 0, k, k + 1), ()) for k in range(2 * len(axes))]
    return [
        Axis(one.axis, one.size, one.scale, ends[k], ends[len(axes) + k])
        for k, one in enumerate(axes)
    ]


def _scaled(call: Call, size: Dim, scale: float) -> Dim:
    """The size of the result, rounded down."""
    if not scale > 0 or scale == float("inf"):
        call.fail(f"a scale is {scale}")
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    ratio = Fraction(scale)
    if ratio.denominator > MAX_DENOMINATOR:
        call.refuse(f"a scale of {scale} for an axis of open size {size}; give the axis a size")
    return size * ratio.numerator // ratio.denominator


def _kept_aspect(
    call: Call, shape: tuple[Dim, ...], axes: list[int], sizes: list[Dim]
) -> list[tuple[Dim, float | None]]:
    """Sizes of the result, and scales where these are not the sizes'."""
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [(size, None) for size in sizes]
    if policy not in ("not_larger", "not_smaller"):
        call.fail(f"keep_aspect_ratio_policy is {policy!r}")
    old = [shape[axis] for axis in axes]
    fixed = [one for one in (*old, *sizes) if isinstance(one, int)]
    if len(fixed) != 2 * len(axes):
        call.refuse(f"{policy} needs sizes that are numbers, not {old} and {sizes}")
    n = len(axes)
    if 0 in fixed[:n]:
        call.fail(f"an image of sizes {old} has no aspect")
    ratios = [new / was for was, new in zip(fixed[:n], fixed[n:], strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [(int(scale * was + 0.5), scale) for was in fixed[:n]]


@operator("Resize", since=10)
@operator("Upsample", since=9)
def upsample(call: Call) -> Result:
    return _upsampled(call, [float(one) for one in call.known(1).reshape(-1)])


@operator("Upsample", since=7)
def upsample_7(call: Call) -> Result:
    return _upsampled(call, call.need_attr("scales"))


def _upsampled(call: Call, scales: list[float]) -> Node:
    x = call.node(0)
    if len(scales) != x.ndim:
        call.fail(f"{len(scales)} scales for {x.ndim} axes")
    mode = {"bilinear": "linear"}.get(call.attr("mode", "nearest"), call.attr("mode", "nearest"))
    axes = [Axis(k, _scaled(call, x.shape[k], s), s) for k, s in enumerate(scales)]
    return resize(x, axes, Method(mode, "asymmetric", "floor"))


@operator("GridSample", since=16)
def grid_sample(call: Call) -> Result:
    x, grid = call.node(0), call.node(1)
    n = x.ndim - 2
    if n < 1 or grid.ndim != n + 2 or grid.shape[-1] != n:
        call.fail(f"a grid of shape {grid.shape} for an image of shape {x.shape}")
    mode = call.attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    padding = call.attr("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic"):
        call.fail(f"mode is {mode!r}, not linear, nearest or cubic")
    if padding not in ("zeros", "border", "reflection"):
        call.fail(f"padding_mode is {padding!r}, not zeros, border or reflection")
    corners = bool(call.attr("align_corners", 0))
    batch, places = grid.shape[0], grid.shape[1:-1]
    positions = []
    for k in range(n):
        # The last axis of the image comes first in the grid.
        at = slice_axis(grid, n + 1, n - 1 - k, n - k)
        at = cast(reshape(at, (batch, product(places))), _wide(grid))
        size = size_like(x.shape[2 + k], at)
        from_left = at + 1.0
        inner = from_left * 0.5 * (size - 1.0) if corners else (from_left * size - 1.0) * 0.5
        positions.append(inner)
    is_float = x.dtype.kind.value == "float"
    image = x if is_float or mode == "nearest" else cast(x, FLOAT32)
    if not is_float and mode == "nearest":
        image = cast(x, FLOAT64)
    made = sample(image, positions, mode, padding, corners)
    return cast(reshape(made, (batch, x.shape[1], *places)), x.dtype)


def _wide(x: Node) -> DType:
    return x.dtype if x.dtype.bits >= 32 else FLOAT32


@operator("AffineGrid", since=20)
def affine_grid(call: Call) -> Result:
    theta = call.node(0)
    given = call.sizes(1)
    sizes = given[2:]
    n = len(sizes)
    if n not in (2, 3) or theta.shape[1:] != (n, n + 1):
        call.fail(f"matrices of shape {theta.shape} for an image of {n} axes")
    if theta.ndim != 3 or theta.shape[0] != given[0]:
        call.fail(f"{theta.shape[0]} matrices for {given[0]} images")
    wide = theta if theta.dtype.bits >= 32 else cast(theta, FLOAT32)
    corners = bool(call.attr("align_corners", 0))
    # Coordinates in the order x, y, z: the last axis first; then 1.
    rows = []
    for k in reversed(range(n)):
        steps = iota(sizes[k], wide.dtype)
        size = size_like(sizes[k], steps)
        if corners:
            away = make("maximum", size - 1.0, full((), 1.0, wide.dtype))
            at = steps * 2.0 / away - 1.0
        else:
            at = (steps * 2.0 + 1.0) / size - 1.0
        shape: list[Dim] = [1] * n
        shape[k] = sizes[k]
        rows.append(broadcast_to(reshape(at, (*shape, 1)), (*sizes, 1)))
    ones = full((*sizes, 1), 1.0, wide.dtype)
    points = reshape(concat([*rows, ones], n), (1, product(sizes), n + 1))
    made = make("matmul", points, wide, transpose_a=False, transpose_b=True)
    return cast(reshape(made, (given[0], *sizes, n)), theta.dtype)


@operator("RoiAlign", since=10)
def roi_align(call: Call) -> Result:
    default = "output_half_pixel" if call.version < 16 else "half_pixel"
    coordinates = call.attr("coordinate_transformation_mode", default)
    mode = call.attr("mode", "avg")
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        call.fail(f"mode {mode!r} with coordinates {coordinates!r}")
    x, rois, images = call.node(0), call.node(1), call.node(2)
    if rois.ndim and images.ndim:
        rois, images = same_sized(call, rois, 0, images, 0)
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1]:
        call.fail(f"image {x.shape}, regions {rois.shape} and their images {images.shape}")
    return align(
        x,
        rois,
        images,
        (call.attr("output_height", 1), call.attr("output_width", 1)),
        scale=call.attr("spatial_scale", 1.0),
        samples=call.attr("sampling_ratio", 0),
        shifted=coordinates == "half_pixel",
        largest=mode == "max",
    )


@operator("ImageDecoder", since=20)
def image_decoder(call: Call) -> Result:
    """The size of an image is part of its bytes, so these decide structure."""
    encoded = call.known(0)
    form = call.attr("pixel_format", "RGB")
    try:
        from PIL import Image
    except ImportError:
        call.refuse("images are decoded by the package Pillow: pip install pillow")
    try:
        image = Image.open(BytesIO(encoded.tobytes()))
        if form == "Grayscale":
            return Value.of_known(np.asarray(image.convert("L"), np.uint8)[..., None])
        pixels = np.asarray(image.convert("RGB"), np.uint8)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        call.fail(f"the image cannot be decoded: {error}")
    if form not in ("RGB", "BGR"):
        call.fail(f"pixel_format is {form!r}, not RGB, BGR or Grayscale")
    return Value.of_known(np.ascontiguousarray(pixels[..., ::-1] if form == "BGR" else pixels))


@operator("NonMaxSuppression", since=10)
def non_max_suppression(call: Call) -> Result:
    boxes, scores = call.node(0), call.node(1)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
        call.fail(f"boxes of shape {boxes.shape} and scores of shape {scores.shape}")
    boxes, scores = same_sized(call, boxes, 1, scores, 2)
    if boxes.shape[:2] != (scores.shape[0], scores.shape[2]):
        call.fail(f"boxes of shape {boxes.shape} for scores of shape {scores.shape}")
    count = call.size(2) if call.has(2) else 0
    if isinstance(count, int) and count < 1:
        return full((0, 3), 0, INT64)
    overlap = call.optional(3)
    least = call.optional(4)
    return suppressed(
        boxes,
        scores,
        count,
        full((), 0.0, boxes.dtype) if overlap is None else reshape(cast(overlap, boxes.dtype), ()),
        None if least is None else reshape(cast(least, scores.dtype), ()),
        centred=bool(call.attr("center_point_box", 0)),
    )
