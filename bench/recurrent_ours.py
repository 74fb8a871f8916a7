"""Our side of `bench.recurrent`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arenite
from bench.recurrent_cases import CASES, inputs, weights


def prepare(case: str, threads: int) -> Callable[[], None]:
    chosen = CASES[case]
    w, r, bias = weights(chosen)

    def lstm(x: Any, h: Any, c: Any) -> Any:
        return arenite.lstm(x, w, r, bias, (h, c))

    def gru(x: Any, h: Any) -> Any:
        return arenite.gru(x, w, r, bias, None, h)

    arrays = inputs(chosen)
    layers: dict[str, Callable[..., Any]] = {"LSTM": lstm, "GRU": gru}
    layer = layers[chosen.kind]
    compiled = arenite.compile(layer, *arrays, threads=threads)

    def work() -> None:
        compiled(*arrays)

    return work
