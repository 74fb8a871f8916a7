"""A program that is in the cache runs without importing what compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.warm_modules import compiling

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
print(*sys.modules)
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
    assert compiling(imported.split()) == set()


PROGRAMS = """
import numpy as np
import arenite
from arenite import spec
from arenite.pipeline.choices import all_choices, keep_choice

weights = np.arange(64, dtype=np.float32).reshape(8, 8)
x = np.arange(16, dtype=np.float32).reshape(2, 8)
for function in (lambda x: x @ weights, lambda x: x[:1] * 2, lambda x: x.sum(0)):
    print(arenite.compile(function, spec((2, 8)), threads=2)(x).tolist())
print(all_choices() if all_choices() else "none")
keep_choice("no kernel", "no way")
"""


def test_entries_renamed_into_each_other_give_no_other_results(tmp_path: Path) -> None:
    """Of every kind: programs, kernels, driver, the target, digests, what tuning has chosen."""

    def start() -> list[str]:
        environment = os.environ | {"ARENITE_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAMS], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    x, weights = np.arange(16.0).reshape(2, 8), np.arange(64.0).reshape(8, 8)
    wanted = [str(one.tolist()) for one in (x @ weights, x[:1] * 2, x.sum(0))]
    assert start() == [*wanted, "none"]
    assert start() == [*wanted, "{'no kernel': 'no way'}"]
    for folder in (tmp_path, tmp_path / "kernels"):
        entries = sorted(folder.glob("*.arenite"))
        assert len(entries) >= 3
        contents = [path.read_bytes() for path in entries]
        for path, content in zip(entries, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
    assert start() == [*wanted, "none"]
    assert start() == [*wanted, "{'no kernel': 'no way'}"]
