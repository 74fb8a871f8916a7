"""Images, bags and losses against PyTorch, by the file that judge_torch_images.py wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.tensor import Tensor
from tests.tensor.examples import same

F = Callable[..., Any]

SIZES: dict[str, Any] = {"linear": 11, "bilinear": (4, 9), "bicubic": (8, 3),
                         "trilinear": (3, 5, 4)}  # fmt: skip
REDUCTIONS = ("mean", "sum", "none")


def interpolated(mode: str, corners: bool) -> F:
    return lambda x: x.interpolate(SIZES[mode], mode=mode, align_corners=corners)


def sampled(mode: str, padding: str, corners: bool) -> F:
    return lambda x, g: x.grid_sample(g, mode, padding, corners)


def of_size(mode: str) -> F:
    return lambda x: x.interpolate((9, 4), mode=mode)


def loss(name: str, reduction: str) -> F:
    return lambda x, y: getattr(x, name)(y, reduction=reduction)


def bag(mode: str) -> F:
    return lambda t, *given: t.embedding_bag(*given, mode=mode)


CASES: dict[str, F] = {
    "interpolate_factor": lambda x: x.interpolate(scale_factor=2.5, mode="bilinear"),
    "interpolate_antialias": lambda x: x.interpolate((3, 2), mode="bilinear", antialias=True),
    "interpolate_cubic_antialias": lambda x: x.interpolate((3, 4), mode="bicubic", antialias=True),
    "adaptive_avg1": lambda x: x.adaptive_avg_pool(3),
    "adaptive_avg2": lambda x: x.adaptive_avg_pool((4, 2)),
    "adaptive_avg3": lambda x: x.adaptive_avg_pool((3, 2, 2)),
    "adaptive_max1": lambda x: x.adaptive_max_pool(5),
    "adaptive_max2": lambda x: x.adaptive_max_pool((4, 3)),
    "adaptive_max3": lambda x: x.adaptive_max_pool(2),
    "unfold": lambda x: x.unfold((3, 2), padding=(1, 0), stride=(2, 1)),
    "unfold_dilated": lambda x: x.unfold(2, dilation=2, padding=1),
    "fold": lambda x: x.fold((6, 5), (3, 2), padding=(1, 0), stride=(2, 1)),
    "fold_dilated": lambda x: x.fold((6, 5), 2, dilation=2, padding=1),
    "pixel_shuffle": lambda x: x.pixel_shuffle(2),
    "pixel_unshuffle": lambda x: x.pixel_unshuffle(3),
    "grid_volume": lambda x, g: x.grid_sample(g),
    "normalize": lambda x: x.normalize(),
    "normalize_one": lambda x: x.normalize(1, -1),
    "normalize_largest": lambda x: x.normalize(float("inf"), 2),
    "normalize_zero": lambda x: x.normalize(),
    "cosine": lambda a, b: a.cosine_similarity(b),
    "bag_weights": lambda t, i, w: t.embedding_bag(i, mode="sum", per_sample_weights=w),
    "huber_delta": lambda a, b: a.huber_loss(b, delta=0.3),
    "smooth_beta": lambda a, b: a.smooth_l1_loss(b, beta=0.3),
    "kl_batch": lambda a, b: a.kl_div(b, reduction="batchmean", log_target=True),
    "cross_entropy_shares": lambda a, t: a.cross_entropy(t),
    "cross_entropy_images": lambda a, t: a.cross_entropy(t, ignore_index=2),
}
for _mode in ("nearest", "nearest-exact", "area"):
    CASES[f"interpolate_{_mode}"] = of_size(_mode)
for _corners in (False, True):
    for _mode in SIZES:
        CASES[f"interpolate_{_mode}_{_corners}"] = interpolated(_mode, _corners)
    for _mode in ("bilinear", "nearest", "bicubic"):
        for _padding in ("zeros", "border", "reflection"):
            CASES[f"grid_{_mode}_{_padding}_{_corners}"] = sampled(_mode, _padding, _corners)
for _mode in ("sum", "mean", "max"):
    CASES[f"bag_{_mode}"] = CASES[f"bag_offsets_{_mode}"] = bag(_mode)
for _reduction in REDUCTIONS:
    for _name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
        CASES[f"{_name}_{_reduction}"] = loss(_name, _reduction)
    CASES |= {
        f"bce_{_reduction}": lambda a, b, w, r=_reduction: a.binary_cross_entropy(b, w, r),
        f"bce_logits_{_reduction}": lambda a, b, w, p, r=_reduction: (
            a.binary_cross_entropy_with_logits(b, w, r, p)
        ),
        f"kl_{_reduction}": lambda a, b, r=_reduction: a.kl_div(b, r),
        f"nll_{_reduction}": lambda a, t, w, r=_reduction: a.nll_loss(t, w, reduction=r),
        f"cross_entropy_{_reduction}": lambda a, t, w, r=_reduction: a.cross_entropy(
            t, w, reduction=r, label_smoothing=0.1
        ),
    }


@cache
def reference() -> dict[str, NDArray[Any]]:
    with np.load(Path(__file__).with_name("torch_images.npz")) as file:
        return dict(file)


def test_every_case_of_the_file_is_tried() -> None:
    assert {name.split("/")[0] for name in reference()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    arrays = reference()
    inputs = [Tensor(arrays[f"{name}/{i}"]) for i in range(9) if f"{name}/{i}" in arrays]
    same(CASES[name](*inputs), arrays[f"{name}/expected"], tolerance=2e-5)
