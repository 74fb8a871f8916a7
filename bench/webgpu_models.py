"""ResNet-50 on a GPU: Arenite on WebGPU beside PyTorch on CUDA, both in float32 without TF32.

    python -m bench.webgpu_models [--batch 1 32] [--rounds 15] [--kernels]

The model is torchvision's with seeded weights and norms that are not trivial; ours is the same
graph, written with lazy tensors over the same arrays, and must give the same classes. Times are
medians with their spread: of a call with arrays of the host, and on the device alone by its clock.
PyTorch's are of eager calls, waited for, with the images on the device, and with copies from and to
the host.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray

import arenite
from arenite.tensor import Tensor

Array = NDArray[Any]

#: Blocks of each stage, and the channels inside them.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
#: What a GPU works before it is timed: at rest its clocks are a fifth of what they can be.
WARM_SECONDS = 0.5
#: Of the largest result.
BOUND = 1e-4


def peer() -> Any:
    """The model in PyTorch, whose norms have seen something."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = torchvision.models.resnet50(weights=None).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def network(weights: Mapping[str, Array], x: Tensor) -> Tensor:
    """The same graph of ours."""

    def normed(x: Tensor, name: str) -> Tensor:
        mean, var, scale, shift = (
            weights[f"{name}.{part}"].reshape(-1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        scale = scale / np.sqrt(var + np.float32(1e-5))
        return x * scale + (shift - mean * scale)

    def conv(x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        w = weights[f"{name}.weight"]
        return normed(x.conv(w, stride=stride, padding=w.shape[-1] // 2), norm)

    x = conv(x, "conv1", "bn1", 2).relu().max_pool(3, stride=2, padding=1)
    for stage, (n_blocks, _) in enumerate(STAGES, 1):
        for block in range(n_blocks):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = conv(x, f"{name}.conv1", f"{name}.bn1").relu()
            y = conv(y, f"{name}.conv2", f"{name}.bn2", stride).relu()
            y = conv(y, f"{name}.conv3", f"{name}.bn3")
            if block == 0:
                x = conv(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = (x + y).relu()
    return x.mean((2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of each round, once the device is warm."""
    until = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < until:
        work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):7.3f} ms ({min(times):.3f} to {max(times):.3f})"


def run(batch: int, rounds: int, shows_kernels: bool) -> None:
    model = peer()
    images = torch.rand(batch, 3, 224, 224)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    program = arenite.compile(lambda x: network(weights, x), images.numpy(), device="webgpu")
    x = images.numpy()
    found = np.asarray(program(x))
    model = model.cuda()
    on_device = images.cuda()
    with torch.inference_mode():
        wanted = model(on_device).cpu().numpy()
        error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        verdict = "right" if error < BOUND else f"WRONG, the bound is {BOUND}"
        print(f"batch {batch}: results differ by {error:.2g} of the largest: {verdict}", flush=True)

        def eager() -> None:
            model(on_device)
            torch.cuda.synchronize()

        torch_device = timed(eager, rounds)
        torch_host = timed(lambda: model(images.cuda()).cpu(), rounds)
    ours_host = timed(lambda: program(x), rounds)
    profiles = [program.profile(x) for _ in range(rounds)]
    ours_device = [sum(one.seconds for one in p.kernels) * 1e3 for p in profiles]
    print(f"  torch eager, on the device   {spread(torch_device)}")
    print(f"  torch eager, from the host   {spread(torch_host)}")
    print(f"  ours, from the host          {spread(ours_host)}")
    print(f"  ours, kernels by timestamps  {spread(ours_device)}; {profiles[-1].about}")
    ratios = [
        statistics.median(a) / statistics.median(b)
        for a, b in (
            (torch_device, ours_device),
            (torch_host, ours_host),
            (torch_device, ours_host),
        )
    ]
    print("  times as fast: device {:.2f}, from the host {:.2f}; our call beside torch's on the "
          "device {:.2f}".format(*ratios), flush=True)  # fmt: skip
    if shows_kernels:
        for one in profiles[-1].kernels:
            print(f"    {one.seconds * 1e6:8.1f} us {one.gops / 1e3:6.1f} Top/s {one.name}")
    program.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kernels", action="store_true", help="print the time of each kernel")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for batch in options.batch:
        run(batch, options.rounds, options.kernels)


if __name__ == "__main__":
    main()
