"""Every kernel knows the lines it comes from, whatever passes made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import arenite

RNG = np.random.default_rng(4)


def test_kernels_of_rewritten_nodes_name_their_lines() -> None:
    w = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
    v = RNG.standard_normal((300, 300)).astype(np.float32)

    def network(x: Any, y: Any) -> Any:
        x = x.conv(w, padding=1).relu().max_pool(2)
        y = (y @ v).softmax(-1)
        return x.sum() + y.max(), y.attention(y, y)

    x, y = np.ones((1, 3, 16, 16), np.float32), np.ones((2, 5, 300), np.float32)
    program = arenite.compile(network, x, y)
    first = network.__code__.co_firstlineno
    for kernel in (*program.executable.load_kernels, *program.kernels):
        lines = [one.line for one in kernel.origins if one.file.endswith("test_origins.py")]
        assert lines, kernel.entry_point
        assert all(first < line <= first + 3 for line in lines)
