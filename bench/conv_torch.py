"""PyTorch's side of `bench.conv`: channels last, relu in place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.conv_cases import LAYERS


def prepare(case: str, threads: int) -> Callable[[], None]:
    torch.set_num_threads(threads)
    layer = LAYERS[case]
    x, w, bias = (torch.from_numpy(array) for array in layer.arrays())
    x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    conv = torch.nn.functional.conv2d

    def work() -> None:
        with torch.inference_mode():
            made = conv(x, w, bias, layer.stride, layer.kernel // 2, 1, layer.groups)
            torch.relu_(made)

    return work
