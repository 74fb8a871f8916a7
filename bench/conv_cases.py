"""Layers of ResNet-50, MobileNetV2 and the like: one image, bias and relu behind the sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    channels: int
    out: int
    size: int  # of the image, high and wide
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def places(self) -> int:
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def operations(self) -> int:
        depth = self.channels // self.groups * self.kernel**2
        return 2 * self.out * depth * self.places**2

    @property
    def name(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        if self.groups > 1:
            return f"depthwise {self.kernel}x{self.kernel}{stride} {self.channels} @{self.size}"
        return f"{self.kernel}x{self.kernel}{stride} {self.channels}->{self.out} @{self.size}"

    def arrays(self) -> tuple[Array, Array, Array]:
        """x with channels second, weights, bias."""
        rng = np.random.default_rng(0)
        shapes: tuple[Any, ...] = (
            (1, self.channels, self.size, self.size),
            (self.out, self.channels // self.groups, self.kernel, self.kernel),
            (self.out,),
        )
        x, w, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
        return x, w, b


LAYERS = {
    layer.name: layer
    for layer in (
        Layer(3, 64, 224, 7, 2),
        Layer(64, 64, 56, 3),
        Layer(64, 256, 56, 1),
        Layer(256, 64, 56, 1),
        Layer(128, 128, 56, 3, 2),
        Layer(256, 512, 56, 1, 2),
        Layer(128, 128, 28, 3),
        Layer(256, 256, 14, 3),
        Layer(1024, 256, 14, 1),
        Layer(512, 512, 7, 3),
        Layer(2048, 512, 7, 1),
        Layer(512, 2048, 7, 1),
        Layer(3, 32, 224, 3, 2),
        Layer(144, 24, 56, 1),
        Layer(24, 144, 56, 1),
        Layer(116, 116, 28, 1),
        Layer(24, 24, 112, 3),
        Layer(32, 32, 112, 3, 1, 32),
        Layer(144, 144, 56, 3, 1, 144),
        Layer(144, 144, 56, 3, 2, 144),
        Layer(384, 384, 14, 3, 1, 384),
        Layer(960, 960, 7, 3, 1, 960),
    )
}
