"""Writes `torch_images.npz`: what PyTorch makes of images, bags and losses, for tests beside it.

    python tests/tensor/judge_torch_images.py

Made with PyTorch 2.13.0 on the CPU; the arrays are called as those of `judge_torch.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from tests.tensor import judge_torch
from tests.tensor.judge_torch import case, normal


def images() -> None:
    line, image, volume = normal(2, 3, 7), normal(2, 3, 6, 5), normal(1, 2, 4, 3, 5)
    for mode in ("nearest", "nearest-exact", "area"):
        case(f"interpolate_{mode}", lambda x, m=mode: F.interpolate(x, (9, 4), mode=m), image)
    for mode, x, size in (
        ("linear", line, 11),
        ("bilinear", image, (4, 9)),
        ("bicubic", image, (8, 3)),
        ("trilinear", volume, (3, 5, 4)),
    ):
        for corners in (False, True):
            case(
                f"interpolate_{mode}_{corners}",
                lambda x, s=size, m=mode, c=corners: F.interpolate(x, s, mode=m, align_corners=c),
                x,
            )
    case("interpolate_factor", lambda x: F.interpolate(x, scale_factor=2.5, mode="bilinear"), image)
    case(
        "interpolate_antialias",
        lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True),
        image,
    )
    case(
        "interpolate_cubic_antialias",
        lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True),
        image,
    )
    case("adaptive_avg1", lambda x: F.adaptive_avg_pool1d(x, 3), line)
    case("adaptive_avg2", lambda x: F.adaptive_avg_pool2d(x, (4, 2)), image)
    case("adaptive_avg3", lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)), volume)
    case("adaptive_max1", lambda x: F.adaptive_max_pool1d(x, 5), line)
    case("adaptive_max2", lambda x: F.adaptive_max_pool2d(x, (4, 3)), image)
    case("adaptive_max3", lambda x: F.adaptive_max_pool3d(x, 2), volume)
    case("unfold", lambda x: F.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1)), image)
    case("unfold_dilated", lambda x: F.unfold(x, 2, dilation=2, padding=1), image)
    case(
        "fold",
        lambda x: F.fold(x, (6, 5), (3, 2), padding=(1, 0), stride=(2, 1)),
        normal(2, 18, 12),
    )
    case("fold_dilated", lambda x: F.fold(x, (6, 5), 2, dilation=2, padding=1), normal(2, 12, 30))
    case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), normal(2, 12, 3, 2))
    case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 3), normal(1, 2, 6, 9))
    grid = 1.4 * normal(2, 4, 3, 2)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                case(
                    f"grid_{mode}_{padding}_{corners}",
                    lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, m, p, c),
                    image,
                    grid,
                )
    places = normal(1, 2, 3, 2, 3)
    case("grid_volume", lambda x, g: F.grid_sample(x, g, align_corners=False), volume, places)
    case("normalize", F.normalize, image)
    case("normalize_one", lambda x: F.normalize(x, 1, -1), image)
    case("normalize_largest", lambda x: F.normalize(x, float("inf"), 2), image)
    case("normalize_zero", F.normalize, torch.zeros(2, 3))
    case("cosine", lambda a, b: F.cosine_similarity(a, b), image, normal(2, 3, 6, 5))


def bags() -> None:
    table = normal(7, 4)
    matrix, vector = torch.tensor([[0, 3, 3], [6, 1, 2]]), torch.tensor([1, 5, 5, 0, 2, 6])
    offsets = torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        case(f"bag_{mode}", lambda t, i, m=mode: F.embedding_bag(i, t, mode=m), table, matrix)
        case(
            f"bag_offsets_{mode}",
            lambda t, i, o, m=mode: F.embedding_bag(i, t, o, mode=m),
            table,
            vector,
            offsets,
        )
    case(
        "bag_weights",
        lambda t, i, w: F.embedding_bag(i, t, mode="sum", per_sample_weights=w),
        table,
        matrix,
        normal(2, 3),
    )


def losses() -> None:
    x, y = normal(5, 4), normal(5, 4)
    share, truth = torch.sigmoid(x), (y > 0).float()
    for reduction in ("mean", "sum", "none"):
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
            function = getattr(F, name)
            case(f"{name}_{reduction}", lambda a, b, f=function, r=reduction: f(a, b, reduction=r),
                 x, y)  # fmt: skip
        case(f"bce_{reduction}", lambda a, b, w, r=reduction: F.binary_cross_entropy(
            a, b, w, reduction=r), share, truth, share)  # fmt: skip
        case(f"bce_logits_{reduction}",
             lambda a, b, w, p, r=reduction: F.binary_cross_entropy_with_logits(
                 a, b, w, reduction=r, pos_weight=p), 5 * x, truth, share,
             torch.rand(4, generator=judge_torch.generator))  # fmt: skip
        logs, wanted = F.log_softmax(x, 1), F.softmax(y, 1)
        case(f"kl_{reduction}", lambda a, b, r=reduction: F.kl_div(a, b, reduction=r), logs, wanted)
        classes = torch.tensor([0, 3, -100, 2, 1])
        weight = torch.rand(4, generator=judge_torch.generator)
        case(f"nll_{reduction}", lambda a, t, w, r=reduction: F.nll_loss(a, t, w, reduction=r),
             logs, classes, weight)  # fmt: skip
        case(f"cross_entropy_{reduction}", lambda a, t, w, r=reduction: F.cross_entropy(
            a, t, w, reduction=r, label_smoothing=0.1), x, classes, weight)  # fmt: skip
    case("huber_delta", lambda a, b: F.huber_loss(a, b, delta=0.3), x, y)
    case("smooth_beta", lambda a, b: F.smooth_l1_loss(a, b, beta=0.3), x, y)
    case("kl_batch", lambda a, b: F.kl_div(a, b, reduction="batchmean", log_target=True),
         F.log_softmax(x, 1), F.log_softmax(y, 1))  # fmt: skip
    case("cross_entropy_shares", lambda a, t: F.cross_entropy(a, t), x, F.softmax(y, 1))
    case("cross_entropy_images", lambda a, t: F.cross_entropy(a, t, ignore_index=2),
         normal(2, 4, 3), torch.tensor([[0, 2, 1], [3, 3, 2]]))  # fmt: skip


def main() -> None:
    images()
    bags()
    losses()
    path = Path(__file__).with_name("torch_images.npz")
    np.savez_compressed(path, **judge_torch.arrays)
    print(f"{path}: {len(judge_torch.arrays)} arrays, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
