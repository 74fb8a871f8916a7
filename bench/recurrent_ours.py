"""Our side of `bench.recurrent`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arenite
from bench.recurrent_cases import inputs, weights


def prepare(case: str, threads: int) -> Callable[[], None]:
    w, r, bias = weights()

    def layer(x: Any, h: Any, c: Any) -> Any:
        return arenite.lstm(x, w, r, bias, (h, c))

    arrays = inputs(case)
    compiled = arenite.compile(layer, *arrays, threads=threads)

    def work() -> None:
        compiled(*arrays)

    return work
