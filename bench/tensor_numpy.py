"""NumPy's side of `bench.tensor`: reductions, where it is the better peer along some axes."""

from __future__ import annotations

from collections.abc import Callable

from bench.tensor_cases import inputs


def prepare(case: str, threads: int) -> Callable[[], None]:
    (x,) = inputs(case)
    axis = 1 if "rows" in case else 0
    function: Callable[..., object] = getattr(x, case.split()[0])

    def work() -> None:
        function(axis)

    return work
