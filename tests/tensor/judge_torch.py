"""Writes `torch_reference.npz`: inputs and what PyTorch makes of them, for the tests beside it.

    python tests/tensor/judge_torch.py

Made with PyTorch 2.13.0 on the CPU. Arrays are called `case/0`, `case/1`, ... and `case/expected`
(`case/expected1` where there are two); the tests call the same function with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

generator = torch.Generator().manual_seed(7)
arrays: dict[str, Any] = {}


def normal(*shape: int) -> Any:
    return torch.randn(*shape, generator=generator)


def case(name: str, function: Callable[..., Any], *inputs: Any) -> None:
    for i, given in enumerate(inputs):
        arrays[f"{name}/{i}"] = given.numpy()
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for i, result in enumerate(results):
        arrays[f"{name}/expected{i or ''}"] = result.numpy()


def main() -> None:
    x1, x2, x3 = normal(2, 4, 11), normal(2, 4, 7, 6), normal(1, 2, 5, 4, 5)
    case("conv1", F.conv1d, x1, normal(5, 4, 3))
    case(
        "conv1_all",
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=3, dilation=2, groups=2),
        x1,
        normal(6, 2, 3),
        normal(6),
    )
    case(
        "conv2",
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        x2,
        normal(3, 4, 3, 2),
        normal(3),
    )
    case(
        "conv2_depthwise", lambda x, w: F.conv2d(x, w, groups=4, padding=1), x2, normal(8, 1, 3, 3)
    )
    case("conv2_same", lambda x, w: F.conv2d(x, w, padding="same"), x2, normal(2, 4, 3, 4))
    case("conv3", lambda x, w: F.conv3d(x, w, stride=2, padding=1), x3, normal(3, 2, 3, 2, 3))
    case("conv_transpose1", lambda x, w: F.conv_transpose1d(x, w, stride=3), x1, normal(4, 2, 5))
    case(
        "conv_transpose2",
        lambda x, w, b: F.conv_transpose2d(
            x, w, b, stride=2, padding=1, output_padding=(1, 0), groups=2, dilation=(2, 1)
        ),
        x2,
        normal(4, 3, 3, 2),
        normal(6),
    )
    case(
        "conv_transpose3",
        lambda x, w: F.conv_transpose3d(x, w, padding=1),
        x3,
        normal(2, 1, 3, 3, 2),
    )
    case("max_pool1", lambda x: F.max_pool1d(x, 3), x1)
    case("max_pool2", lambda x: F.max_pool2d(x, (3, 2), stride=2, padding=1), x2)
    case("max_pool2_ceil", lambda x: F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True), x2)
    case("max_pool2_dilated", lambda x: F.max_pool2d(x, 2, stride=1, dilation=2), x2)
    case("max_pool3", lambda x: F.max_pool3d(x, 2), x3)
    case("avg_pool1", lambda x: F.avg_pool1d(x, 4, stride=3, padding=2), x1)
    case("avg_pool2", lambda x: F.avg_pool2d(x, 2), x2)
    case("avg_pool2_uncounted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x2)
    case("avg_pool2_ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), x2)
    case(
        "avg_pool2_ceil_uncounted",
        lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True, count_include_pad=False),
        x2,
    )
    q, k, v = normal(2, 4, 5, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 6)
    attention = F.scaled_dot_product_attention
    case("attention", attention, q, k, v)
    case("attention_scale", lambda q, k, v: attention(q, k, v, scale=0.3), q, k, v)
    case("attention_causal", lambda q, k, v: attention(q, k, v, is_causal=True), q, k, v)
    case("attention_mask", attention, q, k, v, normal(5, 7))
    seen = torch.rand(2, 1, 5, 7, generator=generator) > 0.4
    seen[0, 0, 2] = False
    case("attention_bool_mask", attention, q, k, v, seen)
    case(
        "attention_groups",
        lambda q, k, v: attention(q, k, v, enable_gqa=True),
        q,
        normal(2, 2, 7, 8),
        normal(2, 2, 7, 8),
    )
    x, c = normal(3, 6, 5), normal(6)
    case("layer_norm", lambda x, w, b: F.layer_norm(x, (5,), w, b), x, normal(5), normal(5))
    case("layer_norm2", lambda x, w: F.layer_norm(x, (6, 5), w, eps=0.1), x, normal(6, 5))
    case("rms_norm", lambda x, w: F.rms_norm(x, (5,), w, eps=1e-3), x, normal(5))
    case(
        "batch_norm",
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        x,
        normal(6),
        c.abs(),
        normal(6),
        normal(6),
    )
    case("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b), x, c, normal(6))
    case("instance_norm", lambda x: F.instance_norm(x), x)
    edges = torch.tensor([-30.0, -5, -3, -1.5, -0.0, 0.0, 0.7, 3, 3.5, 6, 25])
    values = torch.cat([edges, 3 * normal(40)])
    for name in (
        "gelu silu mish relu relu6 elu celu selu softplus softsign hardsigmoid hardswish hardtanh "
        "leaky_relu logsigmoid sigmoid"
    ).split():
        case(name, getattr(F, name), values)
    case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), values)
    case("elu_alpha", lambda x: F.elu(x, 0.3), values)
    case("celu_alpha", lambda x: F.celu(x, 0.3), values)
    case("prelu", F.prelu, x, c)
    case("glu", lambda x: F.glu(x, 1), x)
    case("softmax", lambda x: F.softmax(x, 1), 9 * x)
    case("log_softmax", lambda x: F.log_softmax(x, -1), 9 * x)
    case("logsumexp", lambda x: torch.logsumexp(x, (0, 2)), 9 * x)
    case("topk", lambda x: tuple(torch.topk(x, 3, dim=1)), x)
    case("smallest", lambda x: tuple(torch.topk(x, 2, dim=2, largest=False)), x)
    index = torch.randint(0, 6, (3, 4, 5), generator=generator)
    case("gather", lambda x, i: torch.gather(x, 1, i), x, index)
    spread = torch.argsort(torch.rand(3, 6, 5, generator=generator), dim=1)[:, :4]
    case("scatter", lambda x, i, s: x.scatter(1, i, s), x, spread, normal(3, 4, 5))
    case("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), x, index, normal(3, 4, 5))
    case(
        "scatter_max",
        lambda x, i, s: x.scatter_reduce(1, i, s, "amax"),
        x,
        index,
        normal(3, 4, 5),
    )
    ties = torch.randint(0, 3, (4, 9), generator=generator)
    case("argsort_down", lambda x: torch.argsort(x, dim=1, descending=True, stable=True), ties)
    nans = normal(12)
    nans[[2, 7]] = float("nan")
    case("sort_nan", lambda x: torch.sort(x).values, nans)
    case("sort_nan_down", lambda x: torch.sort(x, descending=True).values, nans)
    case("cummax", lambda x: torch.cummax(x, 1).values, x)
    case("embedding", lambda t, i: F.embedding(i, t), normal(6, 3), index[0])
    case("erf", torch.erf, values.double())
    path = Path(__file__).with_name("torch_reference.npz")
    np.savez_compressed(path, **arrays)
    print(f"{path}: {len(arrays)} arrays, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
