"""How soon a program runs: cold, from the cache, and for a batch size not seen before.

    python -m bench.start            with torch installed, torch.compile is the peer

Every start is a new process. `beyond import` is from the first statement after the imports to the
result of the first call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

OURS = """
import time
import numpy as np
import arenite, arenite.pipeline, arenite.tensor
from arenite import spec
began = time.perf_counter()
def mlp(x, *weights):
    for w in weights:
        x = (x @ w).relu()
    return x.softmax(-1)
weights = [np.full((64, 64), 0.01, np.float32) for _ in range(49)]
program = arenite.compile(mlp, spec((8, 64)), *weights)
program(np.ones((8, 64), np.float32), *weights)
print(time.perf_counter() - began)
"""

THEIRS = """
import time
import torch
torch.set_num_threads(2)
began = time.perf_counter()
def mlp(x, *weights):
    for w in weights:
        x = torch.relu(x @ w)
    return torch.softmax(x, -1)
weights = [torch.full((64, 64), 0.01) for _ in range(49)]
program = torch.compile(mlp)
with torch.no_grad():
    program(torch.ones(8, 64), *weights)
print(time.perf_counter() - began)
"""

BATCHES = """
import time, json
import numpy as np
import arenite, arenite.pipeline
from arenite import Var, spec
def chain(x, w):
    for k in range(200):
        x = (x @ w).tanh() if k % 2 else (x @ w) * 0.5
    return x
w = np.full((16, 16), 0.01, np.float32)
program = arenite.compile(chain, spec((Var("batch", 1, 512), 16)), w, threads=2)
program(np.ones((4, 16), np.float32), w)
times = []
for n in range(5, 20):
    x = np.ones((n, 16), np.float32)
    began = time.perf_counter()
    program(x, w)
    times.append(time.perf_counter() - began)
again = []
for _ in range(200):
    began = time.perf_counter()
    program(x, w)
    again.append(time.perf_counter() - began)
print(json.dumps([len(program.kernels), sorted(times)[7], sorted(again)[100]]))
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def starts(code: str, variables: tuple[str, ...]) -> tuple[float, float]:
    """Seconds to the first result with empty caches (median of 3), and with full ones (of 7)."""
    cold = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict.fromkeys(variables, folder)
            cold.append(float(run(code, **environment)))
            if len(cold) == 3:
                warm = [float(run(code, **environment)) for _ in range(7)]
    return median(cold), median(warm)


def main() -> None:
    ours = starts(OURS, ("ARENITE_CACHE_DIR",))
    print("| 50-kernel MLP, first result beyond import | ours ms | torch.compile ms | ratio |")
    print("|---|---:|---:|---:|")
    theirs = None
    if importlib.util.find_spec("torch"):
        theirs = starts(THEIRS, ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))
    for k, name in enumerate(("empty cache", "warm cache, new process")):
        other = f"{theirs[k] * 1e3:.0f} | {theirs[k] / ours[k]:.1f}" if theirs else "- | -"
        print(f"| {name} | {ours[k] * 1e3:.1f} | {other} |")
    n_kernels, first, again = json.loads(run(BATCHES))
    print(f"\na batch size not seen before, {n_kernels} launches: {first * 1e3:.2f} ms")
    print(f"the same size again: {again * 1e6:.1f} µs")


if __name__ == "__main__":
    main()
