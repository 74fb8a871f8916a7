"""The work of `bench.attention`: `causal 12x1024`, heads of 64, [batch, tokens, heads, width].

`decode 32/8x1x4096` is one query of 32 heads over 4096 keys of 8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

WIDTH = 64
CASES = [
    *(f"{kind} 12/12x{n}x{n}" for n in (128, 1024, 4096) for kind in ("full", "causal")),
    *(f"decode {heads}x1x{n}" for n in (1024, 4096) for heads in ("12/12", "32/8")),
    "decode 12/12x4x1024",
    "mask 12/12x1024x1024",
]


@dataclass(frozen=True)
class Work:
    kind: str
    heads: int
    groups: int
    queries: int
    keys: int

    @property
    def operations(self) -> float:
        """Those on scores that are seen."""
        seen = self.queries * self.keys
        if self.kind == "causal":
            seen = self.queries * (self.queries + 1) // 2
        return 4.0 * WIDTH * self.heads * seen


def work_of(case: str) -> Work:
    kind = case.split()[0]
    heads, groups, queries, keys = map(int, re.findall(r"\d+", case))
    return Work(kind, heads, groups, queries, keys)


def inputs(case: str) -> list[Array]:
    work = work_of(case)
    rng = np.random.default_rng(1)
    keys = (1, work.keys, work.groups, WIDTH)
    shapes: list[tuple[int, ...]] = [(1, work.queries, work.heads, WIDTH), keys, keys]
    if work.kind == "mask":
        shapes.append((work.queries, work.keys))
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
