"""Write small networks of the usual families, with random weights, for `bench.operators`.

    python -m bench.networks FOLDER [NAME...]

Needs torch and transformers. Each becomes NAME.onnx with inputs for it in NAME.npz. Convolutional
networks are written twice: with sizes that are numbers, and (NAME_open) with open height and width.
"""

# Where torch is not installed its classes have no type.
# mypy: disable-error-code="misc"

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

IMAGE, OPEN = (1, 3, 224, 224), {2: "height", 3: "width"}


def conv(
    inputs: int, outputs: int, size: int = 3, act: type[nn.Module] | None = nn.ReLU, **more: Any
) -> nn.Sequential:
    """A convolution that keeps the image's size, a norm, an activation."""
    pad = size // 2 * more.get("dilation", 1)
    layers = [nn.Conv2d(inputs, outputs, size, padding=pad, bias=False, **more)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), *([act()] if act else []))


class DenseBlock(nn.Module):
    def __init__(self, channels: int, growth: int, n: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + k * growth),
                nn.ReLU(),
                nn.Conv2d(channels + k * growth, 4 * growth, 1, bias=False),
                nn.BatchNorm2d(4 * growth),
                nn.ReLU(),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            for k in range(n)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for n in (4, 6, 8, 6):
        layers.append(DenseBlock(channels, 32, n))
        channels += 32 * n
        layers += [conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
        channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Excited(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int, act: type[nn.Module]
    ) -> None:
        super().__init__()
        wide = inputs * 4
        gate = nn.Hardsigmoid if act is nn.Hardswish else nn.Sigmoid
        self.before = nn.Sequential(
            conv(inputs, wide, 1, act), conv(wide, wide, size, act, stride=stride, groups=wide)
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, wide // 8, 1),
            nn.ReLU() if act is nn.Hardswish else act(),
            nn.Conv2d(wide // 8, wide, 1),
            gate(),
        )
        self.after = conv(wide, outputs, 1, None)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = self.before(x)
        y: Tensor = self.after(wide * self.gate(wide))
        return x + y if self.is_residual else y


def mobile(act: type[nn.Module]) -> nn.Module:
    """MobileNetV3 with Hardswish, EfficientNet with SiLU."""
    layers: list[nn.Module] = [conv(3, 16, 3, act, stride=2)]
    channels = 16
    for outputs, size, stride, n in ((24, 3, 2, 2), (40, 5, 2, 3), (80, 3, 2, 3), (112, 5, 1, 2)):
        for k in range(n):
            layers.append(Excited(channels, outputs, size, stride if k == 0 else 1, act))
            channels = outputs
    layers += [conv(channels, 480, 1, act), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(480, 1000))


class UNet(nn.Module):
    """`up` by a transposed convolution, or by a resize and a convolution."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        sizes = (32, 64, 128, 256)
        double = [nn.Sequential(conv(a, b), conv(b, b)) for a, b in pairwise((3, *sizes))]
        self.down = nn.ModuleList(double)
        back = sizes[::-1]
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 2, 2)
            if transposed
            else nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), conv(a, b, 1)
            )
            for a, b in pairwise(back)
        )
        self.join = nn.ModuleList(nn.Sequential(conv(2 * b, b), conv(b, b)) for b in back[1:])
        self.last = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, layer in enumerate(self.down):
            x = layer(x if k == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for up, join, old in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([old, up(x)], 1))
        y: Tensor = self.last(x)
        return y


class DeepLab(nn.Module):
    """Dilated convolutions, a pyramid of them, and resizes by the image's own size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 32, stride=2), conv(32, 64, stride=2))
        self.body = nn.Sequential(
            conv(64, 128, stride=2), conv(128, 128), conv(128, 128, dilation=2)
        )
        self.body2 = nn.Sequential(conv(128, 128, dilation=4), conv(128, 128, dilation=4))
        self.pyramid = nn.ModuleList(
            [conv(128, 64, 1), *(conv(128, 64, dilation=d) for d in (6, 12, 18))]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(128, 64, 1), nn.ReLU())
        self.project, self.low = conv(5 * 64, 64, 1), conv(64, 24, 1)
        self.head = nn.Sequential(conv(88, 64), nn.Conv2d(64, 21, 1))

    def forward(self, x: Tensor) -> Tensor:
        def to(y: Tensor, like: Tensor) -> Tensor:
            return functional.interpolate(y, like.shape[-2:], mode="bilinear", align_corners=False)

        low = self.stem(x)
        y = self.body(low)
        y = y + self.body2(y)
        found = [one(y) for one in self.pyramid]
        y = self.project(torch.cat([*found, to(self.pool(y), y)], 1))
        y = self.head(torch.cat([to(y, low), self.low(low)], 1))
        return to(y, x)


class Split(nn.Module):
    """YOLO's C2f: halves, of which one goes on, all put together."""

    def __init__(self, inputs: int, outputs: int, n: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = (
            conv(inputs, outputs, 1, nn.SiLU),
            conv((2 + n) * half, outputs, 1, nn.SiLU),
        )
        self.steps = nn.ModuleList(
            nn.Sequential(conv(half, half, 3, nn.SiLU), conv(half, half, 3, nn.SiLU))
            for _ in range(n)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]))
        y: Tensor = self.last(torch.cat(parts, 1))
        return y


class Yolo(nn.Module):
    """A backbone, a pyramid with nearest resizes, heads at three sizes, boxes and scores."""

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        act = nn.SiLU
        self.stem = nn.Sequential(
            conv(3, 16, 3, act, stride=2), conv(16, 32, 3, act, stride=2), Split(32, 32, 1)
        )
        self.p3 = nn.Sequential(conv(32, 64, 3, act, stride=2), Split(64, 64, 2))
        self.p4 = nn.Sequential(conv(64, 128, 3, act, stride=2), Split(128, 128, 2))
        self.p5 = nn.Sequential(conv(128, 256, 3, act, stride=2), Split(256, 256, 1))
        self.squeeze, self.spread = conv(256, 128, 1, act), conv(512, 256, 1, act)
        self.up4, self.up3 = Split(384, 128, 1), Split(192, 64, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(c, 64, 3, act), nn.Conv2d(64, 4 + classes, 1))
            for c in (64, 128, 256)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        y = self.squeeze(self.p5(p4))
        parts = [y]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        p5 = self.spread(torch.cat(parts, 1))
        p4 = self.up4(torch.cat([functional.interpolate(p5, scale_factor=2.0), p4], 1))
        p3 = self.up3(torch.cat([functional.interpolate(p4, scale_factor=2.0), p3], 1))
        found = [h(p).flatten(2) for h, p in zip(self.heads, (p3, p4, p5), strict=True)]
        every = torch.cat(found, 2)
        centre, size = every[:, :2].sigmoid() * 320, every[:, 2:4].sigmoid() * 64
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1).transpose(1, 2)
        return boxes, every[:, 4:].sigmoid()


