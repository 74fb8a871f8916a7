"""Our side of `bench.operators`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import arenite


def prepare(case: str, threads: int) -> Callable[[], list[object]]:
    program = arenite.load(Path(case), kind="onnx").compile(threads=threads)
    with np.load(Path(case).with_suffix(".npz")) as loaded:
        arrays = dict(loaded)
    return lambda: list(program(**arrays).values())
