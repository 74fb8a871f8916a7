"""What convolutions with channels last have in common in tests: sizes, places, what taps see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tests.codegen.made import Array


@dataclass(frozen=True)
class Convolution:
    """Channels, in and out, are those of a group."""

    image: tuple[int, ...]
    channels: int
    out: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int = 1
    images: int = 1

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(
            (size + sum(pair) - d * (k - 1) - 1) // s + 1
            for size, k, s, d, pair in zip(
                self.image, self.kernel, self.strides, self.dilations, self.padding, strict=True
            )
        )

    @property
    def attrs(self) -> dict[str, Any]:
        return {"strides": self.strides, "dilations": self.dilations, "padding": self.padding}

    def seen(self, padded: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Each tap, and what it sees of padded images at all places: [N, *places, C]."""
        for taps in product(*map(range, self.kernel)):
            cut: list[Any] = [
                slice(tap * d, tap * d + (n - 1) * s + 1, s)
                for tap, d, n, s in zip(
                    taps, self.dilations, self.places, self.strides, strict=True
                )
            ]
            yield taps, padded[(slice(None), *cut)]

    def add_tap(self, total: Array, taps: tuple[int, ...], seen: Array, weights: Array) -> None:
        """Products of what a tap sees by its part of [groups, *K, C, O], group by group."""
        for g in range(self.groups):
            own = seen[..., g * self.channels : (g + 1) * self.channels]
            total[..., g * self.out : (g + 1) * self.out] += own @ weights[(g, *taps)]
