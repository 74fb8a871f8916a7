"""Our side of `bench.whole_models`."""

from __future__ import annotations

from collections.abc import Callable

import arenite
from bench.whole_models_cases import feed


def prepare(case: str, threads: int) -> Callable[[], object]:
    name, path = case.split(" ", 1)
    arrays = feed(name, path)
    program = arenite.load(path).compile(threads=threads)
    return lambda: program(**arrays)
