"""A program that is in the cache runs without importing what compiles."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy as np
import arenite
from arenite import Var, spec

def network(x, w):
    def step(h, row):
        h = arenite.cond(row.sum() > 0, lambda: (h @ w + row).tanh(), lambda: h)
        return h, h.sum()
    return arenite.scan(step, x[0], x)

program = arenite.compile(network, spec((Var("time", 1, 64), 8)), spec((8, 8)), threads=2)
for n in (3, 5):
    h, sums = program(np.ones((n, 8), np.float32), np.ones((8, 8), np.float32))
    print(sums.tobytes().hex())
rooms = ("codegen", "schedule", "passes", "llvmlite")
print(*sorted(m for m in sys.modules if m.removeprefix("arenite.").split(".")[0] in rooms))
"""


def test_what_compiles_is_not_imported() -> None:
    def start() -> list[str]:
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    *cold, imported = start()
    assert "arenite.schedule.fuse" in imported
    *warm, imported = start()
    assert warm == cold
    # Which compiler and which machine it is, for the key in the cache.
    assert imported.split() == ["arenite.codegen", "arenite.codegen.identity"]
