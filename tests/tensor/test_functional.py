"""torch's functional names, against plain loops over NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import InvalidArgument, ShapeMismatch

RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((2, 3, 5, 7)).astype(np.float32)
LOGITS = RNG.standard_normal((6, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, -100, 2, 3])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25], np.float32)
X = arenite.asarray(IMAGE)


def test_adaptive_pools_cover_each_axis() -> None:
    for size in ((2, 3), (4, 4), (5, 7)):
        for name, reduce in (("adaptive_avg_pool", np.mean), ("adaptive_max_pool", np.max)):
            made = getattr(X, name)(size).numpy()
            for i in range(size[0]):
                for k in range(size[1]):
                    rows = slice(i * 5 // size[0], -(-(i + 1) * 5 // size[0]))
                    columns = slice(k * 7 // size[1], -(-(k + 1) * 7 // size[1]))
                    wanted = reduce(IMAGE[:, :, rows, columns], axis=(2, 3))
                    np.testing.assert_allclose(made[:, :, i, k], wanted, atol=1e-6)


def test_columns_of_windows_and_back() -> None:
    columns = X.unfold((2, 3), stride=(1, 2), padding=1).numpy()
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    n_columns = (9 - 3) // 2 + 1
    for at in range(columns.shape[2]):
        i, k = at // n_columns, at % n_columns * 2
        window = padded[:, :, i : i + 2, k : k + 3].reshape(2, -1)
        np.testing.assert_array_equal(columns[:, :, at], window)
    summed = arenite.asarray(columns).fold((5, 7), (2, 3), stride=(1, 2), padding=1).numpy()
    ones = arenite.ones(IMAGE.shape, "float32").unfold((2, 3), stride=(1, 2), padding=1)
    times = ones.fold((5, 7), (2, 3), stride=(1, 2), padding=1).numpy()
    np.testing.assert_allclose(summed, IMAGE * times, rtol=1e-6)
    with pytest.raises(ShapeMismatch, match="fold"):
        arenite.asarray(columns).fold((9, 9), 2)


def test_channels_become_pixels_and_back() -> None:
    x = RNG.standard_normal((1, 8, 2, 3))
    made = arenite.asarray(x).pixel_shuffle(2)
    for i in range(4):
        for k in range(6):
            place = (i % 2) * 2 + k % 2
            np.testing.assert_array_equal(made.numpy()[0, :, i, k], x[0, place::4, i // 2, k // 2])
    np.testing.assert_array_equal(made.pixel_unshuffle(2).numpy(), x)


def test_images_of_other_sizes() -> None:
    nearest = X.interpolate(size=(10, 3)).numpy()
    rows, columns = np.arange(10) * 5 // 10, np.arange(3) * 7 // 3
    np.testing.assert_array_equal(nearest, IMAGE[:, :, rows][:, :, :, columns])
    linear = X.interpolate(scale_factor=(1, 2), mode="bilinear", align_corners=True).numpy()
    at = np.linspace(0, 6, 14)
    wanted = np.stack([[[np.interp(at, np.arange(7), r) for r in c] for c in n] for n in IMAGE])
    np.testing.assert_allclose(linear, wanted, atol=1e-5)
    whole = np.stack(np.meshgrid(np.linspace(-1, 1, 7), np.linspace(-1, 1, 5)), -1)
    grid = np.tile(whole, (2, 1, 1, 1)).astype(np.float32)
    np.testing.assert_allclose(X.grid_sample(grid, align_corners=True).numpy(), IMAGE, atol=1e-5)
    with pytest.raises(InvalidArgument, match="mode is one of"):
        X.interpolate(size=4, mode="best")


def test_bags_of_rows() -> None:
    table = RNG.standard_normal((6, 3)).astype(np.float32)
    indices, offsets = np.array([1, 4, 5, 0, 2]), np.array([0, 2, 2, 4])
    for mode, reduce in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        made = arenite.asarray(table).embedding_bag(indices, offsets, mode).numpy()
        for bag, (start, stop) in enumerate(zip(offsets, [2, 2, 4, 5], strict=True)):
            rows = table[indices[start:stop]]
            wanted = reduce(rows, axis=0) if len(rows) else np.zeros(3)
            np.testing.assert_allclose(made[bag], wanted, atol=1e-6)


def test_vectors_of_length_one() -> None:
    wanted = IMAGE / np.linalg.norm(IMAGE, axis=1, keepdims=True)
    np.testing.assert_allclose(X.normalize().numpy(), wanted, atol=1e-6)
    same = X.cosine_similarity(IMAGE * 3).numpy()
    np.testing.assert_allclose(same, np.ones((2, 5, 7)), atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_cross_entropy_by_its_definition(smoothing: float, weight: Any) -> None:
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    by = np.ones(4) if weight is None else weight
    losses, counts = [], []
    for row, label in zip(np.log(shares), LABELS, strict=True):
        if label == -100:
            losses.append(0.0)
            continue
        plain, spread = -row[label] * by[label], -(row * by).sum() / 4
        losses.append(plain * (1 - smoothing) + spread * smoothing)
        counts.append(by[label])
    x = arenite.asarray(LOGITS)
    given: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing}
    made = x.cross_entropy(LABELS, reduction="none", **given).numpy()
    np.testing.assert_allclose(made, losses, rtol=1e-5)
    mean = x.cross_entropy(LABELS, **given).item()
    np.testing.assert_allclose(mean, np.sum(losses) / np.sum(counts), rtol=1e-5)


def test_other_losses_by_their_definitions() -> None:
    x, t = RNG.uniform(0.1, 0.9, (4, 3)), RNG.uniform(0.1, 0.9, (4, 3))
    y = arenite.asarray(x)
    far = np.abs(x - t)
    logits = np.log(x / (1 - x))
    entropy = -(t * np.log(x) + (1 - t) * np.log(1 - x)).mean()
    for made, wanted in (
        (y.mse_loss(t), (far**2).mean()),
        (y.l1_loss(t, "sum"), far.sum()),
        (y.huber_loss(t, delta=0.2), np.where(far <= 0.2, far**2 / 2, 0.2 * (far - 0.1)).mean()),
        (y.smooth_l1_loss(t, beta=0.2), np.where(far < 0.2, far**2 / 0.4, far - 0.1).mean()),
        (y.binary_cross_entropy(t), entropy),
        (arenite.asarray(logits).binary_cross_entropy_with_logits(t), entropy),
        (arenite.asarray(np.log(x)).kl_div(t, "batchmean"), (t * np.log(t / x)).sum() / 4),
    ):
        np.testing.assert_allclose(made.item(), wanted, rtol=1e-10)
    with pytest.raises(InvalidArgument, match="reduction"):
        y.mse_loss(t, "median")
