"""Images of other sizes and in pieces, and tables looked up: torch's functional names.

Images are [N, C, *S] with one to three spatial axes, unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from arenite.dtype import INT64
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir import Dim, Node, constant, full, make, product
from arenite.ir.compose import basic, neural
from arenite.ir.compose import convolution as conv
from arenite.ir.compose.basic import cast, computing, size_like
from arenite.ir.compose.convolution import PerAxis
from arenite.ir.compose.interpolation import Axis, Method, resize
from arenite.ir.compose.linear import tensordot
from arenite.ir.compose.reductions import reduce
from arenite.ir.compose.sampling import sample
from arenite.tensor.base import axis_of, described, node_of
from arenite.tensor.elementwise import Operators
from arenite.tensor.indexing import IndexingMethods
from arenite.tensor.promote import INTEGERS, float_dtype
from arenite.tensor.reductions import ReductionMethods

#: How torch calls the modes, and what they are here, with the spatial axes they go with.
_MODES = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
_SAMPLES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")


class ResamplingMethods(Operators, IndexingMethods, ReductionMethods):
    __slots__ = ()

    def _spatial(self, what: str, n: int | None = None) -> tuple[Dim, ...]:
        if self.ndim < 3 or (n is not None and self.ndim != n + 2):
            axes = "spatial axes" if n is None else f"{n} spatial axes"
            raise ShapeMismatch(
                f"{what}: [N, C] and {axes} are needed, not {described(self._node)}"
            )
        return self.shape[2:]

    def interpolate(
        self,
        size: PerAxis | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> Self:
        """An image of another size, given for each axis or as a factor. Modes are "nearest",
        "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" and "area".

        x.interpolate(scale_factor=2, mode="bilinear")
        """
        spatial = self._spatial("interpolate")
        n = len(spatial)
        if (size is None) == (scale_factor is None):
            raise InvalidArgument("interpolate: either size or scale_factor is needed")
        scales: list[float | None] = [None] * n
        if scale_factor is not None:
            factors = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * n
            scales = [float(factor) for factor in factors]
            if len(scales) != n or any(not isinstance(s, int) for s in spatial):
                raise ShapeMismatch(
                    f"interpolate: {scale_factor} does not go with the sizes of "
                    f"{described(self._node)}"
                )
            sizes = [
                math.floor(s * f)
                for s, f in zip((s for s in spatial if isinstance(s, int)), factors, strict=True)
            ]
        else:
            sizes = list(conv.per_axis("size", size, n))  # type: ignore[arg-type]
        if mode == "area":
            return self.adaptive_avg_pool(sizes)
        if mode in _MODES and n not in _MODES[mode]:
            raise ShapeMismatch(
                f"interpolate: {mode!r} is of {_MODES[mode][0]} spatial axes, not {n}"
            )
        if mode == "nearest":
            method = Method("nearest", "asymmetric", "floor")
        elif mode == "nearest-exact":
            method = Method("nearest", "half_pixel", "round_prefer_ceil")
        elif mode in _MODES:
            coordinates = "align_corners" if align_corners else "half_pixel"
            kind = "cubic" if mode == "bicubic" else "linear"
            # Widened filters are those of Pillow: another cubic, and nothing beyond the border.
            cubic = -0.5 if antialias else -0.75
            method = Method(kind, coordinates, "floor", cubic, antialias, exclude_outside=antialias)
        else:
            known = ", ".join(("nearest", "nearest-exact", "area", *_MODES))
            raise InvalidArgument(f"interpolate: mode is one of {known}, not {mode!r}")
        axes = [Axis(k + 2, s, f) for k, (s, f) in enumerate(zip(sizes, scales, strict=True))]
        return self._new(resize(self._node, axes, method))

    def adaptive_avg_pool(self, size: PerAxis) -> Self:
        """The means of as many windows as `size` says, which cover each spatial axis."""
        node = computing(cast(self._node, float_dtype(self.dtype)))
        for axis, (start, stop) in self._windows(size).items():
            weights = np.zeros((stop[-1], len(start)))
            for k, (first, behind) in enumerate(zip(start, stop, strict=True)):
                weights[first:behind, k] = 1 / (behind - first)
            by = cast(constant(weights), node.dtype)
            node = basic.swap_axes(
                tensordot(basic.swap_axes(node, axis, node.ndim - 1), by, [node.ndim - 1], [0]),
                axis,
                node.ndim - 1,
            )
        return self._new(cast(node, float_dtype(self.dtype)))

    def adaptive_max_pool(self, size: PerAxis) -> Self:
        """The largest of as many windows as `size` says, which cover each spatial axis."""
        node = self._node
        for axis, (start, stop) in self._windows(size).items():
            widest = max(behind - first for first, behind in zip(start, stop, strict=True))
            # Shorter windows read their last element again.
            places = np.minimum(
                np.array(start)[:, None] + np.arange(widest), np.array(stop)[:, None] - 1
            )
            windows = make("gather", node, constant(places), axis=axis)
            node = reduce("max", windows, [axis + 1])
        return self._new(node)

    def _windows(self, size: PerAxis) -> dict[int, tuple[list[int], list[int]]]:
        """For each axis where windows start and stop."""
        spatial = self._spatial("adaptive pooling")
        found = {}
        counts = conv.per_axis("size", size, len(spatial))
        for axis, (count, length) in enumerate(zip(counts, spatial, strict=True), 2):
            if not isinstance(length, int) or count < 1 or length < 1:
                raise ShapeMismatch(f"adaptive pooling of {described(self._node)} to size {size}")
            start = [k * length // count for k in range(count)]
            found[axis] = (start, [-(-(k + 1) * length // count) for k in range(count)])
        return found

    def unfold(
        self, kernel: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
    ) -> Self:
        """Windows of an image [N, C, H, W] as columns: [N, C * kernel elements, windows]."""
        self._spatial("unfold", 2)
        sizes, strides, dilations = (
            conv.per_axis(name, given, 2)
            for name, given in (("kernel", kernel), ("stride", stride), ("dilation", dilation))
        )
        pads = [(p, p) for p in conv.per_axis("padding", padding, 2)]
        view = neural.windows(self._node, sizes, strides, pads, dilations, 0)
        n, c, rows, columns = view.shape[:4]
        laid = basic.permute(view, (0, 1, 4, 5, 2, 3))
        return self._new(basic.reshape(laid, (n, c * math.prod(sizes), rows * columns)))

    def fold(
        self,
        output_size: PerAxis,
        kernel: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> Self:
        """The image whose `unfold` has these columns, summed where windows overlap."""
        out, sizes, strides, dilations, pads = (
            conv.per_axis(name, given, 2)
            for name, given in (
                ("output_size", output_size),
                ("kernel", kernel),
                ("stride", stride),
                ("dilation", dilation),
                ("padding", padding),
            )
        )
        padded = [o + 2 * p for o, p in zip(out, pads, strict=True)]
        counts = [
            (whole - d * (k - 1) - 1) // s + 1
            for whole, k, s, d in zip(padded, sizes, strides, dilations, strict=True)
        ]
        if self.ndim != 3 or self.shape[1:] != (
            self.shape[1] // math.prod(sizes) * math.prod(sizes),
            math.prod(counts),
        ):
            raise ShapeMismatch(
                f"fold: {described(self._node)} is not [N, C * {math.prod(sizes)}, "
                f"{math.prod(counts)}], which windows of {sizes} in an image of {out} give"
            )
        along = [
            np.arange(k)[:, None] * d + np.arange(count) * s
            for k, d, s, count in zip(sizes, dilations, strides, counts, strict=True)
        ]
        flat = along[0][:, None, :, None] * padded[1] + along[1][None, :, None, :]
        batch, channels = self.shape[0], self.shape[1] // math.prod(sizes)
        columns = basic.reshape(self._node, (batch, channels, flat.size))
        places = basic.broadcast_to(constant(flat.reshape(-1)), columns.shape)
        room = full((batch, channels, math.prod(padded)), 0, self.dtype)
        summed = make("scatter_elements", room, places, columns, axis=2, reduction="add")
        image = basic.reshape(summed, (batch, channels, *padded))
        for axis, (o, p) in enumerate(zip(out, pads, strict=True), 2):
            image = basic.slice_axis(image, axis, p, p + o)
        return self._new(image)

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """[N, C * r * r, H, W] as [N, C, H * r, W * r]: channels become pixels."""
        r = upscale_factor
        height, width = self._spatial("pixel_shuffle", 2)
        if r < 1 or self.shape[1] % (r * r) != 0:
            raise ShapeMismatch(f"pixel_shuffle: {described(self._node)} by {r}")
        n, channels = self.shape[0], self.shape[1] // (r * r)
        split = basic.reshape(self._node, (n, channels, r, r, height, width))
        laid = basic.permute(split, (0, 1, 4, 2, 5, 3))
        return self._new(basic.reshape(laid, (n, channels, height * r, width * r)))

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """The inverse of `pixel_shuffle`."""
        r = downscale_factor
        height, width = self._spatial("pixel_unshuffle", 2)
        if r < 1 or height % r != 0 or width % r != 0:
            raise ShapeMismatch(f"pixel_unshuffle: {described(self._node)} by {r}")
        n, channels = self.shape[:2]
        split = basic.reshape(self._node, (n, channels, height // r, r, width // r, r))
        laid = basic.permute(split, (0, 1, 3, 5, 2, 4))
        return self._new(basic.reshape(laid, (n, channels * (r * r), height // r, width // r)))

    def grid_sample(
        self,
        grid: object,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Self:
        """The image at the places of a grid [N, *places, axes], from -1 to 1 along each axis, the
        last axis first. Modes are "bilinear" (of three axes too), "nearest" and "bicubic"; beyond
        the border are "zeros", the "border" itself or its "reflection"."""
        x, places = cast(self._node, float_dtype(self.dtype)), node_of(grid)
        n = len(self._spatial("grid_sample"))
        if places.ndim != n + 2 or places.shape[-1] != n or places.shape[0] != x.shape[0]:
            raise ShapeMismatch(f"grid_sample: a grid {described(places)} for {described(x)}")
        if mode not in _SAMPLES or padding_mode not in _PADDINGS:
            raise InvalidArgument(
                f"grid_sample: mode is one of {', '.join(_SAMPLES)} and padding_mode one of "
                f"{', '.join(_PADDINGS)}, not {mode!r} and {padding_mode!r}"
            )
        around = places.shape[1:-1]
        positions = []
        for k in range(n):
            at = basic.slice_axis(places, n + 1, n - 1 - k, n - k)
            at = computing(basic.reshape(at, (x.shape[0], product(around))))
            count = size_like(x.shape[2 + k], at)
            if align_corners:
                positions.append((at + 1.0) * 0.5 * (count - 1.0))
            else:
                positions.append(((at + 1.0) * count - 1.0) * 0.5)
        made = sample(x, positions, _SAMPLES[mode], padding_mode, align_corners)
        return self._new(basic.reshape(made, (x.shape[0], x.shape[1], *around)))

    def normalize(self, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Self:
        """x over its p-norm along an axis, which is taken to be at least `eps`."""
        sizes = self._new(cast(self._node, float_dtype(self.dtype))).abs()
        if p == math.inf:
            norm = sizes.max(axis, keepdims=True)
        elif p == 2:
            norm = (sizes * sizes).sum(axis, keepdims=True).sqrt()
        else:
            norm = (sizes**p).sum(axis, keepdims=True) ** (1 / p)
        return self / norm.maximum(eps)

    def embedding_bag(
        self,
        indices: object,
        offsets: object = None,
        mode: str = "mean",
        per_sample_weights: object = None,
    ) -> Self:
        """Rows of this table, summed ("sum"), averaged ("mean") or the largest of each ("max") over
        bags: the rows of a matrix of indices, or of a vector cut at `offsets`. Of an empty bag
        0."""
        if mode not in ("sum", "mean", "max") or (per_sample_weights is not None and mode != "sum"):
            raise InvalidArgument(
                "embedding_bag: mode is 'sum', 'mean' or 'max', and weights go with 'sum', not "
                f"{mode!r}"
            )
        places = node_of(indices)
        if places.dtype.kind not in INTEGERS or self.ndim != 2:
            raise InvalidArgument(
                f"embedding_bag: rows of a matrix by integers, not {described(self._node)} by "
                f"{described(places)}"
            )
        rows = self.take(self._new(places), 0)
        if per_sample_weights is not None:
            weights = self._new(cast(node_of(per_sample_weights), self.dtype))
            rows = rows * weights.expand_dims(-1)
        if places.ndim == 2 and offsets is None:
            if places.shape[1] == 0:
                return self._new(full((places.shape[0], self.shape[1]), 0, self.dtype))
            if mode == "max":
                return rows.max(1)
            return rows.sum(1) if mode == "sum" else rows.mean(1)
        if places.ndim != 1 or offsets is None:
            raise ShapeMismatch("embedding_bag: a matrix of indices, or a vector and offsets")
        return self._bags(rows, cast(node_of(offsets), INT64), mode)

    def _bags(self, rows: Self, offsets: Node, mode: str) -> Self:
        """Each row goes to the last bag that begins before it."""
        n, width = rows.shape
        bags = offsets.shape[0]
        counted = basic.broadcast_to(basic.along(basic.iota(n), 0, 2), (n, bags))
        begun = cast(counted >= basic.broadcast_to(offsets, (n, bags)), INT64)
        own = reduce("sum", begun, [1]) - 1
        at = basic.broadcast_to(basic.along(own, 0, 2), (n, width))
        room = full((bags, width), 0, self.dtype)
        ones = full((n, width), 1, self.dtype)
        how = "max" if mode == "max" else "add"
        if mode == "max":
            room = full((bags, width), -math.inf, self.dtype)
        made = make("scatter_elements", room, at, rows.node, axis=0, reduction=how)
        zeros = full((bags, width), 0, self.dtype)
        counts = make("scatter_elements", zeros, at, ones, axis=0, reduction="add")
        if mode == "mean":
            made = made / basic.binary("maximum", counts, 1.0)
        is_empty = basic.binary("eq", counts, 0.0)
        return self._new(basic.where(is_empty, 0.0, made) if mode == "max" else made)

    def cosine_similarity(self, other: object, axis: int = 1, eps: float = 1e-8) -> Self:
        """The cosine of the angle between vectors along an axis; lengths are at least `eps`."""
        x, y = self, self._new(node_of(other))
        at = axis_of(axis, self.ndim)
        lengths = [(t * t).sum(at).sqrt().maximum(eps) for t in (x, y)]
        return (x * y).sum(at) / (lengths[0] * lengths[1])
