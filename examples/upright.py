"""Is this line of text upside down? A convolutional network on images, within a budget of memory.

python examples/upright.py [IMAGE...]                       (lines are drawn here if there are none)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import arenite
from arenite.errors import DoesNotFit

#: Letters of 5 by 7 dots, a number for each row.
FONT = {
    "A": (14, 17, 17, 31, 17, 17, 17), "E": (31, 16, 16, 30, 16, 16, 31),
    "I": (14, 4, 4, 4, 4, 4, 14), "L": (16, 16, 16, 16, 16, 16, 31),
    "N": (17, 25, 21, 19, 17, 17, 17), "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17), "T": (31, 4, 4, 4, 4, 4, 4),
}  # fmt: skip
LABELS = ("upright", "upside down")


def drawn(word: str) -> Any:
    """Black letters on white, 48 by 192."""
    rows = [[[dots >> (4 - k) & 1 for k in range(5)] + [0] for dots in FONT[c]] for c in word]
    dots = np.concatenate([np.array(one) for one in rows], axis=1)
    image = np.full((48, 192), 255, np.uint8)
    large = np.kron(dots, np.ones((5, 5), int)) * 255
    image[6:41, 6 : 6 + large.shape[1]] = 255 - large
    return np.stack([image] * 3, -1)


def read(path: str) -> Any:
    from PIL import Image  # pip install 'arenite[images]'

    return np.asarray(Image.open(path).convert("RGB").resize((192, 48)))


def main(*paths: str) -> None:
    images = {path: read(path) for path in paths}
    if not images:
        for word in ("PLATE", "TRAIN", "LATER"):
            images |= {word: drawn(word), f"{word}, turned": drawn(word)[::-1, ::-1]}
    batch = np.stack([*images.values()]).astype(np.float32) / 127.5 - 1
    model = arenite.load("ppocr-cls", kind="onnx")
    sizes: dict[str, Any] = {"x_0": len(batch), "x_2": 48, "x_3": 192}  # as model.inputs says
    try:
        model.compile(memory="1MiB", **sizes)
    except DoesNotFit as refusal:
        print(f"1MiB: {str(refusal).rpartition('. ')[2]}\n")  # before any weight is read
    sizes["x_0"] = f"1..{len(batch)}"  # the same program for fewer images
    with model.compile(memory="8MiB", threads=2, **sizes) as program:
        [scores] = program(batch.transpose(0, 3, 1, 2)).values()
        print(f"{'image':<16} {'it is':<12} certainty")
        for name, row in zip(images, scores, strict=True):
            print(f"{name:<16.16} {LABELS[row.argmax()]:<12} {row.max():8.1%}")
        print(f"\n{program.plan.total_nbytes / 2**20:.1f} MiB of 8 are used")


if __name__ == "__main__":
    main(*sys.argv[1:])