class Crnn(nn.Module):
    """Text in lines: convolutions, then recurrent layers both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(1, 32), nn.MaxPool2d(2), conv(32, 64), nn.MaxPool2d(2), conv(64, 128),
            nn.MaxPool2d((2, 1)), conv(128, 128), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.rows = nn.LSTM(128, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(192, 100)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).squeeze(2).transpose(1, 2)
        return self.last(self.rows(y)[0]).log_softmax(-1)


class Spectral(nn.Module):
    """Sound: a filter bank as a convolution, then convolutions in time with skips, a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = nn.Conv1d(1, 130, 256, stride=128, bias=False)
        self.steps = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(96, 96, 5, padding=2 * d, dilation=d, groups=96),
                nn.BatchNorm1d(96),
                nn.PReLU(),
                nn.Conv1d(96, 96, 1),
            )
            for d in (1, 2, 4, 8, 16)
        )
        self.first, self.rows = nn.Conv1d(65, 96, 1), nn.GRU(96, 64, batch_first=True)
        self.last = nn.Linear(64, 65)

    def forward(self, x: Tensor) -> Tensor:
        both = self.bank(functional.pad(x, (64, 64), mode="reflect"))
        size = (both[:, :65] ** 2 + both[:, 65:] ** 2 + 1e-6).sqrt()
        y = self.first(size.log())
        for step in self.steps:
            y = y + step(y)
        mask: Tensor = self.last(self.rows(y.transpose(1, 2))[0]).sigmoid()
        return mask.transpose(1, 2) * size


