"""Our side of `bench.layers`: kernels by the weights they read, and what quantises for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from arenite.loading import load
from bench.language_cases import CONTEXT, n_runs
from bench.language_models import path_of, prompt
from bench.nodes_ours import elapsed
from bench.nodes_side import Times

KINDS = ("matmul_packed", "quantise_blocks")


def prepare(case: str, threads: int) -> Callable[[], list[Times]]:
    file, _, n_rows = case.partition(", ")
    program = load(path_of(file), context=CONTEXT, threads=threads).executable
    given = (np.array(prompt(file, int(n_rows)), np.int64), np.int64(0))
    names = {
        kernel.entry_point: kernel.origins[0].name
        for kernel in program.kernels
        if kernel.entry_point.startswith(KINDS)
    }

    def once() -> Times:
        found: defaultdict[str, float] = defaultdict(float)
        for name, seconds in elapsed(program.profile(*given)).items():
            if name in names:
                found[names[name]] += seconds
        return found

    def work() -> list[Times]:
        program(*given)
        return [once() for _ in range(n_runs(int(n_rows)))]

    return work
