"""How many at once? The plan of a model for many sizes, before anything is loaded; the largest
batch that fits into a budget is compiled, and the budget is kept.

python examples/largest_batch.py [BUDGET] [WIDTH]            (a reader of lines of text; 64MiB, 320)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import arenite
from arenite.errors import DoesNotFit

BATCHES = (1, 2, 4, 8, 16, 32)


def main(budget: str = "64MiB", width: str = "320") -> None:
    model = arenite.load("ppocr-rec", kind="onnx")
    batch, height, across = model.sizes  # as model.inputs names them
    image: dict[str, Any] = {height: 48, across: int(width)}
    fitting = 0
    print("batch   weights   between kernels   in all (MiB)")
    for n in BATCHES:
        try:
            plan = model.plan(memory=budget, **image | {batch: n})
        except DoesNotFit as refusal:
            print(f"{n:5}   {str(refusal).rpartition('. ')[2]}")
            break
        fitting = n
        weights, work = plan.regions["packed"].nbytes, plan.regions["work"].nbytes
        print(f"{n:5}   {weights / 2**20:7.1f}   {work / 2**20:15.1f}   "
              f"{plan.total_nbytes / 2**20:12.1f}")  # fmt: skip
    if not fitting:
        return
    with model.compile(memory=budget, **image | {batch: f"1..{fitting}"}) as program:
        print(f"\ncompiled for up to {fitting} lines at once")
        for n in sorted({1, fitting}):
            lines = np.zeros((n, 3, 48, int(width)), np.float32)
            [letters] = program(lines).values()
            print(f"{n} lines: {letters.shape[1]} places of {letters.shape[2]} letters each")
        print(f"{program.variants.n_compiled} program for all of them")


if __name__ == "__main__":
    main(*sys.argv[1:])