class Field(nn.Module):
    """One output of a model of transformers."""

    def __init__(self, model: nn.Module, name: str, field: str) -> None:
        super().__init__()
        self.model, self.name, self.field = model, name, field

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = getattr(self.model(**{self.name: x}), self.field)
        return found


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=256, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=1024,
        decoder_layers=1, decoder_attention_heads=4, max_source_positions=500,
    )  # fmt: skip
    model = transformers.WhisperModel(config).encoder
    return Field(model, "input_features", "last_hidden_state")


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(dim=256, n_layers=3, n_heads=4, hidden_dim=1024)
    return Field(transformers.DistilBertModel(config), "input_ids", "last_hidden_state")


def t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=256, d_ff=1024, num_layers=3, num_heads=4, d_kv=64, vocab_size=8000
    )
    return Field(transformers.T5EncoderModel(config), "input_ids", "last_hidden_state")


Maker = Callable[[], nn.Module]
CONVOLUTIONS: dict[str, tuple[Maker, tuple[int, ...]]] = {
    "densenet": (densenet, IMAGE),
    "mobilenet_v3": (lambda: mobile(nn.Hardswish), IMAGE),
    "efficientnet": (lambda: mobile(nn.SiLU), IMAGE),
    "unet": (lambda: UNet(True), IMAGE),
    "unet_resize": (lambda: UNet(False), IMAGE),
    "deeplab": (DeepLab, IMAGE),
    "yolo": (Yolo, (1, 3, 320, 320)),
    "crnn": (Crnn, (1, 1, 32, 320)),
}
OTHERS: dict[str, tuple[Maker, Tensor, dict[int, str]]] = {
    "spectral": (Spectral, torch.randn(1, 1, 16000), {2: "samples"}),
    "whisper": (whisper, torch.randn(1, 80, 1000), {0: "batch"}),
    "distilbert": (distilbert, torch.arange(128)[None] * 7 % 999, {0: "batch", 1: "seq"}),
    "t5": (t5, torch.arange(128)[None] * 7 % 999, {0: "batch", 1: "seq"}),
}


def write(folder: Path, name: str, model: nn.Module, x: Tensor, sizes: dict[int, str]) -> None:
    for one in model.modules():
        if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d):  # as after training: no two alike
            nn.init.normal_(one.running_mean, 0, 0.1)
            nn.init.uniform_(one.running_var, 0.5, 1.5)
            nn.init.uniform_(one.weight, 0.8, 1.6)
    path = folder / f"{name}.onnx"
    torch.onnx.export(
        model.eval(), (x,), path, input_names=["x"], dynamic_axes={"x": sizes} if sizes else None,
        opset_version=18, dynamo=False,
    )  # fmt: skip
    np.savez(path.with_suffix(".npz"), x=x.numpy())
    print(path, flush=True)


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape) in CONVOLUTIONS.items():
        for suffix, sizes in (("", {}), ("_open", OPEN if name != "crnn" else {3: "width"})):
            if not names or name + suffix in names:
                torch.manual_seed(0)
                write(folder, name + suffix, make(), torch.rand(shape), sizes)
    for name, (make, x, sizes) in OTHERS.items():
        if not names or name in names:
            torch.manual_seed(0)
            write(folder, name, make(), x, sizes)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
